"""`graphmem eval`: measure presets on labelled questions, or compare two runs."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from graphmem_torch.cli.options import given_settings, load_engine, settings_options
from graphmem_torch.cli.syntax import COUNT, COUNTS, PATH, Leaf, choice, option, usage_of
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError, output_file
from graphmem_torch.quality.request import COMPARING, JUDGES, Judged, Request, judge

__all__ = ["evaluate"]

_COMPARE = "compare"
_DATA, _OWN = "Data", "Options of single sets"  # headings in the help
_WRITTEN = ("json", "rankings", "csv", "latex")
_READ = {"custom": "atoms", "retrieval": "corpus", "planning": ""}
_NEEDED = {"custom": ("questions",), "retrieval": ("queries", "qrels")}
# No use to compare.
_ONE_RUN = {"data", "atoms", "questions", "corpus", "queries", "qrels", "evidence", "preset"}
_ONE_RUN |= {"rankings", "input", "cv", "ablate", "sizes"}


def _file(name: str, meaning: str, section: str, metavar: str = "FILE") -> Any:
    return option(name, type=PATH, metavar=metavar, section=section, help=meaning)


@click.command("eval", cls=Leaf)
@click.argument("dataset", type=choice(*JUDGES, _COMPARE), metavar="SET")
@click.argument("files", nargs=-1, type=PATH, metavar="[FILE FILE]")
@option(
    "--preset",
    "presets",
    multiple=True,
    metavar="NAME",
    help="Measure this preset, or YAML file. Repeatable, or a list with commas, for the sets of "
    "retrieval.  [default: default]",
)
@_file("--json", "Write the report to this file; needed but for compare.", "Options", "OUT")
@_file("--rankings", "Write every ranking to this file, as JSON lines.", "Options", "OUT")
@_file("--csv", "Write the tables to this file, for programs.", "Options", "OUT")
@_file("--latex", "Write the tables to this file, for papers.", "Options", "OUT")
@option("--seed", type=COUNT, default=0, help="Draw with this seed.  [default: 0]")
@_file("--cache", "Keep encodings in this folder.  [default: $GRAPHMEM_CACHE]", "Options", "DIR")
@_file("--data", "Read the set from this file or folder.", _DATA, "PATH")
@_file("--atoms", "custom: index this file or folder.", _DATA)
@_file("--questions", "custom: read questions and evidence, as JSON lines.", _DATA)
@_file("--corpus", "retrieval: read _id, title and text, as JSON lines.", _DATA)
@_file("--queries", "retrieval: read _id and text, as JSON lines.", _DATA)
@_file("--qrels", "retrieval: read query, document and grade between tabs.", _DATA)
@_file("--evidence", "locomo, modes, ...: read repaired ids, as JSON lines.", _DATA)
@option(
    "--systems",
    nargs=2,
    metavar="NAME NAME",
    section=_OWN,
    help="compare: take one system of each file in place of all that both have.",
)
@option(
    "--input",
    type=choice("raw", "observations"),
    default="raw",
    section=_OWN,
    help="locomo: read the turns, or the facts too.  [default: raw]",
)
@option(
    "--cv",
    is_flag=True,
    section=_OWN,
    help="locomo, all, abstention: fit on the other conversations, or sets, too.",
)
@option(
    "--ablate",
    is_flag=True,
    section=_OWN,
    help="locomo: measure the preset without one part after the other.",
)
@option(
    "--sizes",
    type=COUNTS,
    section=_OWN,
    help="growth, forgetting, refinement: measure at these numbers, such as 1000,10000.",
)
@settings_options
@click.pass_context
def evaluate(
    ctx: click.Context,
    dataset: str,
    files: tuple[Path, ...],
    presets: tuple[str, ...],
    systems: tuple[str, str] | None,
    **own: Any,
) -> int:
    """Measure presets beside their baselines, or compare two such runs.

    Prints a table. SET names the data: custom and retrieval are data of your own, compare takes
    two FILEs that --json or --rankings wrote.
    """
    _expect_outputs(own)
    if dataset == _COMPARE:
        _expect_absent(ctx, _ONE_RUN, dataset, "leave it out")
        load_engine()
        found = _compared(files, systems, own["seed"])
    else:
        _expect_absent(ctx, ("file", "systems"), dataset, f"it is for {_COMPARE}")
        found = _judged(ctx, dataset, presets, own)
    if own["json"] is not None:
        _write(own["json"], [json.dumps(found.report, indent=1), "\n"])
    if own["rankings"] is not None:
        _write(own["rankings"], (json.dumps(row) + "\n" for row in found.rankings))
    if own["csv"] is not None or own["latex"] is not None:
        from graphmem_torch.quality.common.tables import tables_as_csv, tables_as_latex

        if own["csv"] is not None:
            _write(own["csv"], [tables_as_csv(found.tables)])
        if own["latex"] is not None:
            _write(own["latex"], [tables_as_latex(found.tables)])
    print(found.table)
    return 0


evaluate.epilog = f"Sets: {', '.join(JUDGES)}."


def _expect_outputs(given: dict[str, Any]) -> None:
    """Check the output files before the work starts."""
    files: dict[Path, str] = {}
    for name in _WRITTEN:
        if (path := given[name]) is None:
            continue
        output_file(path, f"--{name}")
        if (other := files.setdefault(path.resolve(), name)) != name:
            raise InputError(
                f"--{name}: expected another file than that of --{other}, got {str(path)!r}; "
                "name one for each"
            )


def _expect_absent(ctx: click.Context, names: Iterable[str], dataset: str, do: str) -> None:
    """Check that no parameters were given that do not apply to a set."""
    for param in ctx.command.params:
        field, label = str(param.name), usage_of(param).split()[0].strip("[]")
        given = ctx.get_parameter_source(field) is ParameterSource.COMMANDLINE
        if given and label.lstrip("-").lower() in names and (value := ctx.params[field]) != ():
            said = " ".join(map(str, value)) if isinstance(value, tuple) else value
            raise InputError(f"{label}: expected nothing for {dataset}, got {said}; {do}")


def _compared(files: tuple[Path, ...], systems: tuple[str, str] | None, seed: int) -> Judged:
    """Compare two runs."""
    from graphmem_torch.quality.comparison import compare

    if len(files) != 2:
        raise InputError(f"compare: expected two files, got {len(files)}; name both")
    return compare(*files, systems=systems, seed=seed)


def _judged(
    ctx: click.Context, dataset: str, presets: tuple[str, ...], own: dict[str, Any]
) -> Judged:
    """Run the judge of a data set."""
    if own["json"] is None:
        raise InputError("--json: expected a file for the report, got none; name one")
    for name in ("csv", "latex"):
        if own[name] is not None and dataset not in COMPARING:
            raise InputError(
                f"--{name}: expected nothing for {dataset}, got {own[name]}; it is for "
                f"{', '.join(sorted((*COMPARING, _COMPARE)))}"
            )
    settings = given_settings(ctx, own)
    named = [name.strip() for given in presets for name in given.split(",")]
    first, *others = _configs([name for name in named if name] or ["default"], settings.overrides)
    data = _data(dataset, own)
    load_engine(settings.imports)
    passed = ("questions", "queries", "qrels", "seed", "evidence", "input", "cv", "ablate")
    return judge(
        dataset,
        Request(
            data=data,
            preset=first.name,
            config=first,
            others=tuple(others),
            rankings=own["rankings"] is not None,
            embedder=settings.embedder,
            device=settings.device,
            progress=True,
            cache=own["cache"],
            sizes=own["sizes"],
            **{name: own[name] for name in passed},
        ),
    )


def _configs(names: Iterable[str], overrides: Any) -> list[Config]:
    """Load every preset, each with the overrides of the command line."""
    return [load_config(name, overrides) for name in names]


def _data(dataset: str, own: dict[str, Any]) -> Path:
    """Return the input: `--atoms` of custom, `--corpus` of retrieval, else `--data`.

    For planning, which reads nothing, it is the current folder.
    """
    option_of = _READ.get(dataset, "data")
    for name in filter(None, (option_of, *_NEEDED.get(dataset, ()))):
        if own[name] is None:
            raise InputError(f"--{name}: expected a path, got none; {dataset} needs it")
    for name in ("data", "atoms", "corpus"):
        if name != option_of and own[name] is not None:
            raise InputError(f"--{name}: expected nothing for {dataset}, got {own[name]}")
    return Path(own[option_of]) if option_of else Path()


def _write(path: Path, parts: Iterable[str]) -> None:
    """Write a file atomically, or leave the old one."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as stream:
        stream.writelines(parts)
    partial.replace(path)
