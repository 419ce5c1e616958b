"""Requests cut into what is asked by itself."""

import pytest

from graphmem_torch.text.wishes import wishes


@pytest.mark.parametrize(
    ("question", "parts"),
    [
        ("Where does Ana live?", []),
        ("", []),
        ("Where does Ana live, Bob?", []),  # what is too short stays with what is before it
        (
            "How do I get to Porto, and what does a hotel cost there?",
            ["How do I get to Porto,", "what does a hotel cost there?"],
        ),
        (
            "What will the weather be in London? Also find papers about the climate.",
            ["What will the weather be in London?", "Also find papers about the climate."],
        ),
        (
            "I need to learn about gardens and how to keep bees in a town",
            ["I need to learn about gardens", "to keep bees in a town"],
        ),
        (
            "Wie komme ich nach Porto; was kostet dort ein Hotel?",
            ["Wie komme ich nach Porto;", "was kostet dort ein Hotel?"],
        ),
    ],
)
def test_wishes(question: str, parts: list[str]) -> None:
    assert wishes(question) == parts
