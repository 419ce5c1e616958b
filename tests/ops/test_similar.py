"""topk_cosine and knn_graph against a full sort."""

from __future__ import annotations

import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops import knn_graph, topk_cosine

SIMILAR = sys.modules["graphmem_torch.ops.similar"]


def _rows(count: int, seed: int, width: int = 5) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.nn.functional.normalize(torch.randn(count, width, generator=generator), dim=1)


@pytest.fixture(params=[7, 16_384])
def tile(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Tiles of a few keys, and the real ones."""
    monkeypatch.setattr(SIMILAR, "_COLUMNS", request.param)
    monkeypatch.setattr(SIMILAR, "_SCORES", 5 * request.param)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("size", [(0, 4, 2), (1, 1, 1), (3, 40, 5), (30, 9, 20), (12, 100, 100)])
def test_topk_is_a_full_sort_cut_off(size):
    questions, count, k = size
    queries, keys = _rows(questions, 1), _rows(count, 2)
    values, indices = topk_cosine(queries, keys, k)
    scores = queries @ keys.T
    expected = scores.sort(dim=1, descending=True).values[:, :k]
    torch.testing.assert_close(values, expected)
    torch.testing.assert_close(scores.gather(1, indices), values)


@pytest.mark.usefixtures("tile")
@pytest.mark.parametrize("earlier", [False, True])
@pytest.mark.parametrize("size", [(0, 0, 2), (1, 0, 2), (9, 0, 20), (40, 0, 3), (40, 33, 3)])
def test_knn_is_a_full_sort_cut_off(size, earlier):
    count, start, k = size
    x = _rows(count, 3)
    indices, values = knn_graph(x, k, start=start, earlier=earlier)
    scores = x[start:] @ x.T
    row, column = torch.arange(start, count)[:, None], torch.arange(count)
    scores[column >= row if earlier else column == row] = -torch.inf
    wide = torch.cat([scores, torch.full((count - start, k), -torch.inf)], dim=1)
    torch.testing.assert_close(values, wide.sort(dim=1, descending=True).values[:, :k])
    assert ((indices == -1) == (values == -torch.inf)).all()
    known = indices >= 0
    torch.testing.assert_close(scores.gather(1, indices.clamp(min=0))[known], values[known])


@settings(deadline=None, max_examples=25)
@given(st.integers(2, 40), st.integers(1, 5), st.integers(0, 999))
def test_linking_later_rows_gives_what_linking_all_gives(count, k, seed):
    x = _rows(count, seed)
    start = seed % count
    indices, values = knn_graph(x, k, earlier=True)
    some_indices, some_values = knn_graph(x, k, start=start, earlier=True)
    torch.testing.assert_close(some_values, values[start:])
    assert (some_indices == indices[start:]).all()


def test_half_is_multiplied_in_float32():
    keys = _rows(50, 1)
    values, _ = topk_cosine(keys[:3].half(), keys.half(), 4)
    assert values.dtype == torch.float32
    expected = keys[:3].half().float() @ keys.half().float().T
    torch.testing.assert_close(values, expected.topk(4).values)


def test_opcheck():
    keys = _rows(9, 1)
    torch.library.opcheck(torch.ops.graphmem.topk_cosine.default, (keys[:2], keys, 4))
    torch.library.opcheck(torch.ops.graphmem.knn_graph.default, (keys, 3, 2, True))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: topk_cosine(x, x, 0), "k must be an integer of at least 1; got 0"),
        (lambda x: topk_cosine(x[:, :3], x, 1), "5 columns"),
        (lambda x: topk_cosine(x[0], x, 1), r"queries must be a floating point matrix"),
        (lambda x: knn_graph(x, 0), "k must be an integer of at least 1"),
        (lambda x: knn_graph(x, 2, start=10), r"start must be in 0\.\.9; got 10"),
        (lambda x: knn_graph(x.long(), 2), "floating point"),
    ],
)
def test_bad_input_is_refused_by_name(call, message):
    with pytest.raises(InputError, match=message):
        call(_rows(9, 1))
