"""Find words and their opposites, by a table and by prefixes."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache, lru_cache

from graphmem_torch.text.terms import terms

__all__ = ["are_opposed", "is_polar", "opposites", "stem", "without_prefix"]

_OPPOSITES = """
accept reject | accepted denied | active inactive | agree disagree | alive dead | allow ban |
allow forbid | allow prevent | always never | arrive leave | asleep awake | begin end |
best worst | better worse | big small | bought sold | buy sell | cause prevent | cheap expensive |
correct wrong | decrease increase | deny confirm | different same | dry wet | early late |
easy difficult | easy hard | effective ineffective | empty full | enable disable | enemy friend |
expand shrink | fall rise | fast slow | fewer more | first last | gain lose | good bad |
guilty innocent | happy sad | healthy sick | heavy light | high low | higher lower | hate like |
hate love | hot cold | improve worsen | inhibit promote | inhibit induce | join quit |
large small | less more | long short | lower raise | married divorced | maximum minimum |
negative positive | old new | old young | open close | open shut | pass fail |
possible impossible | present absent | quiet loud | reduce increase | reduce raise | rich poor |
right wrong | safe dangerous | safe unsafe | similar different | start stop | strong weak |
success failure | support oppose | true false | up down | weaken strengthen | win lose |
above below | with without | on off | in out | lock unlock | online offline |
single married | public private | working broken | proprietary open-source | approve reject |
approve deny | clean dirty | available unavailable | optional mandatory |
optional required | manual automatic | dislike like | dislike love |
employed unemployed | single taken |
visible hidden | installed missing | indoors outdoors | inside outside | left right | odd even |
permanent temporary | single dating | free paid | vacant occupied | won lost
"""


_PREFIXES = ("un", "in", "im", "ir", "il", "dis", "non")
_BODY = 4  # minimum letters without the prefix


@cache  # on first use: the stemmer is not loaded at import
def opposites() -> Mapping[str, frozenset[str]]:
    """Return each word's opposites, both ways, as stems; stop words unchanged."""
    table: dict[str, set[str]] = {}
    for pair in _OPPOSITES.replace("\n", " ").split("|"):
        one, other = (stem(word) for word in pair.split())
        table.setdefault(one, set()).add(other)
        table.setdefault(other, set()).add(one)
    return {word: frozenset(others) for word, others in table.items()}


def are_opposed(one: str, other: str) -> bool:
    """Return whether two words exclude each other: open, closed; locked, unlocked."""
    table = opposites()
    forms = {other, stem(other)}
    if any(not forms.isdisjoint(table.get(form, ())) for form in (one, stem(one))):
        return True
    return one != other and (without_prefix(one) == other or without_prefix(other) == one)


def is_polar(word: str) -> bool:
    """Return whether the table has opposites of a word."""
    table = opposites()
    return word in table or stem(word) in table


def without_prefix(word: str) -> str:
    """Return a word without its negative prefix: locked, for unlocked."""
    for prefix in _PREFIXES:
        if word.startswith(prefix) and len(word) - len(prefix) >= _BODY:
            return word.removeprefix(prefix).lstrip("-")
    return word


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Return the stem of a word; of a stop word the word itself."""
    found = terms(word)
    return found[0] if found else word
