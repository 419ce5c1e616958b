"""`graphmem report`: a store as one page to look at in a browser."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from tyro.conf import arg

from graphmem_torch.commands.options import MemoryCommand, print_json

__all__ = ["WriteReport"]


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
        from graphmem_torch.report import write_report

        with self.open_memory("r") as memory:
            report = write_report(memory, self.out, limit=self.limit)
        if self.json:
            print_json(report.as_dict())
        else:
            drawn = f"{report.drawn_nodes:,} of {report.nodes:,} nodes"
            print(
                f"{report.path}: {drawn}, {report.communities:,} communities, "
                f"{report.modes:,} modes, {report.bytes / 1e6:.1f} MB"
            )
        return 0
