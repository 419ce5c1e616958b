"""Slots that a proposition fills: whose home, employer, role or price it states."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from graphmem_torch.judge import _statement_words as say
from graphmem_torch.judge.propositions import Proposition, is_number, is_time
from graphmem_torch.lazy import lazy_pattern

__all__ = ["ROLE_WORDS", "day_in", "slots_of", "unit_of"]

_NOUNS = {
    **dict.fromkeys(("home", "house", "apartment", "flat", "condo", "hometown"), "home"),
    **dict.fromkeys(("manager", "boss", "supervisor"), "boss"),
    **dict.fromkeys(("job", "profession", "occupation"), "role"),
    **dict.fromkeys(("husband", "wife", "spouse"), "partner"),
    "employer": "employer",
    "name": "name",
}  # slots by their nouns
# A noun is an occupation if it looks like one; a mother may be anything else as well.
_OCCUPATION = lazy_pattern(
    r"(?!(?:mother|father|sister|brother|daughter|member|lover|believer|beginner|winner|owner|"
    r"newcomer|partner|neighbou?r|supporter|fighter|number|matter|reminder|visitor|person|better|"
    r"over|under|other|older|younger|vegetarian|giant|adult)$)"
    r"(?:\w{2,}(?:er|or|ist|ian|ant|eur)|\w+(?:man|woman)|chef|cook|judge|nurse|pilot|guide|clerk|"
    r"monk|secretary|student|apprentice|actress|waitress|agent)"
)
ROLE_WORDS = 3  # maximum words of an occupation
_PASSIVES: dict[str, tuple[str, tuple[str, ...]]] = {
    "employed": ("employer", ("by", "at")),
    "called": ("name", ()),
    "named": ("name", ()),
    "married": ("partner", ("to",)),
    "born": ("birth", ("in", "on")),
}
_NAMED = 4  # maximum words of a name


def slots_of(said: Proposition) -> Iterator[tuple[frozenset[str], str, tuple[str, ...]]]:
    """Yield the slots that a proposition fills: owner, slot, and value."""
    predicate, words, subject = said.predicate, said.words, said.subject
    if said.change is not None:
        if said.change.kind == "moved" and {*said.change.new} <= said.proper:
            yield subject, "home", said.change.new
        return
    if predicate in say.PLACED or (predicate == "be" and words[:1] == ("based",)):
        if value := _behind(words, ("in", "at"), said.proper):
            yield subject, "home", value
    elif predicate == "work":
        if words[:1] in (("at",), ("for",)) and {*(value := _phrase(words[1:]))} & said.proper:
            yield subject, "employer", value
        if value := _behind(words, ("as",)):
            yield subject, "role", value
    elif predicate == "start" and ("job" in words or words[:1] == ("at",)):
        if value := _behind(words, ("at", "with"), said.proper):
            yield subject, "employer", value
    elif predicate in ("cost", "charge") and (number := _number_in(words)):
        yield subject, "price", number
    elif predicate == "have" and {*words} & say.HOUSES:
        if value := _behind(words, ("in", "at"), said.proper):
            yield subject, "home", value
    elif predicate == "lead" and words and not {*words} & {"i", "to"}:
        yield unit_of(words), "leader", tuple(sorted(subject))
    elif predicate in say.LIKINGS and words:
        yield subject, "liking", _phrase(words)
    elif predicate in say.SITTINGS and (day := day_in(words)):
        yield subject, "day", day
    elif predicate == "drive" and {*words} & said.proper:
        yield subject, "car", tuple(word for word in words if word in said.proper)
    elif predicate == "report" and (value := _behind(words, ("to",))):
        yield subject, "boss", value
    elif predicate == "be" and words:
        if (post := subject & say.LEADERS) and subject > post and {*words} <= said.proper:
            yield unit_of(subject - post), "leader", words
        if words[0] in say.LEADERS and words[1:2] == ("of",):
            yield unit_of(words[2:]), "leader", tuple(sorted(subject))
        favourite = {"favourite", "favorite"} & subject
        if favourite and len(subject) > 2:
            for word in subject:
                yield frozenset([word]), "liking", words
        if day := day_in(words):
            yield subject, "day", day
        if "price" in subject and (number := _number_in(words)):
            yield subject - {"price", "of"}, "price", number
        if "car" in subject and {*words} & said.proper:
            own = tuple(word for word in words if word in said.proper)
            yield subject - {"car"}, "car", own
        person = said.named or subject & say.KIN or len(subject) == 1
        named = words[0] not in say.PREPOSITIONS
        if len(words) <= ROLE_WORDS and person and named and _OCCUPATION.fullmatch(words[-1]):
            yield subject, "role", words
        if words[0] in _PASSIVES:
            slot, prepositions = _PASSIVES[words[0]]
            value = _behind(words, prepositions) if prepositions else words[1 : 1 + _NAMED]
            if value:
                yield subject, slot, value
        for noun in subject & _NOUNS.keys():
            slot, where = _NOUNS[noun], words[0] in ("in", "at")
            if (slot == "home") == where and subject > {noun}:
                value = _behind(words, ("in", "at")) if where else _phrase(words)
                if slot not in ("home", "employer") or {*value} & said.proper:
                    yield subject - {noun}, slot, value


def unit_of(words: Iterable[str]) -> frozenset[str]:
    """Return the group that somebody leads: "the head of sales" leads the sales team."""
    found = frozenset(words) - say.PREPOSITIONS
    return (found - {"team"}) or found


def _number_in(words: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(word for word in words if is_number(word))[:1]


def day_in(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the day of a scheduled event; empty if more than the day is said about it."""
    day = tuple(word for word in words if word in say.WEEKDAYS)
    rest = {*words} - {*day} - say.PREPOSITIONS - {"every", "place", "held", "scheduled"}
    return day if len(day) == 1 and not rest else ()


def _behind(
    words: tuple[str, ...], prepositions: tuple[str, ...], proper: frozenset[str] | None = None
) -> tuple[str, ...]:
    """Return the phrase after the first of some prepositions; only its name with `proper`."""
    for place, word in enumerate(words):
        if word in prepositions:
            value = _phrase(words[place + 1 :])
            if value and (proper is None or {*value} & proper):
                return value
    return ()


def _phrase(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return the words before the next preposition or time."""
    ends = (i for i, word in enumerate(words) if word in say.PREPOSITIONS or is_time(word))
    return words[: min(next(ends, len(words)), _NAMED)]
