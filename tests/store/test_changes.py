"""The log of what commits take away, against the edges that are there before and after."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.changes import CutEdges, note_change

MakeBatch = Callable[..., Batch]


def listed(edges: EdgeBlock) -> list[tuple[float, ...]]:
    return list(zip(*(column.tolist() for column in edges.columns), strict=True))


def test_changes_lead_from_each_state_to_the_last(make_batch: MakeBatch) -> None:
    """Old edges without the cut ones, then the last ones that were added: all that is there."""
    draw = random.Random(0)
    with MemoryStore.open(None, dim=8) as store:
        states = []
        for turn in range(60):
            start = store.next_node
            if turn % 3 == 2:
                part = draw.randrange(5)

                def keep(edges: EdgeBlock, part: int = part) -> Tensor:
                    return (edges.source * 3 + edges.target) % 5 != part

                store.remove_edges(keep)
            else:
                store.append(make_batch(draw.choice((1, 3)), start, edges=draw.randint(0, 9)))
            states.append((store.state, listed(store.edges())))
        now = listed(store.edges())
        for state, edges in states:
            changes = store.changes(state, len(edges))
            assert changes is not None and not len(changes.gone)
            left = Counter(edges) - Counter(listed(changes.cut))
            assert left.total() == changes.kept == len(edges) - len(changes.cut)
            last = listed(store.last_edges(len(now) - changes.kept))
            assert left + Counter(last) == Counter(now)
            assert now[changes.kept :] == last
        assert store.changes("12-other", 0) is None


def test_changes_are_remembered_for_so_many_commits() -> None:
    with MemoryStore.open(None, dim=1) as store:
        store.append(Batch([Atom("a", "x")], torch.ones(1, 1)))
        first, database = store.state, store._database
        for entry in range(9):
            assert store.changes(first, 0) is not None
            note = partial(note_change, database, f"{entry}", CutEdges.cat([]), kept=9)
            database.write(note)
        assert store.changes(first, 0) is None
        assert database.query("SELECT count(*) FROM change") == [(9,)]


def test_a_commit_that_takes_away_most_has_followers_start_anew(make_batch: MakeBatch) -> None:
    with MemoryStore.open(None, dim=8) as store:
        store.append(make_batch(3, 0, edges=17000))
        state = store.state
        assert store.remove_edges(lambda edges: edges.source < 0) == 17000
        assert store.changes(state, 17000) is None
        state = store.state
        store.append(make_batch(1, 3))
        assert store.changes(state, 0) is not None


def test_a_commit_that_leaves_as_much_as_it_takes_is_followed(make_batch: MakeBatch) -> None:
    with MemoryStore.open(None, dim=8) as store:
        store.append(make_batch(3, 0, edges=60_000))
        state, edges = store.state, store.edges()
        kept = edges.source + edges.target < 3
        cut = store.remove_edges(lambda part: part.source + part.target < 3)
        assert 17_000 < cut == int((~kept).sum()) <= int(kept.sum())
        changes = store.changes(state, 60_000)
        assert changes is not None and changes.kept == int(kept.sum())
        assert listed(changes.cut) == listed(edges.take(~kept))
