"""MemoryIndex: one ranking, however it is computed, moved, saved or tiled."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphmem_torch.config import Config, load_config
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.index.execution_plan import CandidateRule
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.index.retrieve import Retrieval
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import SIGNALS
from graphmem_torch.rank.routing import ROUTING_PARTS
from tests.memories import opened
from tests.rank.test_hops import PASSAGES

Columns = Callable[..., IndexInput]
Questions = Callable[..., QueryBatch]

ATOMS = 40


def config_of(**overrides: Any) -> Config:
    """Every signal at once; anchors few, so that activation has somewhere to go."""
    weights = {name: 0.3 + 0.1 * place for place, name in enumerate(sorted(SIGNALS))}
    base = load_config("default", {"anchors.k": 3, **overrides})
    return replace(base, rank=replace(base.rank, weights=weights))


@pytest.fixture(scope="module")
def index(random_columns: Columns) -> MemoryIndex:
    return MemoryIndex.build(random_columns(ATOMS), config_of())


def scores_of(found: Retrieval, atoms: int = ATOMS) -> Tensor:
    """[B, A] scores, minus infinity for what is no hit."""
    out = torch.full((len(found.rows), atoms), -torch.inf)
    for b, (rows, scores) in enumerate(zip(found.rows, found.scores, strict=True)):
        out[b, rows[rows >= 0]] = scores[rows >= 0]
    return out


def same(one: Retrieval, other: Retrieval, *, tolerance: float = 1e-4) -> None:
    torch.testing.assert_close(
        scores_of(one), scores_of(other), rtol=tolerance, atol=tolerance, equal_nan=True
    )
    torch.testing.assert_close(one.confidence, other.confidence, rtol=tolerance, atol=tolerance)


def test_forward_hits_are_the_best_by_the_weighted_sum(
    index: MemoryIndex, random_questions: Questions
) -> None:
    asked = random_questions()
    found = index(asked, k=7, paths=True)
    candidates = index.candidates(asked)
    signals = candidates.signals(index.signal_names)
    assert candidates.rows is None
    weights = torch.tensor([index.config.rank.weights[name] for name in index.signal_names])
    for b in range(5):
        total = [float((signals[b, a] * weights).sum()) for a in range(ATOMS)]
        ranked = sorted(range(ATOMS), key=lambda a, total=total: -total[a])[:7]
        assert found.rows[b].tolist() == ranked
        assert found.scores[b].tolist() == pytest.approx([total[a] for a in ranked], rel=1e-4)
        for place, a in enumerate(ranked):
            torch.testing.assert_close(found.shares[b, place], signals[b, a] * weights)
    torch.testing.assert_close(found.shares.sum(2), found.scores, rtol=1e-4, atol=1e-4)
    assert ((found.confidence >= 0) & (found.confidence <= 1)).all()


def test_forward_paths_lead_from_an_anchor_to_the_hit(
    index: MemoryIndex, random_questions: Questions
) -> None:
    found = index(random_questions(), k=ATOMS, paths=True)
    source, target = index.graph.source.tolist(), index.graph.target.tolist()
    walked = 0
    for b in range(5):
        anchors = set(found.anchors[b].tolist())
        for row, path in zip(found.rows[b].tolist(), found.paths[b].tolist(), strict=True):
            edges = [edge for edge in path if edge >= 0]
            for one, other in zip(edges, edges[1:], strict=False):  # noqa: RUF007
                assert target[one] == source[other]
            if edges:
                assert source[edges[0]] in anchors
                assert target[edges[-1]] == row
                walked += 1
    assert walked > 20
    assert index(random_questions(), k=3).paths.shape == (5, 3, 0)


def test_forward_candidates_that_cover_everything_give_the_same(
    random_columns: Columns, random_questions: Questions
) -> None:
    data, asked = random_columns(ATOMS), random_questions()
    whole = MemoryIndex.build(data, config_of())(asked, k=ATOMS)
    narrow = config_of(**{"rank.exhaustive_up_to": 1, "rank.candidates": ATOMS})
    same(MemoryIndex.build(data, narrow)(asked, k=ATOMS), whole)


def test_forward_few_candidates_are_scored_as_all_are(
    random_columns: Columns, random_questions: Questions
) -> None:
    """Signals that need no other atom; what is a candidate gets the score it gets among all."""
    names = ["semantic", "lexical", "interaction", "speaker", "date", "length", "activation"]
    data, asked = random_columns(ATOMS), random_questions()
    base = load_config("default", {"anchors": {"source": "dual", "k": 3}})
    base = replace(base, rank=replace(base.rank, weights=dict.fromkeys(names, 1.0)))
    whole = scores_of(MemoryIndex.build(data, base)(asked, k=ATOMS))
    few = replace(base, rank=replace(base.rank, exhaustive_up_to=1, candidates=3))
    found = MemoryIndex.build(data, few)(asked, k=ATOMS)
    for b in range(5):
        rows = found.rows[b][found.rows[b] >= 0]
        assert len(rows.unique()) == len(rows)
        torch.testing.assert_close(found.scores[b, : len(rows)], whole[b, rows])
        by_cosine = (data.embeddings @ asked.embedding[b]).topk(3).indices
        assert set(by_cosine.tolist()) <= set(rows.tolist())


@pytest.mark.parametrize("limit", [1, 4096])
def test_forward_in_tiles(
    limit: int,
    random_columns: Columns,
    random_questions: Questions,
) -> None:
    config = config_of(**{"rank.exhaustive_up_to": limit, "rank.candidates": 5})
    index, asked = MemoryIndex.build(random_columns(ATOMS), config), random_questions(9)
    allowed = torch.rand(9, ATOMS, generator=torch.Generator().manual_seed(2)) < 0.7
    for mask in (allowed, allowed[:1]):
        whole = index(replace(asked, allowed=mask), k=8, paths=True)
        tiled = index(replace(asked, allowed=mask), k=8, paths=True, tile=2 * 5 * ATOMS)
        same(tiled, whole)
        assert torch.equal(tiled.rows, whole.rows)
        assert torch.equal(tiled.paths, whole.paths)


@pytest.mark.parametrize("limit", [1, 4096])
def test_forward_only_allowed_atoms_are_hits_or_anchors(
    limit: int, random_columns: Columns, random_questions: Questions
) -> None:
    config = config_of(**{"rank.exhaustive_up_to": limit})
    index, asked = MemoryIndex.build(random_columns(ATOMS), config), random_questions()
    allowed = torch.rand(5, ATOMS, generator=torch.Generator().manual_seed(3)) < 0.3
    allowed[4] = False
    found = index(replace(asked, allowed=allowed), k=ATOMS)
    for b in range(5):
        hits = set(found.rows[b][found.rows[b] >= 0].tolist())
        assert hits == set(allowed[b].nonzero().squeeze(1).tolist())
        anchors = found.anchors[b][found.anchors[b] >= 0]
        assert allowed[b, anchors].all()
        assert (found.scores[b, found.rows[b] < 0] == -torch.inf).all()
    assert found.confidence.isfinite().all()


@pytest.mark.parametrize("limit", [1, 4096])
def test_forward_what_is_not_listed_still_leads_to_hits(
    limit: int, random_columns: Columns, random_questions: Questions
) -> None:
    config = config_of(**{"rank.exhaustive_up_to": limit, "rank.candidates": ATOMS})
    index, asked = MemoryIndex.build(random_columns(ATOMS), config), random_questions()
    listed = torch.rand(5, ATOMS, generator=torch.Generator().manual_seed(3)) < 0.3
    whole, found = index(asked, k=ATOMS), index(replace(asked, listed=listed), k=ATOMS)
    expected = scores_of(whole).masked_fill(~listed, -torch.inf)
    torch.testing.assert_close(scores_of(found), expected, rtol=1e-4, atol=1e-4)
    assert torch.equal(found.anchors, whole.anchors)
    shared = index(replace(asked, listed=listed[:1]), k=ATOMS)
    same(shared, index(replace(asked, listed=listed[:1].expand(5, -1)), k=ATOMS))


def test_forward_more_hits_than_atoms(index: MemoryIndex, random_questions: Questions) -> None:
    found = index(random_questions(), k=10 * ATOMS)
    assert found.rows.shape == (5, ATOMS)
    assert found.rows.sort(1).values.tolist() == [list(range(ATOMS))] * 5


@pytest.mark.parametrize(("atoms", "concepts"), [(0, 0), (0, 3), (1, 0), (2, 1)])
def test_forward_tiny(
    atoms: int, concepts: int, random_columns: Columns, random_questions: Questions
) -> None:
    empty = random_columns(3, 0)
    data = random_columns(max(1, atoms), concepts) if atoms else replace(
        empty,
        **{n: getattr(empty, n)[:0] for n in ("embeddings", "kind", "speaker", "session", "time")},
        **{n: getattr(empty, n)[:0] for n in ("log_words", "is_question", "tells_time")},
        **{n: getattr(empty, n)[:0] for n in ("role", "told")},
        terms=empty.terms[:0], term_offsets=empty.term_offsets[:1],
        tokens=None, pieces=None, token_offsets=None, edges=EdgeBlock.empty(), num_nodes=concepts,
    )  # fmt: skip
    for limit in (0, 4096):
        index = MemoryIndex.build(data, config_of(**{"rank.exhaustive_up_to": limit}))
        found = index(random_questions(), k=4, paths=True)
        assert set(found.rows.flatten().tolist()) - {-1} <= set(range(atoms))
        assert found.confidence.shape == (5,)
        assert index(random_questions(0), k=4).rows.shape[0] == 0


def test_half_keeps_the_ranking_close(index: MemoryIndex, random_questions: Questions) -> None:
    asked = random_questions()
    whole = index(asked, k=ATOMS)
    time = index.time.clone()
    halved = deepcopy(index).half()
    assert halved.embeddings.dtype == torch.float16
    assert torch.equal(halved.time.nan_to_num(), time.nan_to_num())
    found = halved(asked, k=ATOMS)
    assert found.scores.dtype == torch.float32
    # Anchors that are nearly equal may change places, and a walk then begins elsewhere.
    kept = [i for i, name in enumerate(index.signal_names) if "walk" not in SIGNALS[name].reads]
    for one, other in zip(halved.features(asked), index.features(asked), strict=True):
        values = one[:, :, kept] if one.dim() == 3 else one
        wanted = other[:, :, kept] if other.dim() == 3 else other
        torch.testing.assert_close(values, wanted, rtol=3e-2, atol=3e-2)
    torch.testing.assert_close(found.confidence, whole.confidence, rtol=0.2, atol=0.2)


def test_state_dict_and_to(
    index: MemoryIndex, random_columns: Columns, random_questions: Questions
) -> None:
    asked = random_questions()
    whole = index(asked, k=9, paths=True)
    copy = MemoryIndex.from_state_dict(index.state_dict(), index.config)
    other = MemoryIndex.build(random_columns(ATOMS, seed=7, edges=random_columns(ATOMS).edges),
                              index.config)  # fmt: skip
    for again in (copy, copy.to("cpu"), copy.double().float()):
        found = again(asked, k=9, paths=True)
        for one, two in zip(found, whole, strict=True):
            torch.testing.assert_close(one, two)
    assert copy.state_dict().keys() == index.state_dict().keys()
    assert not torch.equal(other(asked, k=9).rows, whole.rows)


def test_from_state_dict_keeps_weights(index: MemoryIndex) -> None:
    changed = index.state_dict() | {"weights": index.weights + torch.rand(index.weights.shape)}
    assert torch.equal(
        MemoryIndex.from_state_dict(changed, index.config).weights, changed["weights"]
    )


def test_forward_permuted_atoms_give_permuted_hits(
    random_columns: Columns, random_questions: Questions
) -> None:
    data, asked = random_columns(ATOMS), random_questions()
    order = torch.randperm(ATOMS, generator=torch.Generator().manual_seed(4))
    row = torch.cat([order.argsort(), torch.arange(ATOMS, data.num_nodes)])  # old row -> new row

    def packed(values: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        parts = [values[offsets[a] : offsets[a + 1]] for a in order.tolist()]
        counts = torch.tensor([len(part) for part in parts])
        return torch.cat(parts), torch.nn.functional.pad(counts.cumsum(0), (1, 0))

    assert data.tokens is not None
    assert data.pieces is not None
    assert data.token_offsets is not None
    columns = ("embeddings", "kind", "speaker", "session", "time")
    columns += ("log_words", "is_question", "tells_time", "role", "told")
    terms, term_offsets = packed(data.terms, data.term_offsets)
    tokens, token_offsets = packed(data.tokens, data.token_offsets)
    pieces, _ = packed(data.pieces, data.token_offsets)
    edges = data.edges
    moved = replace(
        data,
        **{name: getattr(data, name)[order] for name in columns},
        terms=terms, term_offsets=term_offsets, tokens=tokens, pieces=pieces,
        token_offsets=token_offsets,
        edges=EdgeBlock(row[edges.source], row[edges.target], edges.type, edges.weight),
    )  # fmt: skip
    config = config_of(**{"spread.max_edges": 1000})  # a cap breaks ties by row
    # Routing is drawn at random row by row; see test_routing for what it keeps in another order.
    weights = {n: w for n, w in config.rank.weights.items() if n not in ROUTING_PARTS}
    config = replace(config, rank=replace(config.rank, weights=weights))
    before = MemoryIndex.build(data, config)(asked, k=ATOMS)
    after = MemoryIndex.build(moved, config)(asked, k=ATOMS)
    torch.testing.assert_close(scores_of(after), scores_of(before)[:, order], rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(after.confidence, before.confidence)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("embedding", torch.zeros(5, 7)),
        ("embedding", torch.zeros(16)),
        ("embedding", torch.full((5, 16), torch.nan)),
        ("terms", torch.zeros(4, 2, dtype=torch.int64)),
        ("terms", torch.zeros(5, 2)),
        ("terms", torch.full((5, 2), 30)),
        ("tokens", torch.zeros(5, 5, 7)),
        ("tokens", torch.zeros(5, 4, 8)),
        ("tokens", torch.full((5, 5, 8), torch.inf)),
        ("pieces", torch.zeros(5, dtype=torch.int64)),
        ("speakers", torch.zeros(5, 2, dtype=torch.bool)),
        ("months", torch.zeros(5, 13, dtype=torch.bool)),
        ("days", torch.zeros(4, 31, dtype=torch.bool)),
        ("asks_when", torch.zeros(4, dtype=torch.bool)),
        ("allowed", torch.ones(ATOMS, dtype=torch.bool)),
        ("allowed", torch.ones(5, ATOMS + 6, dtype=torch.bool)),
        ("allowed", torch.ones(2, ATOMS, dtype=torch.bool)),
        ("listed", torch.ones(5, ATOMS - 1, dtype=torch.bool)),
    ],
)
def test_forward_refuses_what_does_not_fit(
    name: str, value: Any, index: MemoryIndex, random_questions: Questions
) -> None:
    with pytest.raises(InputError):
        index(replace(random_questions(), **{name: value}))


def test_forward_refuses_to_find_nothing(index: MemoryIndex, random_questions: Questions) -> None:
    with pytest.raises(InputError, match="k: expected an integer of at least 1"):
        index(random_questions(), k=0)


def test_forward_refuses_what_is_no_batch_of_questions(index: MemoryIndex) -> None:
    for call in (index, index.score, index.features):
        for query in (None, index.embeddings[:2], ["canoe"]):
            with pytest.raises(InputError, match="query: expected a QueryBatch, got"):
                call(query)  # type: ignore[operator]


def test_build_unknown_names_in_the_settings(random_columns: Columns) -> None:
    config = load_config("default", {"rank.weights.semantc": 1.0})
    with pytest.raises(ConfigError, match="did you mean 'semantic'"):
        MemoryIndex.build(random_columns(5), config)


def test_repr_says_what_is_there(index: MemoryIndex) -> None:
    text = repr(index)
    for part in ("'default'", "40 atoms [16]", "6 concepts", "signals", "every atom", "cpu"):
        assert part in text


def test_from_state_dict_refuses_what_is_no_state(index: MemoryIndex) -> None:
    state = index.state_dict()
    with pytest.raises(InputError, match=r"state: expected the tensors .*, got NoneType"):
        MemoryIndex.from_state_dict(None, index.config)  # type: ignore[arg-type]
    lacking = {name: value for name, value in state.items() if name != "session"}
    with pytest.raises(InputError, match=r"none of \['session'\]"):
        MemoryIndex.from_state_dict(lacking, index.config)
    with pytest.raises(InputError, match=r"also \['sessions'\]"):
        MemoryIndex.from_state_dict({**state, "sessions": state["session"]}, index.config)
    with pytest.raises(InputError, match=r"state\['weights'\]: expected"):
        MemoryIndex.from_state_dict({**state, "weights": torch.ones(2)}, index.config)


def test_plan_of_each_regime(random_columns: Columns) -> None:
    modes = {"modes.use": "candidates"}
    for overrides, rule in (
        ({}, CandidateRule.EVERY),
        ({"rank.exhaustive_up_to": ATOMS - 1}, CandidateRule.BASE),
        ({"rank.exhaustive_up_to": 0, **modes}, CandidateRule.MODES),
        ({**modes, "segment.retrieve": True}, CandidateRule.REACHED),
    ):
        index = MemoryIndex.build(random_columns(ATOMS), config_of(**overrides))
        assert index.plan.rule == rule
        bare = MemoryIndex.build(random_columns(ATOMS), load_config("sgrm", overrides))
        assert bare.plan.traverses and not bare.plan.activates


def test_forward_compiled() -> None:
    """In one graph, with lists of candidates, activation and hops between documents.

    What the dispatcher makes of each operation is asked where these are tested.
    """
    names = ("semantic", "activation", "title_hop", "entity_hop")
    few = {"link.concepts": "pattern", "rank.exhaustive_up_to": 9, "rank.candidates": 4}
    config = load_config("default", {"anchors.k": 3, **few})
    config = replace(config, rank=replace(config.rank, weights=dict.fromkeys(names, 0.3)))
    with opened(config=config) as memory:
        memory.add(PASSAGES)
        index = memory.index
        asked = memory.tensors.encode(["Where was the director of the film born?", "Subject 3"])
    asked = QueryBatch(asked.embedding, asked.terms)
    compiled = torch.compile(index, fullgraph=True, dynamic=False, backend="eager")
    with torch.no_grad():
        whole = index(asked, k=9)
        assert all(whole.shares[:, :, place].any() for place in range(len(names)))
        for found, expected in zip(compiled(asked, k=9), whole, strict=True):
            torch.testing.assert_close(found, expected)


def test_forward_compiled_over_many_nodes(
    random_columns: Columns, random_questions: Questions
) -> None:
    """Where an eager question follows the frontier, a compiled one spreads over all nodes."""
    config = load_config("default", {"rank.exhaustive_up_to": 9, "rank.candidates": 4})
    weights = {"semantic": 1.0, "activation": 0.5}
    config = replace(config, rank=replace(config.rank, weights=weights))
    index = MemoryIndex.build(random_columns(ATOMS, 20_001 - ATOMS), config)
    assert index.num_nodes == 20_001
    asked = QueryBatch(random_questions(2).embedding)
    compiled = torch.compile(index, fullgraph=True, dynamic=False, backend="eager")
    with torch.no_grad():
        whole = index(asked, k=9)
        assert whole.shares[:, :, 1].any()
        for found, expected in zip(compiled(asked, k=9), whole, strict=True):
            torch.testing.assert_close(found, expected)


def test_settings_without_weights_rank_nothing(
    random_columns: Columns, random_questions: Questions
) -> None:
    index = MemoryIndex.build(random_columns(ATOMS), Config())
    with pytest.raises(ConfigError, match=r"rank.weights: .*, got none; start from `load_config"):
        index(random_questions())
