"""Markup, charts and names: the parts that all panels use."""

from __future__ import annotations

import json
import math
import re
from html.parser import HTMLParser

import pytest
import torch

from graphmem_torch.report.contents import characteristic_words
from graphmem_torch.report.markup import (
    Chart,
    Html,
    Mark,
    Series,
    clipped,
    escaped,
    number,
    script_json,
    table,
    when,
)

EVIL = "</script><!--<script>&\u2028\u2029\"'"


def test_script_json_is_the_same_json_without_markup() -> None:
    value = {EVIL: [EVIL, 1.5, None, "é😀"]}
    text = script_json(value)
    assert json.loads(text) == value
    assert not set("<>&\u2028\u2029") & set(text)


def test_escaped_replaces_what_utf8_cannot_hold() -> None:
    assert json.loads(script_json("a\ud800b")) == "a\ufffdb"
    assert escaped("a\ud800<") == "a\ufffd&lt;"


def test_escaped_replaces_control_characters() -> None:
    assert escaped("a\x00\x1b\x9f\tb\n") == "a\ufffd\ufffd\ufffd\tb\n"


def test_when_tells_a_time_beyond_the_calendar_in_seconds() -> None:
    assert when(1e18) == "1e+18 s" and when(0.0) == "1970-01-01 00:00"


def test_script_json_refuses_what_json_has_no_word_for() -> None:
    with pytest.raises(ValueError, match="JSON"):
        script_json(math.nan)


def test_escaped_leaves_only_html_as_it_is() -> None:
    assert escaped(EVIL).count("<") == 0 and '"' not in escaped(EVIL)
    assert escaped(Html("<b>")) == "<b>"
    cells = table(EVIL, [(EVIL, "text")], [[EVIL], [Html("<i>x</i>")]]).text
    assert "<script" not in cells and "<i>x</i>" in cells


def test_number() -> None:
    shown = {0: "0", 12345: "12,345", 0.12345: "0.123", -2.5: "−2.5", 1234.5: "1,234"}
    shown |= {math.inf: "∞", -math.inf: "−∞", 1e-9: "1e−09", 3.0: "3"}
    assert {value: number(value) for value in shown} == shown
    assert number(None) == number(math.nan) == "–"
    assert when(0.0) == "1970-01-01 00:00" and when(math.nan) == when(None) == "–"


def test_clipped() -> None:
    assert clipped("a  b\nc", 10) == "a b c"
    assert clipped("abcdef", 4) == "abc…"


def _points(svg: str) -> list[tuple[float, float]]:
    (path,) = re.findall(r'class="line tone1" d="([^"]*)"', svg)
    return [(float(x), float(y)) for x, y in re.findall(r"[ML]([\d.]+) ([\d.]+)", path)]


def test_chart_draws_a_line_to_scale() -> None:
    xs, ys = [0.0, 1.0, 4.0], [0.0, 10.0, 2.5]
    found = _points(Chart("t", "x", "y", [Series("s", xs, ys)]).html().text)
    (x0, y0), (x1, y1), (x2, y2) = found
    assert (x1 - x0) / (x2 - x0) == pytest.approx(0.25, abs=0.01)
    assert (y0 - y2) / (y0 - y1) == pytest.approx(0.25, abs=0.01)


def test_chart_with_a_logarithmic_axis() -> None:
    svg = Chart("t", "x", "y", [Series("s", [1, 2, 3], [1.0, 0.1, 0.01])], log_y=True).html().text
    (_, a), (_, b), (_, c) = _points(svg)
    assert b - a == pytest.approx(c - b, abs=0.2)


def test_chart_leaves_out_what_cannot_be_drawn() -> None:
    ys = [1.0, math.nan, -math.inf, 2.0]
    text = Chart("t", "x", "y", [Series("s", [0, 1, 2, 3], ys)]).html().text
    assert len(_points(text)) == 2 and "nan" not in text and "inf" not in text


@pytest.mark.parametrize("values", [[], [5.0], [0.0], [3.0, 3.0], [1e-30, 2e-30], [1e12, -1e12]])
@pytest.mark.parametrize("kind", ["line", "bars", "dots"])
def test_chart_of_odd_values(values: list[float], kind: str) -> None:
    xs = list(range(len(values)))
    text = Chart("t", "x", "y", [Series("s", xs, values, kind=kind)]).html().text
    assert "nan" not in text
    HTMLParser().feed(text)


def test_chart_escapes_its_texts() -> None:
    series = [Series(EVIL, [0, 1], [1, 2], kind="dots", notes=[EVIL, EVIL])]
    chart = Chart(EVIL, EVIL, EVIL, series, [Mark(0.5, EVIL, label=EVIL)], summary=EVIL)
    assert "<script" not in chart.html().text and "<!--" not in chart.html().text


def test_characteristic_words_set_a_group_apart() -> None:
    texts = [
        "The canoe on the river",
        "A canoe, a paddle",
        "My canoe and the paddle",
        "canoe river",
    ]
    texts += ["violin and river", "the violin plays", "a violin string", "violin string quartet"]
    label = torch.tensor([0] * 4 + [1] * 4)
    names = characteristic_words(texts, label, count=2)
    assert names == ["canoe, paddle", "violin, string"]
    ignored = characteristic_words(
        texts, torch.tensor([0] * 4 + [1] * 4), count=1, ignore={"canoe"}
    )
    assert ignored[0] != "canoe"


def test_characteristic_words_are_not_those_that_all_groups_use() -> None:
    # The novel's verb is in most texts of both groups, more often in the first.
    texts = ["he said canoe"] * 4 + ["she said"] * 4 + ["Ada said violin"] * 3 + ["violin"] * 3
    label = torch.tensor([0] * 8 + [1] * 6)
    assert characteristic_words(texts, label, count=1) == ["canoe", "violin"]


def test_chart_of_many_marks_does_not_hide_the_line() -> None:
    line = Series("s", [0.0, 99.0], [0.0, 1.0])
    few, many = (
        Chart("t", "x", "y", [line], [Mark(float(i), "n") for i in range(n)]).html().text
        for n in (3, 80)
    )
    low, high = (
        {float(v) for v in re.findall(r'class="mark tone2" d="M[\d.]+ [\d.]+V([\d.]+)"', text)}
        for text in (few, many)
    )
    assert max(high) < 0.25 * min(low)


def test_characteristic_words_of_groups_without_any() -> None:
    assert characteristic_words(["the of", "12 34"], torch.tensor([0, 1])) == ["", ""]
    assert characteristic_words([], torch.zeros(0, dtype=torch.int64)) == []
    assert characteristic_words(["canoe", "the"], torch.tensor([0, 2])) == ["canoe", "", ""]
