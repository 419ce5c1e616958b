"""EdgeBlock: a list of typed edges between node numbers, for storage and transfer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.checks import check_entries, check_tensor
from graphmem_torch.errors import InputError

__all__ = ["EdgeBlock"]

_COLUMNS = {"source": "int64", "target": "int64", "type": "uint8", "weight": "float32"}
_TYPES = frozenset(map(int, EdgeType))


@dataclass(frozen=True, eq=False)
class EdgeBlock:
    """Directed edges between node numbers.

    Attributes:
        source: [E] int64.
        target: [E] int64.
        type: [E] uint8, `EdgeType`.
        weight: [E] float32, finite, may be negative.
    """

    source: Tensor
    target: Tensor
    type: Tensor
    weight: Tensor

    @classmethod
    def empty(cls) -> EdgeBlock:
        """Return a block without edges."""
        return cls(*(torch.empty(0, dtype=getattr(torch, kind)) for kind in _COLUMNS.values()))

    @classmethod
    def of(
        cls,
        source: Tensor | Sequence[int],
        target: Tensor | Sequence[int],
        type: Tensor | Sequence[int] | int,
        weight: Tensor | Sequence[float] | float,
    ) -> EdgeBlock:
        """Build a block from columns of any kind; one type or weight applies to all edges."""
        ends = torch.as_tensor(source, dtype=torch.int64)
        return cls(
            ends,
            torch.as_tensor(target, dtype=torch.int64),
            torch.as_tensor(type, dtype=torch.uint8).expand(ends.shape).contiguous(),
            torch.as_tensor(weight, dtype=torch.float32).expand(ends.shape).contiguous(),
        )

    @classmethod
    def cat(cls, blocks: Sequence[EdgeBlock]) -> EdgeBlock:
        """Concatenate several blocks, in order."""
        if not blocks:
            return cls.empty()
        return cls(*map(torch.cat, zip(*(block.columns for block in blocks), strict=True)))

    @property
    def columns(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Source, target, type and weight."""
        return self.source, self.target, self.type, self.weight

    def take(self, at: Tensor) -> EdgeBlock:  # [n] int64 or [E] bool
        """Return some of the edges."""
        if at.dtype == torch.bool:
            at = at.nonzero().squeeze(1)
        return EdgeBlock(*(column.index_select(0, at) for column in self.columns))

    def __len__(self) -> int:
        """Number of edges E."""
        return self.source.shape[0]

    def __repr__(self) -> str:
        """Return the number of edges of each type."""
        kinds = {EdgeType(k).name: int((self.type == k).sum()) for k in self.type.unique().tolist()}
        return f"EdgeBlock(edges={len(self)}, types={kinds})"

    def validate(self, num_nodes: int) -> None:
        """Check shapes, types and that every edge joins nodes below `num_nodes`.

        Raises:
            InputError: The block does not fit.
        """
        do = "build the block with EdgeBlock.of"
        for name, dtype in _COLUMNS.items():
            check_tensor(f"edges.{name}", getattr(self, name), dtype, (len(self),), do)
        if len(self) == 0:
            return
        do = "number the batch's own atoms from `next_node` on"
        for name in ("source", "target"):
            check_entries(f"edges.{name}", getattr(self, name), 0, num_nodes - 1, do)
        if not bool(torch.isfinite(self.weight).all()):
            raise InputError(
                "edges.weight: expected finite weights, got NaN or infinity; drop these edges"
            )
        unknown = set(self.type.unique().tolist()) - _TYPES
        if unknown:
            raise InputError(
                f"edges.type: expected a number of EdgeType, got {min(unknown)}; use its members"
            )
