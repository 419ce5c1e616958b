"""Markup: values as HTML and charts as SVG, escaped; only here does text become markup.

Charts have axes with round ticks, a title and units; they use the page's colours.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from itertools import count
from typing import Any

from graphmem_torch.lazy import lazy_pattern

__all__ = [
    "Chart",
    "Html",
    "Mark",
    "Series",
    "clipped",
    "escaped",
    "number",
    "script_json",
    "table",
    "when",
]
_UNPRINTABLE = lazy_pattern(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True)
class Html:
    """Text that is already markup; any other string is escaped when it enters the page."""

    text: str


def escaped(value: str | Html) -> str:
    """Escape text for an element or a quoted attribute."""
    return value.text if isinstance(value, Html) else escape(_encodable(value))


def script_json(value: Any) -> str:
    """Return JSON without `</script>` and `<!--`, which would end or hide it in HTML."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u2028\u2029":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return _encodable(text)


def clipped(text: str, length: int) -> str:
    """Return text on one line of at most `length` characters."""
    line = " ".join(text.split())
    return line if len(line) <= length else line[: length - 1].rstrip() + "…"


def number(value: float | None, digits: int = 3) -> str:
    """Format with `digits` significant digits; group whole numbers by three; a dash for None."""
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
    """Format a time as `2024-02-04 18:46`, UTC; a dash for None."""
    if time is None or math.isnan(time):
        return "–"
    try:
        return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d %H:%M")
    except (OverflowError, OSError, ValueError):  # outside the years of a calendar
        return f"{time:.3g} s"


def table(
    caption: str,
    columns: Sequence[tuple[str, str]],  # name, and "text" or "number"
    rows: Sequence[Sequence[str | Html]],
) -> Html:
    """Build a table with a caption and headed columns."""
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
    """Replace lone surrogates and control characters, which no page may contain."""
    return _UNPRINTABLE.sub("\ufffd", text)


_WIDTH, _HEIGHT = 560.0, 270.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 62.0, 14.0, 12.0, 46.0
_FULL_MARKS, _SHORT_MARK = 20, 16.0  # marks drawn to the ground; length of the others
_HOVERED = 400  # maximum points that show their values on hover
_ids = count()


@dataclass(frozen=True)
class Series:
    """Points (x, y) in order; y NaN breaks the line."""

    name: str  # in the legend
    x: Sequence[float]
    y: Sequence[float]
    kind: str = "line"  # or "bars" or "dots"
    tone: int = 1  # number of the colour, from 1
    notes: Sequence[str] = ()  # shown when a point is hovered; by default its values


@dataclass(frozen=True)
class Mark:
    """Vertical line with a note, such as an alarm or a choice."""

    x: float
    note: str
    tone: int = 2
    label: str = ""


@dataclass(frozen=True)
class Chart:
    """Chart with axes, series and marks."""

    title: str  # shown above it and read by screen readers
    x_label: str  # with units, like `y_label`
    y_label: str
    series: Sequence[Series]
    marks: Sequence[Mark] = ()
    log_y: bool = False  # logarithmic; values that are not positive are omitted
    x_ticks: Sequence[tuple[float, str]] = ()  # places and texts; by default round numbers
    summary: str = ""  # description in one sentence

    def html(self) -> Html:
        """Return the chart as a figure."""
        frame = _Frame(self)
        key = f"chart{next(_ids)}"
        parts = [
            f'<figure class="chart"><figcaption>{escaped(self.title)}</figcaption>'
            f'<svg viewBox="0 0 {_WIDTH:.0f} {_HEIGHT:.0f}" role="img" '
            f'aria-labelledby="{key}t {key}d"><title id="{key}t">{escaped(self.title)}</title>'
            f'<desc id="{key}d">{escaped(self.summary or self.y_label)}</desc>',
            *frame.axes(),
            *(line for series in self.series for line in frame.series(series)),
            *(line for mark in self.marks for line in frame.mark(mark)),
            "</svg>",
        ]
        if len(self.series) > 1 or self.marks:
            parts.append(f'<div class="key">{self._key()}</div>')
        if self.summary:
            parts.append(f"<p>{escaped(self.summary)}</p>")
        return Html("".join(parts) + "</figure>")

    def _key(self) -> str:
        entries = [(s.name, s.tone, s.kind) for s in self.series]
        entries += list(dict.fromkeys((m.label, m.tone, "mark") for m in self.marks if m.label))
        return "".join(
            f'<span><i class="{kind} tone{tone}"></i>{escaped(name)}</span>'
            for name, tone, kind in entries
        )


class _Frame:
    """Scales of a chart and its drawing."""

    def __init__(self, chart: Chart) -> None:
        self.chart = chart
        x = [v for s in chart.series for v in s.x] + [m.x for m in chart.marks]
        y = [v for s in chart.series for v in s.y if self._shown(v)]
        self.x0, self.x1 = _extent(x)
        if chart.log_y:
            self.y0, self.y1 = _extent([math.log10(v) for v in y])
            self.y0, self.y1 = math.floor(self.y0), math.ceil(self.y1)
        else:
            self.y0, self.y1 = _extent([*y, 0.0])
            self.y1 += 0.04 * (self.y1 - self.y0)
        if any(s.kind == "bars" for s in chart.series):
            self.x0, self.x1 = self.x0 - 0.5, self.x1 + 0.5

    def _shown(self, y: float) -> bool:
        return math.isfinite(y) and (y > 0 or not self.chart.log_y)

    def _x(self, x: float) -> float:
        return _LEFT + (x - self.x0) / (self.x1 - self.x0) * (_WIDTH - _LEFT - _RIGHT)

    def _y(self, y: float) -> float:
        at = math.log10(y) if self.chart.log_y else y
        return _HEIGHT - _BOTTOM - (at - self.y0) / (self.y1 - self.y0) * (_HEIGHT - _TOP - _BOTTOM)

    def axes(self) -> list[str]:
        """Draw grid, ticks and labels."""
        bottom = _HEIGHT - _BOTTOM
        lines = []
        if self.chart.log_y:
            step = max(1, math.ceil((self.y1 - self.y0) / 6))
            ticks = [10.0**p for p in range(int(self.y0), int(self.y1) + 1, step)]
        else:
            ticks = _ticks(self.y0, self.y1, 5)
        for y in ticks:
            at = self._y(y)
            lines.append(f'<path class="grid" d="M{_LEFT} {at:.1f}H{_WIDTH - _RIGHT}"/>')
            lines.append(f'<text x="{_LEFT - 7}" y="{at + 4:.1f}" class="end">{_short(y)}</text>')
        for x, text in self._x_ticks():
            lines.append(
                f'<text x="{self._x(x):.1f}" y="{bottom + 17}" class="middle">'
                f"{escaped(text)}</text>"
            )
        middle = (_LEFT + _WIDTH - _RIGHT) / 2
        lines.append(f'<path class="axis" d="M{_LEFT} {_TOP}V{bottom}H{_WIDTH - _RIGHT}"/>')
        lines.append(
            f'<text x="{middle}" y="{_HEIGHT - 8}" class="middle name">'
            f"{escaped(self.chart.x_label)}</text>"
        )
        lines.append(
            f'<text transform="translate(14 {(_TOP + bottom) / 2}) rotate(-90)" '
            f'class="middle name">{escaped(self.chart.y_label)}</text>'
        )
        return lines

    def _x_ticks(self) -> list[tuple[float, str]]:
        if self.chart.x_ticks:
            return list(self.chart.x_ticks)
        whole = all(float(v).is_integer() for s in self.chart.series for v in s.x)
        ticks = _ticks(self.x0, self.x1, 7)
        return [(x, _short(x)) for x in ticks if not whole or float(x).is_integer()]

    def series(self, series: Series) -> list[str]:
        """Draw a line, bars or dots."""
        points = list(zip(series.x, series.y, strict=True))
        if series.kind == "line":
            path, pen = [], "M"
            for x, y in points:
                if self._shown(y):
                    path.append(f"{pen}{self._x(x):.1f} {self._y(y):.1f}")
                pen = "L" if self._shown(y) else "M"
            lines = [f'<path class="line tone{series.tone}" d="{"".join(path)}"/>']
        else:
            lines = []
        width = max(1.0, 0.76 * (_WIDTH - _LEFT - _RIGHT) / max(1.0, self.x1 - self.x0))
        for i, (x, y) in enumerate(points[:_HOVERED] if series.kind == "line" else points):
            if not self._shown(y):
                continue
            note = series.notes[i] if i < len(series.notes) else f"{number(x)}: {number(y)}"
            told = f"<title>{escaped(note)}</title>"
            at_x, at_y = self._x(x), self._y(y)
            if series.kind == "bars":
                base = _HEIGHT - _BOTTOM
                lines.append(
                    f'<rect class="bar tone{series.tone}" x="{at_x - width / 2:.1f}" '
                    f'y="{at_y:.1f}" width="{width:.1f}" height="{max(base - at_y, 0):.1f}">'
                    f"{told}</rect>"
                )
            else:
                kind = "dot" if series.kind == "dots" else "spot"
                radius = 3.2 if kind == "dot" else 6
                lines.append(
                    f'<circle class="{kind} tone{series.tone}" cx="{at_x:.1f}" cy="{at_y:.1f}" '
                    f'r="{radius}">{told}</circle>'
                )
        return lines

    def mark(self, mark: Mark) -> list[str]:
        """Draw a vertical line."""
        at = self._x(mark.x)
        # Many of them at full height would hide the chart.
        end = _HEIGHT - _BOTTOM if len(self.chart.marks) <= _FULL_MARKS else _TOP + _SHORT_MARK
        return [
            f'<path class="mark tone{mark.tone}" d="M{at:.1f} {_TOP}V{end}">'
            f"<title>{escaped(mark.note)}</title></path>"
        ]


def _extent(values: Sequence[float]) -> tuple[float, float]:
    """Return smallest and largest value, made distinct."""
    low, high = (min(values), max(values)) if values else (0.0, 1.0)
    return (low, high) if high > low else (low - 0.5, high + 0.5)


def _ticks(low: float, high: float, most: int) -> list[float]:
    """Return at most `most` + 1 multiples of 1, 2 or 5 times a power of ten."""
    rough = (high - low) / most
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def _short(value: float) -> str:
    """Format the number of a tick."""
    if value == 0:
        return "0"
    if abs(value) >= 1e5 or abs(value) < 1e-3:
        return f"{value:.0e}".replace("e-0", "e−").replace("e+0", "e").replace("e-", "e−")
    return f"{value:,.10g}" if abs(value) < 1000 else f"{value:,.0f}"
