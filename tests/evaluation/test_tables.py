"""Tables of plain text."""

from __future__ import annotations

import pytest

from graphmem_torch.evaluation.tables import gain, mean_range, percent, text_table


def test_text_table_aligns_columns_of_any_cells() -> None:
    rows = [["system", "recall", ""], ["ours", "9.1", "x"], ["a long name", "", "+1"]]
    assert text_table(rows) == [
        "system       recall",
        "ours            9.1   x",
        "a long name          +1",
    ]


@pytest.mark.parametrize(
    ("cell", "expected"),
    [
        (percent(0.123), "12.3"),
        (percent(None), "-"),
        (percent(float("nan")), "-"),
        (mean_range([0.5, 0.25, 0.75]), "50.0 [25.0, 75.0]"),
        (mean_range(None), "-"),
        (gain([0.05, -0.01, 0.1]), "+5.0 [-1.0, +10.0]"),
        (gain(None), ""),
    ],
)
def test_cells_are_percent(cell: str, expected: str) -> None:
    assert cell == expected
