"""token_maxima against its reference, and against maxsim, which sums it up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.ops import maxsim, token_maxima
from graphmem_torch.ops.token_maxima import token_maxima_reference


def _inputs(lengths: list[int], questions: int) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(questions)
    query = torch.randn(questions, 4, 8, generator=generator)
    known = torch.rand(questions, 4, generator=generator) < 0.7
    offsets = torch.tensor([0, *torch.tensor([0, *lengths]).cumsum(0).tolist()[1:]])
    size = (int(offsets[-1]), 8)
    return (
        query,
        known,
        torch.randint(-127, 128, size, generator=generator, dtype=torch.int8),
        offsets,
    )


LENGTHS = st.lists(st.integers(0, 9), min_size=1, max_size=25)


@settings(deadline=None, max_examples=40)
@given(LENGTHS, st.integers(0, 10))
def test_matches_the_reference(lengths, questions):
    inputs = _inputs(lengths, questions)
    expected = token_maxima_reference(*inputs)
    torch.testing.assert_close(token_maxima(*inputs), expected)
    chosen = torch.randint(-1, len(lengths), (questions, 6))
    there = expected.gather(2, chosen.clamp(min=0)[:, None].expand(-1, 4, -1))
    expected = torch.where((chosen >= 0)[:, None], there, 0.0)
    torch.testing.assert_close(token_maxima(*inputs, candidates=chosen), expected)


@settings(deadline=None, max_examples=20)
@given(LENGTHS)
def test_maxsim_is_its_weighted_mean(lengths):
    query, known, tokens, offsets = _inputs(lengths, 3)
    weights = torch.linspace(0.1, 1.0, 12).view(3, 4) * known
    best = token_maxima(query, known, tokens, offsets)
    total = weights.sum(1, keepdim=True)
    expected = torch.bmm(weights[:, None], best)[:, 0] / total.masked_fill(total == 0, 1.0)
    torch.testing.assert_close(maxsim(query, weights, tokens, offsets), expected)


@pytest.mark.parametrize("candidates", [None, torch.tensor([[0, 1], [2, -1]])])
def test_opcheck(candidates):
    inputs = _inputs([3, 0, 2], 2)
    torch.library.opcheck(torch.ops.graphmem.token_maxima.default, (*inputs, candidates))
