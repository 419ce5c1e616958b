"""`graphmem index`: files into a store."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from tyro.conf import Positional, arg

from graphmem_torch.commands.options import MemoryCommand, print_json
from graphmem_torch.errors import InputError

__all__ = ["Index"]


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
        from graphmem_torch.text.read import check_paths, read_atoms

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
