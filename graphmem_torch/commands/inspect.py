"""`graphmem stats` and `graphmem check`: what a store holds, and whether it is sound."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from graphmem_torch.commands.options import MemoryCommand, print_json
from graphmem_torch.errors import StoreDamagedError

__all__ = ["Check", "Stats"]


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
