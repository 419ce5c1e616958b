"""How a memory is written into a context."""

from __future__ import annotations

from graphmem_torch.context import render, render_entry
from graphmem_torch.results import Hit


def test_entry_names_its_source() -> None:
    # 1683554160 is Monday 8 May 2023, 13:56 UTC.
    hit = Hit("D1:3", "Ada: a canoe", 1.0, {}, session="session_1", time=1683554160.0)
    assert render_entry(hit) == "[D1:3 | session_1 | 2023-05-08 13:56 UTC]\nAda: a canoe"


def test_what_is_unknown_is_left_out() -> None:
    assert render_entry(Hit("a", "text\nof two lines", 0.0, {})) == "[a]\ntext\nof two lines"
    assert render_entry(Hit("a", "x", 0.0, {}, time=-1.0)) == "[a | 1969-12-31 23:59 UTC]\nx"


def test_entries_are_told_apart() -> None:
    assert render([]) == ""
    assert render(["[a]\nx"]) == "[a]\nx"
    assert render(["[a]\nx", "[b]\ny"]) == "[a]\nx\n---\n[b]\ny"
