"""The kernel of maxsim and token_maxima against their references, in the interpreter or on CUDA."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.ops import maxsim, token_maxima
from graphmem_torch.ops.maxsim import maxsim_reference, token_maxima_reference
from tests.kernels import kernels

kernel = kernels("maxsim")

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

SHAPES = [
    pytest.param((1, 1, 8, [1]), id="one atom of one token"),
    pytest.param((3, 5, 20, [0, 1, 40, 0, 33, 2]), id="odd, with atoms without tokens"),
    pytest.param((4, 2, 8, [2, 3]), id="as many questions as a program takes"),
    pytest.param((5, 2, 8, [1]), id="more questions than a program takes"),
    pytest.param((2, 70, 8, [3, 1]), id="more question tokens than a block"),
    pytest.param((2, 3, 150, [5, 0, 2]), id="vectors wider than a block"),
    pytest.param((2, 3, 8, [0, 0]), id="no tokens"),
    pytest.param((1, 4, 8, [2] * 18), id="more atoms than a program takes"),
]


def _inputs(questions, words, width, lengths):
    generator = torch.Generator().manual_seed(questions)
    query = torch.randn(questions, words, width, generator=generator)
    weights = torch.rand(questions, words, generator=generator)
    weights[torch.rand(questions, words, generator=generator) < 0.3] = 0.0
    offsets = torch.nn.functional.pad(torch.tensor(lengths).cumsum(0), (1, 0))
    size = (int(offsets[-1]), width)
    tokens = torch.randint(-127, 128, size, generator=generator, dtype=torch.int8)
    query = torch.nn.functional.normalize(query, dim=-1)
    return [t.to(DEVICE) for t in (query, weights, tokens, offsets)]


@pytest.fixture
def poisoned(monkeypatch):
    """Fresh memory is NaN, so that what is not written shows."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *a, **k: empty(*a, **k).fill_(torch.nan))


@pytest.mark.parametrize("case", SHAPES)
def test_maxsim_kernel_all_atoms(case, poisoned):
    query, weights, tokens, offsets = _inputs(*case)
    got = kernel.launch_maxsim(query, weights, tokens, offsets, None)
    torch.testing.assert_close(got, maxsim_reference(query, weights, tokens, offsets))
    known = weights > 0
    got = kernel.launch_token_maxima(query, known, tokens, offsets, None)
    torch.testing.assert_close(got, token_maxima_reference(query, known, tokens, offsets))


@pytest.mark.parametrize("case", [s for s in SHAPES if " questions" not in str(s.id)])
def test_candidates(case, poisoned):
    """Padding, repeated candidates, and candidates that are no atom, which get 0.

    A program takes one question: many of them show nothing. Half of the shapes are asked for sums,
    half for maxima; of all atoms each shape is asked for both.
    """
    query, weights, tokens, offsets = _inputs(*case)
    atoms, generator = len(case[3]), torch.Generator().manual_seed(1)
    chosen = torch.randint(-1, atoms + 1, (len(query), 5), generator=generator).to(DEVICE)
    real, place = (chosen >= 0) & (chosen < atoms), chosen.clamp(0, atoms - 1)
    if atoms % 2:
        expected = maxsim_reference(query, weights, tokens, offsets).gather(1, place)
        got = kernel.launch_maxsim(query, weights, tokens, offsets, chosen)
        torch.testing.assert_close(got, torch.where(real, expected, 0.0))
    else:
        known = weights > 0
        expected = token_maxima_reference(query, known, tokens, offsets)
        expected = expected.gather(2, place[:, None].expand(-1, known.shape[1], -1))
        got = kernel.launch_token_maxima(query, known, tokens, offsets, chosen)
        torch.testing.assert_close(got, torch.where(real[:, None], expected, 0.0))


def test_nothing_to_score():
    query, weights, tokens, offsets = _inputs(2, 3, 8, [1])
    none = torch.empty(2, 0, dtype=torch.int64, device=DEVICE)
    assert kernel.launch_maxsim(query, weights, tokens, offsets, none).shape == (2, 0)
    assert kernel.launch_maxsim(query, weights, tokens[:0], offsets[:1], None).shape == (2, 0)
    assert kernel.launch_maxsim(query[:0], weights[:0], tokens, offsets, None).shape == (0, 1)
    without = query[:, :0], weights[:, :0], tokens, offsets
    assert kernel.launch_maxsim(*without, None).tolist() == [[0.0], [0.0]]


@pytest.mark.cuda
@pytest.mark.parametrize("listed", [False, True])
def test_cuda_matches_the_cpu_and_waits_for_nothing(listed):
    lengths = torch.randint(0, 90, (5000,), generator=torch.Generator().manual_seed(0)).tolist()
    query, weights, tokens, offsets = _inputs(70, 9, 128, lengths)
    chosen = torch.randint(-1, 5000, (70, 130), device="cuda") if listed else None
    known = weights > 0
    graph = torch.cuda.CUDAGraph()
    maxsim(query, weights, tokens, offsets, candidates=chosen)
    token_maxima(query, known, tokens, offsets, candidates=chosen)
    with torch.cuda.graph(graph):  # capturing fails where the host would have to wait
        scores = maxsim(query, weights, tokens, offsets, candidates=chosen)
        best = token_maxima(query, known, tokens, offsets, candidates=chosen)
    graph.replay()
    there = None if chosen is None else chosen.cpu()
    inputs = query.cpu(), weights.cpu(), tokens.cpu(), offsets.cpu()
    expected = maxsim(*inputs, candidates=there)
    torch.testing.assert_close(scores.cpu(), expected, rtol=1e-3, atol=1e-4)
    expected = token_maxima(inputs[0], known.cpu(), *inputs[2:], candidates=there)
    torch.testing.assert_close(best.cpu(), expected, rtol=1e-3, atol=1e-4)
