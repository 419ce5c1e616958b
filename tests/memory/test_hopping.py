"""`exclude` and `seed_entities`, for agents that hop from question to question themselves."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.store.schema import NAMED_BY
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import QUESTIONS, ids, opened, plain, retrieved, turns


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with opened() as made:
        made.add(turns(36))
        yield made


def test_exclude_leaves_the_others_as_they_are(memory: Memory) -> None:
    """What is excluded is no hit, but it leads to others and is compared with as before."""
    for options in ({}, {"where": {"speaker": "Ada"}}, {"between": (1.7e9, None)}):
        whole = memory.retrieve(QUESTIONS, k=36, **options)
        gone = ids(whole[0])[:3]
        found = memory.retrieve(QUESTIONS, k=5, scope=Scope(exclude=gone), **options)
        for all_of, some in zip(whole, found, strict=True):
            left = [hit for hit in all_of.hits if hit.id not in gone][:5]
            assert [hit.id for hit in some.hits] == [hit.id for hit in left]
            assert [hit.raw for hit in some.hits] == pytest.approx([h.raw for h in left], abs=1e-4)


def test_exclude_for_each_question(memory: Memory) -> None:
    first = [ids(result)[:2] for result in memory.retrieve(QUESTIONS)]
    wanted: list[list[str]] = [first[0], [], first[2]]
    found = memory.retrieve(QUESTIONS, scope=Scope(exclude=wanted))
    alone = [
        memory.retrieve(q, scope=Scope(exclude=own))
        for q, own in zip(QUESTIONS, wanted, strict=True)
    ]
    assert plain(found) == plain(alone)
    assert ids(found[1])[:2] == first[1]
    for result, own in zip(found, wanted, strict=True):
        assert not {*own} & {*ids(result)}
    assert ids(memory.retrieve(QUESTIONS[0], scope=Scope(exclude=first[0][0]))) == ids(
        memory.retrieve(QUESTIONS[0], scope=Scope(exclude=[first[0][0]]))
    )
    everything = [f"a{i}" for i in range(36)]
    assert memory.retrieve(QUESTIONS[0], scope=Scope(exclude=everything)).hits == ()
    assert memory.retrieve([], scope=Scope(exclude=[])) == []


def test_excluded_is_not_in_a_context_but_where_it_is_pinned() -> None:
    with opened() as memory:
        memory.add(turns(12))
        first = ids(memory.retrieve(QUESTIONS[0]))[0]
        assert first in memory.compile(QUESTIONS[0], budget=300).sources
        assert (
            first
            not in memory.compile(QUESTIONS[0], budget=300, scope=Scope(exclude=[first])).sources
        )
        answer = memory.answer(
            QUESTIONS[0], llm=lambda _: "x", budget=300, scope=Scope(exclude=[first])
        )
        assert first not in answer.context.sources
        memory.pin(first)
        assert (
            first in memory.compile(QUESTIONS[0], budget=300, scope=Scope(exclude=[first])).sources
        )


def test_exclude_of_versions_and_namespaces() -> None:
    with opened() as memory:
        for name in ("one", "two"):
            memory.namespaces.create(name).add(turns(6 if name == "one" else 12))
        asked, spaces = [QUESTIONS[0]] * 2, ["two", "one"]
        found = memory.retrieve(
            asked, scope=Scope(namespaces=spaces, exclude=[["a11", "a8"], ["a0"]])
        )
        assert {*ids(found[0])} == {f"a{i}" for i in range(12)} - {"a11", "a8"}
        assert {*ids(found[1])} == {f"a{i}" for i in range(1, 6)}
        with pytest.raises(InputError, match="a11"):
            memory.retrieve(asked, scope=Scope(namespaces=spaces, exclude=["a11"]))
        memory.add(turns(12))
        memory.update("a3", text="something else about the canoe")
        then = memory.at(as_of=1.8e9).retrieve(
            QUESTIONS[0], scope=Scope(exclude=["a3", "a4"]), k=20
        )
        whole = memory.at(as_of=1.8e9).retrieve(QUESTIONS[0], k=20)
        assert "a3" in ids(whole)
        assert {*ids(whole)} - {*ids(then)} == {"a3", "a4"}


def story() -> list[Atom]:
    """Lisbon is in three memories that share no other word."""
    texts = ["She moved to Lisbon in spring", "Rent is high near Lisbon", "Boats leave for Lisbon"]
    texts += [f"Nothing about number {i} of the {word}" for i in range(12) for word in ("oven",)]
    return [Atom(f"m{i}", text, session=f"s{i}") for i, text in enumerate(texts)]


@pytest.fixture(scope="module", params=["default", "synapse", "contextos"])
def town(request: pytest.FixtureRequest) -> Iterator[Memory]:
    changed = {"link.concepts": "pattern", "link.similarity_k": 0}
    changed |= {"spread.edges": {"abstraction": 1.0}, "spread.reverse": {"abstraction": 1.0}}
    config = load_config(request.param, changed)
    # A clock that stands still: `contextos` fades from one question to the next.
    with Memory.open(config=config, embedder=HashingEmbedder(32), clock=lambda: 1.8e9) as made:
        made.add(story())
        yield made


def test_seed_entities_lead_to_what_mentions_them(town: Memory) -> None:
    question = "Which number has the oven?"
    before, after = town.retrieve([question] * 2, k=15, scope=Scope(seeds=[[], ["Lisbon"]]))
    name = "decayed_pagerank" if town.config.name == "contextos" else "activation"
    share = {hit.id: hit.signals[name] for hit in before.hits}
    gained = {hit.id: hit.signals[name] - share[hit.id] for hit in after.hits}
    best = sorted(gained, key=lambda id: -gained[id])[:3]
    assert {*best} == {"m0", "m1", "m2"}
    assert min(gained[id] for id in best) > 0
    paths = {hit.id: [step.source for step in hit.path] for hit in after.hits}
    if town.config.name != "contextos":  # a walk has no single path that is the strongest
        assert paths["m1"] == ["concept:lisbon"]
    assert plain([before]) == plain([town.retrieve(question, k=15)])
    for spelled in ("lisbon", "  LISBON ", ["Lisbon", "lisbon"]):
        assert plain([town.retrieve(question, k=15, scope=Scope(seeds=spelled))]) == plain([after])


def test_seed_entities_that_there_are_not(town: Memory) -> None:
    with pytest.raises(InputError, match=r"seeds: expected .*; did you mean 'lisbon'\?"):
        town.retrieve("Where?", scope=Scope(seeds=["Lisbin"]))
    with pytest.raises(InputError, match=r"none of .* is like it"):
        town.retrieve("Where?", scope=Scope(seeds=["qqqqqq"]))


def test_a_seed_entity_by_another_of_its_names() -> None:
    class Alike(HashingEmbedder):
        """To which all names with an x are one, whatever their marks."""

        def encode(self, texts, *, progress=False):  # type: ignore[no-untyped-def]
            return super().encode(
                ["x" if "lo" in text.lower() and "x" in text.lower() else text for text in texts]
            )

    config = load_config("synapse", {"link.concepts": "pattern"})
    with Memory.open(config=config, embedder=Alike(32)) as memory:
        memory.store.meta_set(NAMED_BY, "encoder")  # as older releases have them
        texts = ["We saw Xylo again", "Later came X\u00fdlo here"]
        memory.add(Atom(f"x{i}", text, session=f"{i}") for i, text in enumerate(texts))
        memory.add(story())
        (other,) = [name for _, name, _ in memory.store.aliases() if name == "x\u00fdlo"]
        one, two = (memory.retrieve("Where?", scope=Scope(seeds=[n])) for n in ("xylo", other))
        assert plain([one]) == plain([two])


@pytest.mark.parametrize("name", ["exclude", "seeds"])
def test_lists_that_fit_no_question(memory: Memory, name: str) -> None:
    for given in (3, [3], [["a1"], "a2"], [["a1"], [3]], None):
        with pytest.raises(InputError, match=f"{name}: expected a list of texts"):
            retrieved(memory, QUESTIONS[:2], **{name: given})  # type: ignore[arg-type]
    with pytest.raises(InputError, match=f"{name}: expected one list for each, got 1 lists for 2"):
        retrieved(memory, QUESTIONS[:2], **{name: [["a1"]]})  # type: ignore[arg-type]
    with pytest.raises(InputError):
        retrieved(memory, QUESTIONS[0], **{name: ["nobody-knows-it"]})  # type: ignore[arg-type]
