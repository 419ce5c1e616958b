"""Markup: values into HTML, escaped; the only place where a text becomes markup."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import Any

__all__ = ["Html", "clipped", "escaped", "number", "script_json", "table", "when"]
_UNPRINTABLE = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class Html:
    """Text that is markup already; any other string is escaped where it enters the page."""

    text: str


def escaped(value: str | Html) -> str:
    """As it may stand in an element or in a quoted attribute."""
    return value.text if isinstance(value, Html) else escape(_encodable(value))


def script_json(value: Any) -> str:
    """JSON that no parser of HTML can leave early: `</script>` and `<!--` cannot occur in it."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return _encodable(text)


def clipped(text: str, length: int) -> str:
    """On one line of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def number(value: float | None, digits: int = 3) -> str:
    """With `digits` significant digits; whole numbers in groups of three; a dash for none."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if isinstance(value, int) or (value == int(value) and abs(value) < 1e15):
        return f"{int(value):,}".replace("-", "−")
    if abs(value) >= 1000:
        return f"{value:,.0f}".replace("-", "−")
    return f"{value:.{digits}g}".replace("-", "−")


def when(time: float | None) -> str:
    """A time as `2024-02-04 18:46`, UTC; a dash for none."""
    if time is None or math.isnan(time):
        return "–"
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):  # beyond the years that a calendar has
        return f"{time:.3g} s"


def table(
    caption: str,
    columns: Sequence[tuple[str, str]],  # name, and "text" or "number"
    rows: Sequence[Sequence[str | Html]],
) -> Html:
    """A table with a caption and headed columns."""
    head = "".join(f'<th scope="col" class="{kind}">{escaped(name)}</th>' for name, kind in columns)
    lines = [
        "".join(
            f'<td class="{kind}">{escaped(cell)}</td>'
            for (_, kind), cell in zip(columns, row, strict=True)
        )
        for row in rows
    ]
    body = "".join(f"<tr>{line}</tr>" for line in lines)
    return Html(
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escaped(caption)}"><table>'
        f"<caption>{escaped(caption)}</caption><thead><tr>{head}</tr></thead>"
        f"<tbody>{body}</tbody></table></div>"
    )


def _encodable(text: str) -> str:
    """What no page may hold, lone surrogates and control characters, as a replacement character."""
    return _UNPRINTABLE.sub("\ufffd", text)
