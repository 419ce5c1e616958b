"""Moments over all atoms without a pass, against all values in float64."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn.functional import normalize

from graphmem_torch.config import load_config
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.ops.fixed_shapes import fixing_shapes
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.population import Sums, cosine_sums, row_sums

SEEDS = st.integers(0, 2**31)


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@given(SEEDS, st.integers(1, 40), st.integers(1, 9), st.integers(1, 4), st.floats(-3, 3))
def test_moments_of_cosines_are_those_of_all_values(
    seed: int, atoms: int, width: int, questions: int, shift: float
) -> None:
    rows = normalize(drawn(seed, atoms, width) + shift, dim=1).float()
    asked = normalize(drawn(seed + 1, questions, width) + shift, dim=1).float()
    mean, variance = cosine_sums(row_sums(rows), torch.tensor([atoms]), asked).moments()
    values = asked.double() @ rows.double().T
    torch.testing.assert_close(mean, values.mean(1), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(variance, values.var(1, correction=0), rtol=1e-9, atol=1e-12)


@given(SEEDS, st.lists(st.tuples(st.booleans(), st.integers(1, 9)), max_size=12))
def test_sums_follow_rows_that_come_and_go(seed: int, changes: list[tuple[bool, int]]) -> None:
    rows = normalize(drawn(seed, 5, 6), dim=1).float()
    sums = row_sums(rows)
    for number, (comes, count) in enumerate(changes):
        if comes:
            fresh = normalize(drawn(seed + number, count, 6), dim=1).float()
            rows, sums = torch.cat([rows, fresh]), sums + row_sums(fresh)
        else:
            sums = sums - row_sums(rows[:count])
            rows = rows[count:]
    torch.testing.assert_close(sums, row_sums(rows), rtol=1e-9, atol=1e-12)


@given(
    SEEDS,
    st.integers(1, 30),
    st.integers(1, 4),
    st.booleans(),
    st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
)
def test_masks_leave_the_moments_of_the_allowed(
    seed: int, atoms: int, questions: int, shared: bool, share: float
) -> None:
    values = drawn(seed, questions, atoms).float()
    g = torch.Generator().manual_seed(seed)
    allowed = torch.rand(1 if shared else questions, atoms, generator=g) < share
    exact = values.double()
    whole = Sums(torch.tensor([float(atoms)]).double(), exact.sum(1), exact.square().sum(1))
    mean, variance = whole.within(values, allowed).moments()
    with fixing_shapes():
        fixed = whole.within(values, allowed).moments()
    torch.testing.assert_close(fixed, (mean, variance), rtol=1e-8, atol=1e-8)
    for b in range(questions):
        own = exact[b][allowed[0 if shared else b]]
        wanted = (
            (own.mean(), own.var(correction=0)) if len(own) else (torch.zeros(()).double(),) * 2
        )
        torch.testing.assert_close(mean[b], wanted[0], rtol=1e-9, atol=1e-9)
        torch.testing.assert_close(variance[b], wanted[1], rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("mask", [None, "shared", "own"])
@pytest.mark.parametrize("name", ["semantic", "lexical"])
def test_scales_of_a_shortlist_are_those_of_all_atoms(
    name: str, mask: str | None, random_columns: Callable[..., Any], random_questions: Any
) -> None:
    data, asked = random_columns(60), random_questions(7)
    config = load_config("default", {"rank.exhaustive_up_to": 9, "rank.candidates": 4})
    index = MemoryIndex.build(data, config)
    assert index.tensors.row_sums is not None
    allowed = torch.rand(7, 60, generator=torch.Generator().manual_seed(3)) < 0.7
    if mask is not None:
        asked = replace(asked, allowed=allowed[:1] if mask == "shared" else allowed)
    there = allowed if mask == "own" else allowed[:1].expand(7, -1)
    values = asked.embedding @ data.embeddings.T
    if name == "lexical":
        values = index.tensors.bm25.score(asked.terms)
    mean, deviation = Candidates(index.tensors, asked, config).population(name)
    for b in range(7):
        own = values[b] if mask is None else values[b][there[b]]
        assert float(mean[b]) == pytest.approx(float(own.double().mean()), abs=1e-6)
        spread = float(own.double().std(correction=0))
        assert float(deviation[b]) == pytest.approx(spread, abs=1e-6)


def test_an_index_without_sums_reads_the_values(
    random_columns: Callable[..., Any], random_questions: Any
) -> None:
    """An index of an earlier version has no sums, and answers alike."""
    config = load_config("default", {"rank.exhaustive_up_to": 9, "rank.candidates": 4})
    index, asked = MemoryIndex.build(random_columns(60), config), random_questions(7)
    state = {name: part for name, part in index.state_dict().items() if name != "moment_bits"}
    former = MemoryIndex.from_state_dict(state, config)
    assert former.tensors.row_sums is None
    for found, expected in zip(former(asked, k=20), index(asked, k=20), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_half_precision_keeps_the_sums(random_columns: Callable[..., Any]) -> None:
    config = load_config("default", {"rank.exhaustive_up_to": 9})
    index = MemoryIndex.build(random_columns(60), config)
    before = index.tensors.row_sums
    after = index.half().tensors.row_sums
    assert before is not None and after is not None and torch.equal(before, after)


def test_small_memories_keep_no_sums(random_columns: Callable[..., Any]) -> None:
    assert MemoryIndex.build(random_columns(60), load_config("default")).tensors.row_sums is None
