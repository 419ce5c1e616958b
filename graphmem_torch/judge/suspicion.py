"""Suspect that a later sentence makes an earlier one untrue.

This reading is looser than `judge.contradiction`: it compares sketches (`judge.sketches`), so it
finds changes in other words, and ends nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from graphmem_torch.judge import _statement_words as say
from graphmem_torch.judge.contradiction import Finding
from graphmem_torch.judge.opposites import stem
from graphmem_torch.judge.sketches import GivenUp, Sketch

__all__ = ["asked_words", "is_kind", "kinds_of", "owned_keys", "ruled_out", "suspect"]

_COVERED = 0.6  # minimum share of the words of what is given up in the earlier sentence
# Kinds, and the kinds that a word excludes: everyday facts about people.
_KINDS = """
pet: dog cat hamster parrot rabbit puppy kitten goldfish tortoise turtle budgie canary ferret gecko
animal: dog cat hamster parrot rabbit puppy kitten goldfish tortoise turtle budgie canary ferret
sibling: brother sister twin stepbrother stepsister
child: son daughter toddler stepson stepdaughter
parent: mother father
spouse: husband wife
alcohol: wine beer whisky whiskey vodka gin rum champagne prosecco cocktail sherry brandy riesling
alcohol: cider lager liqueur schnapps
meat: beef pork chicken steak bacon ham sausage lamb turkey schnitzel salami meatball burger veal
fish: tuna salmon cod trout herring sardine mackerel halibut anchovy
dairy: milk cheese butter yoghurt yogurt cream
coffee: espresso latte cappuccino macchiato
sugar: chocolate cake candy sweet
instrument: piano guitar violin cello flute drum trumpet saxophone clarinet oboe
vehicle: car van truck motorbike motorcycle
car: jeep convertible limousine
"""
_RULED_OUT = """
only-child: sibling
childless: child
vegetarian: meat fish
vegan: meat fish dairy egg honey
single: spouse
unmarried: spouse
bachelor: wife
teetotal: alcohol
teetotaller: alcohol
teetotaler: alcohol
alive: funeral grave
"""


def suspect(earlier: Sketch, later: Sketch) -> list[Finding]:
    """Return evidence in the later sentence that the earlier one is no longer true."""
    found = []
    if earlier.holds:
        for gone in later.gone:
            if _is_given_up(earlier, later, gone):
                old, new = " ".join(sorted(gone.words)), " ".join(sorted(gone.new))
                found.append(Finding("change", (old, new or "no longer")))
    if (denied := _lacking(earlier, later)) is not None:
        found.append(denied)
    return found


def _lacking(earlier: Sketch, later: Sketch) -> Finding | None:
    """Find a possession that the other sentence rules out."""
    for one, other in ((earlier, later), (later, earlier)):
        out = {(who, noun) for who, noun in one.lacks}
        out |= {(who, kind) for who, word in one.states for kind in ruled_out(word)}
        if not out:
            continue
        for who, noun in other.has - one.has:
            kinds = {(who, kind) for kind in kinds_of(noun)} & out if is_kind(noun) else None
            if kinds:
                sides = f"no {min(kinds)[1]}", noun
                return Finding("denial", sides if one is earlier else sides[::-1])
    return None


def asked_words(said: Sketch) -> set[str]:
    """Return the stems that an earlier sentence must have for this one to end it."""
    return {stem(word) for gone in said.gone for word in gone.heads}


def owned_keys(said: Sketch) -> set[str]:
    """Return the keys of possessions, and of their absence."""
    has = {(who, kind) for who, noun in said.has if is_kind(noun) for kind in kinds_of(noun)}
    has |= {(who, kind) for who, word in said.states for kind in ruled_out(word)} | said.lacks
    return {f"{who}|has {noun}" for who, noun in has}


def _is_given_up(earlier: Sketch, later: Sketch, gone: GivenUp) -> bool:
    """Return whether the thing given up is in the earlier sentence."""
    had = {stem(word) for word in earlier.words}
    words = {stem(word) for word in gone.words - say.HOLDINGS or gone.words}
    heads = {stem(word) for word in gone.heads}
    if not heads & had or heads <= say.LIGHT or not later.names & gone.words <= earlier.words:
        return False
    said = had if gone.kind == "end" else {stem(word) for word in earlier.said}
    least = 1.0 if gone.kind == "value" else _COVERED
    if not words & said or len(words & had) < least * len(words):
        return False
    if gone.new and gone.new <= earlier.words:
        return False
    kinds = {"activity": _does, "thing": _holds, "value": _is_value, "end": _is_said}
    fits = kinds[gone.kind]
    return fits(earlier, gone) and _of_one(earlier, later, gone) and _fits(earlier, later, gone)


def _does(earlier: Sketch, gone: GivenUp) -> bool:
    """Return whether somebody does the given-up activity, by its verb or by all its other words."""
    verb, verbs = stem(gone.verb), {stem(verb) for verb in earlier.verbs}
    if gone.heads == {gone.verb}:  # "I stopped singing"
        return stem(earlier.head) == verb and len(gone.words) == 1
    rest = gone.words - {gone.verb}
    return gone.heads <= earlier.said and (verb in verbs or rest <= earlier.words)


def _holds(earlier: Sketch, gone: GivenUp) -> bool:
    """Return whether somebody has or uses the given-up thing, or does what it names."""
    had = {noun for _, noun in earlier.has} | (earlier.names & earlier.said)
    if gone.of & earlier.about:
        had |= earlier.said
    verbs = {stem(verb) for verb in earlier.verbs}
    return bool(gone.heads & had) or any(stem(head) in verbs for head in gone.heads)


def _is_value(earlier: Sketch, gone: GivenUp) -> bool:
    """Return whether the old value is in the earlier sentence, under the same verb if any."""
    return bool(gone.heads & earlier.said) and (not gone.verb or gone.verb in earlier.verbs)


def _is_said(earlier: Sketch, gone: GivenUp) -> bool:
    """Return whether the earlier sentence is about the thing that no longer exists."""
    own = earlier.words if gone.of & earlier.about else earlier.about | earlier.objects
    return bool(gone.heads & (own | earlier.names))


def _of_one(earlier: Sketch, later: Sketch, gone: GivenUp) -> bool:
    """Return whether both are about the same person or thing."""
    others = gone.of - earlier.words - earlier.about
    if others and others == gone.of and others != {later.speaker}:
        return False
    things = earlier.about - {earlier.speaker}
    told = bool(things) and things <= later.words | later.about
    return bool(gone.of & earlier.about) or told


def _fits(earlier: Sketch, later: Sketch, gone: GivenUp) -> bool:
    """Return whether the given-up thing is not another of its kind: "wheat bread", "rye bread"."""
    owners = dict(earlier.owners)
    for noun, whose in later.owners:
        if noun in gone.heads and owners.get(noun, whose) != whose:
            return False
        if noun in gone.heads and noun not in owners and whose not in earlier.words:
            return False
    mine = dict(earlier.modified)
    for noun, before in later.modified:
        if noun in gone.words and noun in mine and before - earlier.words and mine[noun] - before:
            return False
    return True


def is_kind(noun: str) -> bool:
    """Return whether the table has a noun, as a kind or as a member of one."""
    return noun in _kinds() or any(noun in kinds for kinds in _kinds().values())


def kinds_of(noun: str) -> frozenset[str]:
    """Return the kinds of a noun, itself included."""
    return _kinds().get(noun, frozenset()) | {noun}


def ruled_out(word: str) -> frozenset[str]:
    """Return the kinds of things that a person with a trait does not have."""
    return _ruled().get(word, frozenset())


@cache
def _kinds() -> Mapping[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    for line in _KINDS.strip().splitlines():
        kind, nouns = line.split(": ")
        for noun in nouns.split():
            found.setdefault(noun, set()).add(kind)
    return {noun: frozenset(kinds) for noun, kinds in found.items()}


@cache
def _ruled() -> Mapping[str, frozenset[str]]:
    lines = (line.split(": ") for line in _RULED_OUT.strip().splitlines())
    return {word: frozenset(kinds.split()) for word, kinds in lines}
