"""Places in lists of candidates and pairs of them, against loops."""

from __future__ import annotations

from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.coo import offsets_of
from graphmem_torch.ops.fixed_shapes import fixing_shapes
from graphmem_torch.rank.listed_rows import columns_of, derived_pairs

ATOMS = 9
LISTS = st.lists(st.sets(st.integers(0, ATOMS - 1), max_size=6), min_size=1, max_size=4)
PAIRS = st.lists(st.tuples(st.integers(0, ATOMS - 1), st.integers(0, ATOMS - 1)), max_size=14)


def padded(lists: list[set[int]]) -> torch.Tensor:
    width = max(1, *map(len, lists))
    rows = [[-1] * (width - len(each)) + sorted(each) for each in lists]
    return torch.tensor(rows, dtype=torch.int64)


def memory_of(pairs: list[tuple[int, int]]) -> Any:
    source, target = torch.tensor(pairs, dtype=torch.int64).reshape(-1, 2).T
    begin = offsets_of(torch.bincount(target, minlength=ATOMS))
    return SimpleNamespace(
        num_atoms=ATOMS,
        derived_source=source,
        derived_target=target,
        derivations=(begin, source[target.argsort(stable=True)]),
        most_derived=int(begin.diff().max()),
    )


@given(LISTS, st.lists(st.tuples(st.integers(0, 3), st.integers(0, ATOMS - 1)), max_size=9))
def test_columns_are_places_in_the_list_of_the_question(
    lists: list[set[int]], asked: list[tuple[int, int]]
) -> None:
    rows = padded(lists)
    asked = [(question % len(lists), atom) for question, atom in asked]
    question, atom = torch.tensor(asked, dtype=torch.int64).reshape(-1, 2).T
    column, there = columns_of(rows, question, atom, ATOMS)
    for (q, a), place, found in zip(asked, column.tolist(), there.tolist(), strict=True):
        assert found == (a in lists[q])
        assert not found or rows[q, place] == a


@given(LISTS, PAIRS, st.booleans())
def test_derived_pairs_of_lists_and_of_every_atom(
    lists: list[set[int]], pairs: list[tuple[int, int]], fixed: bool
) -> None:
    memory, rows = memory_of(pairs), padded(lists)
    if not pairs:  # a memory without derived atoms asks for no pairs
        return
    for given_rows, atoms in ((rows, lists), (None, [set(range(ATOMS))] * len(lists))):
        own = rows if given_rows is not None else torch.arange(ATOMS).expand(len(lists), -1)
        with fixing_shapes() if fixed else nullcontext():
            place, goal = derived_pairs(memory, given_rows, len(lists))
        width = own.shape[1]
        there = place < own.numel()
        place, goal = place[there], goal[there]
        found = sorted(
            (p // width, int(own.flatten()[p]), int(own.flatten()[g]))
            for p, g in zip(place.tolist(), goal.tolist(), strict=True)
        )
        assert all(p // width == g // width for p, g in zip(place, goal, strict=True))
        expected = sorted(
            (q, s, t) for q, each in enumerate(atoms) for s, t in pairs if {s, t} <= each
        )
        assert found == expected
