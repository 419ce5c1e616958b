"""maxsim against the definition in plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops import maxsim
from graphmem_torch.ops.maxsim import maxsim_reference


def _inputs(questions, words, width, lengths, seed=0):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(questions, words, width, generator=generator)
    query = torch.nn.functional.normalize(query, dim=-1)
    weights = torch.rand(questions, words, generator=generator)
    weights[torch.rand(questions, words, generator=generator) < 0.25] = 0.0
    offsets = torch.tensor([0, *np.cumsum(lengths)], dtype=torch.int64)
    size = (int(offsets[-1]), width)
    tokens = torch.randint(-127, 128, size, generator=generator, dtype=torch.int8)
    return query, weights, tokens, offsets


def _plain(query, weights, tokens, offsets):
    out = np.zeros((len(query), len(offsets) - 1))
    rows = tokens.numpy().astype(np.float64) / 127
    for b, (vectors, w) in enumerate(
        zip(query.double().numpy(), weights.double().numpy(), strict=True)
    ):
        for i in range(len(offsets) - 1):
            own = rows[offsets[i] : offsets[i + 1]]
            if len(own) and w.sum() > 0:
                out[b, i] = (w * (vectors @ own.T).max(1)).sum() / w.sum()
    return out


LENGTHS = st.lists(st.integers(0, 9), max_size=25)


@settings(deadline=None, max_examples=40)
@given(LENGTHS, st.integers(0, 10), st.integers(0, 4), st.sampled_from([1, 8, 20]), st.integers())
def test_all_atoms_match_the_definition(lengths, questions, words, width, seed):
    inputs = _inputs(questions, words, width, lengths, seed % 1000)
    expected = _plain(*inputs)
    np.testing.assert_allclose(maxsim(*inputs).numpy(), expected, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(maxsim_reference(*inputs).numpy(), expected, rtol=1e-4, atol=1e-5)


@settings(deadline=None, max_examples=40)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=25), st.integers(0, 10), st.integers(0, 7))
def test_candidates_match_all_atoms(lengths, questions, count):
    inputs = _inputs(questions, 5, 16, lengths)
    generator = torch.Generator().manual_seed(count)
    chosen = torch.randint(-1, len(lengths), (questions, count), generator=generator)
    everything = maxsim(*inputs)
    expected = torch.where(chosen >= 0, everything.gather(1, chosen.clamp(min=0)), 0.0)
    torch.testing.assert_close(maxsim(*inputs, candidates=chosen), expected)


def test_small_tiles_give_the_same(monkeypatch):
    import sys

    module = sys.modules["graphmem_torch.ops._token_tiles"]
    lengths = [int(n) for n in np.random.default_rng(0).integers(0, 30, 200)]
    inputs = _inputs(21, 6, 16, lengths)
    chosen = torch.arange(200).expand(21, 200)
    before = maxsim(*inputs), maxsim(*inputs, candidates=chosen)
    for name, value in (("_PRODUCT", 300), ("_TOKENS", 50), ("_TOGETHER", 2)):
        monkeypatch.setattr(module, name, value)
    after = maxsim(*inputs), maxsim(*inputs, candidates=chosen)
    torch.testing.assert_close(after, before)


def test_tokens_of_a_view_that_is_not_aligned():
    query, weights, tokens, offsets = _inputs(2, 3, 8, [3, 2])
    shifted = torch.cat([torch.zeros(3, dtype=torch.int8), tokens.flatten()])[3:].view(-1, 8)
    torch.testing.assert_close(
        maxsim(query, weights, shifted, offsets), maxsim(query, weights, tokens, offsets)
    )


def test_an_exact_match_scores_one():
    tokens = torch.tensor([[127, 0], [0, 127], [-127, 0]], dtype=torch.int8)
    offsets = torch.tensor([0, 2, 2, 3])
    query = torch.eye(2)[None]
    got = maxsim(query, torch.tensor([[3.0, 1.0]]), tokens, offsets)
    assert got[0].tolist() == pytest.approx([1.0, 0.0, -0.75])


@pytest.mark.parametrize("candidates", [None, torch.tensor([[0, 1], [2, -1]])])
def test_opcheck(candidates):
    inputs = _inputs(2, 3, 8, [3, 0, 2])
    torch.library.opcheck(torch.ops.graphmem.maxsim.default, (*inputs, candidates))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query_tokens": torch.zeros(2, 8)}, r"\[B, Q, m\]"),
        ({"query_weights": torch.zeros(2, 4)}, r"shape \[2, 3\]; got \[2, 4\]"),
        ({"tokens": torch.zeros(5, 8)}, r"int8 \[T, 8\]; got torch.float32"),
        ({"tokens": torch.zeros(5, 9, dtype=torch.int8)}, r"int8 \[T, 8\]"),
        ({"offsets": torch.zeros(3)}, "offsets must be int64"),
        ({"candidates": torch.zeros(3, 2, dtype=torch.int64)}, r"int64 \[2, C\]"),
        ({"candidates": torch.full((2, 1), 2)}, r"candidates must be in 0\.\.1"),
        ({"candidates": torch.full((2, 1), -2)}, r"candidates must be in 0\.\.1"),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    names = ("query_tokens", "query_weights", "tokens", "offsets")
    arguments = {**dict(zip(names, _inputs(2, 3, 8, [3, 2]), strict=True)), **change}
    with pytest.raises(InputError, match=message):
        maxsim(**arguments)


@pytest.mark.cuda
def test_cuda_matches_cpu():
    inputs = _inputs(70, 9, 64, [int(n) for n in np.random.default_rng(0).integers(0, 30, 500)])
    there = maxsim(*(t.cuda() for t in inputs))
    torch.testing.assert_close(there.cpu(), maxsim(*inputs), rtol=1e-3, atol=1e-3)
