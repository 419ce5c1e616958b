"""`graphmem index`: files into a store."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from tyro.conf import Positional, arg

from graphmem_torch.cli.options import MemoryCommand, print_json
from graphmem_torch.errors import InputError, StoreDamagedError

__all__ = ["Check", "Index", "Stats", "WriteReport"]


@dataclass(frozen=True, kw_only=True)
class Index(MemoryCommand):
    """Read files into a store; what it already holds is skipped, so a re-run resumes.

    Attributes:
        files: Text, Markdown, JSON lines, LoCoMo JSON, proof libraries (statements as JSON lines,
            a table of edges beside them), blueprints, folders of these, or `-` for standard input.
        format: How to read the files, where the name does not say it.
        input: Of LoCoMo files: the turns only, or also the facts that ship with them.
    """

    after_interrupt: ClassVar[str] = (
        "what was acknowledged is safe, and running the same command again resumes"
    )

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE ...")] = ()
    format: Literal["text", "jsonl", "locomo"] | None = None
    input: Literal["raw", "observations"] = "raw"

    def run(self) -> int:
        """Indexes the files and says how much was new."""
        if not self.files:
            raise InputError("expected at least one file or folder to index, got none")
        from graphmem_torch.readers.read import check_paths, read_atoms

        check_paths(self.files, self.format)  # before a store is made for nothing
        origins: dict[str, str] = {}
        start = time.perf_counter()
        with self.open_memory("w") as memory:
            atoms = read_atoms(
                self.files,
                tokenizer=memory.chunker,
                max_tokens=memory.config.embedder.max_tokens,
                format=self.format,
                locomo_input=self.input,
                origins=origins,
            )
            added = memory.add(atoms, progress=True, origins=origins)
        seconds = time.perf_counter() - start
        if self.json:
            print_json(
                {
                    "store": str(self.store),
                    "new": added.new,
                    "known": added.known,
                    "seconds": round(seconds, 3),
                }
            )
        else:
            known = f", {added.known:,} were there already" if added.known else ""
            noun = "memory" if added.new == 1 else "memories"
            print(f"{added.new:,} {noun} added to {self.store} in {seconds:.1f} s{known}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Stats(MemoryCommand):
    """Count what a store holds."""

    def run(self) -> int:
        """Prints the counts."""
        with self.open_memory("r") as memory:
            stats = memory.stats()
        if self.json:
            print_json(stats)
        else:
            print("\n".join(_rows(stats)))
        return 0


@dataclass(frozen=True, kw_only=True)
class Check(MemoryCommand):
    """Check that a store is whole; the exit code is 1 where it is not."""

    def run(self) -> int:
        """Prints every problem found."""
        try:
            with self.open_memory("r") as memory:
                problems = memory.check()
        except StoreDamagedError as error:
            # So damaged that it cannot be opened: that is what was asked.
            problems = [str(error)]
        if self.json:
            print_json({"ok": not problems, "problems": problems})
        elif problems:
            print("\n".join(problems))
        else:
            print(f"{self.store} is whole")
        return 1 if problems else 0


def _rows(values: Mapping[str, Any], indent: int = 0) -> list[str]:
    """A mapping as aligned lines, nested mappings below their name."""
    pad = " " * indent
    names = {key: str(key).replace("_", " ") for key in values}
    column = max(map(len, names.values()), default=0) + 2
    rows = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += [f"{pad}{names[key]}", *_rows(value, indent + 2)]
        else:
            shown = f"{value:,}" if isinstance(value, int | float) else str(value)
            rows.append(f"{pad}{names[key]:<{column}}{shown}")
    return rows


@dataclass(frozen=True, kw_only=True)
class WriteReport(MemoryCommand):
    """Write one HTML page, without a network: the graph, its communities, modes and drift.

    Attributes:
        out: The file to write.
        limit: Nodes that are drawn at most; of more, the best linked are, and the page says so.
    """

    out: Annotated[Path, arg(metavar="FILE")] = Path("report.html")
    limit: Annotated[int, arg(metavar="N")] = 50_000

    def run(self) -> int:
        """Writes the page and says where it is."""
        with self.open_memory("r") as memory:
            report = memory.report(self.out, limit=self.limit)
        if self.json:
            print_json(report.as_dict())
        else:
            drawn = f"{report.drawn_nodes:,} of {report.nodes:,} nodes"
            print(
                f"{report.path}: {drawn}, {report.communities:,} communities, "
                f"{report.modes:,} modes, {report.bytes / 1e6:.1f} MB"
            )
        return 0
