"""Neighbours and sessions of candidates, against loops over the turns."""

from __future__ import annotations

from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import graphmem_torch.rank.signals  # noqa: F401  (registers them)
from graphmem_torch.config import Config
from graphmem_torch.ops import SparseRows
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.listed_rows import merge_rows
from graphmem_torch.rank.memory_tensors import turn_pointers
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.reached import Reached

SESSIONS = [[3, 0, 5, 7, 1], [2, 4], [6]]  # turns in their order; row numbers are shuffled
COUNT = 8


@pytest.fixture
def memory() -> Any:
    previous, following = torch.full((2, COUNT), -1, dtype=torch.int32)
    session = torch.zeros(COUNT, dtype=torch.int32)
    for number, rows in enumerate(SESSIONS):
        session[rows] = number
        for one, other in pairwise(rows):
            following[one], previous[other] = other, one
    turns = turn_pointers(following, previous)
    return SimpleNamespace(num_atoms=COUNT, turns=turns, session=session, room=None)


def turn(row: int, distance: int) -> int | None:
    """The row `distance` turns away, by looking into the lists."""
    rows = next(rows for rows in SESSIONS if row in rows)
    place = rows.index(row) + distance
    return rows[place] if 0 <= place < len(rows) else None


CANDIDATES = torch.tensor(
    [[0, 1, 2, 3, 4, 5, 6, 7], [-1, -1, -1, 0, 2, 3, 5, 6], [-1, -1, -1, -1, -1, -1, -1, 7]]
)


def forms(memory: Any) -> list[tuple[Candidates, Tensor]]:
    """Both forms, with the row of every candidate."""
    query = QueryBatch(torch.zeros(3, 4))
    everyone = torch.arange(COUNT).expand(3, -1)
    return [
        (Candidates(memory, query, Config()), everyone),
        (Candidates(memory, query, Config(), CANDIDATES), CANDIDATES),
    ]


@pytest.mark.parametrize("distance", [-4, -2, -1, 1, 2, 3, 9])
@pytest.mark.parametrize("inner", [(), (2,)])
def test_step(memory: Any, distance: int, inner: tuple[int, ...], generator: Any) -> None:
    for found, rows in forms(memory):
        values = torch.randn(3, *inner, COUNT, generator=generator)
        got = found.step(values, distance)
        assert got.shape == values.shape
        for b in range(3):
            listed = rows[b].tolist()
            for place, row in enumerate(listed):
                if row < 0:
                    continue
                other = turn(row, distance)
                there = other is not None and other in listed
                expected = values[b, ..., listed.index(other)] if there else torch.zeros(inner)
                assert torch.equal(got[b, ..., place], expected)


@pytest.mark.parametrize("reach", [1, 3])
def test_widest(memory: Any, reach: int, generator: Any) -> None:
    for found, rows in forms(memory):
        values = torch.randn(3, 2, COUNT, generator=generator)
        found.matches = values
        got = found.widest(reach)
        for b in range(3):
            listed = rows[b].tolist()
            for place, row in enumerate(listed):
                if row < 0:
                    continue
                best = values[b, :, place]
                for distance in range(-reach, reach + 1):
                    other = turn(row, distance)
                    # A turn that is not there, or no candidate, counts as 0.
                    near = (
                        values[b, :, listed.index(other)]
                        if other in listed
                        else torch.zeros_like(best)
                    )
                    best = torch.maximum(best, near)
                assert torch.equal(got[b, :, place], best)


@pytest.mark.parametrize("inner", [(), (2,)])
def test_session_max(memory: Any, inner: tuple[int, ...], generator: Any) -> None:
    for found, rows in forms(memory):
        # Negative, so that padding with 0 would show.
        values = -torch.rand(3, *inner, COUNT, generator=generator) - 0.1
        values = values.masked_fill((rows < 0).view(3, *[1] * len(inner), COUNT), 0.0)
        got = found.session_max(values)
        for b in range(3):
            for place, row in enumerate(rows[b].tolist()):
                if row < 0:
                    continue
                session = next(s for s in SESSIONS if row in s)
                same = [p for p, r in enumerate(rows[b].tolist()) if r in session]
                assert torch.equal(got[b, ..., place], values[b][..., same].amax(-1))


def test_valid_and_pick_each(memory: Any) -> None:
    allowed = torch.tensor([[row % 3 != 0 for row in range(COUNT)]])
    query = QueryBatch(torch.zeros(3, 4), allowed=allowed)
    found = Candidates(memory, query, Config(), CANDIDATES)
    expected = [[row >= 0 and row % 3 != 0 for row in line] for line in CANDIDATES.tolist()]
    assert found.valid.tolist() == expected
    assert (
        Candidates(memory, query, Config()).valid.expand(3, -1).tolist()
        == allowed.expand(3, -1).tolist()
    )
    each = torch.arange(3 * COUNT).view(3, COUNT)
    picked = found.pick_each(each)
    for b, line in enumerate(CANDIDATES.tolist()):
        for place, row in enumerate(line):
            if row >= 0:
                assert picked[b, place] == each[b, row]
                assert found.pick(memory.session)[b, place] == memory.session[row]


def test_extended_makes_no_matches_that_nobody_read(memory: Any) -> None:
    found = Candidates(memory, QueryBatch(torch.zeros(1, 4)), Config(), torch.tensor([[-1, 2, 5]]))
    wider = found.extended(torch.tensor([[5, 7, -1]]))  # `memory` has no token vectors to read
    assert wider.rows is not None
    assert wider.rows.tolist() == [[-1, -1, -1, 2, 5, 7]]


def test_extended_takes_each_row_once(memory: Any) -> None:
    found = Candidates(memory, QueryBatch(torch.zeros(1, 4)), Config(), torch.tensor([[-1, 2, 5]]))
    wider = found.extended(torch.tensor([[7, 5, -1, 7]]))
    assert wider.rows is not None
    assert wider.rows[wider.rows >= 0].tolist() == [2, 5, 7]


def test_narrowed_and_extended_take_signals_of_every_atom(memory: Any) -> None:
    memory.embeddings = torch.eye(COUNT, 4)
    everyone = Candidates(memory, QueryBatch(torch.eye(1, 4)), Config())
    cosine = everyone.signal("semantic")
    memory.embeddings = None  # whoever computed it again would fail
    some = everyone.narrowed(torch.tensor([[-1, 3, 5]]))
    for found in (some, some.narrowed(torch.tensor([[0, 7]])), some.extended(torch.tensor([[0]]))):
        assert torch.equal(found.signal("semantic"), cosine.gather(1, found.rows.clamp(min=0)))


def test_reaching_keeps_base_signals_and_drops_those_of_the_graph(memory: Any) -> None:
    memory.embeddings = torch.eye(COUNT, 4)
    everyone = Candidates(memory, QueryBatch(torch.eye(1, 4)), Config())
    found = everyone.narrowed(torch.tensor([[-1, 0, 3]]))
    cosine, before = found.signal("semantic"), found.signal("activation")
    activation = SparseRows.from_dense(torch.arange(COUNT).float()[None])
    reached = found.reaching(Reached(activation=activation))
    assert reached.signal("semantic") is cosine
    assert not before.any() and not found.signal("activation").any()
    assert reached.signal("activation").tolist() == [[0.0, 0.0, 3.0]]


def test_merge_rows_is_the_union(generator: torch.Generator) -> None:
    one, other = torch.randint(-1, 9, (2, 5, 6), generator=generator)
    for merged, *parts in zip(
        merge_rows(one, other).tolist(), one.tolist(), other.tolist(), strict=True
    ):
        rows = sorted({row for part in parts for row in part} - {-1})
        assert merged == [-1] * (12 - len(rows)) + rows
