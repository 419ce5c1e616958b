"""What is a title, and how many terms it has."""

from __future__ import annotations

import pytest

from graphmem_torch.text.terms import terms, title_terms

TITLES = {
    "Marie Curie\nA physicist.": ["mari", "curi"],
    "Titanic (1997 film)\nA film.": ["titan"],
    "The Who\nA band.": [],
    "Café Müller\nA dance by Pina Bausch.": ["café", "müller"],
    "  Ada Lovelace  \n\nShe wrote programs.": ["ada", "lovelac"],
}


@pytest.mark.parametrize("text", TITLES)
def test_title_terms_are_the_first_terms_of_the_text(text: str) -> None:
    assert terms(text)[: title_terms(text)] == TITLES[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "Marie Curie",
        "Marie Curie\n \n",
        "\nMarie Curie",
        "I went home.\nThen I slept.",
        "She asked me:\nwhere?",
        "one two three four five six seven eight nine ten eleven twelve thirteen\nand more",
    ],
)
def test_other_texts_have_no_title(text: str) -> None:
    assert title_terms(text) == -1
