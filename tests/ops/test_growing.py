"""Growing rows against concatenation, and views against what is added after them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.errors import InputError
from graphmem_torch.ops.growing import GrowingRows


@given(st.lists(st.integers(0, 700), max_size=8), st.integers(0, 3))
def test_growing_rows_are_those_that_were_added(sizes: list[int], start: int) -> None:
    rows = GrowingRows(torch.arange(2.0 * start).view(start, 2))
    wanted, views = rows.view.clone(), []
    for size in sizes:
        added = torch.randn(size, 2)
        views.append((rows.view, wanted))
        wanted = torch.cat([wanted, added])
        assert torch.equal(rows.append(added), wanted)
    assert len(rows) == len(wanted)
    for view, then in views:
        assert torch.equal(view, then)


def test_growing_rows_of_another_kind_are_refused() -> None:
    rows = GrowingRows(torch.zeros(2, 3))
    for other in (torch.zeros(2, 4), torch.zeros(2, 3, dtype=torch.int64), torch.zeros(3)):
        with pytest.raises(InputError, match="rows: expected"):
            rows.append(other)
