"""Relations: which memory needs which, and which comes before which, by the edges between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.edges import EdgeBlock

__all__ = ["Relations"]

# Along these the source comes first: a cause before its effect, a premise before its conclusion.
# Along all others the target does: what is depended on, elaborated, or derived from.
_SOURCE_FIRST = (
    EdgeType.TEMPORAL,
    EdgeType.ABSTRACTION,
    EdgeType.IMPLICATION,
    EdgeType.SUPPORTS,
    EdgeType.CAUSES,
    EdgeType.PRECEDES,
)


@dataclass(frozen=True, eq=False)
class Relations:
    """For each of A atoms, those that come before it.

    Attributes:
        indptr: [A + 1] int64.
        first: [E] int64; `first[indptr[i]:indptr[i + 1]]` come before atom i.
    """

    indptr: Tensor
    first: Tensor

    @classmethod
    def of(
        cls,
        edges: EdgeBlock,  # between rows
        types: Sequence[str],
        atoms: int,
    ) -> Relations:
        """The relations that edges of these types make between the first A rows."""
        kinds = [EdgeType[name.upper()] for name in types]
        named = torch.isin(edges.type, torch.tensor([int(kind) for kind in kinds]).byte())
        named &= (edges.source < atoms) & (edges.target < atoms) & (edges.source != edges.target)
        source, target, kind = edges.source[named], edges.target[named], edges.type[named]
        forward = torch.isin(kind, torch.tensor([int(kind) for kind in _SOURCE_FIRST]).byte())
        first = torch.where(forward, source, target)
        later = torch.where(forward, target, source)
        order = later.argsort(stable=True)
        counts = torch.bincount(later, minlength=atoms)
        return cls(torch.nn.functional.pad(counts.cumsum(0), (1, 0)), first[order])

    def __len__(self) -> int:
        """E."""
        return len(self.first)

    def before(self, rows: Tensor) -> tuple[Tensor, Tensor]:  # [n] -> [m], [m]
        """Everything that comes directly before these atoms.

        Returns:
            The places among `rows`, and the atoms that come before what is there.
        """
        start = self.indptr[rows]
        count = self.indptr[rows + 1] - start
        place = torch.repeat_interleave(count)
        step = torch.arange(len(place)) - (count.cumsum(0) - count)[place]
        return place, self.first[start[place] + step]
