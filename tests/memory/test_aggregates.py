"""Aggregates are clusters by the definition, said by their members, and follow what they are of."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import AGGREGATE, Atom, EdgeType, Link
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory, Scope, consolidation
from graphmem_torch.memory.clusters import star_clusters
from graphmem_torch.memory.digest import SpeakerNames, tellings
from graphmem_torch.results import Consolidated
from graphmem_torch.text.terms import terms
from tests.memories import config_of, opened, retrieved

DAY = 86_400.0


def by_hand(
    weight: dict[tuple[int, int], float], count: int, smallest: int, largest: int
) -> list[list[int]]:
    """The definition, node by node."""
    free, found = {*range(count)}, list[list[int]]()
    while True:
        near = {a: [b for b in free if (a, b) in weight] for a in free}
        degree = {a: sum(weight[a, b] for b in near[a]) for a in free}
        if not any(near.values()):
            return found
        first = {a: (-degree[a], a) for a in free}
        centres = [a for a in sorted(free) if near[a] and all(first[a] < first[b] for b in near[a])]
        joined: dict[int, list[int]] = {a: [] for a in centres}
        for b in sorted(free - {*centres}):
            if options := [a for a in near[b] if a in joined]:
                best = max(options, key=lambda a: weight[b, a])
                joined[best].append(b)
        for a in centres:
            own = sorted(joined[a], key=lambda b: (-weight[b, a], b))[: largest - 1]
            if 1 + len(own) >= smallest:
                found.append([a, *own])
                free -= {*own}
            free.discard(a)


@pytest.mark.parametrize(("count", "pairs", "limits"), [(30, 60, (3, 5)), (60, 90, (2, 12))])
@pytest.mark.parametrize("seed", range(4))
def test_star_clusters_are_those_of_the_definition(
    count: int, pairs: int, limits: tuple[int, int], seed: int
) -> None:
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(count, (pairs, 2), generator=generator).tolist()
    # Sums of powers of two are exact in any order.
    value = (torch.randperm(4096, generator=generator)[:pairs] / 1024 + 1).tolist()
    ends = {(min(a, b), max(a, b)): v for (a, b), v in zip(drawn, value, strict=True) if a != b}
    weight = {**ends, **{(b, a): v for (a, b), v in ends.items()}}
    keys = list(weight)
    members, offsets = star_clusters(
        torch.tensor([a for a, _ in keys]),
        torch.tensor([b for _, b in keys]),
        torch.tensor([weight[key] for key in keys], dtype=torch.float64),
        count,
        smallest=limits[0],
        largest=limits[1],
    )
    found = [part.tolist() for part in members.tensor_split(offsets[1:-1])]
    assert found == by_hand(weight, count, *limits)


def test_star_clusters_of_nothing() -> None:
    none = torch.empty(0, dtype=torch.int64)
    members, offsets = star_clusters(none, none, torch.empty(0), 5, smallest=2, largest=3)
    assert len(members) == 0 and offsets.tolist() == [0]


TOPICS = {
    "violin": ["Ada", "string", "quartet", "Ravel", "concert"],
    "canoe": ["Ben", "paddle", "river", "rapids", "portage"],
    "bakery": ["Cleo", "rye", "oven", "sourdough", "flour"],
}


def told() -> list[Atom]:
    """Five turns on each topic, by turns."""
    return [
        Atom(
            f"{topic}{i}",
            f"The {topic} brought {words[i]} to {words[i - 4]}, said {topic} {words[i - 3]}.",
            speaker=words[0],
            time=1.7e9 + i * DAY,
        )
        for i in range(5)
        for topic, words in TOPICS.items()
    ]


@pytest.fixture
def memory() -> Any:
    settings = {"aggregate.build": True, "aggregate.min_similarity": 0.3}
    with opened(config=config_of(**settings), embedder="hashing:256") as memory:
        memory.add(told())
        yield memory


def built(memory: Memory, depth: int = 1) -> list[Atom]:
    atoms = memory.get(memory.store.ids_of_kind(AGGREGATE))
    return [atom for atom in atoms if atom.meta.get("depth") == depth]


def test_what_belongs_together_is_aggregated_once(memory: Memory) -> None:
    done = memory.upkeep.consolidate()
    made = built(memory)
    assert done.aggregated == len(memory) - 15 >= len(made) >= 3
    for atom in made:
        members = memory.get([link.target for link in atom.edges])
        assert len({each.speaker for each in members}) == 1
        assert {link.type for link in atom.edges} == {EdgeType.DERIVED_FROM}
        assert atom.time == max(each.time or 0.0 for each in members)
        said = " ".join(each.text for each in members) + (members[0].speaker or "")
        assert {*terms(atom.text)} <= {*terms(said)}, "nothing that no member says"
        vectors = memory.index.embeddings[memory.tensors.rows([each.id for each in members])]
        assert atom.meta["coherence"] == pytest.approx(float(vectors.mean(0).norm()), abs=1e-3)
    of = [link.target for atom in made for link in atom.edges]
    assert len(of) == len({*of})
    assert str(memory.upkeep.consolidate()) == "nothing to do"
    assert memory.check() == []


def test_they_follow_their_members(memory: Memory) -> None:
    memory.upkeep.consolidate()
    names = {link.target: atom.id for atom in built(memory) for link in atom.edges}
    (one, first), (other, second) = itertools.islice(
        {owner: (name, owner) for name, owner in names.items()}.values(), 2
    )
    memory.delete(one)
    memory.update(other, text="Something else altogether: a comet.")
    done = memory.upkeep.consolidate()
    assert done.dissolved >= 2
    assert first not in memory and second not in memory
    assert one not in {link.target for atom in built(memory) for link in atom.edges}
    name = built(memory)[0].edges[0].target
    receipt = memory.forget(name)
    assert receipt.atoms >= 2 and memory.upkeep.check_receipt(receipt) == []
    memory.upkeep.consolidate()
    assert all(name not in {link.target for link in atom.edges} for atom in built(memory))
    memory.upkeep.archive(built(memory)[0].edges[0].target)
    assert str(memory.upkeep.consolidate()) != "nothing to do" and memory.check() == []


def test_what_did_not_change_is_not_looked_at_again(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    while memory.upkeep.consolidate() != Consolidated():
        pass
    looks, real = list[int](), consolidation.clusters

    def looked(*given: Any) -> Any:
        looks.append(1)
        return real(*given)

    monkeypatch.setattr(consolidation, "clusters", looked)
    memory.upkeep.consolidate()
    assert looks == []
    memory.add("Dora plays the harp.")
    memory.upkeep.consolidate()
    assert looks
    count = len(looks)
    memory._state.config = config_of(**{"aggregate.build": True, "aggregate.min_similarity": 0.35})
    memory.upkeep.consolidate()
    assert len(looks) > count


def test_they_are_of_what_the_archive_leaves() -> None:
    settings = {"aggregate.build": True, "aggregate.min_similarity": 0.3, "refine.max_memories": 10}
    with opened(config=config_of(**settings), embedder="hashing:256") as memory:
        memory.add(told())
        done = memory.upkeep.consolidate()
        assert done.archived == 5 and done.aggregated >= 2
        assert len(memory) == 10 + done.aggregated
        assert all(link.target in memory for atom in built(memory) for link in atom.edges)
        assert str(memory.upkeep.consolidate()) == "nothing to do"


@pytest.mark.parametrize("what", ["forget", "delete", "upkeep.archive", "update"])
def test_what_goes_while_an_aggregate_is_written_is_in_none(memory: Memory, what: str) -> None:
    gone: list[str] = []

    def summarise(texts: Sequence[str], question: str | None, max_tokens: int) -> list[str]:
        if not gone:
            gone.append("violin2")
            change = {"text": "A harp."} if what == "update" else {}
            attrgetter(what)(memory)("violin2", **change)
        return list(texts)

    old = memory.get("violin2").text
    memory.upkeep.consolidate(oracle=summarise)
    assert gone and all(old not in atom.text for atom in built(memory))
    memory.upkeep.consolidate()
    assert any("violin" in atom.text for atom in built(memory)) and memory.check() == []


def test_a_moment_is_told_nothing_that_was_changed_later() -> None:
    now = [1.8e9]
    settings = {"aggregate.build": True, "aggregate.min_similarity": 0.3}
    config = config_of(**settings)
    with opened(config=config, embedder="hashing:256", clock=lambda: now[0]) as memory:
        memory.add(told())
        for name in ("violin1", "violin2", "violin3"):
            memory.update(name, text=memory.get(name).text.replace("brought", "SECRET"))
        memory.upkeep.consolidate()
        assert any("SECRET" in atom.text for atom in built(memory))
        for moment, said in ((now[0] - 1, False), (now[0], True)):
            hits = memory.at(as_of=moment).retrieve("SECRET violin", k=50).hits
            assert any("SECRET" in hit.text for hit in hits) is said


@pytest.mark.parametrize("answer", ["\ud800 bad", " ".join(["violin"] * 10_000), "", None, 7])
def test_a_summary_that_cannot_be_used_leaves_the_sentences(memory: Memory, answer: Any) -> None:
    memory.upkeep.consolidate()
    own = {atom.text for atom in built(memory)}
    with opened(config=memory.config, embedder="hashing:256") as other:
        other.add(told())
        asked: list[int] = []

        def summarise(texts: Sequence[str], question: str | None, most: int) -> list[Any]:
            asked.append(len(texts))
            return [answer] * len(texts)

        other.upkeep.consolidate(oracle=summarise)
        assert {atom.text for atom in built(other)} == own
        assert asked and 0 not in asked


def test_those_of_users_stay(memory: Memory) -> None:
    own = Atom(
        "mine", "My own words.", kind=AGGREGATE, edges=(Link("canoe1", EdgeType.DERIVED_FROM),)
    )
    memory.add(own)
    memory.upkeep.consolidate()
    memory.delete("canoe2")
    memory.upkeep.consolidate()
    assert memory.get("mine").text == "My own words."
    assert "mine" not in {link.target for atom in built(memory) for link in atom.edges}


def test_an_oracle_writes_them_and_claims_nothing_of_its_own(memory: Memory) -> None:
    asked: list[str] = []

    def summarise(texts: Sequence[str], question: str | None, most: int) -> list[Any]:
        asked.extend(texts)
        lies = ["They met 77 times.", "All of it was for Zelda."]
        return [
            f"{text.split()[2]} it is." if "canoe" in text else lies[i % 2]
            for i, text in enumerate(texts)
        ]

    memory.upkeep.consolidate(oracle=summarise)
    texts = {atom.text for atom in built(memory)}
    assert "canoe it is." in texts
    assert not any("77" in text or "Zelda" in text for text in texts)
    count = len(asked)
    assert (
        str(memory.upkeep.consolidate(oracle=summarise)) == "nothing to do" and len(asked) == count
    )
    memory.delete("bakery0")
    assert memory.upkeep.consolidate(oracle=lambda *given: 1 / 0).aggregated >= 1


@pytest.mark.parametrize("texts", [[], ["one"], ["same"] * 9, ["", "!!!", "?"] * 3])
def test_memories_that_hardly_are(texts: list[str]) -> None:
    with opened(config=config_of(**{"aggregate.build": True})) as memory:
        memory.add([Atom(f"a{i}", text) for i, text in enumerate(texts) if text])
        memory.upkeep.consolidate()
        assert memory.check() == [] and str(memory.upkeep.consolidate()) == "nothing to do"


DATED = {
    "cello0": ("2023-05-08", "Ana", "I bought the old cello in Graz last Friday."),
    "cello1": ("2023-05-20", "Ana", "The old cello in Graz got new strings yesterday."),
    "cello2": ("2023-06-03", "Ben", "I heard the old cello in Graz two days ago."),
    "cello3": ("2023-06-04", "Ben", "Recently the old cello in Graz was in the news."),
    "talk0": ("2023-05-08", "Ben", "Wow, Ana, that's so amazing!"),
    "talk1": ("2023-05-20", "Ana", "Thanks so much, Ben! You're amazing!"),
    "talk2": ("2023-06-03", "Ben", "Wow, that is so amazing, Ana!"),
    "talk3": ("2023-06-04", "Ana", "Thanks, Ben, that's so amazing of you!"),
    "other0": ("2023-05-08", "Ben", "The boiler in the cellar was replaced by Mr. Novak."),
    "other1": ("2023-05-20", "Ana", "My passport number ends with 4471."),
    "other2": ("2023-06-03", "Ben", "The train to Vienna leaves from platform 9."),
    "other3": ("2023-06-04", "Ana", "Rosa teaches chemistry at the grammar school."),
    "other4": ("2023-06-05", "Ben", "The dentist charged 140 euros for a filling."),
}


def noon(day: str) -> float:
    return datetime.fromisoformat(f"{day}T12:00:00+00:00").timestamp()


def dated_turns(named: dict[str, tuple[str, str, str]] = DATED) -> list[Atom]:
    return [
        Atom(name, text, speaker=speaker, time=noon(day))
        for name, (day, speaker, text) in named.items()
    ]


@pytest.fixture
def dated() -> Any:
    settings = {
        "aggregate.build": True,
        "aggregate.min_similarity": 0.3,
        "link.concepts": "pattern",
    }
    with opened(config=config_of(**settings), embedder="hashing:256") as memory:
        memory.add(dated_turns())
        memory.upkeep.consolidate()
        yield memory


def test_days_are_absolute_and_say_whose_they_are(dated: Memory) -> None:
    (made,) = built(dated)
    assert {link.target for link in made.edges} == {f"cello{i}" for i in range(4)}
    assert made.text == (
        "Ana: I bought the old cello in Graz on 5 May 2023. The old cello in Graz got new strings "
        "on 19 May 2023. Ben: I heard the old cello in Graz on 1 June 2023."
    ), "what was told recently has no day, and is not said"
    assert made.time == noon("2023-06-04")
    assert made.event_time == noon("2023-05-05") - DAY / 2
    assert made.event_end == noon("2023-06-04")


def test_its_span_holds_no_day_that_cannot_be_stated() -> None:
    """A member with a relative time that is not alone stands at its own time."""
    tails = ["in the last week of school", "the other day", "in December", "last Easter"]
    named = {
        f"cello{i}": (f"2023-05-{8 + i:02}", "Ana", f"I played the old cello in Graz {tail}.")
        for i, tail in enumerate(tails)
    }
    others = {name: own for name, own in DATED.items() if name.startswith("other")}
    settings = {
        "aggregate.build": True,
        "aggregate.min_similarity": 0.3,
        "link.concepts": "pattern",
    }
    with opened(config=config_of(**settings), embedder="hashing:256") as memory:
        memory.add(dated_turns(named | others))
        memory.upkeep.consolidate()
        (made,) = built(memory)
    assert made.text == "Ana: I played the old cello in Graz in December 2022."
    assert made.event_time == noon("2022-12-01") - DAY / 2
    assert made.event_end == noon("2023-05-11"), "when the last of them was said"


def test_small_talk_makes_no_aggregate(dated: Memory) -> None:
    assert not any(link.target.startswith("talk") for atom in built(dated) for link in atom.edges)
    assert not any("amazing" in atom.text for atom in built(dated))


def test_its_value_is_that_of_its_sentences(dated: Memory) -> None:
    """Relevance and complexity by hand; the best of all choices of its members' sentences."""
    (made,) = built(dated)
    worth = {name: made.meta[name] for name in ("value", "relevance", "complexity")}
    price, words = 0.25, 60
    said = made.text.replace("Ana: ", "").replace("Ben: ", "")
    assert worth["complexity"] == pytest.approx(len(said.split()) / words, abs=1e-4)
    assert worth["value"] == pytest.approx(
        worth["relevance"] - price * worth["complexity"], abs=2e-4
    )
    assert "bound" not in made.meta, "it is proven the best"
    (particle,) = dated.upkeep.particles([made.id])
    assert {name: particle.imprint[name] for name in worth} == worth
    assert (particle.event_start, particle.event_end) == (made.event_time, made.event_end)


def test_they_are_no_hits_unless_they_are_asked_for(dated: Memory) -> None:
    (made,) = built(dated)
    question = "Who bought the cello?"
    for preset in ("default", "weave", "synapse", "contextos", "sgrm", "spectral"):
        with opened(config=load_config(preset), embedder="hashing:256") as memory:
            memory.add([*dated_turns(), replace(made, id="sum")])
            hits = memory.retrieve(question, k=99).hits
            assert hits and "sum" not in {hit.id for hit in hits}, preset
            assert "sum" not in memory.compile(question, budget=500).sources
            asked = memory.retrieve(question, k=99, scope=Scope(kinds=["aggregate"])).hits
            assert {hit.id for hit in asked} <= {"sum"}, preset
    for where in (
        {"kind": "aggregate"},
        {"$or": [{"kind": "aggregate"}, {"speaker": "Zoe"}]},
        {"$not": {"kind": "turn"}},
        {"id": made.id},
    ):
        assert [hit.id for hit in dated.retrieve(question, k=99, where=where).hits] == [made.id]
    assert made.id not in {
        hit.id for hit in dated.retrieve(question, where={"speaker": "Ana"}).hits
    }
    assert made.id not in dated.forget(question=question, k=99, dry_run=True)
    dated.pin(made.id)
    assert made.id in dated.compile(question, budget=500).sources


def test_an_aggregate_leads_to_its_members_and_explain_says_so(dated: Memory) -> None:
    (made,) = built(dated)
    weights = {"semantic": 1.0, "derived_semantic": 1.0}
    config = replace(dated.config, rank=replace(dated.config.rank, weights=weights))
    with opened(config=config, embedder="hashing:256") as memory:
        memory.add([*dated_turns(), made])
        found = memory.explain(made.text, "cello3")
        assert found.signals["derived_semantic"] > 0 and found.influences[made.id] > 0
        assert found.members == () and "aggregate, listed" not in str(found)
        own = memory.explain(made.text, made.id)
        assert own.rank == 0 and own.members == tuple(link.target for link in made.edges)
        assert "leads to cello0, cello1" in str(own)


def test_what_is_in_no_aggregate_stands_for_itself(dated: Memory) -> None:
    """But not beside facts, which restate single memories."""
    (made,) = built(dated)
    config = replace(dated.config, rank=replace(dated.config.rank, weights={"derived_semantic": 1}))
    question = DATED["other2"][2]
    with opened(config=config, embedder="hashing:256") as memory:
        memory.add([*dated_turns(), made])
        assert memory.retrieve(question).hits[0].id == "other2"
        fact = Link("cello0", EdgeType.DERIVED_FROM)
        memory.add([Atom("fact", "The train to Vienna leaves.", kind="fact", edges=(fact,))])
        assert memory.retrieve(question).hits[0].id == "cello0"


def test_spans_of_time_hold_an_aggregate_with_all_of_its_members(dated: Memory) -> None:
    (made,) = built(dated)

    def seen(**filters: Any) -> bool:
        hits = retrieved(dated, "cello", k=99, kinds=["aggregate"], **filters).hits
        return made.id in {hit.id for hit in hits}

    assert seen(between=("2023-05-01", "2023-07-01"))
    assert not seen(between=("2023-06-01", "2023-07-01")), "most of it was said before"
    assert not seen(between=("2023-05-01", "2023-06-04T11:00")), "and some later"
    assert seen(as_of="2023-06-04T13:00") and not seen(as_of="2023-06-04T11:00")
    assert seen(valid_at="2024-01-01") and not seen(valid_at="2023-05-09")


def test_aggregates_made_before_are_made_anew(dated: Memory) -> None:
    (made,) = built(dated)
    dated.delete(made.id)
    edges = tuple(Link(f"cello{i}", EdgeType.DERIVED_FROM) for i in range(3))
    old = Atom(
        "aggregate:" + "0" * 24,
        "Ana: I bought the old cello in Graz last Friday.",
        kind=AGGREGATE,
        time=noon("2023-06-03"),
        meta={"depth": 1, "coherence": 0.5},
        edges=edges,
    )
    dated.add(old)
    done = dated.upkeep.consolidate()
    assert (done.dissolved, done.aggregated) == (1, 1)
    assert built(dated) == [made] and dated.check() == []


def test_others_than_english_are_quoted_with_their_day() -> None:
    named = {
        f"d{i}": (day, "Anna", f"Gestern habe ich mit der Geige {piece} von Bach gespielt.")
        for i, (day, piece) in enumerate(
            [
                ("2023-05-08", "die Partita"),
                ("2023-05-09", "die Sonate"),
                ("2023-05-10", "die Suite"),
            ]
        )
    }
    settings = {
        "aggregate.build": True,
        "aggregate.min_similarity": 0.3,
        "link.concepts": "pattern",
    }
    others = {name: own for name, own in DATED.items() if name.startswith("other")}
    with opened(config=config_of(**settings), embedder="hashing:256") as memory:
        memory.add(dated_turns(named | others))
        memory.upkeep.consolidate()
        (made,) = built(memory)
        assert made.text.startswith("Anna (8 May 2023): Gestern habe ich mit der Geige die Partita")


def test_an_oracle_is_given_absolute_days_and_may_tell_of_no_other(dated: Memory) -> None:
    asked: list[str] = []
    answers = [
        "Ana bought a cello last Friday.",
        "Ana bought a cello on 6 May 2023.",
        "Ana bought a cello the week before last.",
        "Ana bought a cello last Easter.",
        "Ana bought a cello in May.",
    ]
    own = {atom.text for atom in built(dated)}
    for answer in answers:
        dated.delete([atom.id for atom in built(dated)])

        def summarise(
            texts: Sequence[str], question: str | None, most: int, answer: str = answer
        ) -> list[str]:
            asked.extend(texts)
            return [answer] * len(texts)

        dated.upkeep.consolidate(oracle=summarise)
        assert {atom.text for atom in built(dated)} == own
    assert "Ana: I bought the old cello in Graz on 5 May 2023." in asked[0]
    assert "Ben: (said on 4 June 2023) Recently" in asked[0] and "last Friday" not in asked[0]
    dated.delete([atom.id for atom in built(dated)])
    dated.upkeep.consolidate(
        oracle=lambda texts, *_: ["Ana bought a cello on 5 May 2023."] * len(texts)
    )
    (made,) = built(dated)
    assert made.text == "Ana bought a cello on 5 May 2023."
    assert 0 < made.meta["relevance"] < 1 and made.meta["complexity"] == pytest.approx(
        8 / 60, abs=1e-4
    )


def test_nobody_reads_in_a_summary_of_modes_what_an_aggregate_says(dated: Memory) -> None:
    (made,) = built(dated)
    for summary in dated.themes.summary():
        assert made.id not in {each.id for each in (summary.claim, summary.evidence) if each}


def test_headings_and_what_a_list_follows_say_nothing() -> None:
    text = "**Cellos of the town of Graz:**\nThe cello of Graz is old."
    found = tellings(
        Atom("a", text, speaker="assistant"), ["cello", "graz", "town"], SpeakerNames(())
    )
    assert [each.text for each in found] == ["The cello of Graz is old."]


@pytest.mark.parametrize(
    ("speaker", "text", "said"),
    [
        ("Ana", "Music has a way of healing people.", None),
        ("Ana", "Nothing beats a good cup of tea.", None),
        ("Ana", "We can all do something about the weather.", None),
        ("Ana", "My sister paints a portrait.", "My sister paints a portrait."),
        ("Ana", "The oven broke down, a shame.", "The oven broke down, a shame."),
        ("Ana", "A good violin is made in Cremona.", "A good violin is made in Cremona."),
        (None, "Nothing beats the cup of tea.", "Nothing beats the cup of tea."),
        ("assistant", "A good tripod costs a fortune.", "A good tripod costs a fortune."),
        ("assistant", "Congratulations on the new oven in the kitchen!", None),
        ("assistant", "I'd be happy to help you find a tripod.", None),
        ("assistant", "As an AI language model, I have no opinion on the tripod.", None),
        ("assistant", "**Step 2: Choosing a Tripod**", None),
        ("assistant", "## Packing list for the trip to Lisbon", None),
        ("assistant", "2. **Befree**: A tripod of 900 grams.", "Befree: A tripod of 900 grams."),
        ("assistant", "* Rinse the cloth in water.", "Rinse the cloth in water."),
        ("assistant", "1.5 GB of memory is a minimum.", "1.5 GB of memory is a minimum."),
    ],
)
def test_what_is_said_of_nobody_out_of_courtesy_or_as_a_heading_is_left_out(
    speaker: str | None, text: str, said: str | None
) -> None:
    atom = Atom("a", text, speaker=speaker, time=noon("2023-05-08"))
    told = tellings(atom, [], SpeakerNames(["Ana", "Ben"]))
    assert [each.text for each in told] == ([] if said is None else [said])


def test_the_number_of_a_list_entry_is_no_number_of_it() -> None:
    atom = Atom("a", "3. **Befree**: A light tripod of 40 euros.", speaker="assistant")
    (told,) = tellings(atom, [], SpeakerNames([]))
    assert "40" in told.units and "3" not in told.units
