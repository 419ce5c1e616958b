"""Pairs of statements: which are at odds, which only look so, and which state a change."""

from __future__ import annotations

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest

from graphmem_torch import Memory
from graphmem_torch.config import load_config
from graphmem_torch.judge.contradiction import Finding, compare, keys_of
from graphmem_torch.judge.entailment import LexicalJudge
from graphmem_torch.judge.statements import read_statements
from graphmem_torch.text.embedder import Embedder

HARMLESS = [
    ("Room 101 has 20 seats.", "Room 102 has 30 seats."),
    ("Chapter 3 has 20 pages.", "Chapter 4 has 25 pages."),
    ("The red bus takes 20 minutes.", "The blue bus takes 30 minutes."),
    ("Plan A costs 10 euros.", "Plan B costs 20 euros."),
    ("Server A has 16 GB of RAM.", "Server B has 32 GB of RAM."),
    ("Mr. Smith lives in Oslo.", "Mrs. Smith lives in Rome."),
    ("Dr. Lee lives in Oslo.", "Prof. Lee lives in Rome."),
    ("Apartment 12 has two bedrooms.", "Apartment 14 has three bedrooms."),
    (
        "Snapshots of several nodes are taken nightly.",
        "The snapshot of the database is not taken nightly.",
    ),
    ("On Monday I ran 5 km.", "On Tuesday I ran 6 km."),
    ("In the morning I take 5 mg of the drug.", "In the evening I take 10 mg of the drug."),
    ("In 2022 the team had 5 members.", "In 2023 the team had 8 members."),
    ("The store is open on Sundays.", "The store is closed on Mondays."),
    ("In winter the cabin has no water.", "In summer the cabin has water."),
    ("When I was a child I liked fish.", "I do not like fish."),
    ("Before the surgery I could not walk.", "After the surgery I could walk."),
    ("My previous boss is Anna.", "My current boss is Bob."),
    ("My old address is 5 Elm Street.", "My new address is 9 Oak Street."),
    ("Lunch was 12 euros.", "Lunch was 15 euros."),
    ("I slept 5 hours last night.", "I slept 8 hours last night."),
    ("I ran 5 km today.", "I ran 10 km today."),
    ("I paid 40 euros for the shoes.", "I paid 60 euros for the coat."),
    ("I paid 40 euros for parking.", "I paid 60 euros for parking."),
    ("The exam on 3 May lasts 2 hours.", "The exam on 10 May lasts 3 hours."),
    ("If it rains, the match is cancelled.", "The match is not cancelled."),
    ("Unless it rains we go hiking.", "We do not go hiking."),
    ("I would not buy the car if it were red.", "I buy the car."),
    ("Is the shop closed?", "The shop is open."),
    ("Could you be allergic to nuts?", "I am not allergic to nuts."),
    ("I wish the shop were open.", "The shop is closed."),
    ("Kim thinks that the earth is flat.", "The earth is not flat."),
    (
        "My favourite football player is Messi.",
        "My brother's favourite football player is Ronaldo.",
    ),
    (
        "We chose SQLite over Postgres for simple deployment.",
        "We chose fastembed over OpenAI for local embeddings.",
    ),
    ("Tomatoes ripen in August.", "Apollo 11 landed in the Sea of Tranquility."),
    ("Alex Smith lives in Oslo.", "Alex Jones lives in Rome."),
    ("Alice called Bob.", "Bob called Alice."),
    ("In spring the garden is wet.", "In autumn the garden is dry."),
    ("The office is in Berlin.", "The office is in Germany."),
    ("I like jazz.", "I like rock."),
    ("Kim: I live in Oslo.", "Nora: I live in Rome."),
]
ALIASES = [
    ("Nora lives in NYC.", "Nora lives in New York City."),
    ("Nora lives in the USA.", "Nora lives in the United States."),
    ("Nora lives in the UK.", "Nora lives in Great Britain."),
    ("Nora lives in LA.", "Nora lives in Los Angeles."),
    ("Bob lives in Munich.", "Bob lives in München."),
]
AT_ODDS = [
    ("The server listens on port 8080.", "The server now listens on port 9090."),
    ("My phone number is 555-0101.", "My phone number is 555-0199."),
    ("The extension is 4471.", "The extension is 4482."),
    ("My locker number is 12.", "My locker number is 21."),
    ("The temperature is -5 degrees.", "The temperature is 5 degrees."),
    ("The debt is -300 euros.", "The debt is 300 euros."),
    ("The light is on.", "The light is off."),
    ("The door is locked.", "The door is unlocked."),
    ("The printer is online.", "The printer is offline."),
    ("The meeting is on Monday.", "The meeting is on Tuesday."),
    ("I work at Google.", "I used to work at Google."),
    ("Project Alpha uses Python 3.10.", "Project Alpha uses Python 3.12."),
    ("Kim is taller than Nora.", "Nora is taller than Kim."),
    ("Kim won.", "Kim lost."),
    ("assistant: You live in Oslo.", "user: I live in Rome."),
    ("The project deadline is October 15th.", "The project deadline is October 16th."),
    ("I take 5 mg of the drug every morning.", "I take 50 mg of the drug every morning."),
    ("The office is in Berlin.", "The office is in Hamburg."),
    ("The switch is enabled.", "The switch is disabled."),
    ("My doctor is Dr. Weber.", "My doctor is Dr. Braun."),
    ("Lena's birthday is on 3 May.", "Lena's birthday is on 5 May."),
    ("The flight leaves at 9:30.", "The flight leaves at 10:15."),
]

# Values of one kind, ordinals, authors, and numbers in words.
OF_A_KIND = [
    ("The kitchen walls are painted green.", "The kitchen walls are painted yellow."),
    ("The statue is made of marble.", "The statue is made of bronze."),
    ("Our dog is a Labrador.", "Our dog is a purebred dachshund."),
    ("Our garden faces south.", "Our garden faces north."),
    ("The bathroom is on the first floor.", "The bathroom is on the third floor."),
    ("The novel was written by Clara Hoffmann.", "The novel was written by Peter Lang."),
    ("I work thirty hours a week.", "I work forty-five hours a week."),
]
NOT_OF_A_KIND = [
    ("The car is big.", "The car is red."),
    ("My brother is in Lisbon.", "My brother is in marketing."),
    ("The garden is full of roses.", "The garden is full of bees."),
    ("The company is owned by two brothers.", "The company is owned by a family."),
    ("My car is a station wagon.", "My car is a Volvo."),
    ("My bike has a bell.", "My bike has a basket."),
    ("The colours are so bold.", "The colours are so bright."),
]

# What nobody states: asked, supposed, wished, reported, of another time, thing or person.
UNSTATED = [
    ("I work for Siemens.", "Do you think that I work for Bosch?"),
    ("We live in Leipzig.", "If we lived in Dresden, we would have a garden."),
    ("The gate is locked.", "I wish the gate were unlocked."),
    ("The gate is locked.", "Kim says: The gate is unlocked."),
    ("The gate is locked.", "In the story: The gate is unlocked."),
    ("My flat in Bremen is quiet.", "My old flat in Hamburg was loud."),
    ("My two children go to school.", "My three younger children stay at home."),
    ("I drive a Fiat.", "My brother sold the Fiat."),
    ("Nora leads the design team.", "Tom leads the data team."),
    ("I love tea.", "I love coffee."),
    ("I have a gym membership.", "I cancelled my membership of the chess club."),
    ("The gate is locked.", "Kim thinks: The gate is unlocked."),
    ("Karim leads the data group.", "Grace took over the design group from Karim."),
]
# Each pair: the later one tells of the other value, or of a change.
TOLD = [
    ("I live in Hamburg.", "Our flat here in Bremen is right by the station."),
    ("I've got two kids, both girls.", "My three children all go to the same nursery."),
    ("Ana: My job at Initech keeps me busy.", "Ana no longer works at Initech."),
    ("I work for Siemens.", "My employer Bosch pays for the train."),
    ("Cleo lives in Turin.", "Cleo lives in Milan."),
    ("The nightly job emails a report.", "The nightly job no longer emails a report."),
    ("Use 8080 as the proxy port.", "The proxy port is 9090."),
    ("Karim leads the data group.", "Grace took over the data group from Karim."),
    ("The head of the design team is Laura.", "The design team's new head is Ben."),
    ("Karim: My car is a Tesla.", "Karim traded the Tesla in for a Volvo."),
    ("We have a gas stove in the kitchen.", "The gas stove in our kitchen was replaced by a hob."),
    ("The price of the bike is 55 euros.", "The price of the bike rose to 83 euros."),
    ("The lift works fine.", "The lift is out of order."),
    ("I don't have a car.", "My car is red."),
    ("Gregor is the intern in our team.", "Gregor signs it, he is the head of our team."),
    ("The stand-up meets on Friday.", "The stand-up is on Wednesday from now on."),
]
# Changes in so many words: these end what was said.
STATED = [
    ("The CI pipeline runs on Jenkins.", "We replaced Jenkins with Buildkite for the CI pipeline."),
    ("I live in Leipzig.", "We moved from Leipzig to Dresden."),
    ("The stand-up is on Mondays.", "The stand-up has been moved from Mondays to Wednesdays."),
    ("I am vegetarian.", "I'm no longer vegetarian."),
    ("Piet coaches the team.", "Piet isn't coaching the team anymore."),
    ("The port is 4200.", "We changed the port from 4200 to 5180."),
    ('Our tool is called "shovel".', 'We renamed the tool from "shovel" to "trowel".'),
    ("We rent the garage.", "We're not renting the garage any more, it was too damp."),
]


def found(earlier: str, later: str) -> list[Finding]:
    """All findings of two texts that need no encoder."""
    one, other = read_statements([earlier, later])
    pairs = itertools.product(one.propositions, other.propositions)
    return [each for a, b in pairs if (each := compare(a, b)) is not None and not each.kin]


def spoken(pair: tuple[str, str]) -> list[str]:
    """Both texts of a pair, in the mouth of Kim where nobody is named."""
    return [text if ": " in text[:12] else f"Kim: {text}" for text in pair]


@pytest.mark.parametrize("pair", [*HARMLESS, *UNSTATED])
def test_what_may_both_be_true_is_no_contradiction(pair: tuple[str, str]) -> None:
    assert not found(*spoken(pair))
    assert not found(*spoken(pair)[::-1]), "nor in the other order"


@pytest.mark.parametrize("pair", [*AT_ODDS, *TOLD])
def test_what_cannot_both_be_true_is_flagged_and_ends_nothing(pair: tuple[str, str]) -> None:
    findings = found(*spoken(pair))
    assert findings
    stated = "no longer" in pair[1]
    assert stated or not any(each.ends for each in findings)


@pytest.mark.parametrize("pair", STATED)
def test_a_change_in_so_many_words_ends_what_was_said(pair: tuple[str, str]) -> None:
    assert any(each.ends for each in found(*spoken(pair)))
    assert not any(each.ends for each in found(*spoken(pair)[::-1])), "the earlier ends nothing"


def test_two_at_odds_share_a_key() -> None:
    pairs = [*HARMLESS, *ALIASES, *AT_ODDS, *UNSTATED, *TOLD, *STATED]
    texts = list(dict.fromkeys(text for pair in pairs for text in spoken(pair)))
    said = [each for read in read_statements(texts) for each in read.propositions]
    hits = 0
    for one, other in itertools.product(said, said):
        if compare(one, other) is not None:
            hits += 1
            assert keys_of(one) & keys_of(other), (one, other)
    assert hits >= len(AT_ODDS)


@pytest.mark.parametrize(
    "pair",
    [
        ("The port is 8080.", "The port is 9090."),
        ("The door is locked.", "The door is unlocked."),
        ("Kim is taller than Nora.", "Nora is taller than Kim."),
        ("I am allergic to nuts.", "I am not allergic to nuts."),
        ("Ana lives in Oslo.", "Ana lives in Rome."),
    ],
)
def test_the_order_does_not_matter_where_no_change_is_stated(pair: tuple[str, str]) -> None:
    one, other = found(*pair), found(*pair[::-1])
    assert [each.kind for each in one] == [each.kind for each in other]
    assert [each.values for each in one] == [each.values[::-1] for each in other]


def test_another_speakers_words_end_nothing(minilm: Embedder) -> None:
    with Memory.open(None, config=load_config("default"), embedder=minilm) as memory:
        memory.add(["Ana: I live in Leipzig.", "Ben: You moved from Leipzig to Dresden."])
        memory.add(["Ana: I am vegan.", "Ben: Ana is no longer vegan."])
        assert memory.facts.reconcile().superseded == 0


@pytest.mark.parametrize("pair", [*ALIASES, *HARMLESS])
def test_names_of_one_thing_are_no_conflict(pair: tuple[str, str], minilm: Embedder) -> None:
    judge = LexicalJudge(minilm)
    one, other = spoken(pair)
    assert judge.compare([one], [other]) == judge.compare([other], [one]) == [None]


@pytest.mark.parametrize("pair", AT_ODDS)
def test_values_that_are_like_each_other_are_at_odds(
    pair: tuple[str, str], minilm: Embedder
) -> None:
    (found_,) = LexicalJudge(minilm).compare(*([text] for text in spoken(pair)))
    assert found_ is not None and not found_.ends


@pytest.mark.parametrize("pair", OF_A_KIND)
def test_values_of_one_kind_are_at_odds(pair: tuple[str, str], minilm: Embedder) -> None:
    (flag,) = LexicalJudge(minilm).compare(*([text] for text in spoken(pair)))
    assert flag is not None and not flag.ends


@pytest.mark.parametrize("pair", NOT_OF_A_KIND)
def test_values_of_two_kinds_may_both_be_true(pair: tuple[str, str], minilm: Embedder) -> None:
    assert LexicalJudge(minilm).compare(*([text] for text in spoken(pair))) == [None]


def test_a_memory_flags_what_is_at_odds_and_ends_only_what_has_changed(minilm: Embedder) -> None:
    for pair, ended in ((AT_ODDS[0], 0), (STATED[0], 1), (HARMLESS[0], 0), (ALIASES[0], 0)):
        with Memory.open(None, config=load_config("default"), embedder=minilm) as memory:
            memory.add(spoken(pair))
            done = memory.facts.reconcile()
            assert done.superseded == ended, pair
            flagged = pair in AT_ODDS
            open_ = [each for each in memory.facts.conflicts() if each.state == "open"]
            assert len(open_) == flagged, pair


def test_threads_find_what_one_thread_finds() -> None:
    pairs = [tuple(spoken(pair)) for pair in (*AT_ODDS, *TOLD, *HARMLESS)]
    alone = [found(*pair) for pair in pairs]
    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(lambda pair: found(*pair), pairs)) == alone
