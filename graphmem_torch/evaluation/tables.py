"""Tables of plain text, and the cells of figures in them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["gain", "mean_range", "percent", "text_table"]


def text_table(rows: Sequence[Sequence[str]]) -> list[str]:
    """The rows as lines; the first column flush left, the others flush right."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return [
        "  ".join(
            cell.ljust(width) if i == 0 else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def percent(value: float | None) -> str:
    """A share in percent; a dash for none."""
    return "-" if value is None or value != value else f"{100 * value:.1f}"


def mean_range(value: Sequence[float] | None) -> str:
    """A mean with the ends of its interval, in percent; a dash for none."""
    if value is None:
        return "-"
    mean, low, high = (100 * each for each in value)
    return f"{mean:.1f} [{low:.1f}, {high:.1f}]"


def gain(value: Sequence[float] | None) -> str:
    """A difference with the ends of its interval, in points; nothing for none."""
    if value is None:
        return ""
    mean, low, high = (100 * each for each in value)
    return f"{mean:+.1f} [{low:+.1f}, {high:+.1f}]"
