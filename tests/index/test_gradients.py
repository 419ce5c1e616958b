"""MemoryIndex.score: the scores of `forward`, and their gradients, against dense formulas."""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import SIGNALS
from tests.index.test_from_tensors import ATOMS, DIM, NODES, dense_scores, drawn, settings, unit

Columns = Callable[..., IndexInput]
Questions = Callable[..., QueryBatch]

CASES = {
    "default": settings(),
    "synapse": settings("synapse", **{"anchors.source": "semantic"}),
    "synapse-published": settings("synapse-published", **{"anchors.source": "semantic"}),
    "background": settings(**{"rank.scale": "background", "spread.reduce": "sum"}),
    "candidates": settings(
        **{"rank.exhaustive_up_to": 1, "rank.candidates": 9, "rank.scale": "background"}
    ),
}


def double_index(config: Config, generator: torch.Generator) -> tuple[MemoryIndex, Tensor]:
    """An index whose arithmetic is float64, and questions."""
    embeddings, question = unit(generator, ATOMS, DIM).double(), unit(generator, 2, DIM).double()
    index = MemoryIndex.from_tensors(embeddings, drawn(generator), config).double()
    return index.requires_grad_(), question.requires_grad_()


@pytest.mark.parametrize("case", list(CASES))
def test_score_has_the_gradient_of_its_finite_differences(
    case: str, generator: torch.Generator
) -> None:
    index, question = double_index(CASES[case], generator)
    names, values = zip(*index.named_parameters(), strict=True)
    used = ["retention", "spread"]
    used += ["inhibition", "gain", "threshold"] if case.startswith("synapse") else []
    assert {*names} == {"weights", "edge_gains", *(f"constants.{name}" for name in used)}

    def score(question: Tensor, *parameters: Tensor) -> Tensor:
        given = dict(zip(names, parameters, strict=True))
        found = torch.func.functional_call(
            _Scored(index), {f"index.{n}": v for n, v in given.items()}, (QueryBatch(question),)
        )
        return found.masked_fill(found == -torch.inf, 0.0)

    torch.autograd.gradcheck(score, (question, *values), eps=1e-7, atol=1e-5, fast_mode=True)
    gradients = torch.autograd.grad(score(question, *values).sum(), (question, *values))
    assert all(float(gradient.abs().sum()) > 0 for gradient in gradients)


class _Scored(torch.nn.Module):
    def __init__(self, index: MemoryIndex) -> None:
        super().__init__()
        self.index = index

    def forward(self, query: QueryBatch) -> Tensor:
        return self.index.score(query)


@pytest.mark.parametrize("case", ["default", "synapse", "synapse-published"])
def test_score_is_the_dense_formula_with_its_gradient(
    case: str, generator: torch.Generator
) -> None:
    """The formula is differentiated through matrices, with tensors of its own for constants."""
    config = CASES[case]
    index, question = double_index(config, generator)
    with torch.no_grad():
        index.edge_gains.copy_(0.5 + torch.rand(len(EdgeType), generator=generator))
        index.constants["retention"].fill_(0.3)
    ours = index.score(QueryBatch(question))
    gains, kept = index.edge_gains.detach().clone(), torch.tensor(0.3, dtype=torch.float64)
    leaves = question.detach().clone(), gains, kept
    for leaf in leaves:
        leaf.requires_grad_()
    graph = index.graph
    scaled = replace(graph, weight=graph.weight * gains[graph.type.long()])
    changed = replace(config, spread=replace(config.spread, retention=kept))  # type: ignore[arg-type]
    expected = dense_scores(index.embeddings, leaves[0], scaled, changed)
    torch.testing.assert_close(ours, expected)
    weight = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    found = torch.autograd.grad(
        (ours * weight).sum(), (question, index.edge_gains, index.constants["retention"])
    )
    wanted = torch.autograd.grad((expected * weight).sum(), leaves)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("masked", [False, True])
def test_walks_have_the_gradient_of_their_linear_system(
    masked: bool, generator: torch.Generator
) -> None:
    """In the question, weights and gains; what is not there for a question has no edges."""
    config = settings()
    names = {"semantic": 0.7, "personalized_pagerank": 2.0}
    config = replace(config, rank=replace(config.rank, weights=names))
    index, question = double_index(config, generator)
    with torch.no_grad():
        index.edge_gains.copy_(0.5 + torch.rand(len(EdgeType), generator=generator))
    there = torch.rand(2, ATOMS, generator=generator) < (0.7 if masked else 2.0)
    ours = index.score(QueryBatch(question, allowed=there if masked else None))

    graph, leaves = index.graph, (question, index.weights, index.edge_gains)
    cosine = question @ index.embeddings.T
    base = index.weights[0, 0] * cosine.masked_fill(~there, 0.0)
    spread = torch.stack([b[t].std(correction=0) for b, t in zip(base, there, strict=True)])
    best = base.masked_fill(~there, -torch.inf).topk(config.anchors.k, dim=1)
    relevance = ((best.values - best.values[:, :1]) / spread[:, None]).exp()
    start = torch.zeros(2, NODES, dtype=torch.float64).scatter(1, best.indices, relevance)
    start = start / start.sum(1, keepdim=True)
    walked = []
    for own, seeds in zip(there, start, strict=True):
        known = torch.cat([own, torch.ones(NODES - ATOMS, dtype=torch.bool)])
        weight = (graph.weight * index.edge_gains[graph.type.long()]).abs()
        weight = weight * (known[graph.source] & known[graph.target])
        walk = torch.zeros(NODES, NODES, dtype=torch.float64)
        walk = walk.index_put((graph.target, graph.source), weight, accumulate=True)
        out = walk.sum(0)
        moves = torch.where(out > 0, walk / torch.where(out > 0, out, 1.0), seeds[:, None])
        eye = torch.eye(NODES, dtype=torch.float64)
        walked.append(torch.linalg.solve(eye - 0.85 * moves, 0.15 * seeds))
    expected = base + index.weights[0, 1] * torch.stack(walked)[:, :ATOMS]
    torch.testing.assert_close(ours[there], expected[there], rtol=1e-5, atol=1e-5)
    toward = torch.randn(ours.shape, generator=generator, dtype=torch.float64)
    found = torch.autograd.grad((ours * toward)[there].sum(), leaves)
    wanted = torch.autograd.grad((expected * toward)[there].sum(), leaves)
    for one, other in zip(found, wanted, strict=True):
        assert float(other.abs().max()) > 1e-3
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def every_signal(**overrides: Any) -> Config:
    weights = {name: 0.3 + 0.1 * place for place, name in enumerate(sorted(SIGNALS))}
    base = load_config("default", {"anchors.k": 3, **overrides})
    return replace(base, rank=replace(base.rank, weights=weights))


@pytest.mark.parametrize(("limit", "scale"), [(1, "background"), (4096, "raw")])
def test_score_is_what_forward_ranks_by(
    limit: int,
    scale: str,
    random_columns: Columns,
    random_questions: Questions,
) -> None:
    config = every_signal(
        **{"rank.scale": scale, "rank.exhaustive_up_to": limit, "rank.candidates": 6}
    )
    index, asked = MemoryIndex.build(random_columns(), config), random_questions()
    listed = torch.rand(5, 40, generator=torch.Generator().manual_seed(3)) < 0.6
    asked = replace(asked, listed=listed, allowed=listed | (torch.arange(40) % 3 > 0))
    found = index(asked, k=40)
    score = index.score(asked, k=40)
    there = found.rows >= 0
    torch.testing.assert_close(
        score.gather(1, found.rows.clamp(min=0))[there], found.scores[there], rtol=1e-4, atol=1e-4
    )
    assert torch.equal((score > -torch.inf).sum(1), there.sum(1))
    features = index.features(asked, k=40)
    total = (features.values * index.weights[features.form]).sum(2)
    place, row = (features.listed & (features.rows >= 0)).nonzero(as_tuple=True)
    torch.testing.assert_close(
        total[place, row], score[place, features.rows[place, row]], rtol=1e-4, atol=1e-4
    )
    asked = replace(asked, embedding=asked.embedding.clone().requires_grad_())
    learning = deepcopy(index).requires_grad_()
    with_gradient = learning.score(asked, k=40)
    torch.testing.assert_close(with_gradient, score, rtol=1e-4, atol=1e-4)
    with_gradient[score > -torch.inf].sum().backward()
    for name, value in (*learning.named_parameters(), ("embedding", asked.embedding)):
        assert value.grad is not None, name
        assert value.grad.isfinite().all(), name
    assert float(learning.edge_gains.grad.abs().sum()) > 0
    same = learning(asked, k=9, paths=True)
    assert torch.equal(same.rows, index(asked, k=9).rows)


@pytest.mark.parametrize("preset", ["default", "synapse", "spectral", "sgrm"])
def test_presets_have_a_finite_gradient(
    preset: str, random_columns: Columns, random_questions: Questions
) -> None:
    index = MemoryIndex.build(random_columns(), load_config(preset)).requires_grad_()
    asked = random_questions()
    asked = replace(asked, embedding=asked.embedding.clone().requires_grad_())
    score = index.score(asked)
    score[score > -torch.inf].sum().backward()
    assert asked.embedding.grad is not None
    for value in (index.weights.grad, asked.embedding.grad):
        assert value.isfinite().all()
        assert float(value.abs().sum()) > 0


def test_gradients_where_nothing_differs(generator: torch.Generator) -> None:
    """Equal atoms, one atom, none at all, nothing allowed: no NaN comes back."""
    row = unit(generator, 1, DIM)
    for rows, allowed in ((row.expand(4, -1), None), (row, None), (row[:0], None), (row, False)):
        for case in CASES.values():
            rule = replace(case, spread=replace(case.spread, min_nodes=0))
            graph = Graph.from_edges(torch.tensor([[0, 1], [1, 0]]), num_nodes=max(2, len(rows)))
            index = MemoryIndex.from_tensors(rows.contiguous(), graph, rule).requires_grad_()
            question = unit(generator, 2, DIM).requires_grad_()
            mask = None if allowed is None else torch.zeros(1, len(rows), dtype=torch.bool)
            score = index.score(QueryBatch(question, allowed=mask))
            assert score.shape == (2, len(rows))
            score[score > -torch.inf].sum().backward()
            assert question.grad is None or question.grad.isfinite().all()
            for value in index.parameters():
                assert value.grad is None or value.grad.isfinite().all()


def test_what_is_learned_counts_from_the_next_question_on(generator: torch.Generator) -> None:
    config = settings()
    embeddings, graph = unit(generator, ATOMS, DIM), drawn(generator)
    question = QueryBatch(unit(generator, 3, DIM))
    index = MemoryIndex.from_tensors(embeddings, graph, config)
    before = index(question, k=ATOMS)
    index.requires_grad_().score(question).square().mean().backward()
    with torch.no_grad():
        for value in index.requires_grad_(False).parameters():
            value -= 0.5 * value.grad
    names = dict(index.named_parameters())
    spread = {name: float(names[f"constants.{name}"]) for name in ("retention", "spread")}
    changed = replace(config, spread=replace(config.spread, **spread))
    weights = dict(zip(index.signal_names, index.weights[0].tolist(), strict=True))
    changed = replace(changed, rank=replace(changed.rank, weights=weights))
    scaled = graph.with_weight(graph.weight * index.edge_gains[graph.type.long()])
    expected = dense_scores(embeddings, question.embedding, scaled, changed)
    copies = deepcopy(index), MemoryIndex.from_state_dict(index.state_dict(), config)
    for each in (index, *copies):
        found = each(question, k=ATOMS, paths=True)
        torch.testing.assert_close(found.scores, expected.gather(1, found.rows))
        assert not torch.allclose(found.scores, before.scores)
    with torch.no_grad():
        for name, value in MemoryIndex.from_tensors(embeddings, graph, config).named_parameters():
            names[name].copy_(value)
    assert torch.equal(index(question, k=ATOMS).scores, before.scores)
    with torch.no_grad():
        copies[0].edge_gains.zero_()
    plain = replace(graph, weight=torch.zeros_like(graph.weight))
    found = copies[0](question, k=ATOMS)
    expected = dense_scores(embeddings, question.embedding, plain, changed)
    torch.testing.assert_close(found.scores, expected.gather(1, found.rows))


def test_tokens_of_a_question_have_no_gradient(
    random_columns: Columns, random_questions: Questions
) -> None:
    asked = random_questions()
    assert asked.tokens is not None
    index = MemoryIndex.build(random_columns(), every_signal())
    with pytest.raises(InputError, match="token_maxima: expected no gradient"):
        index.score(replace(asked, tokens=asked.tokens.clone().requires_grad_()))
    assert NODES > ATOMS
