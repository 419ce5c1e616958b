"""Suspicions: changes in other words, and possessions that are denied."""

from __future__ import annotations

import itertools

import pytest

from graphmem_torch.judge.entailment import LexicalJudge
from graphmem_torch.judge.sketches import Sketch
from graphmem_torch.judge.statements import read_statements
from graphmem_torch.judge.suspicion import (
    asked_words,
    is_kind,
    kinds_of,
    owned_keys,
    ruled_out,
    suspect,
)
from graphmem_torch.text.sentence_transformer import SentenceTransformerEmbedder
from graphmem_torch.text.terms import terms

# The later one says that what the earlier one tells is no more; no proposition shows it.
GIVEN_UP = [
    ("Our Wi-Fi provider is Vodafone.", "We've finally left Vodafone, the new one is faster."),
    ("I sing in the church choir.", "I've left the church choir."),
    ("We keep three hens in the yard.", "We gave all three hens away to a farm."),
    ("My phone is a Pixel 6.", "I replaced my Pixel 6 with an iPhone."),
    ("Our bank is the Sparkasse.", "We changed banks from the Sparkasse to ING."),
    ("The cron job runs every hour.", "The cron job runs every ten minutes instead of every hour."),
    ("The password rotation happens monthly.", "We dropped the password rotation."),
    ("The data is backed up to tape.", "The data isn't backed up to tape anymore."),
]
LACKED = [
    ("I don't have any pets.", "My hamster wants his dinner."),
    ("Tina is an only child.", "Tina's brother picked her up."),
    ("Aunt Rosa never touches alcohol.", "Aunt Rosa has a glass of sherry every evening."),
    ("I have no siblings.", "My sister is visiting me."),
]
# Another thing, another person, another time, or not so: nothing is given up.
HARMLESS = [
    ("My jacket is from Denmark.", "I left my jacket at the office."),
    ("I play chess on Sundays.", "Peter gave up chess."),
    ("The bakery sells wheat bread.", "The bakery no longer sells rye bread."),
    ("I play badminton every week.", "As a teenager I stopped playing football."),
    ("I work at Google as a recruiter.", "I no longer work weekends."),
    ("Our cat's name is Simba.", "The neighbours renamed their cat, he's Mogli now."),
    ("The web shop runs on version 7.", "The admin tool was moved from version 7 to version 8."),
    ("I subscribe to the local newspaper.", "I cancelled my subscription to that magazine."),
    ("We own a boat on the lake.", "I might sell the boat."),
    ("Jan smokes a pack a day.", "Jan wants to quit smoking."),
    ("I know a number of people.", "We exchanged numbers."),
    ("I'm planning to bake cookies.", "I used to bake cookies with my aunt."),
    ("We don't have a dog.", "In the story we have a dog who can fly."),
    ("I have no pets.", "My brother's cat is black."),
    ("I don't have a sister.", "My brother is a cook."),
    ("I live in Flensburg with two flatmates.", "I moved from Kiel to Flensburg in 2009."),
    ("I am a vegan.", "I drink oat milk."),
    ("I have no pets.", "My cat videos are popular."),
    ("I don't have a car.", "My golf has improved."),
    ("I drink tea in the morning.", "I stopped drinking tea at night."),
    ("I go to school by bus.", "I left school early today."),
]


def sketches(text: str) -> tuple[Sketch, ...]:
    (read,) = read_statements([f"Kim: {text}"])
    return read.sketches


def suspected(earlier: str, later: str) -> bool:
    pairs = itertools.product(sketches(earlier), sketches(later))
    return any(suspect(one, other) for one, other in pairs)


@pytest.mark.parametrize("pair", [*GIVEN_UP, *LACKED])
def test_a_change_in_other_words_is_flagged_and_ends_nothing(
    pair: tuple[str, str], minilm: SentenceTransformerEmbedder
) -> None:
    texts = [[f"Kim: {text}"] for text in pair]
    (flag,) = LexicalJudge(minilm).compare(*texts)
    assert flag is not None
    assert "no longer" in pair[1] or "anymore" in pair[1] or not flag.ends


@pytest.mark.parametrize("pair", LACKED)
def test_who_lacks_it_may_be_said_first_or_last(pair: tuple[str, str]) -> None:
    assert suspected(*pair)
    assert suspected(*pair[::-1])


@pytest.mark.parametrize("pair", HARMLESS)
def test_another_thing_person_or_time_is_not_suspected(
    pair: tuple[str, str], minilm: SentenceTransformerEmbedder
) -> None:
    assert not suspected(*pair)
    assert LexicalJudge(minilm).compare(*([f"Kim: {text}"] for text in pair)) == [None]


@pytest.mark.parametrize("pair", [*GIVEN_UP, *LACKED])
def test_suspected_pairs_share_what_candidates_are_looked_for_by(pair: tuple[str, str]) -> None:
    if not suspected(*pair):
        return  # a proposition tells, which has keys of its own
    asked = {word for said in sketches(pair[1]) for word in asked_words(said)}
    owned = [{key for said in sketches(text) for key in owned_keys(said)} for text in pair]
    assert asked & {*terms(pair[0])} or owned[0] & owned[1]


def test_kinds() -> None:
    assert kinds_of("tuna") == {"tuna", "fish"}
    assert "fish" in ruled_out("vegan") and not ruled_out("tall")
    assert is_kind("fish") and is_kind("tuna") and not is_kind("idea")
