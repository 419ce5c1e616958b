"""Facts that change, told in many words among other talk, with what was true and known when.

Everything is drawn from a seed: people, products and projects, each with slots (where somebody
lives, what something costs) whose value changes a few times. A change is told on the day or days
later, by the one it is about or by somebody else, with the value of before or without it.
"""

from __future__ import annotations

import random
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from graphmem_torch.atoms import Atom

__all__ = ["BEGIN", "DAY", "END", "Fact", "Question", "Version", "evolving_facts", "listed"]

DAY = 86400.0
BEGIN = 1672531200.0
"""2023-01-01, UTC."""
END = BEGIN + 730 * DAY

_TELLER = "Robin"
_LATE = 0.25  # share of changes that are told days later
_LATEST = 10  # days
_LEAST = 20  # days that a value is true
_AGAIN = 0.1  # share of values that were true before
_SLOTS_OF_ONE = 5  # that change of one person
_PRODUCTS, _PROJECTS = 0.1, 0.06  # share of the facts


@dataclass(frozen=True)
class Version:
    """A value of a fact.

    Attributes:
        value: As it is told.
        begun: From when on it was true, seconds since the epoch UTC.
        told: When that was said.
        id: Of the atom that says it.
        again: Of those that say it again, later and before the next value begins.
    """

    value: str
    begun: float
    told: float
    id: str
    again: tuple[str, ...] = ()

    @property
    def ids(self) -> tuple[str, ...]:
        """Of all that say it."""
        return (self.id, *self.again)


@dataclass(frozen=True)
class Question:
    """A question about a fact.

    Attributes:
        fact: Its number.
        text: In words.
        answer: The value asked for, where the question itself says which; None: that of the moment.
    """

    fact: int
    text: str
    answer: str | None = None


@dataclass(frozen=True)
class Fact:
    """A slot of a subject, and its values in the order of time.

    Attributes:
        subject: Who or what it is of.
        slot: Its name.
        versions: Its values.
    """

    subject: str
    slot: str
    versions: tuple[Version, ...]

    def true_at(self, when: float) -> str | None:
        """The value that was true at a moment; None before the first."""
        return self._last([version.begun for version in self.versions], when)

    def known_at(self, when: float) -> str | None:
        """The last value that had been told at a moment."""
        return self._last([version.told for version in self.versions], when)

    def _last(self, times: Sequence[float], when: float) -> str | None:
        place = bisect_right(times, when)
        return self.versions[place - 1].value if place else None


@dataclass(frozen=True)
class _Slot:
    """How a slot is told and asked for.

    Attributes:
        values: What it may be; of none they are drawn as numbers.
        others: As somebody else tells it: `{who}`, `{v}` the value and `{old}` the one before.
        own: As the subject tells it.
        asked: In the present.
        before: For the value before `{v}`.
    """

    values: tuple[str, ...]
    others: tuple[str, ...]
    own: tuple[str, ...]
    asked: tuple[str, ...]
    before: tuple[str, ...]


def listed(text: str) -> tuple[str, ...]:
    """The parts of a text between bars, or its words where it has none."""
    return tuple(text.split("|" if "|" in text else None))


_CITIES = listed(
    "Lisbon Oslo Turin Ghent Leeds Malmo Krakow Nantes Bilbao Zagreb Bergen Graz Porto Utrecht "
    "Dresden Cork Tartu Split Aarhus Lyon"
)
_FIRMS = (
    "Brightwater",
    "Kestrel Foods",
    "Nordlys Energy",
    "Halden Logistics",
    "Papermill Books",
    "Orchard Bank",
    "Tidewell Clinic",
    "Copperfield Labs",
    "Mosaic Travel",
    "Juniper Robotics",
    "Saltmarsh Radio",
    "Quarry Software",
    "Fernhill School",
    "Anchor Shipping",
)
_PEOPLE: Mapping[str, _Slot] = {
    "city": _Slot(
        _CITIES,
        (
            "{who} lives in {v}.",
            "{who} has moved to {v}.",
            "{who} is based in {v} these days.",
            "{who} left {old} and settled in {v}.",
            "{who} no longer lives in {old}, it is {v} now.",
            "Guess what, {who} found a flat in {v} and has gone there for good.",
            "{who}'s new home is {v}.",
        ),
        (
            "I live in {v} now.",
            "I've moved to {v}, boxes everywhere.",
            "We finally settled in {v}, I love it here.",
            "Home is {v} for me at the moment.",
            "I left {old} behind, from now on you find me in {v}.",
        ),
        ("Where does {who} live?", "Which city is {who}'s home?", "What town is {who} living in?"),
        ("Where did {who} live before moving to {v}?", "Which city was {who}'s home before {v}?"),
    ),
    "employer": _Slot(
        _FIRMS,
        (
            "{who} works for {v}.",
            "{who} has changed jobs and is at {v} now.",
            "{who} quit {old} and joined {v}.",
            "{who} signed a contract with {v} and started there.",
            "{who} doesn't work at {old} anymore, but at {v}.",
            "{v} has hired {who}.",
        ),
        (
            "I work at {v} now.",
            "I started my new job with {v}.",
            "I handed in my notice at {old}, {v} is where I work now.",
            "My employer is {v}.",
            "I got hired by {v}!",
        ),
        ("Where does {who} work?", "Who is {who}'s employer?", "Which company employs {who}?"),
        ("Where did {who} work before {v}?", "Who was {who}'s employer before {v}?"),
    ),
    "phone": _Slot(
        (),
        (
            "{who}'s phone number is {v}.",
            "You can reach {who} under {v}.",
            "{who} has a new number, {v}.",
            "Please call {who} on {v} and not on {old} anymore.",
            "{who} changed the number from {old} to {v}.",
        ),
        (
            "My number is {v}.",
            "I've got a new phone number: {v}.",
            "Call me on {v} from now on.",
            "{old} is dead, use {v} to ring me.",
        ),
        ("What is {who}'s phone number?", "Under which number can I call {who}?"),
        ("What was {who}'s phone number before {v}?",),
    ),
    "car": _Slot(
        listed(
            "red Volvo|blue Fiat|grey Skoda|white Tesla|green Mini|black Saab|silver Toyota|"
            "yellow Renault|beige Jeep|vintage Citroen|brown Lada|purple Nissan"
        ),
        (
            "{who} drives a {v}.",
            "{who} bought a {v} and drives it every day.",
            "{who} sold the {old} and got a {v} instead.",
            "{who}'s car is a {v} now.",
            "There is a {v} in front of the house, that is {who}'s new car.",
        ),
        (
            "I drive a {v} now.",
            "I traded my {old} for a {v}.",
            "My new car is a {v}.",
            "I picked up the {v} from the dealer, it is mine.",
        ),
        ("What car does {who} drive?", "Which car does {who} have?"),
        ("What car did {who} drive before the {v}?",),
    ),
    "drink": _Slot(
        listed(
            "green tea|black coffee|oat latte|ginger beer|hot chocolate|mint tea|tonic water|apple "
            "juice|iced coffee|chai|lemonade|espresso"
        ),
        (
            "{who}'s favourite drink is {v}.",
            "{who} likes {v} best.",
            "{who} now prefers {v}.",
            "{who} went off {old} and swears by {v}.",
            "Always get {who} {v}, nothing else will do.",
            "{who} has switched from {old} to {v}.",
        ),
        (
            "I like {v} best of all drinks.",
            "My favourite drink is {v} now.",
            "I'm over {old}, give me {v} any time.",
            "These days I only want {v} to drink.",
        ),
        ("What is {who}'s favourite drink?", "What does {who} like to drink best?"),
        ("What was {who}'s favourite drink before {v}?",),
    ),
    "status": _Slot(
        ("single", "engaged", "married", "separated", "divorced", "widowed", "in a relationship"),
        (
            "{who} is {v}.",
            "{who} is {v} now.",
            "Word is that {who} is {v}, no longer {old}.",
            "As of lately {who} is {v}.",
        ),
        (
            "I'm {v} now.",
            "I am {v}, if you must know.",
            "I'm not {old} any longer, I'm {v}.",
        ),
        ("Is {who} married or single?", "What is {who}'s marital status?"),
        ("What was {who}'s marital status before being {v}?",),
    ),
    "hobby": _Slot(
        listed(
            "climbing|fencing|pottery|rowing|archery|chess|salsa|birdwatching|judo|knitting|"
            "surfing|beekeeping|origami|badminton"
        ),
        (
            "{who}'s hobby is {v}.",
            "{who} has taken up {v}.",
            "{who} gave up {old} and took up {v}.",
            "In the evenings {who} does {v} now.",
            "{who} spends every free hour on {v}.",
        ),
        (
            "I've taken up {v}.",
            "My hobby is {v} now.",
            "I gave up {old}, it is all about {v} now.",
            "In my free time I do {v}.",
        ),
        ("What is {who}'s hobby?", "What does {who} do in the evenings as a hobby?"),
        ("What was {who}'s hobby before {v}?",),
    ),
    "room": _Slot(
        tuple(f"room {number}" for number in range(101, 161, 4)),
        (
            "{who}'s office is {v}.",
            "{who} sits in {v}.",
            "{who} moved from {old} to {v} of the building.",
            "You find {who}'s desk in {v} now.",
        ),
        (
            "My desk is in {v} now.",
            "I sit in {v}.",
            "They put me from {old} into {v}, nicer office.",
        ),
        ("Which room is {who}'s office?", "In which room does {who} sit?"),
        ("In which room did {who} sit before {v}?",),
    ),
    "manager": _Slot(
        listed(
            "Ms Okafor|Mr Lindqvist|Dr Banerjee|Ms Duarte|Mr Holloway|Ms Petrov|Mr Yamada|Dr "
            "Castellan|Ms Whitlock|Mr Adeyemi"
        ),
        (
            "{who} reports to {v}.",
            "{who}'s manager is {v}.",
            "{v} took over from {old} as {who}'s boss.",
            "{who} got a new manager, {v}.",
        ),
        (
            "My manager is {v} now.",
            "I report to {v}.",
            "{old} is gone, my new boss is {v}.",
        ),
        ("Who is {who}'s manager?", "To whom does {who} report?"),
        ("Who was {who}'s manager before {v}?",),
    ),
}
_PRODUCT = _Slot(
    (),
    (
        "The {who} costs {v}.",
        "The price of the {who} is {v} now.",
        "The {who} went from {old} to {v}.",
        "They sell the {who} for {v}.",
        "You no longer get the {who} for {old}, it is {v}.",
    ),
    (),
    ("How much is the {who}?", "What does the {who} cost?", "What is the price of the {who}?"),
    ("What did the {who} cost before it was {v}?",),
)
_PROJECT = _Slot(
    (
        "in planning",
        "waiting for approval",
        "in progress",
        "on hold",
        "in review",
        "behind schedule",
        "finished",
        "cancelled",
    ),
    (
        "Project {who} is {v}.",
        "The status of project {who} is: {v}.",
        "Project {who} was {old}, now it is {v}.",
        "Update on project {who}: it is {v}.",
        "Project {who} is not {old} any more but {v}.",
    ),
    (),
    ("What is the status of project {who}?", "How is project {who} going?"),
    ("What was the status of project {who} before it was {v}?",),
)
_TALK = (
    "{who} spent a weekend in {city} and came home with a cold.",
    "{who}'s cousin lives in {city}.",
    "{who} is thinking about a trip to {city} next spring.",
    "{who} met somebody from {firm} at a wedding.",
    "{who}'s brother applied for a job at {firm}.",
    "{who} complained about the parking in front of {firm}.",
    "{who} saw a {car} in the ditch on the way home.",
    "{who} offered everybody {drink} after the meeting.",
    "{who} watched a documentary about {hobby}.",
    "{who} lost the phone charger again.",
    "{who} had a meeting in {room} that ran late.",
    "{who} laughed a lot at the story of the dentist.",
    "{who} could not sleep because of the thunderstorm.",
    "{who} asked {manager} for directions to the station.",
    "{who} wants to read more novels this winter.",
)
_FIRST = listed(
    "Nora Milo Ada Ivo Lena Omar Tess Hugo Mara Emil Rosa Felix Iris Noah Vera Otto Cleo Sven Dina "
    "Leo Anya Paul Zora Kurt Elsa Bram Gwen Aldo Ruth Timo"
)
_LAST = listed(
    "Keller Ross Varga Holm Pires Dunne Sato Moreau Blum Kovac Ferrer Lowe Novak Adair Quist Reyes "
    "Tamm Weiss Oduya Marsh"
)
_THING = listed("kettle lamp backpack tent drill blender scooter jacket speaker desk mixer rug")
_MAKE = listed("Halden Torvik Lumo Astra Pinewood Kobalt Sierra Vesper Orla Juno Tarn Wren Dovre")
_CODE = listed(
    "Marlin Falcon Juniper Comet Basalt Heron Onyx Tundra Saffron Delta Orchid Lynx Quartz Ember "
    "Willow Kite Nimbus Raven Coral Atlas Birch Cedar Drift Flint Grove Haven Islet Jade Krill "
    "Lotus Maple Nectar Opal Pollen Quill Reef Slate Thistle Umbra Violet Wharf Xenon Yarrow "
    "Zephyr Alder Bramble Cobalt Dune Elm Fjord Garnet Hazel Indigo Jasper Kelp Lagoon Mesa"
)


def evolving_facts(
    count: int, versions: int | Sequence[int], distractors: int, *, seed: int, mentions: int = 1
) -> tuple[list[Fact], list[Atom], list[Question], list[Question]]:
    """Facts, all that is told in the order of telling, and a question on each fact.

    Args:
        count: Facts.
        versions: Values of each; of several numbers each draws one.
        distractors: Turns that tell nothing of them, in the same words.
        seed: Of all that is drawn.
        mentions: How often a value is told at most; how often each is, is drawn.

    Returns:
        The facts; atoms, ids `f<fact>v<version>`, of what is told again `f<fact>v<version>m<time>`,
        and `d<number>`; a question on the value of a moment for each fact, and one on the value
        before another for each where only one value was before it.
    """
    dice = random.Random(seed)
    told: list[Atom] = []
    facts: list[Fact] = []
    now: list[Question] = []
    past: list[Question] = []
    for subject, name, slot in _subjects(count, dice):
        number = len(facts)
        changes = versions if isinstance(versions, int) else dice.choice(versions)
        values = _values(slot, name, changes, dice)
        days = _days(changes, dice)
        made: list[Version] = []
        for i, (value, day) in enumerate(zip(values, days, strict=True)):
            begun = BEGIN + day * DAY + dice.randrange(int(DAY))
            late = dice.randrange(1, _LATEST) * DAY if dice.random() < _LATE else 0.0
            version = Version(value, begun, begun + late, f"f{number}v{i}")
            before = values[i - 1] if i else None
            told.append(_told(slot, subject, before, version, (version.id, version.told), dice))
            made.append(version)
        if mentions > 1:
            ends = [*(version.begun for version in made[1:]), END]
            for i, (version, until) in enumerate(zip(made, ends, strict=True)):
                more = range(1, dice.randrange(1, mentions + 1))
                made[i] = replace(version, again=tuple(f"{version.id}m{k}" for k in more))
                before = values[i - 1] if i else None
                for each in made[i].again:
                    when = dice.uniform(version.told, until)
                    told.append(_told(slot, subject, before, version, (each, when), dice))
        facts.append(Fact(subject, name, tuple(made)))
        now.append(Question(number, dice.choice(slot.asked).format(who=subject)))
        sure = [i for i in range(1, changes) if values.count(values[i]) == 1]
        if sure:
            i = dice.choice(sure)
            text = dice.choice(slot.before).format(who=subject, v=values[i])
            past.append(Question(number, text, values[i - 1]))
    people = sorted({fact.subject for fact in facts if fact.slot in _PEOPLE})
    told += [_talk(f"d{i}", dice.choice(people), dice) for i in range(distractors)]
    told.sort(key=lambda atom: (atom.time, atom.id))
    return facts, [_seated(atom) for atom in told], now, past


def _subjects(count: int, dice: random.Random) -> list[tuple[str, str, _Slot]]:
    """What the facts are of: subject, name of the slot, and the slot."""
    products = [f"{make} {thing}" for make in _MAKE for thing in _THING]
    names = [f"{first} {last}" for first in _FIRST for last in _LAST]
    codes = list(_CODE)
    for each in (products, names, codes):
        dice.shuffle(each)
    found = [(name, "price", _PRODUCT) for name in products[: round(count * _PRODUCTS)]]
    found += [(name, "progress", _PROJECT) for name in codes[: round(count * _PROJECTS)]]
    for name in names:
        for slot in dice.sample(sorted(_PEOPLE), _SLOTS_OF_ONE):
            if len(found) < count:
                found.append((name, slot, _PEOPLE[slot]))
    if len(found) < count:
        raise ValueError(f"count: expected at most {len(found)} facts, got {count}; ask for fewer")
    return found


def _values(slot: _Slot, name: str, count: int, dice: random.Random) -> list[str]:
    """Values of which no two beside each other are the same."""
    found: list[str] = []
    while len(found) < count:
        if len(found) > 1 and dice.random() < _AGAIN:
            value = dice.choice(found[:-1])
        elif slot.values:
            value = dice.choice([each for each in slot.values if each not in found[-4:]])
        elif name == "phone":
            value = f"0{dice.randrange(20, 99)} {dice.randrange(100_000, 999_999)}"
        else:
            value = f"{dice.randrange(12, 400)} euros"
        if not found or value != found[-1]:
            found.append(value)
    return found


def _days(count: int, dice: random.Random) -> list[int]:
    """Days of a span of two years, none too near another."""
    room = 700 - _LEAST * (count - 1)
    return [day + _LEAST * i for i, day in enumerate(sorted(dice.choices(range(room), k=count)))]


def _told(
    slot: _Slot,
    subject: str,
    before: str | None,
    version: Version,
    said: tuple[str, float],  # id, time
    dice: random.Random,
) -> Atom:
    forms = [(form, _TELLER) for form in slot.others] + [(form, subject) for form in slot.own]
    form, speaker = dice.choice([each for each in forms if before or "{old}" not in each[0]])
    text = form.format(who=subject, v=version.value, old=before)
    return Atom(
        said[0],
        text[0].upper() + text[1:],
        speaker=speaker,
        time=said[1],
        event_time=version.begun,
    )


def _talk(name: str, subject: str, dice: random.Random) -> Atom:
    text = dice.choice(_TALK).format(
        who=subject,
        city=dice.choice(_CITIES),
        firm=dice.choice(_FIRMS),
        **{part: dice.choice(_PEOPLE[part].values) for part in ("car", "drink", "hobby", "room")},
        manager=dice.choice(_PEOPLE["manager"].values),
    )
    return Atom(name, text, speaker=_TELLER, time=BEGIN + dice.random() * (END - BEGIN))


def _seated(atom: Atom) -> Atom:
    """In the session of its week."""
    assert atom.time is not None
    week = int((atom.time - BEGIN) // (7 * DAY))
    return Atom(
        atom.id,
        atom.text,
        speaker=atom.speaker,
        session=f"week {week}",
        time=atom.time,
        event_time=atom.event_time,
    )
