"""Edges by their ends, against a plain list that is walked through."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store.adjacency import Adjacency

Edge = tuple[int, int, int, float]

EDGES = st.lists(
    st.tuples(
        st.integers(0, 9), st.integers(0, 9), st.sampled_from([1, 3]), st.sampled_from([0.5, 1.0])
    ),
    max_size=30,
)
STEPS = st.lists(
    st.one_of(EDGES, st.lists(st.integers(0, 1 << 16), min_size=1, max_size=8)), max_size=8
)


def block(edges: Iterable[Edge]) -> EdgeBlock:
    rows = [*edges]
    return EdgeBlock.of(*zip(*rows, strict=True)) if rows else EdgeBlock.empty()


def listed(edges: EdgeBlock) -> list[Edge]:
    return list(zip(*(column.tolist() for column in edges.columns), strict=True))


@given(EDGES, STEPS, st.sets(st.integers(0, 12)), EDGES, st.sampled_from([0, 7, 1 << 14]))
def test_edges_are_found_by_their_ends(
    first: list[Edge],
    steps: list[list[Edge] | list[int]],
    nodes: set[int],
    cut: list[Edge],
    few: int,
) -> None:
    edges, adjacency = [*first], Adjacency(block(first), "", few=few)
    for step in steps:
        if step and isinstance(step[0], int):
            gone = [edges[at % len(edges)] for at in step if edges]  # maybe more than there are
            adjacency.remove(block(gone))
            for edge in gone:
                if edge in edges:
                    edges.remove(edge)
        else:
            adjacency.append(block(step))
            edges += step
    asked = torch.tensor([*nodes], dtype=torch.int64)
    source, target = ([edge for edge in edges if edge[end] in nodes] for end in (0, 1))
    assert listed(adjacency.edges(asked, "source")) == source
    assert listed(adjacency.edges(asked, "target")) == target
    either = [edge for edge in edges if {*edge[:2]} & nodes]
    assert listed(adjacency.touching(asked)) == either
    pairs = {edge[:2] for edge in cut}
    sure = [i for i, e in enumerate(edges) if {*e[:2]} & nodes or e[:2] in pairs]
    ends = {e[0] for e in cut}, {e[1] for e in cut}
    may = {i for i, e in enumerate(edges) if e[0] in ends[0] and e[1] in ends[1]} | {*sure}
    assert adjacency.ranks(asked, block(cut)).tolist() == sorted(may)
