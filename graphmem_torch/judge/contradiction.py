"""Decide whether two propositions can both be true, and whether the later one ends the earlier.

Two propositions of one subject conflict if they differ in one slot that has one value at a time: a
number, a word and its opposite, a time, an identifier, a home, an employer. Everything else must
agree, times and places included, so that another room, another day or another person is no
contradiction. Only a sentence that states the change ("moved to", "no longer", "changed from A to
B", "renamed") ends an earlier statement. `docs/mathematics.md` 5.2.
"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher

from graphmem_torch.judge import _statement_words as say
from graphmem_torch.judge.countries import countries, same_country
from graphmem_torch.judge.opposites import are_opposed, is_polar, without_prefix
from graphmem_torch.judge.propositions import Proposition, StatedChange, is_number, is_time
from graphmem_torch.judge.slots import ROLE_WORDS, day_in, slots_of, unit_of

__all__ = ["Finding", "compare", "keys_of"]

_SLOTS = (
    *("home", "employer", "role", "boss", "partner", "name", "leader", "car", "price", "day"),
    *("birth", "liking"),
)  # every word that is read
_EXTRA = 4  # maximum extra words of one of two sentences
_ABOUT = 0.25  # relative tolerance of a number that is stated as approximate


@dataclass(frozen=True, slots=True)
class Finding:
    """Conflict of two propositions.

    Attributes:
        kind: `number`, `denial`, `opposite`, `time`, `value`, `order` or `change`.
        values: Values in the earlier and the later one.
        ends: Whether the later one states that the earlier one is no longer true.
        names: Whether the values are names, which may be two names of one thing.
        kin: Whether they conflict only if they are of one kind, like green and yellow, unlike grey
            and soft.
    """

    kind: str
    values: tuple[str, str]
    ends: bool = False
    names: bool = False
    kin: bool = False


def compare(earlier: Proposition, later: Proposition) -> Finding | None:
    """Return the contradiction between two propositions, or None."""
    if earlier.implied and later.implied and earlier.predicate == "have":
        numbers = any(map(is_number, earlier.words)) and any(map(is_number, later.words))
        if not numbers:
            return None
    if _passing(earlier) or _passing(later):
        return None
    if later.change is not None and (found := _changed(earlier, later, later.change)):
        return found
    if (found := _order(earlier, later) or _slot_value(earlier, later)) is not None:
        return found
    if not _one_subject(earlier.subject, later.subject, earlier.named and later.named):
        return None
    if earlier.tense == later.tense == "past":
        return _outcome(earlier, later)
    if "past" in (earlier.tense, later.tense):
        return None
    if (found := _denial(earlier, later)) is not None:
        return found
    if "ended" in (earlier.tense, later.tense) or earlier.denied or later.denied:
        return None
    if later.added or earlier.added:
        return None
    return _one_slot(earlier, later)


def keys_of(said: Proposition) -> set[str]:
    """Return the keys of a proposition: two that conflict have one in common."""
    subjects = _subject_keys(said.subject, said.named)
    content = {
        word
        for word in (*said.words, said.predicate.removeprefix("can "))
        if not (word in say.PREPOSITIONS or is_number(word) or is_time(word))
    } - {"be", "have", "do", "get"}
    tails = {without_prefix(word) for word in content if not is_polar(word)} or {"-"}
    if said.predicate == "be" and not said.named:
        tails.add("be")
    found = {f"{subject}|{tail}" for subject in subjects for tail in tails}
    for of, slot, value in slots_of(said):
        found |= {f"{each}|= {slot}" for each in _subject_keys(of, said.named or len(of) == 1)}
        found |= {f"called|{' '.join(sorted(value))}"} if slot == "name" else set()
    if "than" in said.words:
        other = said.words[said.words.index("than") + 1 :]
        found.add("than|" + " ".join(sorted({*said.subject, *other})))
    if (change := said.change) is not None:
        for of in change.of:
            own = _subject_keys(of, named=True) | {" ".join(sorted(of))}
            ends = {"be", "-", *change.old, "work", *(f"= {slot}" for slot in _SLOTS)}
            found |= {f"{subject}|{end}" for subject in own for end in ends}
            if change.kind == "renamed":
                found.add(f"{' '.join(sorted(of | change.of[0]))}|= name")
                found.add(f"called|{' '.join(sorted(of))}")
    if said.predicate == "be" and said.words[:1] in (("called",), ("named",)):
        found.add(f"called|{' '.join(sorted(said.subject))}")
    return found


def _subject_keys(subject: frozenset[str], named: bool) -> set[str]:
    """Return the subject as a whole, and each word of a name, whose parts are the same subject."""
    return set(subject) if named else {" ".join(sorted(subject))}


def _passing(said: Proposition) -> bool:
    """Return whether it is momentary, or at a time or place that only its context resolves."""
    if said.change is not None:
        return False
    mood = said.predicate in ("be", "feel") and {*said.words} <= say.MOODS
    follow = (*said.words[1:], "")
    return mood or any(
        word in say.DEICTIC and (word, after) != ("next", "to")
        for word, after in zip(said.words, follow, strict=False)
    )


def _one_subject(one: frozenset[str], other: frozenset[str], named: bool) -> bool:
    """Return whether two subjects are one: a name may be shortened."""
    if one == other or not named:
        return one == other
    return (one < other or other < one) and all(w.isalpha() and len(w) > 1 for w in one ^ other)


def _order(one: Proposition, other: Proposition) -> Finding | None:
    """Find two things each of which is said to be more than the other."""
    if one.predicate != other.predicate or one.denied or other.denied or one.tense != other.tense:
        return None
    sides = []
    for said in (one, other):
        if said.words.count("than") != 1 or said.tense == "past":
            return None
        place = said.words.index("than")
        sides.append((said.words[:place], frozenset(said.words[place + 1 :])))
    (more, than), (again, back) = sides
    if more == again and than == other.subject and back == one.subject and than != back:
        return Finding("order", (_shown(one.subject), _shown(other.subject)))
    return None


def _outcome(one: Proposition, other: Proposition) -> Finding | None:
    """Find two outcomes of one event."""
    if one.times or other.times or one.denied != other.denied:
        return None
    if one.words != other.words:
        return _made_by(one, other)
    ways = one.predicate, other.predicate
    return (
        Finding("opposite", ways) if say.OUTCOMES.issuperset(ways) and are_opposed(*ways) else None
    )


def _made_by(one: Proposition, other: Proposition) -> Finding | None:
    """Find two makers of one thing: written by, founded by."""
    way = one.words[:2]
    if one.predicate != "be" or way != other.words[:2] or way[1:] != ("by",):
        return None
    who = one.words[2:], other.words[2:]
    if not ({*who[0]} <= one.proper and {*who[1]} <= other.proper):
        return None
    apart = not ({*who[0]} <= {*who[1]} or {*who[1]} <= {*who[0]})
    return Finding("value", (" ".join(who[0]), " ".join(who[1])), names=True) if apart else None


def _denial(earlier: Proposition, later: Proposition) -> Finding | None:
    """Find a proposition that the other one denies or ends."""
    if earlier.predicate != later.predicate:
        return None
    off = [said.denied or said.tense == "ended" for said in (earlier, later)]
    if off[0] == off[1]:
        return None
    slots, extra = _aligned(_bare(earlier.words), _bare(later.words))
    denying = later if off[1] else earlier
    # A denial of the whole denies each part of it; not the other way round.
    if slots or extra[1 if off[1] else 0]:
        return None
    if (extra[0] or extra[1]) and (earlier.clausal or later.clausal):
        return None
    if not denying.words and not denying.explicit and (extra[0] or extra[1] or _is_light(denying)):
        return None
    states = ("so", "no longer" if denying.tense == "ended" else "not so")
    ends = off[1] and later.explicit and not earlier.implied and not later.implied
    return Finding("denial", states if off[1] else states[::-1], ends=ends)


def _bare(words: tuple[str, ...]) -> tuple[str, ...]:
    """Return words without "every" and prepositions before times: every morning, in the morning."""
    small = say.PREPOSITIONS | {"every", "each"}
    follow = (*words[1:], "")
    return tuple(
        word
        for word, after in zip(words, follow, strict=False)
        if word not in small or not is_time(after)
    )


def _is_light(said: Proposition) -> bool:
    """Return whether a verb alone says too little to be denied elsewhere: "I know", "I don't"."""
    return said.predicate.removeprefix("can ") in say.LIGHT


def _one_slot(earlier: Proposition, later: Proposition) -> Finding | None:
    """Find a difference in one slot of otherwise equal propositions."""
    slots, extra = _aligned(earlier.words, later.words)
    one_sided = not (extra[0] and extra[1])
    if not one_sided or not _harmless(extra[0]) or not _harmless(extra[1]):
        return None
    if (extra[0] or extra[1]) and (earlier.clausal or later.clausal):
        return None
    if earlier.predicate != later.predicate:
        turned = are_opposed(earlier.predicate, later.predicate)
        if turned and not slots and not extra[0] and not extra[1]:
            return Finding("opposite", (earlier.predicate, later.predicate))
        return None
    if len(slots) != 1:
        return None
    ((start, stop), (first, last)) = slots[0]
    old, new = earlier.words[start:stop], later.words[first:last]
    values = " ".join(old), " ".join(new)
    before = earlier.words[:start]
    if (
        len(old) == len(new) == 1
        and {*old, *new} <= say.ORDINALS
        and earlier.predicate == "be"
        and before
    ):
        return Finding("number", values) if before[-1] in say.PLACES else None
    if _is_time_value(old) and _is_time_value(new):
        alone = all(word in say.PREPOSITIONS for word in before)
        when = earlier.predicate == "be" or earlier.predicate in say.SCHEDULED
        alone &= all(is_time(word) or is_number(word) for word in earlier.words[stop:])
        calendar = any(map(is_time, (*old, *new)))
        if alone and when and (calendar or earlier.predicate in say.SCHEDULED):
            return Finding("time", values)
        if calendar:
            return None
    if len(old) == len(new) == 1 and is_number(old[0]) and is_number(new[0]):
        return _number(earlier, later, start, values)
    if len(old) == len(new) == 1 and are_opposed(old[0], new[0]) and not is_time(old[0]):
        return Finding("opposite", values)
    if earlier.predicate == "be" and (found := _identity(earlier, later, start, (old, new))):
        return found
    return _of_a_kind(earlier, later, start, (old, new))


def _of_a_kind(
    earlier: Proposition,
    later: Proposition,
    start: int,
    slot: tuple[tuple[str, ...], tuple[str, ...]],
) -> Finding | None:
    """Find two exclusive values of one kind: colours, materials, breeds.

    People are excluded, because they are many things.
    """
    values = " ".join(slot[0]), " ".join(slot[1])
    if earlier.predicate not in say.STATES or (earlier.named and len(earlier.subject) == 1):
        return None
    if any(is_time(word) or is_number(word) or word in say.PREPOSITIONS for word in sum(slot, ())):
        return None
    if start and earlier.words[start - 1] in say.OPEN_ENDED:
        return None
    if sum(value in countries() for value in values) == 1:
        return None  # a town and a country may be one place
    if {*earlier.words, *later.words} & say.DEGREES or max(map(len, slot)) > ROLE_WORDS:
        return None
    proper = {*slot[0]} <= earlier.proper and {*slot[1]} <= later.proper
    return Finding("value", values, names=True, kin=not proper)


def _number(
    earlier: Proposition, later: Proposition, place: int, values: tuple[str, str]
) -> Finding | None:
    if _about_equal(values, hedged=earlier.hedged or later.hedged):
        return None
    words = earlier.words
    after = words[place + 1] if place + 1 < len(words) else ""
    noun = words[place - 1] if place else ""
    names = noun not in say.PREPOSITIONS | say.SINGLE | {""} and (
        not after or after in say.PREPOSITIONS
    )
    if names and earlier.predicate not in say.NAMING:
        return None  # I may like both Formula 1 and Formula 2
    return Finding("number", values)


def _about_equal(values: tuple[str, str], *, hedged: bool) -> bool:
    """Return whether two numbers are equal, or within the tolerance of "about"."""
    try:
        one, other = (float(value.strip("$\u20ac\u00a3%").rstrip(".")) for value in values)
    except ValueError:
        return hedged or values[0] == values[1]
    if not hedged:
        return one == other
    return abs(one - other) <= _ABOUT * max(abs(one), abs(other))


def _identity(
    earlier: Proposition,
    later: Proposition,
    start: int,
    slot: tuple[tuple[str, ...], tuple[str, ...]],
) -> Finding | None:
    """Find two values of a slot with one: identifiers, names, places, and single nouns."""
    old, new = slot
    values = " ".join(old), " ".join(new)
    # A title may be the same: Dr. Weber, Dr. Braun.
    before = [word for word in earlier.words[:start] if word not in earlier.proper]
    placed = bool(before) and before[-1] in say.PREPOSITIONS
    if len(before) - placed > (1 if placed else 0):  # assigned to, in
        return None
    if any(map(is_time, (*old, *new))) or any(map(is_number, old)) != any(map(is_number, new)):
        return None
    if all(len(each) == 1 and _is_code(each[0]) for each in slot):
        return Finding("value", values)
    if earlier.definite and later.definite and not {*old, *new} & earlier.proper:
        posts = _parted(earlier.words), _parted(later.words)
        if posts[0][1] and posts[0][1] == posts[1][1]:  # the captain and the goalkeeper of a team
            return Finding("value", (" ".join(posts[0][0]), " ".join(posts[1][0])), names=True)
    if earlier.named:
        return None
    names = {*old} <= earlier.proper and {*new} <= later.proper
    if sum(value in countries() for value in values) == 1:
        return None  # a town and a country may be one place
    if names or earlier.subject & say.SINGLE:
        return Finding("value", values, names=True)
    if before and before[0] in say.OPEN_ENDED:
        return None
    if (placed or old[0] in say.PLACES) and (placed or new[0] in say.PLACES):
        one_sided = ({*old} <= earlier.proper) != ({*new} <= later.proper)
        loose = placed and before[-1] not in say.PLACES
        return Finding("value", values, names=True, kin=one_sided or loose)
    return None


def _parted(words: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return a post and its group: the head, of the team."""
    place = next((i for i, word in enumerate(words) if word in ("of", "in")), len(words))
    return words[:place], words[place + 1 :]


def _holds(said: Proposition) -> bool:
    """Return whether it states a present fact; a person who has moved lives there."""
    so = said.tense == "present" or said.predicate == "start"
    so |= said.change is not None and said.change.kind == "moved"
    return so and not said.denied and not said.added


def _slot_value(earlier: Proposition, later: Proposition) -> Finding | None:
    """Find two values of a slot of one subject: its home, its employer, its name."""
    over = later.tense == "ended" and not later.denied
    if not (_holds(earlier) and (over or _holds(later))):
        return None
    named = earlier.named and later.named
    for of, slot, old in slots_of(earlier):
        for whose, other, new in slots_of(later):
            if slot == "liking" and not over:
                continue  # one of many
            if over:
                if slot == other and {*new} <= {*old} and _one_subject(of, whose, named):
                    return Finding(
                        "denial",
                        (" ".join(old), "no longer"),
                        ends=later.explicit and not (earlier.implied or later.implied),
                    )
                continue
            apart = not ({*old} <= {*new} or {*new} <= {*old})
            when = earlier.times - {*old}, later.times - {*new}
            if when[0] != when[1] and not {"since", "for"} & {*later.words}:
                continue
            if slot == other and _one_subject(of, whose, named) and apart:
                values = " ".join(old), " ".join(new)
                # A town and a country may be one home.
                if slot == "home" and any(v in countries() for v in values):
                    apart = all(v in countries() for v in values) and not same_country(*values)
                named_value = slot not in ("day", "price")
                return Finding("value", values, names=named_value) if apart else None
            renamed = slot == other == "name" and frozenset(old) == later.subject != of
            if renamed and apart:
                return Finding("change", (" ".join(old), " ".join(new)))
    return None


def _changed(earlier: Proposition, later: Proposition, change: StatedChange) -> Finding | None:
    """Find a change by the later one of what the earlier one says."""
    if not _holds(earlier):
        return None
    new, old = " ".join(change.new), " ".join(change.old)
    if change.kind == "moved":
        if {*change.new} <= later.proper:
            for of, slot, value in slots_of(earlier):
                if slot == "home" and of == change.of[0] and not {*value} <= {*change.new}:
                    stated = not old or {*change.old} <= {*value}
                    return Finding("change", (" ".join(value), new), ends=stated, names=True)
        sits = earlier.subject == change.of[0] and not earlier.named
        if sits and earlier.predicate in say.SEATED and change.new[-1] in earlier.words:
            return Finding("change", (" ".join(earlier.words), new))
        if not change.old:
            return None
    if change.kind == "renamed":
        for of, slot, value in slots_of(earlier):
            about = any(each in (of, frozenset(value)) for each in change.of)
            about |= bool(change.old) and any(each | change.of[0] == of for each in change.of)
            fits = not change.old or value == change.old
            if slot == "name" and value != change.new and about and fits:
                return Finding("change", (" ".join(value), new), ends=True)
        return None
    if change.kind == "gone":
        return _gone(earlier, later, change)
    return _became(earlier, change) or _slot_became(earlier, change)


def _slot_became(earlier: Proposition, change: StatedChange) -> Finding | None:
    """Find a slot whose value was given up for another: a car, a post."""
    for of, slot, value in slots_of(earlier):
        whose = [*map(unit_of, change.of)] if slot == "leader" else change.of
        if of in whose and change.old and {*value} <= {*change.old} and slot != "liking":
            return Finding("change", (" ".join(value), " ".join(change.new)))
    return None


def _became(earlier: Proposition, change: StatedChange) -> Finding | None:
    """Find a change of what the earlier one says."""
    new, old = " ".join(change.new), " ".join(change.old)
    if earlier.subject not in change.of or earlier.words == change.new:
        return None
    said = tuple(word for word in earlier.words if word not in say.PREPOSITIONS)
    if change.old:
        if not _contains(said, change.old):
            return None
        # Much is true of a person; the changed value must be all of the statement, or be named as
        # well.
        rest = {*said} - {*change.old}
        whole = not rest if earlier.named else True
        whole |= bool(rest) and any(rest <= of for of in change.of[1:])
        return Finding("change", (old, new), ends=whole and earlier.predicate in say.IN_USE)
    single = _is_time_value(said) or all(map(is_number, said)) or any(map(_is_code, said))
    single |= bool(earlier.subject & say.SINGLE)
    sits = earlier.predicate in say.SITTINGS and bool(day_in(earlier.words))
    single &= earlier.predicate == "be" or sits
    if not earlier.named and single and said != change.new:
        return Finding("change", (" ".join(said), new), ends=True)
    return None


def _gone(earlier: Proposition, later: Proposition, change: StatedChange) -> Finding | None:
    """Find something that the earlier one has, uses or does, and the later one gives up."""
    for of, _, value in slots_of(earlier):
        if of in change.of and value and {*value} <= {*change.old}:
            return Finding("change", (" ".join(value), "no longer"))
    in_it = earlier.subject <= change.of[0]
    if (
        change.new and in_it and earlier.predicate == "have"
    ):  # the stove in our kitchen was replaced by a hob
        kept = {*earlier.words, *earlier.subject}
        return Finding("change", (" ".join(change.old), "gone")) if {*change.old} <= kept else None
    if earlier.implied or earlier.subject not in change.of or earlier.predicate not in say.HELD:
        return None
    old = {*change.old} - say.SAID - change.of[0]
    old = (old - say.HOLDINGS - say.PREPOSITIONS) or old
    filled = {slot for _, slot, _ in slots_of(earlier)}
    job = {*change.old} & say.JOBS and filled & {"employer", "role"}
    said = {*earlier.words} - change.of[0]
    if job and not old - said - say.JOBS and (later.proper <= said or not later.proper):
        return Finding("change", ("work", "no longer"), ends=True)
    if not old or not old <= said:
        return None
    named = bool(old & later.proper & earlier.proper)
    return Finding("change", (" ".join(change.old), "gone"), ends=named and len(old) > 1)


def _contains(words: tuple[str, ...], part: tuple[str, ...]) -> bool:
    """Return whether some words occur in others, one after the other."""
    size = len(part)
    return any(words[i : i + size] == part for i in range(len(words) - size + 1))


_Slot = tuple[tuple[int, int], tuple[int, int]]


def _aligned(
    one: tuple[str, ...], other: tuple[str, ...]
) -> tuple[list[_Slot], tuple[list[str], list[str]]]:
    """Return replaced blocks, and the words that only one of the two has."""
    slots: list[_Slot] = []
    extra: tuple[list[str], list[str]] = [], []
    matcher = SequenceMatcher(None, one, other, autojunk=False)
    for name, a, b, c, d in matcher.get_opcodes():
        if name == "replace":
            slots.append(((a, b), (c, d)))
        elif name == "delete":
            extra[0].extend(one[a:b])
        elif name == "insert":
            extra[1].extend(other[c:d])
    return slots, extra


def _harmless(extra: list[str]) -> bool:
    """Return whether words that only one of two has change little."""
    return len(extra) <= _EXTRA and not any(is_time(word) or is_number(word) for word in extra)


def _is_time_value(words: tuple[str, ...]) -> bool:
    return bool(words) and all(
        is_time(word) or is_number(word) or word in say.PREPOSITIONS for word in words
    ) and not all(word in say.PREPOSITIONS for word in words)  # fmt: skip


def _is_code(word: str) -> bool:
    """Return whether a word is an identifier: a path, an address, letters with digits."""
    mixed = any(map(str.isdigit, word)) and any(map(str.isalpha, word))
    ordinal = word[:1].isdigit() and word.endswith(("st", "nd", "rd", "th"))
    return any(sign in word for sign in "/@\\_#") or (mixed and not ordinal)


def _shown(subject: frozenset[str]) -> str:
    return " ".join(sorted(subject))
