"""Why an atom has its score: influences against asking without each memory, gradients, paths."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import SIGNALS
from tests.index.test_from_tensors import DIM, drawn, unit
from tests.index.test_gradients import CASES as GRADIENT_CASES

Columns = Callable[..., IndexInput]
Questions = Callable[..., QueryBatch]

ATOMS = 26


def every_signal(**overrides: Any) -> Config:
    weights = {name: 0.3 + 0.1 * place for place, name in enumerate(sorted(SIGNALS))}
    base = load_config("default", {"anchors.k": 3, **overrides})
    return replace(base, rank=replace(base.rank, weights=weights))


def unwalked(config: Config) -> Config:
    """Without walks, whose rounds depend on who is beside them in a batch."""
    kept = {n: w for n, w in config.rank.weights.items() if "walk" not in SIGNALS[n].reads}
    return replace(config, rank=replace(config.rank, weights=kept))


CASES = {
    "every signal": unwalked(every_signal()),
    "raw": unwalked(every_signal(**{"rank.scale": "raw"})),
    "candidates": unwalked(
        every_signal(**{"rank.scale": "raw", "rank.exhaustive_up_to": 1, "rank.candidates": ATOMS})
    ),
    **{name: load_config(name) for name in ("default", "synapse", "spectral", "contextos", "sgrm")},
}


@pytest.fixture
def units(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """After a call the units of signals stay what they were first: statistics are kept."""
    known: dict[str, Tensor] = {}
    trends: dict[str, Tensor] = {}
    scale, trend, fixed = Candidates.scale_of, Candidates.trend_of, False

    def kept(self: Candidates, names: list[str], values: Tensor) -> Tensor:
        if not fixed:
            own = scale(self, names, values)
            known.update({name: own[:, :1, place].detach() for place, name in enumerate(names)})
            return own
        return torch.stack([known[name] for name in names], 2)

    def followed(self: Candidates, name: str, values: Tensor, length: Tensor) -> Tensor:
        if not fixed:
            trends[name] = trend(self, name, values, length)[:1].detach()
        return trends[name]

    monkeypatch.setattr(Candidates, "scale_of", kept)
    monkeypatch.setattr(Candidates, "trend_of", followed)

    def fix() -> None:
        nonlocal fixed
        fixed = True

    yield fix


def one(asked: QueryBatch, place: int = 0) -> QueryBatch:
    return asked.rows(torch.tensor([place]))


@pytest.mark.parametrize("case", list(CASES))
def test_influence_is_what_asking_without_each_memory_gives(
    case: str, units: Callable[[], None], random_columns: Columns, random_questions: Questions
) -> None:
    index = MemoryIndex.build(random_columns(ATOMS), CASES[case])
    moved = 0
    for question, row in ((0, 4), (1, 11)):
        asked = one(random_questions(), question)
        whole = index.score(asked, k=ATOMS)[0]
        row = row if case == "every signal" else int(whole.argmax())
        found = index.explain(asked, row, k=ATOMS)
        assert float(found.score) == pytest.approx(float(whole[row]), rel=1e-4)
        if case in ("spectral", "sgrm", "contextos"):  # candidates are kept, and walks
            assert found.influence.isfinite().all()
            continue
        units()
        others = replace(asked.rows(torch.zeros(ATOMS).long()), allowed=~torch.eye(ATOMS).bool())
        without = index.score(others, k=ATOMS)[:, row]
        for left in range(ATOMS):
            expected = 0.0 if left == row else float(whole[row] - without[left])
            assert float(found.influence[left]) == pytest.approx(expected, rel=1e-3, abs=2e-4), left
            moved += abs(expected) > 1e-4
        break
    assert moved > 2 or case in ("spectral", "sgrm", "contextos")


@pytest.mark.parametrize("case", ["default", "synapse", "background"])
def test_gradients_are_those_of_the_score(case: str, generator: torch.Generator) -> None:
    """In the weights of edges against finite differences; in anchors against one by one."""
    config = GRADIENT_CASES[case]
    embeddings, graph = unit(generator, 20, DIM).double(), drawn(generator)
    index = MemoryIndex.from_tensors(embeddings, graph, config).double()
    asked = QueryBatch(unit(generator, 1, DIM).double())
    explained = [(row, index.explain(asked, row)) for row in range(0, 20, 3)]
    row, found = max(explained, key=lambda each: int((each[1].edge_gradient != 0).sum()))
    step = 1e-6
    moved = []
    for edge in {*found.edge_gradient.nonzero().flatten().tolist()[:9], *range(0, 99, 20)}:
        weight = index.graph_weight.clone()
        weight[edge] += step
        other = copy.deepcopy(index)
        other.load_state_dict({"graph_weight": weight}, strict=False)
        after = other.score(asked)[0, row]
        moved.append(float(after - found.score) / step)
        assert moved[-1] == pytest.approx(float(found.edge_gradient[edge]), abs=1e-5)
    assert any(moved)
    for node in range(graph.num_nodes):
        leaving = graph.source == node
        sent = (found.edge_gradient * index.graph.weight)[leaving].sum()
        assert float(found.node_gradient[node]) == pytest.approx(float(sent), abs=1e-9)
    assert float(found.anchor_gradient.abs().sum()) > 0
    assert found.value.tolist() == sorted(found.value.tolist(), reverse=True)


def test_paths_are_the_strongest_from_each_anchor(generator: torch.Generator) -> None:
    config = GRADIENT_CASES["default"]
    embeddings, graph = unit(generator, 20, DIM), drawn(generator)
    index = MemoryIndex.from_tensors(embeddings, graph, config)
    asked = QueryBatch(unit(generator, 1, DIM))
    fan = torch.bincount(graph.source.long(), minlength=graph.num_nodes).clamp(min=1).sqrt()
    step = torch.zeros(graph.num_nodes, graph.num_nodes)  # [source, target]
    for s, t, w in zip(graph.source.tolist(), graph.target.tolist(), graph.weight, strict=True):
        step[s, t] = max(step[s, t], 0.8 * w / fan[s])
    walked = 0
    for row in range(0, 20, 4):
        found = index.explain(asked, row)
        for node, value, path, strength in zip(
            found.anchors.tolist(), found.value, found.paths.tolist(), found.strength, strict=True
        ):
            if node == row:
                continue
            two = (step[node, :, None] * step).amax(0)[row]
            best = float(value * torch.maximum(step[node, row], two))
            assert float(strength) == pytest.approx(best, rel=1e-5)
            edges = [edge for edge in path if edge >= 0]
            assert bool(edges) == (best > 0)
            if edges:
                walked += 1
                assert int(graph.source[edges[0]]) == node
                assert int(graph.target[edges[-1]]) == row
    assert walked > 5


def test_shares_and_rank_are_those_of_the_hits(
    random_columns: Columns, random_questions: Questions
) -> None:
    index, asked = MemoryIndex.build(random_columns(ATOMS), every_signal()), random_questions()
    listed = (torch.arange(ATOMS) % 4 > 0)[None]
    asked = one(replace(asked, listed=listed))
    hits = index(asked, k=ATOMS)
    for place in (0, 3, 9):
        row = int(hits.rows[0, place])
        found = index.explain(asked, row)
        assert found.rank == place + 1
        torch.testing.assert_close(found.shares, hits.shares[0, place])
        assert float(found.score) == pytest.approx(float(hits.scores[0, place]), rel=1e-5)
    assert index.explain(asked, 0).rank == 0
    narrow = replace(
        index.config, rank=replace(index.config.rank, exhaustive_up_to=1, candidates=1)
    )
    few = MemoryIndex.from_state_dict(index.state_dict(), narrow)
    last = int(few.score(asked, k=1)[0].argmin())
    found = few.explain(asked, last, k=1)  # made a candidate for it
    assert found.rank == 0
    assert found.score.isfinite() and found.influence.isfinite().all()


def test_explain_in_memories_that_hardly_are(generator: torch.Generator) -> None:
    for atoms in (1, 2, 3):
        for preset in ("default", "synapse", "spectral", "contextos", "sgrm"):
            config = load_config(preset, {"spread.min_nodes": 0})
            index = MemoryIndex.from_tensors(unit(generator, atoms, DIM), None, config)
            for allowed in (None, torch.zeros(1, atoms, dtype=torch.bool)):
                asked = QueryBatch(unit(generator, 1, DIM), allowed=allowed)
                found = index.explain(asked, atoms - 1)
                assert found.influence.shape == (atoms,)
                assert float(found.influence[atoms - 1]) == 0.0
                assert found.score.isfinite()
    with pytest.raises(InputError, match="expected one question and a row below 3, got 1 and 3"):
        index.explain(asked, 3)
    with pytest.raises(InputError, match="expected one question"):
        index.explain(QueryBatch(unit(generator, 2, DIM)), 0)
