"""A question finds on CUDA what it finds on the CPU, whatever the settings and the candidates."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from graphmem_torch.config import Config, load_config
from graphmem_torch.index.data import GrowingIndex
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.index.retrieve import Retrieval
from graphmem_torch.ops.growing import RowsOnDevice
from graphmem_torch.rank.plan import PlanBatch
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import SIGNALS

Columns = Callable[..., IndexInput]
Questions = Callable[..., QueryBatch]

PRESETS = ("default", "synapse", "contextos", "spectral", "sgrm", "weave")
ATOMS, K = 400, 12

pytestmark = pytest.mark.cuda


def everything() -> Config:
    """Every signal at once, with activation that goes somewhere."""
    base = load_config("default", {"anchors.k": 3})
    weights = {name: 0.3 + 0.1 * place for place, name in enumerate(sorted(SIGNALS))}
    return replace(base, rank=replace(base.rank, weights=weights))


def best(found: Retrieval, places: Tensor) -> Tensor:  # [B, k] rows -> their scores
    scores = found.scores.new_full((len(found.rows), ATOMS + 1), -torch.inf)
    scores.scatter_(1, found.rows.where(found.rows >= 0, ATOMS), found.scores)
    scores[:, ATOMS] = -torch.inf
    return scores.gather(1, places.where(places >= 0, ATOMS))


def same(found: Retrieval, expected: Retrieval, tolerance: float = 1e-3) -> None:
    """Equal scores in every place, and of every row that both list."""
    found = Retrieval(*(part.cpu() for part in found))
    near = {"rtol": tolerance, "atol": tolerance}
    torch.testing.assert_close(found.scores, expected.scores, **near)
    torch.testing.assert_close(found.confidence, expected.confidence, **near)
    again = best(found, expected.rows)
    both = again > -torch.inf
    torch.testing.assert_close(again[both], expected.scores[both], **near)
    listed = (expected.rows >= 0).sum()
    assert int(both.sum()) >= 0.98 * int(listed), (int(both.sum()), int(listed))


@pytest.mark.parametrize("exhaustive_up_to", [1_000_000, 1])
@pytest.mark.parametrize("preset", [*PRESETS, "every signal"])
def test_retrieval_on_cuda_is_that_on_the_cpu(
    preset: str, exhaustive_up_to: int, random_columns: Columns, random_questions: Questions
) -> None:
    config = everything() if preset == "every signal" else load_config(preset)
    config = replace(config, rank=replace(config.rank, exhaustive_up_to=exhaustive_up_to))
    index = MemoryIndex.build(random_columns(ATOMS, 30), config)
    asked = random_questions(33)
    expected = index(asked, k=K, paths=True)
    moved = MemoryIndex.build(random_columns(ATOMS, 30), config).to("cuda")
    same(moved(asked.to("cuda"), k=K, paths=True), expected)
    one = QueryBatch(asked.embedding)
    same(moved(one.to("cuda"), k=K), index(one, k=K))


def test_half_precision_on_cuda_is_near_that_of_the_cpu(
    random_columns: Columns, random_questions: Questions
) -> None:
    config = load_config("default")
    index = MemoryIndex.build(random_columns(ATOMS, 30), config).half()
    asked = random_questions(9)
    expected = index(asked, k=K)
    same(index.to("cuda")(asked.to("cuda"), k=K), expected, tolerance=1e-2)


@pytest.mark.parametrize("exhaustive_up_to", [1_000_000, 1])
def test_masks_count_on_cuda(
    exhaustive_up_to: int, random_columns: Columns, random_questions: Questions
) -> None:
    config = load_config("default", {"rank.exhaustive_up_to": exhaustive_up_to})
    index = MemoryIndex.build(random_columns(ATOMS, 30), config)
    row = torch.arange(ATOMS)
    asked = replace(
        random_questions(7),
        allowed=(row % 5 != 0)[None],
        listed=(row % 3 != 0).expand(7, -1).contiguous(),
        ended=(row % 7 == 0)[None],
        retention=(1 / (1 + row % 4)).float()[None],
        group=torch.where(row % 9 < 2, row // 9 + 1, 0)[None],
        seeds=torch.tensor([[ATOMS + 3, -1]] * 7),
        seed_keys=torch.zeros(7, 2, dtype=torch.int64),
    )
    expected = index(asked, k=K)
    found = index.to("cuda")(asked.to("cuda"), k=K)
    rows = found.rows[found.rows >= 0]
    assert len(rows) and bool(((rows % 5 != 0) & (rows % 3 != 0)).all())
    same(found, expected)


def test_plans_prune_on_cuda_as_on_the_cpu(
    random_columns: Columns, random_questions: Questions
) -> None:
    index, asked = MemoryIndex.build(random_columns(ATOMS, 30), everything()), random_questions(8)
    plan = PlanBatch(
        window=torch.tensor([[1.71e9, 1.73e9]] * 8, dtype=torch.float64),
        min_in_window=torch.full((8,), 3),
        match=torch.zeros(8),
        best=torch.full((8,), 20),
        hops=torch.arange(8) % 3,
        types=torch.ones(8, 256, dtype=torch.bool),
        starts=torch.tensor([[ATOMS + 2, -1]] * 8),
        kept=torch.full((8,), 25),
        discount=torch.full((8,), 0.5),
    )
    expected = index.prune(asked, plan)
    found = index.to("cuda").prune(asked.to("cuda"), plan.to("cuda"))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one.cpu(), other)


def test_explained_on_cuda_is_that_on_the_cpu(
    random_columns: Columns, random_questions: Questions
) -> None:
    index, asked = MemoryIndex.build(random_columns(ATOMS, 30), everything()), random_questions(1)
    row = int(index(asked, k=1).rows[0, 0])
    expected = index.explain(asked, row)
    found = index.to("cuda").explain(asked.to("cuda"), row)
    torch.testing.assert_close(found.shares.cpu(), expected.shares, rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(found.score.cpu(), expected.score, rtol=1e-3, atol=1e-3)


def test_an_index_follows_another_to_cuda(
    random_columns: Columns, random_questions: Questions
) -> None:
    config, asked, kept = load_config("default"), random_questions(6), dict[str, RowsOnDevice]()
    index = MemoryIndex.build(random_columns(ATOMS, 30), config)
    moved = MemoryIndex.build(random_columns(ATOMS, 30), config)
    moved.follow_to("cuda", kept)
    assert moved.embeddings.is_cuda and moved.graph.source.is_cuda and kept
    same(moved(asked.to("cuda"), k=K), index(asked, k=K))


def test_what_an_index_follows_with_stays_on_the_cpu(
    random_columns: Columns, random_questions: Questions
) -> None:
    """The columns that a store grows are given out to a device, which owns copies of them."""
    config, asked = load_config("default"), random_questions(6)
    growing = GrowingIndex(config)
    index = MemoryIndex(growing.append(random_columns(ATOMS, 30)), config, growing.listed)
    expected = index(asked, k=K)
    moved = MemoryIndex(dict(index.state_dict()), config).to("cuda")
    same(moved(asked.to("cuda"), k=K), expected)
    assert moved.embeddings.is_cuda and index.embeddings.device.type == "cpu"


def test_gradients_on_cuda_are_those_of_the_cpu(
    random_columns: Columns, random_questions: Questions
) -> None:
    config, asked = load_config("default"), random_questions(4)
    found = []
    for device in ("cpu", "cuda"):
        index = MemoryIndex.build(random_columns(ATOMS, 30), config).to(device).requires_grad_()
        score = index.score(asked.to(device))
        score.clamp(min=-1e3).square().mean().backward()
        known = ((name, each.grad) for name, each in index.named_parameters())
        found.append({name: grad.cpu() for name, grad in known if grad is not None})
    assert found[0].keys() == found[1].keys() and "weights" in found[0]
    for name, expected in found[0].items():
        torch.testing.assert_close(found[1][name], expected, rtol=1e-2, atol=1e-3)
