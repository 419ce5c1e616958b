"""Fixed shapes: the answers of an index, with one wait of the host for each batch."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest
import torch

from bench.counting import Counts, counted
from bench.made_memory import made_memory, questions
from graphmem_torch.config import WalkConfig, load_config
from graphmem_torch.errors import InputError
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.index.retrieve import Retrieval
from graphmem_torch.ops import SparseRows
from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.tiles import numbers_on
from graphmem_torch.rank.anchors import fixed_walk, walk_from
from graphmem_torch.rank.paths import hop_discount, hop_discounts
from graphmem_torch.rank.query import QueryBatch

ATOMS, QUESTIONS = 2500, 9

# Most calls of a question by preset, over a plain and a rich memory with a mask.
BUDGET = {
    "default": (970, 1340),
    "synapse": (630, 650),
    "contextos": (1430, 1450),
    "spectral": (900, 920),
    "sgrm": (310, 320),
    "weave": (970, 1340),
}
PASSES = {"default": (5, 26), "synapse": (6, 9), "sgrm": (11, 11)}
"""Most passes over [B, A] where the candidates are chosen from all atoms."""

MADE = {rich: made_memory(ATOMS, rich=rich) for rich in (False, True)}


def made(preset: str, rich: bool) -> tuple[MemoryIndex, QueryBatch]:
    index = MemoryIndex.build(MADE[rich], load_config(preset)).eval()
    return index, questions(MADE[rich], QUESTIONS, rich=rich, masked=rich)


def work_of(index: MemoryIndex, asked: QueryBatch) -> Counts:
    index(asked)  # values that are computed once for an index
    cells = len(asked) * index.num_atoms
    return counted(lambda stages: index(asked, stages=stages, tile=1 << 40), cells)["all"]


def same(found: Retrieval, expected: Retrieval) -> None:
    assert torch.equal(found.rows, expected.rows)
    there = (found.rows >= 0)[:, :, None]  # the shares of no hit are undefined
    found, expected = (each._replace(shares=each.shares * there) for each in (found, expected))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
@pytest.mark.parametrize("preset", BUDGET)
def test_host_waits_once_and_calls_stay_within_their_budget(preset: str, rich: bool) -> None:
    index, asked = made(preset, rich)
    expected = index(asked)
    index.fix_shapes()
    same(index(asked), expected)
    work = work_of(index, asked)
    assert work.waits == 1, work.places
    assert work.calls <= BUDGET[preset][rich], work.calls
    assert work.passes <= PASSES.get(preset, (ATOMS, ATOMS))[rich], work.passes


@pytest.mark.parametrize(("rich", "passes"), [(False, 5), (True, 9)], ids=["plain", "rich"])
def test_eager_questions_make_no_pass_for_scales_and_derived_atoms(rich: bool, passes: int) -> None:
    index, asked = made("default", rich)
    assert work_of(index, asked).passes <= passes


@pytest.mark.parametrize("exhaustive", [0, 10_000])
def test_masks_groups_tiers_and_seeds_in_fixed_shapes(exhaustive: int) -> None:
    config = load_config("default", {"rank.exhaustive_up_to": exhaustive})
    index, row = MemoryIndex.build(MADE[True], config).eval(), torch.arange(ATOMS)
    asked = questions(MADE[True], QUESTIONS, rich=True)
    for change in (
        {"allowed": (row % 3 != 0)[None]},
        {"allowed": ((row + torch.arange(QUESTIONS)[:, None]) % 5 != 0)},
        {"listed": (row % 4 != 0)[None], "ended": (row % 7 == 0)[None]},
        {"group": torch.where(row % 9 < 2, row // 9 + 1, 0)[None]},
        {"tier": (row % 3)[None]},
        {"seeds": torch.tensor([[ATOMS + 3, -1]] * QUESTIONS)},
        {"allowed": (row < 3)[None]},
        {"allowed": torch.zeros(1, ATOMS, dtype=torch.bool)},
    ):
        given = replace(asked, **change)
        expected = index.fix_shapes(False)(given, k=9)
        same(index.fix_shapes()(given, k=9), expected)


def test_equal_scores_beyond_the_shortlist_are_answered_again() -> None:
    """Ties with the last candidate need all scores: a flag says so, and the eager way answers."""
    data = replace(MADE[False], embeddings=MADE[False].embeddings[:1].expand(ATOMS, -1).clone())
    index = MemoryIndex.build(data, load_config("default")).eval()
    asked = questions(MADE[False], QUESTIONS)
    expected = index(asked)
    index.fix_shapes()
    same(index(asked), expected)
    assert work_of(index, asked).waits > 1


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"embedding": torch.full((QUESTIONS, 384), torch.nan)},
            "query.embedding: expected finite",
        ),
        ({"tokens": torch.full((QUESTIONS, 7, 128), torch.inf)}, "query.tokens: expected finite"),
        ({"terms": torch.full((QUESTIONS, 7), 10**6)}, "query_terms: expected terms below"),
        ({"embedding": torch.zeros(QUESTIONS, 3)}, "query.embedding: expected"),
    ],
)
def test_bad_questions_are_refused_as_without(change: dict[str, Any], message: str) -> None:
    index, asked = made("default", False)
    for fixed in (False, True):
        with pytest.raises(InputError, match=message):
            index.fix_shapes(fixed)(replace(asked, **change))
    assert not shapes_are_fixed()


def test_paths_keep_shapes_of_their_own() -> None:
    index, asked = made("default", False)
    expected = index(asked, k=5, paths=True)
    same(index.fix_shapes()(asked, k=5, paths=True), expected)


def test_threads_fix_shapes_for_themselves() -> None:
    fixed, asked = made("default", False)
    eager, _ = made("default", False)
    expected = eager(asked)
    fixed.fix_shapes()
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda i: (fixed if i % 2 else eager)(asked), range(12)):
            same(found, expected)


def test_a_changed_index_keeps_its_learned_weights() -> None:
    index, asked = made("default", False)
    with torch.no_grad():
        index.weights.mul_(0.5)
        index.constants["spread"].mul_(0.9)
    expected = index(asked)
    same(index.fix_shapes()(asked), expected)


@pytest.mark.parametrize("nodes", [60, 2100])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("mask", [None, "shared", "own"])
def test_walk_of_fixed_rounds_is_that_of_pushes(
    nodes: int, relative: bool, mask: str | None, random_graph: Any
) -> None:
    graph = random_graph(nodes, 4 * nodes)
    g = torch.Generator().manual_seed(3)
    columns = torch.randint(nodes, (4, 3), generator=g)
    seeds = SparseRows.of(columns, torch.rand(4, 3, generator=g) + 0.1, nodes)
    there = torch.rand(1 if mask == "shared" else 4, nodes, generator=g) < 0.8
    there = None if mask is None else there.scatter(1, columns.view(1, -1), True).expand(4, -1)
    config = WalkConfig(relative=relative)
    expected = walk_from(graph, seeds, config, there).to_dense()
    found = fixed_walk(graph, seeds.to_dense(), config, there)
    near = expected > 0.02 * expected.amax(1, keepdim=True)  # a push leaves small values out
    torch.testing.assert_close(found[near], expected[near], rtol=2e-2, atol=1e-4)


def test_traversal_as_a_matrix_is_that_of_the_frontier(random_graph: Any) -> None:
    graph, g = random_graph(80, 200), torch.Generator().manual_seed(4)
    seeds = torch.randint(-1, 80, (5, 3), generator=g)
    mask = torch.rand(5, 80, generator=g) < 0.8
    for there in (None, mask):
        given = {"hops": 3, "discount": 0.7, "mask": there}
        expected = hop_discount(graph, seeds, **given).to_dense()
        torch.testing.assert_close(hop_discounts(graph, seeds, **given), expected)


def test_constants_are_copied_to_a_device_once() -> None:
    device = torch.device("cpu")
    assert numbers_on(device, [1, 0]) is numbers_on(device, [1, 0])
    assert numbers_on(device, [True, False]).dtype == torch.bool
    assert numbers_on(device, [1, 0]).dtype == numbers_on(device, []).dtype == torch.int64
