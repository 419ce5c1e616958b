"""Wording of changing facts: values, statements and questions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "CITIES",
    "CODES",
    "FIRMS",
    "FIRST",
    "HELD_OUT",
    "LAST",
    "MAKES",
    "PEOPLE",
    "PRODUCT",
    "PROJECT",
    "TALK",
    "THINGS",
    "Slot",
    "listed",
]


@dataclass(frozen=True)
class Slot:
    """Wording of a slot.

    Attributes:
        values: Possible values; if empty, numbers are drawn.
        others: Statements by somebody else: `{who}`, `{v}` the value and `{old}` the previous one.
        own: Statements by the subject.
        asked: Questions in the present.
        before: Questions for the value before `{v}`.
    """

    values: tuple[str, ...]
    others: tuple[str, ...]
    own: tuple[str, ...]
    asked: tuple[str, ...]
    before: tuple[str, ...]


def listed(text: str) -> tuple[str, ...]:
    """Return the parts of a text between bars, or its words if it has none."""
    return tuple(text.split("|" if "|" in text else None))


CITIES = listed(
    "Lisbon Oslo Turin Ghent Leeds Malmo Krakow Nantes Bilbao Zagreb Bergen Graz Porto Utrecht "
    "Dresden Cork Tartu Split Aarhus Lyon"
)
FIRMS = (
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
PEOPLE: Mapping[str, Slot] = {
    "city": Slot(
        CITIES,
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
    "employer": Slot(
        FIRMS,
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
    "phone": Slot(
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
    "car": Slot(
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
    "drink": Slot(
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
    "status": Slot(
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
    "hobby": Slot(
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
    "room": Slot(
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
    "manager": Slot(
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
PRODUCT = Slot(
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
PROJECT = Slot(
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
TALK = (
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
FIRST = listed(
    "Nora Milo Ada Ivo Lena Omar Tess Hugo Mara Emil Rosa Felix Iris Noah Vera Otto Cleo Sven Dina "
    "Leo Anya Paul Zora Kurt Elsa Bram Gwen Aldo Ruth Timo"
)
LAST = listed(
    "Keller Ross Varga Holm Pires Dunne Sato Moreau Blum Kovac Ferrer Lowe Novak Adair Quist Reyes "
    "Tamm Weiss Oduya Marsh"
)
THINGS = listed("kettle lamp backpack tent drill blender scooter jacket speaker desk mixer rug")
MAKES = listed("Halden Torvik Lumo Astra Pinewood Kobalt Sierra Vesper Orla Juno Tarn Wren Dovre")
CODES = listed(
    "Marlin Falcon Juniper Comet Basalt Heron Onyx Tundra Saffron Delta Orchid Lynx Quartz Ember "
    "Willow Kite Nimbus Raven Coral Atlas Birch Cedar Drift Flint Grove Haven Islet Jade Krill "
    "Lotus Maple Nectar Opal Pollen Quill Reef Slate Thistle Umbra Violet Wharf Xenon Yarrow "
    "Zephyr Alder Bramble Cobalt Dune Elm Fjord Garnet Hazel Indigo Jasper Kelp Lagoon Mesa"
)

HELD_OUT: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "city": (
        (
            "Since the summer {who} has called {v} home.",
            "{who} packed everything up and is a resident of {v} now.",
            "Letters to {who} go to {v} from now on, not to {old}.",
            "{who} traded life in {old} for a place in {v}.",
        ),
        (
            "Greetings from {v}, where I rent a small place now.",
            "I gave up the flat in {old} and took one in {v}.",
        ),
    ),
    "employer": (
        (
            "{who} is on the payroll of {v}.",
            "{who} crossed over from {old} to {v}.",
            "{v} is where {who} earns a living now.",
            "{who} has been taken on by {v}.",
        ),
        (
            "First day at {v} for me, wish me luck.",
            "I am with {v} now, {old} was not for me.",
        ),
    ),
    "phone": (
        (
            "Ring {who} at {v}.",
            "{who} can be called on {v}, the {old} one is out of use.",
            "For {who} dial {v}.",
        ),
        (
            "Save this number of mine: {v}.",
            "{v}, that is my new line.",
        ),
    ),
    "car": (
        (
            "{who} turned up in a {v}, brand new and paid for.",
            "The {old} is gone, {who} is seen in a {v} now.",
            "{who} gets around in a {v}.",
        ),
        (
            "Say hello to my {v}, I picked it up today.",
            "My {old} broke down for good, so I own a {v} now.",
        ),
    ),
    "drink": (
        (
            "For {who} it has to be {v}.",
            "{who} cannot stand {old} any more and orders {v} every time.",
            "Nothing beats {v}, says {who}.",
        ),
        (
            "Make it {v} for me, as always from now on.",
            "I used to love {old}, but {v} is what I order now.",
        ),
    ),
    "status": (
        (
            "{who}'s papers say {v} now.",
            "{who} went from {old} to {v}.",
            "On the form {who} ticked {v}.",
        ),
        (
            "You may call me {v} from today.",
            "So that is that: {v}, after having been {old}.",
        ),
    ),
    "hobby": (
        (
            "{who} is mad about {v} lately.",
            "{who} swapped {old} for {v}.",
            "After work {who} goes to {v} practice.",
        ),
        (
            "I am all about {v} at the moment.",
            "I dropped {old}, {v} is far more fun.",
        ),
    ),
    "room": (
        (
            "{who} works out of {v}.",
            "Knock at {v} if you look for {who}, not at {old}.",
            "{who} was given {v} as an office.",
        ),
        (
            "You can drop by my desk, I am in {v}.",
            "I carried my boxes from {old} over to {v}.",
        ),
    ),
    "manager": (
        (
            "{v} is in charge of {who} now.",
            "{who} answers to {v} and no longer to {old}.",
            "{who} has been put under {v}.",
        ),
        (
            "I got {v} as my boss.",
            "It is {v} who signs my holidays now, not {old}.",
        ),
    ),
    "price": (
        (
            "For the {who} they ask {v}.",
            "The {who} was {old} and is {v} today.",
            "You pay {v} for the {who}.",
            "The tag on the {who} says {v}.",
        ),
        (),
    ),
    "progress": (
        (
            "{who} has moved on from {old}: it is {v}.",
            "Where {who} stands: {v}.",
            "As for project {who}, it is {v} by now.",
        ),
        (),
    ),
}
"""Held-out wording by slot: statements by somebody else and by the subject.

The local judge was written with the other wording in view, and without this one.
"""
