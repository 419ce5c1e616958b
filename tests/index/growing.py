"""A made-up memory as the additions that a growing index takes."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import pairwise

import torch
from torch import Tensor

from graphmem_torch.edges import EdgeBlock
from graphmem_torch.index.index_input import IndexInput

_LISTS = {"terms": "term_offsets", "tokens": "token_offsets", "pieces": "token_offsets"}
_WHOLE = {"edges", "node", "concept", "name_terms", "name_offsets", "term_offsets", "token_offsets"}


def additions(data: IndexInput, cuts: list[int]) -> list[IndexInput]:
    """Return the atoms between consecutive cuts, each with the edges that it completes.

    The concepts are nodes 0 to K - 1 and come with the first addition.
    """
    concepts = data.num_nodes - len(data.embeddings)
    atoms, node = len(data.embeddings), torch.arange(data.num_nodes)
    moved = torch.where(node < atoms, node + concepts, node - atoms)
    source, target = moved[data.edges.source], moved[data.edges.target]
    latest = torch.maximum(source, target)
    found = []
    for first, last in pairwise([0, *cuts]):
        own = (latest >= concepts + first) & (latest < concepts + last)
        own |= (latest < concepts) & (first == 0)
        kept = source[own], target[own], data.edges.type[own], data.edges.weight[own]
        part = {
            each.name: _between(data, each.name, first, last)
            for each in fields(data)
            if isinstance(getattr(data, each.name), Tensor) and each.name not in _WHOLE
        }
        found.append(
            replace(
                data,
                **part,
                term_offsets=_offsets(data.term_offsets, first, last),
                token_offsets=_offsets(data.token_offsets, first, last),
                edges=EdgeBlock(*kept),
                num_nodes=concepts + last,
                node=concepts + torch.arange(first, last),
                concept=torch.arange(0 if first else concepts),
            )
        )
    return found


def _between(data: IndexInput, name: str, first: int, last: int) -> Tensor:
    if name in _LISTS:
        offsets = getattr(data, _LISTS[name])
        first, last = int(offsets[first]), int(offsets[last])
    column: Tensor = getattr(data, name)
    return column[first:last]


def _offsets(offsets: Tensor | None, first: int, last: int) -> Tensor | None:
    return None if offsets is None else offsets[first : last + 1] - offsets[first]
