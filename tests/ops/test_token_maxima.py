"""token_maxima against its reference, and against maxsim, which sums it up."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops import maxsim, token_maxima
from graphmem_torch.ops.maxsim import token_maxima_reference


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


@given(LENGTHS, st.integers(0, 10))
def test_matches_the_reference(lengths, questions):
    inputs = _inputs(lengths, questions)
    expected = token_maxima_reference(*inputs)
    exact = {"rtol": 1e-5, "atol": 4e-4}  # question tokens of length 3 to 16 bits
    torch.testing.assert_close(token_maxima(*inputs), expected, **exact)
    chosen = torch.randint(-1, len(lengths), (questions, 6))
    there = expected.gather(2, chosen.clamp(min=0)[:, None].expand(-1, 4, -1))
    expected = torch.where((chosen >= 0)[:, None], there, 0.0)
    torch.testing.assert_close(token_maxima(*inputs, candidates=chosen), expected, **exact)


@given(LENGTHS)
def test_maxsim_is_its_weighted_mean(lengths):
    query, known, tokens, offsets = _inputs(lengths, 3)
    weights = torch.linspace(0.1, 1.0, 12).view(3, 4) * known
    best = token_maxima(query, known, tokens, offsets)
    total = weights.sum(1, keepdim=True)
    expected = torch.bmm(weights[:, None], best)[:, 0] / total.masked_fill(total == 0, 1.0)
    torch.testing.assert_close(maxsim(query, weights, tokens, offsets), expected)


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("candidates", [None, torch.tensor([[0], [0]])])
def test_padding_may_hold_anything_and_the_default_dtype_does_not_matter(candidates):
    query, known, tokens, offsets = _inputs([3], 2)
    query, known[:] = query.float(), True
    expected = token_maxima(query, known, tokens, offsets)
    query[1, 2], known[1, 2], expected[1, 2] = torch.nan, False, 0.0
    got = token_maxima(query, known, tokens, offsets, candidates=candidates)
    assert got.dtype == torch.float32
    torch.testing.assert_close(got, expected)


@pytest.mark.parametrize("candidates", [None, torch.tensor([[0, 1], [2, -1]])])
def test_opcheck(candidates):
    inputs = _inputs([3, 0, 2], 2)
    torch.library.opcheck(torch.ops.graphmem.token_maxima.default, (*inputs, candidates))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_tokens": torch.zeros(2, 8)}, r"\[B, Q, m\]"),
        ({"known": torch.ones(2, 4)}, "known: expected bool"),
        ({"known": torch.ones(2, 3, dtype=torch.bool)}, r"known: expected bool \[2, 4\]"),
        ({"tokens": torch.zeros(5, 9, dtype=torch.int8)}, r"int8 \[T, 8\]"),
        ({"candidates": torch.full((2, 1), 2)}, r"candidates: expected numbers in -1\.\.1"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    names = ("query_tokens", "known", "tokens", "offsets")
    arguments = {**dict(zip(names, _inputs([3, 2], 2), strict=True)), **change}
    with pytest.raises(InputError, match=message):
        token_maxima(**arguments)
