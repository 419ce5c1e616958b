"""Commands of a store as a whole: `graphmem store`."""

from __future__ import annotations

import io
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TextIO

import click

from graphmem_torch.cli.index_command import RESUMES, added_reply
from graphmem_torch.cli.options import (
    Target,
    base_url_option,
    expect_no_slip,
    load_engine,
    read_lines,
    served_oracle,
    store_options,
)
from graphmem_torch.cli.syntax import COUNT, PATH, Tree, choice, option
from graphmem_torch.cli.terminal import Reply, counted, rows
from graphmem_torch.errors import InputError, StoreDamagedError
from graphmem_torch.readers import MOVED_FORMATS

__all__ = ["store"]

store = Tree("store", help="Look after a whole store.")


@store.command("stats")
@option("--switches", is_flag=True, help="List the memories at which the topic turned, too.")
@store_options
def stats(target: Target, switches: bool) -> Reply:
    """Count what a store holds."""
    if not switches:
        with target.read() as stored:
            counts = stored.stats(target.settings.config)
        return Reply(data=counts, text="\n".join(rows(counts)))
    with target.open("r") as memory:
        counts, found = memory.stats(), memory.themes.switches()
    data = counts | {"switches": [asdict(each) for each in found]}
    shown = counts | {"switches": {each.atom: f"{each.statistic:.1f}" for each in found}}
    return Reply(data=data, text="\n".join(rows(shown)))


@store.command("check")
@option(
    "--receipt",
    type=PATH,
    metavar="FILE",
    help="Check, too, that the memories of this receipt are erased.",
)
@option(
    "--forgotten",
    metavar="FILE",
    help="Search every byte of the folder, too, for the texts in this file, one a line.",
)
@store_options
def check(target: Target, receipt: Path | None, forgotten: str | None) -> Reply:
    """Check that a store is whole, or that texts are erased.

    Exits with 1 if there is a problem.
    """
    try:
        with target.read() as memory:
            problems = [*memory.check()]
            if receipt is not None:
                problems += memory.check_receipt(receipt)
        if forgotten is not None:
            from graphmem_torch.store.receipts import find_traces

            problems += find_traces(target.store, read_lines(forgotten))
    except StoreDamagedError as error:
        # Too damaged to be opened: a finding, not an error of the command.
        problems = [str(error)]
    said = [f"{target.store} is whole"]
    said += [] if receipt is None else [f"what {receipt} names is erased"]
    said += [] if forgotten is None else [f"no byte of what {forgotten} lists is left"]
    return Reply(
        data={"ok": not problems, "problems": problems},
        text="\n".join(problems or said),
        code=1 if problems else 0,
    )


@store.command("estimate")
@option("--atoms", type=COUNT, required=True, metavar="N", help="Estimate for this many memories.")
@option("--like", type=PATH, metavar="STORE", help="Take texts and sizes from this store.")
@store_options
def estimate(target: Target, atoms: int, like: Path | None) -> Reply:
    """Estimate memory, disk and time of a number of memories.

    Measures rates on a small sample for a few seconds. Exits with 1 if they do not fit here, and
    names settings that would.
    """
    settings = target.settings
    settings.load_engine()
    from graphmem_torch.memory.capacity import estimate as estimated

    found = estimated(
        atoms,
        target.store,
        settings.config,
        embedder=settings.embedder,
        device=settings.device,
        like=like,
    )
    total = sum(found.seconds.values())
    parts = {
        "memories": f"{atoms:,}",
        "seconds": {name: f"{value:,.1f}" for name, value in found.seconds.items()},
        "all": f"{total / 3600:,.2f} hours in one process, encoder on {found.device}",
        "disk (GB)": {name: f"{value / 1e9:,.2f}" for name, value in found.disk.items()},
        "memory (GB)": {name: f"{value / 1e9:,.2f}" for name, value in found.memory.items()},
        "free (GB)": {name: f"{value / 1e9:,.2f}" for name, value in found.free.items()},
        "shards": f"{found.shards:,}",
    }
    return Reply(
        data=found.as_dict(),
        text="\n".join([*rows(parts), *(f"does not fit: {why}" for why in found.misfits)]),
        code=1 if found.misfits else 0,
    )


@store.command("compact")
@store_options
def compact(target: Target) -> Reply:
    """Return to the disk what forgetting has freed."""
    with target.open("w") as memory:
        freed = memory.upkeep.compact()
    return Reply(
        data={"store": str(target.store), "freed": freed},
        text=f"{target.store} is {freed / 1e6:.1f} MB smaller",
    )


@store.command("export")
@click.argument("file", type=PATH, metavar="FILE")
@option("--vectors", is_flag=True, help="Write the vectors, too, which saves encoding again.")
@store_options
def export(target: Target, file: Path, vectors: bool) -> Reply:
    """Write the memories of a store as JSON lines.

    Writes pins, found types, edges between memories and namespaces, too; of a namespace that is
    named, only what is in it. FILE may be - for standard output.
    """
    if str(file) == "-":
        if click.get_current_context().params["as_json"]:
            raise InputError(
                "--json: expected a file to export to beside it, got -, which has the output for "
                "itself; leave one of them out"
            )
        _pour(target, vectors)
        return Reply(data={})
    count = _export(target, file, vectors)
    size = file.stat().st_size / 1e6
    return Reply(
        data={"file": str(file), "atoms": count},
        text=f"{file}: {counted(count, 'memory', 'memories')}, {size:.1f} MB",
    )


def _export(target: Target, file: Path | TextIO, vectors: bool) -> int:
    """Export a memory, vectors by the engine; return the number of memories."""
    if vectors:
        with target.open("r") as memory:
            return memory.export(file, vectors=True)
    with target.read() as stored:
        return stored.export(file)


def _pour(target: Target, vectors: bool) -> None:
    """Write an export to standard output, always in UTF-8."""
    out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
    try:
        _export(target, out, vectors)
        out.flush()
    finally:
        out.detach()  # else it closes standard output


@store.command("import", after_interrupt=RESUMES)
@click.argument("file", type=PATH, metavar="FILE")
@option(
    "--format",
    type=choice(*MOVED_FORMATS),
    metavar="NAME",
    help=f"Read FILE as memories of {', '.join(MOVED_FORMATS)}; by default its content tells.",
)
@option("--new", is_flag=True, help="Make a store even if its name is much like another's.")
@store_options
def import_file(target: Target, file: Path, format: str | None, new: bool) -> Reply:
    """Read an export into a store, or make one.

    FILE may also be another program's: the history database or JSON of mem0, JSON of Zep or
    Graphiti, an agent file of Letta, the database of LangGraph's store or a plain dump of it, or
    Chroma's database or its folder. Skips what the store already holds. FILE may be - for standard
    input.
    """
    if not target.exists and not new:
        expect_no_slip(target.store)
    load_engine(target.settings.imports)
    from graphmem_torch.memory.exchange import check_export, is_export_file
    from graphmem_torch.readers.moving import read_moved

    start = time.perf_counter()
    with _kept(file) as copy:
        if not target.is_there():  # before a store or a namespace is made for nothing
            ours = format is None and is_export_file(copy)
            check_export(copy) if ours else read_moved(copy, format)
        with target.open("w", create=True) as memory:
            added = memory.import_(copy, format=format, progress=True)
    return added_reply(target, added, time.perf_counter() - start)


@contextmanager
def _kept(file: Path) -> Iterator[Path]:
    """Yield a file that can be read more than once, for a pipe a copy."""
    if str(file) != "-" and not file.is_fifo():
        yield file
        return
    with TemporaryDirectory() as folder, ExitStack() as stack:
        pipe = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
        copy = Path(folder, "standard input" if str(file) == "-" else file.name)
        with copy.open("wb") as whole:
            shutil.copyfileobj(pipe, whole)
        try:
            yield copy
        except InputError as error:  # name the pipe: the caller does not know the copy
            raise InputError(str(error).replace(f"{copy.parent}/", "")) from error


@store.command("namespaces")
@option("--drop", metavar="NAME", help="Delete this namespace with all that is in it, for good.")
@store_options
def namespaces(target: Target, drop: str | None) -> Reply:
    """List the namespaces of a store with their sizes."""
    if drop is not None:
        with target.open("w") as memory:
            memory.namespaces.drop(drop)
        return Reply(data={"dropped": drop}, text=f"{target.store}: namespace {drop!r} is deleted")
    with target.read() as memory:
        sizes = memory.sizes()
    return Reply(
        data={"namespaces": sizes},
        text="\n".join(rows(sizes)) or f"{target.store} has no namespaces",
    )


@store.command(
    "reembed",
    after_interrupt="the store is as it was, and running the same command again resumes",
)
@store_options
def reembed(target: Target) -> Reply:
    """Give a store another encoder, --embedder NAME.

    Encodes the texts of its namespaces, too, and keeps everything else.
    """
    settings = target.settings
    if settings.embedder is None:
        raise InputError(
            "--embedder: expected the name of an encoder, got none; write --embedder NAME"
        )
    if target.namespace is not None:
        raise InputError(
            f"--namespace: expected none, got {target.namespace!r}; leave it out, as a store and "
            "its namespaces have one encoder"
        )
    load_engine(settings.imports)

    start = time.perf_counter()
    from graphmem_torch.memory.reembedding import reembed as encode_again

    count = encode_again(
        target.store,
        settings.embedder,
        config=settings.config,
        device=settings.device,
        progress=True,
    )
    seconds = time.perf_counter() - start
    data = {"store": str(target.store), "encoded": count, "seconds": round(seconds, 3)}
    return Reply(
        data=data | {"embedder": settings.embedder},
        text=f"{target.store}: {count:,} texts encoded by {settings.embedder}, {seconds:.1f} s",
    )


@store.command("consolidate")
@store_options
def consolidate(target: Target) -> Reply:
    """Refine a store: link what waits, learn from use, archive.

    Learns from feedback as well. The settings under link and refine say how much; by
    default nothing is archived.
    """
    with target.open("w") as memory:
        done = memory.upkeep.consolidate()
    return Reply(data={"store": str(target.store), **asdict(done)}, text=f"{target.store}: {done}")


@store.command("classify", after_interrupt="what was found before is kept")
@click.argument("ids", nargs=-1, metavar="ID ...")
@option(
    "--model",
    metavar="NAME",
    help="Ask this language model; without it, and for answers that are no use, rules decide.",
)
@base_url_option
@option("--extract", is_flag=True, help="Keep what the model extracts as memories of their own.")
@store_options
def classify(
    target: Target, ids: tuple[str, ...], model: str | None, base_url: str | None, extract: bool
) -> Reply:
    """Find the types of memories, by rules or by a model.

    Without IDs it takes all memories whose type neither they nor a model have stated. Types
    decide how fast a memory fades in the preset contextos.
    """
    if extract and model is None:
        raise InputError("--extract: expected a model that extracts, got none; add --model NAME")
    with served_oracle(model, base_url) as oracle, target.open("w") as memory:
        done = memory.upkeep.classify(oracle, ids or None, extract=extract, progress=True)
    found = ", ".join(f"{count:,} {type}" for type, count in done.types.items()) or "nothing"
    parts = [f"{found} found"]
    parts += [f"{done.failed:,} of them by rules, asked again next time"] * bool(done.failed)
    parts += [f"{done.contents:,} memories extracted"] * extract
    return Reply(
        data={"store": str(target.store), **asdict(done)},
        text=f"{target.store}: {'; '.join(parts)}",
    )


@store.command("feedback")
@click.argument("question")
@option("--used", multiple=True, metavar="ID", help="Name a memory that helped. Repeatable.")
@option("--not-used", multiple=True, metavar="ID", help="Name one that did not. Repeatable.")
@store_options
def feedback(
    target: Target, question: str, used: tuple[str, ...], not_used: tuple[str, ...]
) -> Reply:
    """Record which memories helped with a question.

    `graphmem store consolidate` learns from feedback once there is enough of it.
    """
    with target.open("w") as memory:
        memory.feedback(question, used=used, not_used=not_used)
        counts = memory.stats()["feedback"]
    kept = counted(counts["questions"], "question")
    return Reply(
        data={"store": str(target.store), "feedback": counts},
        text=f"feedback on {kept} is kept in {target.store}",
    )


@store.command("learned")
@option("--learn", is_flag=True, help="Learn from the feedback now.")
@option(
    "--preset-file",
    type=PATH,
    metavar="FILE.yaml",
    help="Write the settings with what was learned, for --preset.",
)
@option(
    "--reset",
    multiple=True,
    metavar="KIND",
    help="Drop weights, correction, threshold or feedback. Repeatable.",
)
@store_options
def learned(target: Target, learn: bool, preset_file: Path | None, reset: tuple[str, ...]) -> Reply:
    """Show, export or reset what a store has learned."""
    said: list[str] = []
    with target.open("w" if reset or learn else "r") as memory:
        if learn and memory.learning.correct() is None:
            said.append("nothing was learned: it takes 40 questions that tell hits apart")
        if preset_file is not None:
            memory.learning.export_preset(preset_file)
            said.append(f"the settings are written to {preset_file}")
        dropped = memory.learning.reset(*reset) if reset else 0
        said += [f"dropped: {dropped:,}"] * bool(reset)
        found, counts = memory.learning.records(), memory.stats()["feedback"]
    data: dict[str, Any] = {"learned": [each.as_dict() for each in found], "feedback": counts}
    kinds = {each.kind: str(each) for each in found} or {"learned": "nothing"}
    return Reply(
        data=data | ({"dropped": dropped} if reset else {}),
        text="\n".join([*said, *rows({**kinds, "feedback": counts})]),
    )


@store.command("report")
@option(
    "--out",
    type=PATH,
    default=Path("report.html"),
    metavar="FILE",
    help="Write to this file.  [default: report.html]",
)
@option(
    "--question",
    "questions",
    multiple=True,
    metavar="QUESTION",
    help="Show the hits of this question with their reasons. Repeatable.",
)
@option("--concepts", is_flag=True, help="Draw concepts as nodes, too.")
@option("--limit", type=COUNT, default=50_000, help="Draw at most N nodes.  [default: 50000]")
@store_options
def report(
    target: Target, out: Path, questions: tuple[str, ...], concepts: bool, limit: int
) -> Reply:
    """Write an HTML page: graph, communities, modes and drift."""
    with target.open("r") as memory:
        made = memory.report(out, questions=questions, concepts=concepts, limit=limit)
    drawn = f"{made.drawn_nodes:,} of {counted(made.nodes, 'node')}"
    found = counted(made.communities, "community", "communities")
    modes, size = counted(made.modes, "mode"), f"{made.bytes / 1e6:.1f} MB"
    return Reply(data=made.as_dict(), text=f"{made.path}: {drawn}, {found}, {modes}, {size}")
