"""What is written of memories where a function says it shorter."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from graphmem_torch.context.costs import shortened

TEXTS = ["one two", "three four"]


def test_what_a_function_makes_is_taken() -> None:
    def first(question: str, texts: Sequence[str]) -> list[str]:
        return [f"{question}: {text.split()[0]}" for text in texts]

    assert shortened(first, "q", TEXTS) == ["q: one", "q: three"]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (["only one"], TEXTS),
        ([], TEXTS),
        (None, TEXTS),
        (7, TEXTS),
        (["a", None], ["a", "three four"]),
        (["a", "  "], ["a", "three four"]),
        ([1, "b"], ["one two", "b"]),
    ],
)
def test_what_it_makes_nothing_of_stays(
    made: Any, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert shortened(lambda question, texts: made, "q", TEXTS) == expected
    assert "shortening" in caplog.text


def test_what_fails_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(question: str, texts: Sequence[str]) -> list[str]:
        raise RuntimeError("down")

    assert shortened(broken, "q", TEXTS) == TEXTS
    assert "down" in caplog.text
