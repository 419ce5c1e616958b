"""Command line of a script: its options, a run, and the report as JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeVar

import tyro

from graphmem_torch.errors import GraphMemError, output_file

__all__ = ["command"]


class _Options(Protocol):
    @property
    def json(self) -> Path | None:
        """File to write the report to; standard output by default."""


T = TypeVar("T", bound=_Options)


def command(
    options: type[T],
    run: Callable[[T], Mapping[str, Any]],
    arguments: Sequence[str] | None,
    description: str | None,
) -> Mapping[str, Any]:
    """Read the options, run, and write the report to the given file.

    Args:
        options: Dataclass of the options.
        run: Function from options to a report.
        arguments: Arguments of the command line; those of the process by default.
        description: Description for `--help`.

    Raises:
        SystemExit: The package refuses an argument; the message has one line.
    """
    chosen = tyro.cli(options, args=arguments, description=description)
    try:
        if chosen.json is not None:
            output_file(chosen.json, "--json")
        report = run(chosen)
    except GraphMemError as error:
        raise SystemExit(f"error: {error}") from error
    text = json.dumps(report, indent=2)
    if chosen.json is None:
        print(text)
    else:
        chosen.json.write_text(text + "\n", encoding="utf-8")
        print(f"written to {chosen.json}", file=sys.stderr)
    return report
