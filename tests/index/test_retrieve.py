"""Traversal of the segment graph against breadth-first search."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config, load_config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import ConfigError
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.query import QueryBatch
from tests.graphs import hop_distances

ATOMS, COUNT = 40, 5
EDGES = {"temporal": 1.0, "similarity": 1.0}


def settings(**overrides: Any) -> Config:
    return load_config("sgrm", {"segment.hops": 2, "segment.discount": 0.9, **overrides})


def test_traversal_settings_that_are_none() -> None:
    for name, value in (("hops", -1), ("seeds", 0), ("discount", 0)):
        with pytest.raises(
            ConfigError, match=rf"segment.{name}: expected a finite number of at least"
        ):
            settings(**{f"segment.{name}": value})


def expected(
    data: IndexInput,
    question: Tensor,  # [d]
    allowed: Tensor,  # [A] bool
    *,
    hops: int,
    discount: float,
    seeds: int,
) -> dict[int, float]:
    """The value of every atom that is reached, by a loop."""
    kinds = data.edges.type
    used = (kinds == EdgeType.TEMPORAL) | (kinds == EdgeType.SIMILARITY)
    ends = torch.stack([data.edges.source[used], data.edges.target[used]])
    cosine = (data.embeddings.double() @ question.double()).tolist()
    start = sorted(allowed.nonzero()[:, 0].tolist(), key=lambda a: -cosine[a])[:seeds]
    nodes = torch.nn.functional.pad(allowed, (0, data.num_nodes - ATOMS), value=True)
    found = hop_distances(torch.cat([ends, ends.flip(0)], dim=1), start, hops, nodes).tolist()
    return {
        a: max(cosine[a], 0.0) * discount ** found[a] + min(cosine[a], 0.0)
        for a in range(ATOMS)
        if found[a] < torch.inf
    }


@pytest.mark.parametrize("retrieve", [True, False])
@pytest.mark.parametrize(("hops", "seeds"), [(0, 1), (1, 1), (2, 1), (2, 3)])
def test_retrieve_ranks_what_is_reached(
    retrieve: bool, hops: int, seeds: int, random_columns: Callable[..., IndexInput]
) -> None:
    data = random_columns(ATOMS)
    own = {"segment.hops": hops, "segment.seeds": seeds, "segment.discount": 0.6}
    config = settings(**own, **{"segment.retrieve": retrieve, "rank.k": 6})
    index = MemoryIndex.build(data, config)
    g = torch.Generator().manual_seed(5)
    questions = torch.nn.functional.normalize(torch.randn(COUNT, 16, generator=g), dim=1)
    allowed = torch.rand(1, ATOMS, generator=g) < 0.8
    listed = torch.rand(1, ATOMS, generator=g) < 0.6
    found = index(QueryBatch(questions, allowed=allowed, listed=listed), paths=True)
    graph = index.graph
    for b in range(COUNT):
        truth = expected(data, questions[b], allowed[0], hops=hops, discount=0.6, seeds=seeds)
        shown = {a: v for a, v in truth.items() if listed[0, a]}
        if not retrieve:  # what is not reached has 0, and is a hit all the same
            both = (allowed & listed)[0].nonzero()[:, 0].tolist()
            shown |= dict.fromkeys(set(both) - truth.keys(), 0.0)
        best = sorted(shown.values(), reverse=True)[:6]
        rows = [r for r in found.rows[b].tolist() if r >= 0]
        assert len(rows) == len(best)
        assert [shown[r] for r in rows] == pytest.approx(best, abs=1e-5)
        assert found.scores[b, : len(rows)].tolist() == pytest.approx(best, abs=1e-5)
        anchors = set(found.anchors[b].tolist())
        assert len(anchors) == seeds
        for r, path in zip(rows, found.paths[b].tolist(), strict=False):
            edges = [e for e in path if e >= 0]
            steps = [(int(graph.source[e]), int(graph.target[e])) for e in edges]
            if r in truth and r not in anchors:  # the way leads from a seed to the hit
                assert steps[0][0] in anchors and steps[-1][1] == r
                assert all(one[1] == two[0] for one, two in pairwise(steps))
            else:
                assert not steps


def test_retrieve_beyond_the_dense_limit_gives_the_same(
    random_columns: Callable[..., IndexInput],
) -> None:
    data = random_columns(ATOMS)
    weights = {"traversal": 1.0, "semantic": 0.5, "activation": 0.2}
    small = MemoryIndex.build(data, settings(**{"rank.weights": weights, "spread.rounds": 1}))
    large = MemoryIndex.build(
        data,
        settings(**{"rank.weights": weights, "spread.rounds": 1, "rank.exhaustive_up_to": 0}),
    )
    questions = torch.nn.functional.normalize(torch.randn(COUNT, 16), dim=1)
    one, other = small(QueryBatch(questions), k=8), large(QueryBatch(questions), k=8)
    assert torch.equal(one.rows, other.rows)
    torch.testing.assert_close(one.scores, other.scores)


def test_retrieve_takes_what_is_reached_in_a_large_store(
    random_columns: Callable[..., IndexInput],
) -> None:
    data = random_columns(ATOMS)
    own = {"segment.retrieve": False, "rank.weights": {"traversal": 1.0}}
    small = MemoryIndex.build(data, settings(**own))
    large = MemoryIndex.build(
        data, settings(**own, **{"rank.exhaustive_up_to": 0, "rank.candidates": 1})
    )
    questions = torch.nn.functional.normalize(torch.randn(COUNT, 16), dim=1)
    one, other = small(QueryBatch(questions), k=5), large(QueryBatch(questions), k=5)
    assert torch.equal(one.rows[one.scores > 0], other.rows[one.scores > 0])


def test_traversal_alone_in_both_forms_of_candidates(
    random_columns: Callable[..., IndexInput],
) -> None:
    data = random_columns(ATOMS)
    index = MemoryIndex.build(data, settings(**{"segment.retrieve": False}))
    g = torch.Generator().manual_seed(9)
    questions = torch.nn.functional.normalize(torch.randn(COUNT, 16, generator=g), dim=1)
    candidates = index.candidates(QueryBatch(questions))
    signals = candidates.signals(index.signal_names)
    truth = torch.zeros(COUNT, ATOMS)
    everyone = torch.ones(ATOMS, dtype=torch.bool)
    for b in range(COUNT):
        found = expected(data, questions[b], everyone, hops=2, discount=0.9, seeds=1)
        truth[b, list(found)] = torch.tensor(list(found.values()))
    torch.testing.assert_close(signals[:, :, 0], truth)
    padded = torch.cat([torch.full((COUNT, 2), -1), torch.arange(3, 9).expand(COUNT, -1)], dim=1)
    torch.testing.assert_close(
        candidates.narrowed(padded).signal("traversal")[:, 2:], truth[:, 3:9]
    )
    assert (
        not Candidates(index.tensors, QueryBatch(questions), index.config).signal("traversal").any()
    )


def chain(embeddings: Tensor, similar: list[tuple[int, int]]) -> IndexInput:
    """A document of chunks in a row, with some similarity edges."""
    count = len(embeddings)
    step = torch.arange(count - 1)
    ends = torch.tensor(similar, dtype=torch.int64).reshape(-1, 2).T
    temporal = torch.full((count - 1,), int(EdgeType.TEMPORAL))
    return IndexInput(
        embeddings=embeddings,
        terms=torch.zeros(0, dtype=torch.int64),
        term_offsets=torch.zeros(count + 1, dtype=torch.int64),
        vocab_size=1,
        kind=torch.zeros(count, dtype=torch.int64),
        speaker=torch.full((count,), -1),
        num_speakers=0,
        session=torch.zeros(count, dtype=torch.int64),
        time=torch.full((count,), torch.nan, dtype=torch.float64),
        log_words=torch.zeros(count),
        is_question=torch.zeros(count, dtype=torch.bool),
        tells_time=torch.zeros(count, dtype=torch.bool),
        edges=EdgeBlock.of(
            torch.cat([step, ends[0]]),
            torch.cat([step + 1, ends[1]]),
            torch.cat([temporal, torch.full_like(ends[0], int(EdgeType.SIMILARITY))]),
            torch.ones(count - 1 + ends.shape[1]),
        ),
        num_nodes=count,
    )


def test_retrieve_orthogonal_chunks_bring_only_their_neighbours_in_time() -> None:
    index = MemoryIndex.build(chain(torch.eye(12), []), settings())
    found = index(QueryBatch(torch.eye(12)[5:6]))
    assert found.rows[0, 0] == 5
    assert set(found.rows[0].tolist()) - {-1} == {3, 4, 5, 6, 7}


def test_retrieve_a_similarity_edge_is_a_shortcut_in_both_directions() -> None:
    index = MemoryIndex.build(chain(torch.eye(12), [(11, 2)]), settings(**{"segment.hops": 1}))
    for seed, near in ((2, {1, 2, 3, 11}), (11, {2, 10, 11})):
        found = index(QueryBatch(torch.eye(12)[seed : seed + 1]))
        assert set(found.rows[0].tolist()) - {-1} == near


@pytest.mark.parametrize("count", [1, 2])
def test_retrieve_from_the_smallest_documents(count: int) -> None:
    index = MemoryIndex.build(chain(torch.eye(3)[:count], []), settings())
    found = index(QueryBatch(torch.eye(3)[:1]), paths=True)
    assert found.rows[0].tolist() == list(range(count))


def test_retrieve_no_question_and_nothing_allowed() -> None:
    index = MemoryIndex.build(chain(torch.eye(3), []), settings())
    assert index(QueryBatch(torch.zeros(0, 3))).rows.shape[0] == 0
    nothing = torch.zeros(1, 3, dtype=torch.bool)
    none = index(QueryBatch(torch.eye(3)[:2], allowed=nothing), paths=True)
    assert bool((none.rows == -1).all())


def test_retrieve_candidates_of_a_hub_are_bounded() -> None:
    star = [(leaf, 0) for leaf in range(2, 30)]
    embeddings = torch.nn.functional.normalize(torch.randn(30, 8), dim=1)
    data = chain(embeddings, star)
    index = MemoryIndex.build(data, settings(**{"spread.max_edges": 4, "segment.hops": 1}))
    found = index(QueryBatch(embeddings[:1]), k=30)
    assert int((found.rows >= 0).sum()) == 5


def test_retrieve_takes_the_first_of_equal_atoms_alone_and_among_other_questions() -> None:
    g = torch.Generator().manual_seed(0)
    kind = torch.randint(4, (400,), generator=g)
    kinds = torch.nn.functional.normalize(torch.randn(4, 16, generator=g), dim=1)
    data = chain(kinds[kind], [])
    own = {"rank.exhaustive_up_to": 0, "rank.candidates": 12, "segment.retrieve": False}
    weights = {"semantic": 1.0, "traversal": 0.0}
    index = MemoryIndex.build(data, settings(**own, **{"rank.weights": weights}))
    questions = torch.nn.functional.normalize(torch.randn(30, 16, generator=g), dim=1)
    together = index(QueryBatch(questions), k=12).rows.tolist()
    for question, rows in zip(questions, together, strict=True):
        alone = index(QueryBatch(question[None]), k=12).rows[0].tolist()
        best = (kinds @ question).argmax()
        assert alone == rows == (kind == best).nonzero().flatten()[:12].tolist()
