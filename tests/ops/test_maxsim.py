"""maxsim against the definition in plain numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from graphmem_torch import ops
from graphmem_torch.errors import InputError
from graphmem_torch.ops.maxsim import maxsim_on_cpu, maxsim_reference
from graphmem_torch.ops.token_products import Tiling, multiplies_int8


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


def _slack(query, tokens):
    """Return the error of rounding a question token to 16 bits: half a step times sum |t|."""
    if not query.numel() or not tokens.numel():
        return 1e-6
    reach = tokens.float().abs().sum(1).max() / 127
    return float(query.abs().max() * reach / 64516) + 1e-5


@pytest.fixture(params=["int8", "float32"])
def maxsim(request):
    """`maxsim` of a CPU, multiplied in both ways wherever the tests run."""
    if request.param == "int8" and not multiplies_int8():
        pytest.skip("the processor does not multiply int8")

    def run(query, weights, tokens, offsets, *, candidates=None, **sizes):
        tiling = Tiling(int8=request.param == "int8", **sizes)
        given = query.float(), weights.float(), tokens, offsets, candidates
        return maxsim_on_cpu(*given, tiling=tiling)

    return run


ANY = settings(suppress_health_check=[HealthCheck.function_scoped_fixture])


@ANY
@given(LENGTHS, st.integers(0, 10), st.integers(0, 4), st.sampled_from([1, 8, 20]), st.integers())
def test_maxsim_all_atoms_match_the_definition(maxsim, lengths, questions, words, width, seed):
    inputs = _inputs(questions, words, width, lengths, seed % 1000)
    expected, slack = _plain(*inputs), _slack(inputs[0], inputs[2])
    np.testing.assert_allclose(maxsim(*inputs).numpy(), expected, rtol=1e-5, atol=slack)
    np.testing.assert_allclose(maxsim_reference(*inputs).numpy(), expected, rtol=1e-4, atol=1e-5)


@ANY
@given(st.lists(st.integers(0, 9), min_size=1, max_size=25), st.integers(0, 10), st.integers(0, 7))
def test_candidates_match_all_atoms(maxsim, lengths, questions, count):
    inputs = _inputs(questions, 5, 16, lengths)
    generator = torch.Generator().manual_seed(count)
    chosen = torch.randint(-1, len(lengths), (questions, count), generator=generator)
    everything = maxsim(*inputs)
    expected = torch.where(chosen >= 0, everything.gather(1, chosen.clamp(min=0)), 0.0)
    torch.testing.assert_close(maxsim(*inputs, candidates=chosen), expected)


@pytest.mark.parametrize(("questions", "words"), [(1, 1), (3, 70), (64, 5), (65, 33)])
def test_batches_match_the_definition(maxsim, questions, words):
    inputs = _inputs(questions, words, 24, [3, 0, 40, 1, 7])
    expected, slack = _plain(*inputs), _slack(inputs[0], inputs[2])
    np.testing.assert_allclose(maxsim(*inputs).numpy(), expected, rtol=1e-5, atol=slack)
    chosen = torch.arange(5).flip(0).expand(questions, 5)
    got = maxsim(*inputs, candidates=chosen)
    np.testing.assert_allclose(got.numpy(), expected[:, ::-1], rtol=1e-5, atol=slack)


def test_small_tiles_give_the_same(maxsim):
    lengths = [int(n) for n in np.random.default_rng(0).integers(0, 30, 200)]
    inputs = _inputs(21, 6, 16, [*lengths, 700])
    chosen = torch.arange(201).expand(21, 201)
    before = maxsim(*inputs), maxsim(*inputs, candidates=chosen)
    small = {"products": 500, "together": 2}
    after = maxsim(*inputs, **small), maxsim(*inputs, candidates=chosen, **small)
    torch.testing.assert_close(after, before)


@pytest.mark.parametrize("token", [-128, 127])
@pytest.mark.parametrize("words", [1, 3, 70])
@pytest.mark.parametrize("width", [8, 9, 100, 255, 256])
def test_tokens_as_large_as_they_get_do_not_overflow(maxsim, width, words, token):
    tokens = torch.full((3, width), token, dtype=torch.int8)
    tokens[1, ::2] = 127
    query = torch.full((1, words, width), -1.0)
    query[0, ::2] = 1.0
    inputs = query, torch.ones(1, words), tokens, torch.tensor([0, 1, 3])
    np.testing.assert_allclose(maxsim(*inputs).numpy(), _plain(*inputs), rtol=1e-5, atol=1e-3)


def _saturated(shifted, other):
    """The path without VNNI: one factor plus 128, and pairs of products summed in 16 bits."""
    pairs = ((shifted.int()[:, None] + 128) * other.T.int()).unflatten(2, (-1, 2)).sum(3)
    return pairs.clamp(-(2**15), 2**15 - 1).sum(2) - 128 * other.int().sum(0)


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("_int_mm", _saturated),
        ("_int_mm", lambda left, right: _saturated(right.T, left.T).T),
        ("_int_mm", None),
        ("cpu._is_vnni_supported", lambda: False),
        ("cpu._is_vnni_supported", None),
    ],
    ids=[
        "left saturates",
        "right saturates",
        "torch has no product",
        "processor has none",
        "torch cannot tell",
    ],
)
def test_int8_is_not_multiplied_where(name, change, monkeypatch):
    monkeypatch.setattr(torch.cpu, "_is_vnni_supported", lambda: True, raising=False)
    if change:
        monkeypatch.setattr(f"torch.{name}", change)
    else:
        monkeypatch.delattr(f"torch.{name}")
    assert not multiplies_int8.__wrapped__()


def test_vectors_wider_than_the_digits_allow(maxsim):
    inputs = _inputs(2, 3, 300, [4, 1])
    np.testing.assert_allclose(maxsim(*inputs).numpy(), _plain(*inputs), rtol=1e-4, atol=1e-5)


def test_tokens_of_a_view_that_is_not_aligned(maxsim):
    query, weights, tokens, offsets = _inputs(2, 3, 8, [3, 2])
    shifted = torch.cat([torch.zeros(3, dtype=torch.int8), tokens.flatten()])[3:].view(-1, 8)
    torch.testing.assert_close(
        maxsim(query, weights, shifted, offsets), maxsim(query, weights, tokens, offsets)
    )


@pytest.mark.usefixtures("double_by_default")
@pytest.mark.parametrize("candidates", [None, torch.tensor([[0, 1], [1, -1]])])
def test_maxsim_default_dtype_does_not_matter(maxsim, candidates):
    inputs = [x.float() if x.is_floating_point() else x for x in _inputs(2, 3, 16, [4, 1])]
    expected = torch.tensor(_plain(*inputs), dtype=torch.float32)
    if candidates is not None:
        chosen = expected.gather(1, candidates.clamp(min=0))
        expected = torch.where(candidates >= 0, chosen, 0.0)
    got = maxsim(*inputs, candidates=candidates)
    torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-4)


def test_maxsim_exact_match_scores_one(maxsim):
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
        (
            {"query_weights": torch.zeros(2, 4)},
            r"query_weights: expected \[2, 3\] on cpu, got torch.float32 \[2, 4\]",
        ),
        ({"tokens": torch.zeros(5, 8)}, r"int8 \[T, 8\], got torch.float32"),
        ({"tokens": torch.zeros(5, 9, dtype=torch.int8)}, r"int8 \[T, 8\]"),
        ({"offsets": torch.zeros(3)}, "offsets: expected int64"),
        ({"candidates": torch.zeros(3, 2, dtype=torch.int64)}, r"int64 \[2, C\]"),
        ({"offsets": torch.tensor([0, 3, 6])}, r"ascend from 0 to the 5 tokens, got 0\.\.6"),
        ({"offsets": torch.tensor([0, 5, 3])}, "ascend from 0 to the 5 tokens"),
        (
            {"offsets": torch.tensor([-1, 3, 5]), "candidates": torch.tensor([[0], [1]])},
            r"ascend from 0 to the 5 tokens, got -1\.\.5",
        ),
        ({"candidates": torch.full((2, 1), 2)}, r"candidates: expected numbers in -1\.\.1"),
        ({"candidates": torch.full((2, 1), -2)}, r"candidates: expected numbers in -1\.\.1"),
        ({"query_tokens": torch.zeros(2, 3, 8, requires_grad=True)}, "expected no gradient"),
        ({"query_tokens": torch.full((2, 3, 8), torch.nan)}, "got others in token 0 of question 0"),
        (
            {"offsets": torch.zeros(3, dtype=torch.int64, device="meta")},
            "offsets: expected .* on cpu, got .* on meta",
        ),
    ],
)
def test_bad_input_is_refused_by_name(change, message):
    names = ("query_tokens", "query_weights", "tokens", "offsets")
    arguments = {**dict(zip(names, _inputs(2, 3, 8, [3, 2]), strict=True)), **change}
    with pytest.raises(InputError, match=message):
        ops.maxsim(**arguments)
