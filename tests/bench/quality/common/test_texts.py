"""Sentences of what judges read."""

from __future__ import annotations

import re

import pytest

from graphmem_torch.quality.common.texts import sentence_spans, split_at_marks


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("One. Two!\nThree?", ["One.", "Two!", "Three?"]),
        ("No mark", ["No mark"]),
        ("Ends. ", ["Ends.", ""]),
        ("3.5 metres. And more", ["3.5 metres.", "And more"]),
        ("", [""]),
    ],
)
def test_sentence_spans_end_with_a_mark_and_white_space(text: str, expected: list[str]) -> None:
    assert split_at_marks(text) == expected
    assert re.split(r"(?<=[.!?])\s+", text) == expected
    assert [text[start:end] for start, end in sentence_spans(text)] == expected
