"""Pairs of statements of which the later supersedes the earlier, or does not; made by a seed.

A slot of a person or a thing has one value at a time: where she lives, for whom she works, what the
shop charges. A pair has the statement of a value and a later statement, from templates of two
groups. Fitting uses the first group and its names; measuring uses the second, which has other
wordings, names and values.

Half of the pairs are superseded. The others have another subject, or state something compatible: a
visit, a wish, a past fact, the same value in other words. Always answering "superseded" is right
half the time.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

__all__ = ["GROUPS", "KINDS", "Pair", "supersessions"]

KINDS = ("moved", "changed_jobs", "no_longer", "now_prefers", "other_value", "other_number")
"""Kinds of supersession; kinds of other pairs: `same`, `beside`, `other_subject`, `other`."""

GROUPS = ("fit", "held_out")
"""The two groups of templates, names and values."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Two statements in the order in which they were made.

    Attributes:
        earlier: Earlier statement.
        later: Later statement.
        superseded: Whether the later statement makes the earlier one untrue.
        kind: One of `KINDS`, or the reason why it is not superseded.
    """

    earlier: str
    later: str
    superseded: bool
    kind: str


@dataclass(frozen=True)
class _Slot:
    """Slot with one value at a time, in the words of one group of templates.

    `{p}` is the subject, `{v}` the value, `{o}` the previous one; a first-person statement is a
    turn of the subject.

    Attributes:
        kind: Kind of the supersession by another value.
        subjects: Possible subjects.
        values: Possible values.
        states: Templates that state a value.
        changes: Templates that state a new value.
        ends: Templates that state the end of a value.
        beside: Templates that are true of a value that the subject does not have.
    """

    kind: str
    subjects: Sequence[str]
    values: Sequence[str]
    states: Sequence[str]
    changes: Sequence[str]
    ends: Sequence[str] = ()
    beside: Sequence[str] = ()


_PEOPLE: Mapping[str, Sequence[str]] = {
    "fit": [
        "Ana",
        "Ben",
        "Carla",
        "David",
        "Emma",
        "Farid",
        "Grace",
        "Hugo",
        "Irene",
        "Jonas",
        "Karim",
        "Laura",
    ],
    "held_out": [
        "Mateo",
        "Nadia",
        "Oscar",
        "Priya",
        "Quentin",
        "Rosa",
        "Samir",
        "Tessa",
        "Ulrich",
        "Vera",
        "Walter",
        "Yuki",
    ],
}

_LISTS: Mapping[str, Mapping[str, Sequence[str]]] = {
    "fit": {
        "cities": [
            "Lisbon",
            "Porto",
            "Berlin",
            "Oslo",
            "Madrid",
            "Chicago",
            "Toronto",
            "Naples",
            "Kyoto",
            "Dublin",
        ],
        "companies": ["Acme", "Globex", "Initech", "Umbrella", "Hooli", "Vandelay", "Stark Labs"],
        "jobs": ["nurse", "teacher", "plumber", "baker", "lawyer", "driver", "librarian"],
        "drinks": ["espresso", "green tea", "lemonade", "hot chocolate", "cider", "mint tea"],
        "instruments": ["violin", "piano", "flute", "guitar", "cello", "trumpet"],
        "cars": ["Volvo", "Fiat", "Toyota", "Mini", "Skoda", "Tesla"],
        "days": ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"],
        "groups": ["book club", "choir", "budget meeting", "yoga class", "stand-up"],
        "goods": ["blue lamp", "city bike", "oak desk", "winter coat", "coffee grinder"],
        "teams": ["design team", "sales team", "support desk", "data group"],
        "places": ["corner bakery", "old library", "swimming pool", "north gate"],
        "secrets": ["guest Wi-Fi password", "door code", "alarm pin", "locker code"],
    },
    "held_out": {
        "cities": [
            "Vienna",
            "Lyon",
            "Bristol",
            "Seattle",
            "Warsaw",
            "Malmö",
            "Turin",
            "Austin",
            "Zagreb",
            "Leeds",
        ],
        "companies": ["Wayne Foods", "Soylent", "Cyberdyne", "Nakatomi", "Gringotts", "Oceanic"],
        "jobs": ["pilot", "florist", "accountant", "carpenter", "journalist", "dentist"],
        "drinks": ["oolong", "ginger ale", "black coffee", "apple juice", "matcha", "cocoa"],
        "instruments": ["harp", "oboe", "saxophone", "banjo", "viola", "accordion"],
        "cars": ["Honda", "Renault", "Jeep", "Saab", "Mazda", "Subaru"],
        "days": ["Saturday", "Sunday", "Monday", "Thursday", "Wednesday"],
        "groups": [
            "chess circle",
            "parents' evening",
            "team lunch",
            "pottery course",
            "band practice",
        ],
        "goods": ["garden chair", "road map", "rain jacket", "tea kettle", "desk fan"],
        "teams": ["legal department", "night shift", "kitchen crew", "press office"],
        "places": ["harbour cafe", "town museum", "ice rink", "east entrance"],
        "secrets": ["router key", "safe combination", "gate code", "archive login"],
    },
}


def _numbers(low: int, high: int, step: int) -> list[str]:
    return [str(value) for value in range(low, high, step)]


def _slots(group: str) -> list[_Slot]:
    people, named = _PEOPLE[group], _LISTS[group]
    fit = group == "fit"
    return [
        _Slot(
            "moved",
            people,
            named["cities"],
            *(
                (
                    ["{p} lives in {v}.", "{p} has a flat in {v}.", "{p} is based in {v}.",
                     "{p}'s home is in {v}.", "I live in {v}.", "My apartment is in {v}."],
                    ["{p} moved to {v}.", "{p} has moved from {o} to {v}.", "{p} now lives in {v}.",
                     "{p} relocated to {v} last month.", "I moved to {v} in March.",
                     "I just moved from {o} to {v}, still unpacking."],
                    ["{p} no longer lives in {o}.", "{p} doesn't live in {o} anymore.",
                     "I don't live in {o} any more."],
                    ["{p} visited {v} last week.", "{p} used to live in {v}.",
                     "{p} wants to move to {v} some day.", "{p}'s brother lives in {v}.",
                     "I had a great weekend in {v}.", "My sister moved to {v}."],
                )
                if fit
                else (
                    ["{p} resides in {v}.", "{v} is where {p} lives.",
                     "{p} rents a place in {v} and likes it there.", "{p} calls {v} home.",
                     "I'm living in {v} at the moment.", "My house in {v} has a small garden."],
                    ["{p} packed up and settled in {v}.",
                     "{p} found a new apartment in {v} and left {o}.",
                     "Since spring {p} has been living in {v}.",
                     "{p} is a resident of {v} these days.", "We've finally moved to {v}!",
                     "I left {o} behind, {v} is my home now."],
                    ["{p} left {o} for good.", "{p} has moved away from {o}.",
                     "I've moved out of my place in {o}."],
                    ["{p} spent a weekend in {v}.", "{p} grew up in {v}.",
                     "{p} is thinking about a trip to {v}.", "{p} has an aunt in {v}.",
                     "I may move to {v} one day.", "My cousin has a house in {v}."],
                )
            ),
        ),
        _Slot(
            "changed_jobs",
            people,
            named["companies"],
            *(
                (
                    ["{p} works at {v}.", "{p} works for {v}.", "{p} is employed by {v}.",
                     "I work at {v}.", "My job at {v} keeps me busy."],
                    ["{p} started a new job at {v}.", "{p} left {o} and joined {v}.",
                     "{p} now works for {v}.", "I changed jobs, I work for {v} now.",
                     "I just started at {v}."],
                    ["{p} quit {o}.", "{p} no longer works at {o}.", "I quit my job at {o}."],
                    ["{p} bought a lamp at {v}.", "{p} used to work at {v}.",
                     "{p} has a meeting with {v}.", "My brother works for {v}.",
                     "I would love to work for {v}."],
                )
                if fit
                else (
                    ["{p} has a job with {v}.", "{p} earns a living at {v}.",
                     "{p} is on the payroll of {v}.", "I'm working for {v} these days.",
                     "My employer is {v}."],
                    ["{p} was hired by {v}.", "{p} went from {o} to {v} in May.",
                     "{p} accepted an offer from {v} and started on Monday.",
                     "My new employer is {v}.", "I've joined {v}, what a first week!"],
                    ["{p} resigned from {o}.", "{p} was let go by {o}.",
                     "I handed in my notice at {o}."],
                    ["{p} interned at {v} years ago.", "{p}'s sister works for {v}.",
                     "{p} read an article about {v}.", "My neighbour got hired by {v}.",
                     "I once worked at {v}."],
                )
            ),
        ),
        _Slot(
            "changed_jobs",
            people,
            named["jobs"],
            *(
                (
                    ["{p} works as a {v}.", "{p} is a {v}.", "I work as a {v}."],
                    ["{p} is now a {v}.", "{p} became a {v}.", "I work as a {v} now."],
                    ["{p} is no longer a {o}.", "I'm not a {o} anymore."],
                    ["{p} met a {v} at a party.", "{p}'s father was a {v}.", "My mother is a {v}."],
                )
                if fit
                else (
                    ["{p} earns money as a {v}.", "{p}'s job is being a {v}.",
                     "I make my living as a {v}."],
                    ["{p} retrained as a {v}.", "{p} changed careers and is a {v} now.",
                     "I've become a {v}."],
                    ["{p} gave up being a {o}.", "I stopped working as a {o}."],
                    ["{p} once wanted to be a {v}.", "{p} hired a {v}.",
                     "My uncle works as a {v}."],
                )
            ),
        ),
        _Slot(
            "now_prefers",
            people,
            named["drinks"],
            *(
                (
                    ["{p}'s favourite drink is {v}.", "{p} prefers {v} to any other drink.",
                     "My favourite drink is {v}."],
                    ["{p} now prefers {v}.", "{p}'s new favourite drink is {v}.",
                     "{p} switched from {o} to {v}.", "I prefer {v} now."],
                    ["{p} no longer likes {o}.", "I don't like {o} anymore."],
                    ["{p} also likes {v}.", "{p} bought some {v} for a friend.",
                     "My wife's favourite drink is {v}."],
                )
                if fit
                else (
                    ["{p} likes {v} best of all drinks.", "The drink {p} loves most is {v}.",
                     "I like {v} more than any other drink."],
                    ["{p} has gone off {o} and picks {v} now.",
                     "These days {v} is the drink {p} likes most.",
                     "I've switched to {v}, it's my favourite drink by now."],
                    ["{p} can't stand {o} anymore.", "I've gone off {o}."],
                    ["{p} enjoys {v} too.", "{p} spilled {v} on the carpet.",
                     "My friend's favourite drink is {v}."],
                )
            ),
        ),
        _Slot(
            "",  # another instrument does not end this one
            people,
            named["instruments"],
            *(
                (
                    ["{p} plays the {v}.", "{p} plays the {v} in a band.", "I play the {v}."],
                    [],
                    ["{p} stopped playing the {o}.", "{p} no longer plays the {o}.",
                     "I don't play the {o} anymore."],
                    ["{p} took up the {v}.", "{p} doesn't play the {v}.",
                     "I play the {v} as well."],
                )
                if fit
                else (
                    ["{p} practises the {v} every day.", "{p} is good at the {v}.",
                     "I practise the {v} a lot."],
                    [],
                    ["{p} gave up the {o}.", "{p} has quit playing the {o}.",
                     "I've given up the {o}."],
                    ["{p} is learning the {v} as well.", "{p} never tried the {v}.",
                     "I love listening to the {v}."],
                )
            ),
        ),
        _Slot(
            "other_value",
            people,
            named["cars"],
            *(
                (
                    ["{p} drives a {v}.", "{p}'s car is a {v}.", "My car is a {v}."],
                    ["{p} traded the {o} in for a {v}.", "{p} drives a {v} now.",
                     "I sold the {o} and drive a {v} now."],
                    ["{p} sold the {o}.", "I no longer drive the {o}."],
                    ["{p} saw a {v} in the street.", "My boss drives a {v}."],
                )
                if fit
                else (
                    ["{p} owns a {v}.", "{p} gets around in a {v}.", "I drive a {v}."],
                    ["{p} replaced the {o} with a {v}.", "{p}'s new car is a {v}.",
                     "I swapped my {o} for a {v}."],
                    ["{p} got rid of the {o}.", "I've sold my {o}."],
                    ["{p} rented a {v} for the holidays.", "My aunt owns a {v}."],
                )
            ),
        ),
        _Slot(
            "other_value",
            named["groups"],
            named["days"],
            *(
                (
                    ["The {p} meets on {v}.", "The {p} is on {v}."],
                    ["The {p} was moved to {v}.", "The {p} is on {v} from now on."],
                    [],
                    ["The {p} was fun last {v}.", "The room of the {p} gets painted on {v}."],
                )
                if fit
                else (
                    ["The {p} takes place on {v}.", "Every {v} there is the {p}."],
                    ["The {p} has been rescheduled to {v}.", "The {p} is held on {v} now."],
                    [],
                    ["Nobody spoke about the {p} last {v}.",
                     "The photos of the {p} arrived on {v}."],
                )
            ),
        ),
        _Slot(
            "other_value",
            named["teams"],
            people,
            *(
                (
                    ["{v} leads the {p}.", "The head of the {p} is {v}."],
                    ["{v} took over the {p} from {o}.", "The new head of the {p} is {v}."],
                    ["{o} no longer leads the {p}."],
                    ["{v} visited the {p}.", "{v} sent cake to the {p}."],
                )
                if fit
                else (
                    ["{v} is in charge of the {p}.", "The {p} is run by {v}."],
                    ["{v} replaced {o} as head of the {p}.", "The {p} is run by {v} now."],
                    ["{o} stepped down as head of the {p}."],
                    ["{v} had lunch with the {p}.", "{v} is a member of the {p}."],
                )
            ),
        ),
        _Slot(
            "other_value",
            named["secrets"],
            ["swordfish", "bluebird", "maple-7", "kestrel", "orchid", "tin-man"]
            if fit
            else ["lighthouse", "mango-22", "redwood", "osprey", "velvet", "comet"],
            *(
                (
                    ["The {p} is {v}.", "Use {v} as the {p}."],
                    ["The {p} was changed to {v}.", "The new {p} is {v}."],
                    ["The {p} is no longer {o}."],
                    [],
                )
                if fit
                else (
                    ["{v} is the {p}.", "You need {v}, that's the {p}."],
                    ["The {p} has been reset to {v}.", "The {p} is {v} as of today."],
                    ["{o} doesn't work as the {p} anymore."],
                    [],
                )
            ),
        ),
        _Slot(
            "other_value",
            named["places"],
            ["open", "closed"],
            *(
                (
                    ["The {p} is {v}."],
                    ["The {p} is {v} now.", "The {p} is {v} again."],
                    [],
                    [],
                )
                if fit
                else (
                    ["The {p} stays {v}."],
                    ["The {p} is {v} from today on.", "As of this week the {p} is {v}."],
                    [],
                    [],
                )
            ),
        ),
        _Slot(
            "other_number",
            named["goods"],
            _numbers(20, 90, 7),
            *(
                (
                    ["The {p} costs {v} euros.", "The price of the {p} is {v} euros."],
                    ["The {p} now costs {v} euros.", "The price of the {p} rose to {v} euros."],
                    [],
                    ["The {p} weighs {v} kilos.", "There are {v} pieces of the {p} in stock."],
                )
                if fit
                else (
                    ["The {p} sells for {v} euros.", "They charge {v} euros for the {p}."],
                    ["The {p} went down to {v} euros.", "The {p} is {v} euros by now."],
                    [],
                    ["The {p} is {v} years old.", "{v} people looked at the {p}."],
                )
            ),
        ),
        _Slot(
            "other_number",
            people,
            _numbers(200, 950, 70),
            *(
                (
                    ["{p} has {v} followers.", "I have {v} followers."],
                    ["{p} has {v} followers now.", "I reached {v} followers."],
                    [],
                    ["{p} has {v} photos on the phone.", "I ran {v} metres."],
                )
                if fit
                else (
                    ["{p} counts {v} subscribers.", "I'm at {v} subscribers."],
                    ["{p} is up to {v} subscribers.", "I've got {v} subscribers now!"],
                    [],
                    ["{p} paid {v} dollars.", "I took {v} steps today."],
                )
            ),
        ),
    ]  # fmt: skip


_OTHERS: Mapping[str, Sequence[str]] = {
    "fit": ["The train was late again.", "{p} baked bread for the neighbours.",
            "I slept badly, the dog barked all night.", "{p} finished a long novel.",
            "The garden needs water.", "{p} was not at the party."],
    "held_out": ["It has been raining since noon.", "{p} repaired the fence.",
                 "I never found my blue umbrella.", "{p} sang at the wedding.",
                 "The printer is out of paper.", "{p} didn't see the film."],
}  # fmt: skip
_BEFORE: Mapping[str, Sequence[str]] = {
    "fit": ["By the way, ", "Oh, and ", "Good news: "],
    "held_out": ["Did I tell you? ", "It's been a while! ", "So, news from here. "],
}
_AFTER: Mapping[str, Sequence[str]] = {
    "fit": [" How was your weekend?", " Anyway, let's have lunch soon."],
    "held_out": [" What's new with you?", " Can you suggest a good film for tonight?"],
}
_CHATTY = 0.3  # share of turns with talk around them


@dataclass
class _Teller:
    """Fill in the templates of one group."""

    group: str
    chance: random.Random
    slots: Sequence[_Slot] = field(init=False)

    def __post_init__(self) -> None:
        self.slots = _slots(self.group)

    def say(self, template: str, subject: str, value: str = "", old: str = "") -> str:
        """Return a filled-in template, as a turn of the subject if it is in the first person."""
        text = template.format(p=subject, v=value, o=old)
        if not template.startswith(("I ", "I'", "My ", "We")):
            return text
        if self.chance.random() < _CHATTY:
            text = self.chance.choice(_BEFORE[self.group]) + text
        if self.chance.random() < _CHATTY:
            text = text + self.chance.choice(_AFTER[self.group])
        return f"{subject}: {text}"

    def pair(self) -> Pair:
        """Return a pair of any kind; half of them are superseded."""
        pick = self.chance.choice
        slot = pick(self.slots)
        subject, stranger = self.chance.sample(list(slot.subjects), 2)
        old, new = self.chance.sample(list(slot.values), 2)
        earlier = self.say(pick(slot.states), subject, old)
        if self.chance.random() < 0.5:
            ending = bool(slot.ends) and (not slot.changes or self.chance.random() < 0.3)
            template = pick(slot.ends if ending else slot.changes)
            kind = "no_longer" if ending else slot.kind
            return Pair(earlier, self.say(template, subject, new, old), True, kind)
        kind = pick(["same", "beside", "other_subject", "other_subject", "other"])
        whole = [each for each in slot.changes if "{o}" not in each] + list(slot.states)
        if kind == "beside" and slot.beside:
            later = self.say(pick(slot.beside), subject, new, old)
        elif kind == "same":
            kept = [each for each in whole if "again" not in each]
            later = self.say(pick(kept), subject, old)
        elif kind == "other_subject":
            later = self.say(pick([*whole, *slot.ends]), stranger, new, old)
        else:
            kind, person = "other", pick(_PEOPLE[self.group])
            named = subject if subject in _PEOPLE[self.group] else person
            later = self.say(pick(_OTHERS[self.group]), named)
        return Pair(earlier, later, False, kind)


def supersessions(count: int, *, group: str = "held_out", seed: int = 0) -> list[Pair]:
    """Return `count` different pairs, half of them superseded in expectation.

    Args:
        count: Number of pairs, at most a few thousand because all differ.
        group: One of `GROUPS`.
        seed: Seed of all random draws.
    """
    teller = _Teller(group, random.Random(f"{group} {seed}"))
    found: dict[Pair, None] = {}
    while len(found) < count:
        found[teller.pair()] = None
    return list(found)
