"""Linked: the nodes and edges that linking a batch of atoms adds."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.edges import EdgeBlock

__all__ = ["Linked"]


@dataclass(frozen=True, eq=False)
class Linked:
    """New nodes and edges from linking a batch of atoms.

    Attributes:
        concepts: New concepts, numbered after the atoms of the batch.
        embeddings: [c, d], vectors of the concepts.
        edges: New edges.
        cut: Stored temporal edges that a new turn separates.
        aliases: Names that joined a concept of another name, with its node number.
        alias_embeddings: [a, d], vectors of these names.
    """

    concepts: list[Atom]
    embeddings: Tensor
    edges: EdgeBlock
    cut: EdgeBlock
    aliases: list[tuple[str, int]]
    alias_embeddings: Tensor

    @classmethod
    def nothing(cls, dim: int) -> Linked:
        """Return the result for no atom, with vectors of width `dim`."""
        none = torch.empty(0, dim)
        return cls([], none, EdgeBlock.empty(), EdgeBlock.empty(), [], none)
