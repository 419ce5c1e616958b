"""What statements say of slots, read by patterns, and what two of them make of each other."""

from __future__ import annotations

import pytest

from graphmem_torch.text.slots import CUES, Reading, at_odds


def cues(one: str, other: str) -> set[str]:
    found = at_odds(Reading.of(one), Reading.of(other))
    assert found == at_odds(Reading.of(other), Reading.of(one)), "the order does not matter"
    return {name for name, value in zip(CUES, found, strict=True) if value}


AT_ODDS = [
    ("Ana lives in Lisbon.", "Ana moved to Porto last month.", "slot"),
    ("Ana: My flat is in Lisbon.", "Ana: Oh, and I just moved to Porto. How are you?", "slot"),
    ("Ana works for Acme.", "Ana: I've joined Globex, what a week!", "slot"),
    ("Ana is a nurse.", "Ana retrained as a pilot.", "slot"),
    ("Ana's favourite drink is green tea.", "Ana now prefers lemonade.", "slot"),
    ("Ana drives a Fiat.", "Ana traded the Fiat in for a Volvo.", "slot"),
    ("The choir meets on Monday.", "The choir has been rescheduled to Friday.", "slot"),
    ("Ben leads the sales team.", "Carla took over the sales team from Ben.", "slot"),
    ("Ana has 200 followers.", "Ana: I reached 900 followers.", "slot"),
    ("Ana: I lead a team of four engineers.", "Ana: I now lead a team of 5 engineers.", "slot"),
    ("The door code is kestrel.", "The door code was changed to orchid.", "attribute"),
    ("Ana plays the violin.", "Ana gave up the violin.", "ended"),
    ("Ana lives in Lisbon.", "Ana no longer lives in Lisbon.", "ended"),
    ("Ana works at Acme.", "Ana: I don't work at Acme any more.", "ended"),
    ("Ana lives in Lisbon.", "Ana left Lisbon and settled in Oslo.", "ended"),
    ("Ana lives in Lisbon.", "Ana no longer lives in Porto, it is Oslo now.", "slot"),
    ("Ana works for Acme.", "Ana doesn't work at Globex anymore, but at Hooli.", "slot"),
    ("Ana: My boss is Mr Lund.", "Dr Weiss took over from Mr Lund as Ana's boss.", "slot"),
    ("Ana reports to Ms Lund.", "Ana: My manager is Ms Okafor now.", "slot"),
    ("Ana's phone number is 075 562026.", "Ana: Call me on 043 213931 from now on.", "slot"),
    ("Ana sits in room 117.", "Ana: They put me from room 117 into room 149.", "slot"),
    ("Ana is divorced.", "Ana: I'm married now.", "slot"),
    ("Project Birch is in review.", "Update on project Birch: it is on hold.", "slot"),
    ("The desk costs 80 euros.", "The desk went from 80 euros to 95 euros.", "slot"),
    ("Ana's favourite drink is mint tea.", "Ana now prefers green tea.", "slot"),
]  # fmt: skip

COMPATIBLE = [
    ("Ana lives in Lisbon.", "Ben moved to Porto."),
    ("Ana lives in Lisbon.", "Ana visited Porto last week."),
    ("Ana lives in Lisbon.", "Ana used to live in Porto."),
    ("Ana lives in Lisbon.", "Ana: I may move to Porto one day."),
    ("Ana lives in Lisbon.", "Ana: Should I move to Porto? I moved to tears."),
    ("Ana lives in Lisbon.", "Ana's brother lives in Porto."),
    ("Ana lives in Lisbon.", "Ana: My sister moved to Porto."),
    ("Ana lives in Lisbon.", "Ana moved to Lisbon in March."),
    ("Ana works for Acme.", "Ana lives in Globex."),
    ("Ana works for Acme.", "Ana joined a gym."),
    ("Ana is a nurse.", "Ana is a big fan of pottery."),
    ("Ana's favourite drink is tea.", "Ana's favourite colour is blue."),
    ("Ana's favourite drink is tea.", "Ana also likes lemonade."),
    ("Ana plays the violin.", "Ana gave up the flute."),
    ("Ana plays the violin.", "Ana doesn't play the flute."),
    ("Ana no longer lives in Lisbon.", "Ana left Lisbon."),
    ("The choir meets on Monday.", "The book club was moved to Friday."),
    ("Ben leads the sales team.", "Ben leads the design team."),
    ("The lamp costs 20 euros.", "The lamp weighs 30 kilos."),
    ("Ana has 200 followers.", "Ana has 300 photos."),
    ("Ana has 20 miles to go.", "Ana has 5 miles behind her."),
    ("Ana: I prefer paved roads.", "Ana: I prefer a structured plan."),
    ("Ana works for Acme.", "Ana: I won't quit Acme."),
    ("Ana sits in room 117.", "Ana had a meeting in room 149."),
    ("Ana: Trust is key.", "Ana: Good support is key."),
    ("Ana: My boss drives a Tesla.", "Ana drives a Fiat."),
    ("Ana: I work for Acme.", "Ana quit her job at Globex, and I lost my job at Initech."),
    ("Ana quit her job at Acme.", "Ana: Since I quit my job at Acme, I sleep well."),
    ("Ana sold a painting in Porto with Ben, for 200 euros.", "Ana met Ben in Porto."),
    ("Ana sold a chair for 200 euros.", "Ana sold a table, for 90 euros."),
    ("Ana sold a chair, for 200 euros.", "Ana saw a comet in Bari, for 40 euros."),
    ("Ana: I'm over the moon because now I can see my friends.", "Ana has many friends."),
    ("The tent.\nWeight: 990 grams.", "The bike.\nWeight: heavy."),
    ("The budget is tight.", "The budget is a third higher."),
    ("Bake at 350 F until golden.", "Bake at 400 F until golden."),
    ("assistant: My favourite is tea.", "assistant: My favourite is milk."),
    ("Choose a job with benefits.", "Choose a job with a garden."),
    ("Ana lives in Lisbon." + " It is warm." * 12, "Ana moved to Porto."),
    ("", "Ana lives in Lisbon."),
    ("?!", ":"),
]


@pytest.mark.parametrize(("one", "other", "cue"), AT_ODDS)
def test_at_odds(one: str, other: str, cue: str) -> None:
    assert cue in cues(one, other)


@pytest.mark.parametrize(("one", "other"), COMPATIBLE)
def test_compatible(one: str, other: str) -> None:
    assert not cues(one, other) & {"slot", "attribute", "ended"}


def test_cues_beside() -> None:
    assert "agreed" in cues("Ana lives in Lisbon.", "Ana: I live in Lisbon now.")
    assert "strangers" in cues("Ana lives in Lisbon.", "Ben lives in Lisbon.")
    assert "strangers" not in cues("The sun is hot.", "Ana lives in Lisbon.")
    assert "changed" in cues("The sun is hot.", "It is cold these days.")
    assert cues("The sun is hot.", "It rains.") == set()


def test_a_reading_tells_whose_value_of_what() -> None:
    (state,) = Reading.of("Ana Silva: By the way, my brother lives in New York now!").states
    assert (state.slot, state.ended) == ("home", False)
    assert state.subject == {"ana", "silva", "brother"}
    assert state.value == {"new", "york"} or state.value == {"york"}
    gone = Reading.of("Ana sold the Mini and drives a Toyota now.").states
    assert [(each.value, each.ended) for each in gone if each.ended] == [({"mini"}, True)]
    assert [each.value for each in gone if not each.ended] == [{"toyota"}]


def test_long_and_odd_texts_are_read() -> None:
    for text in ("is " * 3000, "a is b " * 500, "No longer", "x" * 10_000, "Ana: ", "’’", "1 2 3"):
        assert isinstance(Reading.of(text), Reading)
