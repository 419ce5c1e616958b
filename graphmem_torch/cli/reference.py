"""Generator of `docs/cli.md`: `python -m graphmem_torch.cli.reference > docs/cli.md`."""

from __future__ import annotations

from collections.abc import Iterable
from inspect import cleandoc

import click

from graphmem_torch.cli.main import COMMANDS
from graphmem_torch.cli.syntax import Tree, leaves, usage_of

__all__ = ["page"]

_OWN = "Options"
_SHARED = ("Filters", "Store and output", "Settings")

_HEAD = """# The command line

`graphmem --help` lists the commands, `graphmem COMMAND --help` the options of one. This page is
written by `python -m graphmem_torch.cli.reference > docs/cli.md`.

```
graphmem index notes/ chat.jsonl --store my.mem
graphmem query "Who restored the oven?" --store my.mem
```

## Rules

- `--store DIR` names the store. Only `index`, `store import` and `mcp` make one; every other
  command answers a name that is not there with the nearest store. `--new` makes a store whose name
  is one letter away from that of another.
- Results go to standard output, progress and messages to standard error. `--json` prints one JSON
  object; `eval` writes it to the file that it names.
- `--config.SECTION.FIELD VALUE` overrides a setting; `graphmem query --help-config` lists the
  settings of a preset.
- A time is a date, a date with a time, or seconds since the epoch. Four digits are a year. A time
  without a zone is in UTC.
- An error is one line on standard error: what was expected, what came, what to do. With `--json`
  it is also an object with the key `error` on standard output.
- An interrupted command loses nothing that it has acknowledged, and can be run again.
- Commands that only read what lies on the disk start at once, as they load no engine: `atoms get`,
  `atoms list`, `facts history`, `facts changes`, `store stats`, `store check`, `store namespaces`,
  `store export`, `atoms forget --dry-run`. A filter (`--where`), an order by importance and a
  question need it.

| exit code | meaning |
| --- | --- |
| 0 | done |
| 1 | `store check` found a problem, or what `store estimate` was asked for does not fit |
| 2 | an error of input, store or options |
| 3 | `index --skip-bad` left something out |
| 130 | interrupted by Ctrl-C |
| 141 | nobody reads the output any more |
"""


def page() -> str:
    """Return the page as Markdown."""
    parts = [_HEAD, "## Options that commands share", ""]
    example = dict(leaves(COMMANDS))["context"]  # has all of them
    for heading in _SHARED:
        parts += [f"### {heading}", "", *_table(_records(example, heading)), ""]
    for name, command in COMMANDS.commands.items():
        if isinstance(command, Tree):
            parts += [f"## graphmem {name}", "", str(command.help), ""]
            for own, leaf in command.commands.items():
                parts += _section(f"graphmem {name} {own}", leaf, "###")
        else:
            parts += _section(f"graphmem {name}", command, "##")
    return "\n".join(parts).rstrip("\n") + "\n"


def _section(name: str, leaf: click.Command, mark: str) -> list[str]:
    """Return the section of a command."""
    needed = [usage_of(each) for each in leaf.params if each.required or not _is_option(each)]
    sections = [each for each in _SHARED if _records(leaf, each)]
    own = [each for each in _sections(leaf) if each not in _SHARED]
    rows = [row for heading in own for row in _records(leaf, heading)]
    shared = ", ".join(f"[{each}](#{each.lower().replace(' ', '-')})" for each in sections)
    text = "\n\n".join(cleandoc(each) for each in (leaf.help, leaf.epilog) if each)
    return [
        *(f"{mark} {name}", "", "```", " ".join([name, *needed]), "```", "", text, ""),
        *([*_table(rows), ""] if rows else []),
        *([f"And the options of {shared}.", ""] if shared else []),
    ]


def _is_option(param: click.Parameter) -> bool:
    return isinstance(param, click.Option)


def _sections(leaf: click.Command) -> list[str]:
    """Return the headings of a command's options, each once, in order."""
    return [*dict.fromkeys(getattr(each, "section", _OWN) for each in leaf.params)]


def _records(leaf: click.Command, heading: str) -> list[tuple[str, str]]:
    """Return the options of a command below a heading, with their help."""
    return [
        (usage_of(each), str(each.help))
        for each in leaf.params
        if isinstance(each, click.Option) and getattr(each, "section", _OWN) == heading
    ]


def _table(rows: Iterable[tuple[str, str]]) -> list[str]:
    """Return rows as a table of Markdown."""
    shown = [
        f"| `{name.replace('|', chr(92) + '|')}` | {meaning.replace('|', chr(92) + '|')} |"
        for name, meaning in rows
    ]
    return ["| option | meaning |", "| --- | --- |", *shown]


if __name__ == "__main__":
    print(page(), end="")
