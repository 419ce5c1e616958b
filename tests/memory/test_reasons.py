"""Scores and reasons of hits: true of the texts, and of the shares that carried them."""

from __future__ import annotations

import json
import math
import pickle
import re
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.results import Hit, Result
from graphmem_torch.text.embedder import HashingEmbedder, PooledEmbedder
from graphmem_torch.text.terms import shared_words, stemmed, terms
from tests.memories import DAY, QUESTIONS, config_of, opened, turns

PRESETS = ["default", "synapse", "spectral", "contextos", "sgrm", "weave"]


def told(result: Result) -> dict[str, tuple[str, ...]]:
    return {hit.id: hit.why for hit in result.hits}


def words_of(why: tuple[str, ...]) -> list[str]:
    said = [each for each in why if each.startswith("same word")]
    return re.split(", ", said[0].partition(": ")[2]) if said else []


@pytest.mark.parametrize("preset", PRESETS)
def test_scores_are_probabilities_in_the_order_of_the_ranking(preset: str) -> None:
    config = load_config(preset, {"link.concepts": "pattern"})
    with Memory.open(config=config, embedder=HashingEmbedder(32)) as memory:
        memory.add(turns(48))
        for result in memory.retrieve(QUESTIONS, k=30):
            assert not result.calibrated  # nothing was fitted to hashes
            scores, raw = ([getattr(hit, name) for hit in result.hits] for name in ("score", "raw"))
            assert all(0.0 <= score <= 1.0 for score in scores)
            assert scores == sorted(scores, reverse=True) and raw == sorted(raw, reverse=True)
            for hit in result.hits:
                assert sum(hit.signals.values()) == pytest.approx(hit.raw, abs=1e-3)
                assert len(hit.why) <= 3 and len({*hit.why}) == len(hit.why)
                if max(hit.signals.values()) <= 0:
                    assert not hit.why


def test_of_one_memory_and_of_equal_ones_the_words_are_the_reason() -> None:
    for count in (1, 3):
        with opened() as memory:
            memory.add([Atom(str(i), "Nora lives in Lisbon.") for i in range(count)])
            for hit in memory.retrieve("Where does Nora live?").hits:
                assert words_of(hit.why) == ["Nora", "lives"]
            assert all(not hit.why for hit in memory.retrieve("\U0001f43f").hits)


def test_a_score_does_not_depend_on_how_many_are_asked_for() -> None:
    with opened() as memory:
        memory.add(turns(48))
        many, few = memory.retrieve(QUESTIONS[0], k=40), memory.retrieve(QUESTIONS[0], k=3)
        assert [(h.id, pytest.approx(h.score, abs=1e-9)) for h in few.hits] == [
            (h.id, h.score) for h in many.hits[:3]
        ]
        assert [h.why for h in few.hits] == [h.why for h in many.hits[:3]]


def test_an_encoder_is_calibrated_by_its_name() -> None:
    class Named(HashingEmbedder):
        name = "org/all-MiniLM-L6-v2"

        def __init__(self) -> None:
            super().__init__(32)
            self.name = "org/all-MiniLM-L6-v2"

    with opened(embedder=Named()) as memory:
        memory.add(turns(48))
        result = memory.retrieve(QUESTIONS[0])
        own = memory.config.calibration.encoders["all-MiniLM-L6-v2"]
        assert result.calibrated
        behind = [
            own["behind"] * math.sqrt(max(0.0, result.hits[0].raw - hit.raw)) for hit in result.hits
        ]
        odds = [math.log(hit.score / (1 - hit.score)) for hit in result.hits]
        assert [odds[0] - each for each in odds] == pytest.approx(behind, abs=1e-3)
        labelled = [[hit.id for hit in memory.retrieve(q, k=2).hits] for q in QUESTIONS]
        memory.learning.fit(QUESTIONS, labelled)
        assert not memory.retrieve(QUESTIONS[0]).calibrated


def test_same_words_are_the_heaviest_of_both_texts() -> None:
    with opened() as memory:
        memory.add(turns(48))
        every = [*memory]
        count = {
            term: sum(term in terms(atom.rendered) for atom in every)
            for question in QUESTIONS
            for term in terms(question)
        }
        found = 0
        for question, result in zip(QUESTIONS, memory.retrieve(QUESTIONS, k=48), strict=True):
            for hit in result.hits:
                shared = {*terms(question)} & {*terms(hit.text)}
                own = words_of(hit.why)
                found += bool(own)
                stems = [stemmed(word.lower()) for word in own]
                assert {*stems} <= shared
                assert all(re.search(rf"\b{re.escape(word)}\b", hit.text) for word in own)
                rare = [count[stem] for stem in stems]
                assert rare == sorted(rare)
                speaker = {stemmed(hit.speaker.lower())} if hit.speaker else set()
                left = shared - {*stems} - speaker
                assert len(own) in (0, 4) or all(count[s] >= max(rare) for s in left)
        assert found > 20


def test_the_weights_of_reasons_are_those_of_the_lexical_index() -> None:
    with opened() as memory:
        memory.add(turns(48))
        question = QUESTIONS[1] + " unheardof"
        (hit, *_) = memory.retrieve(question).hits
        grounds = hit.grounds
        assert grounds is not None
        index = memory.index
        query = memory.tensors.encode([question])
        row = memory.tensors.rows([hit.id])
        assert query.terms is not None
        holds = index.tensors.bm25.holds(query.terms, row[None]).squeeze()
        idf = index.tensors.bm25.idf[query.terms[0]]
        shared = shared_words(hit.text, grounds.terms)  # type: ignore[attr-defined]
        by_index = sorted((float(w) for h, w in zip(holds, idf, strict=True) if h), reverse=True)
        assert [weight for _, weight in shared] == pytest.approx(by_index, rel=1e-3)
        rarest = math.log1p((48 - 0.5) / 1.5)
        assert grounds.missing == pytest.approx(rarest)  # type: ignore[attr-defined]


def test_answers_the_turn_before() -> None:
    said = [
        ("Ada", "Did you ever finish that boat shed, and what does it look like now?"),
        ("Ben", "Dark green, in the end."),
        *((("Ada", "Ben")[i % 2], f"Nothing new about number {i} here.") for i in range(20)),
    ]
    atoms = [
        Atom(f"t{i}", text, speaker=who, session="s", time=1.7e9 + i)
        for i, (who, text) in enumerate(said)
    ]
    with opened() as memory:
        memory.add(atoms)
        why = told(memory.retrieve("What is the colour of the boat shed?", k=22))
        assert "answers the turn before" in why["t1"]
        asking = {f"t{i + 1}" for i, (_, text) in enumerate(said) if text.endswith("?")}
        assert {id for id, own in why.items() if "answers the turn before" in own} <= asking


def test_who_and_when() -> None:
    atoms = [
        Atom(
            f"a{i}",
            f"the kite number {i}",
            speaker=("Ada", "Ben")[i % 2],
            time=1.7e9 + 20 * i * DAY,
        )
        for i in range(24)
    ]
    with opened() as memory:
        memory.add(atoms)
        named = memory.retrieve("What did Ben say of his kite?", k=24)
        for hit in named.hits:
            if "said by Ben" in hit.why:
                assert hit.speaker == "Ben"
            assert "said by Ada" not in hit.why
        assert "said by Ben" in named.hits[0].why
        dated = memory.retrieve("Which kite was there in January 2024?", k=24)
        for hit in dated.hits:
            said = [each for each in hit.why if each.startswith("from the month or days")]
            day = datetime.fromtimestamp(hit.time or 0, UTC)
            assert not said or (day.month == 1 and hit.signals["date"] > 0)
            assert all(each.endswith(f": {day.day} January {day.year}") for each in said)
        assert any("January 2024" in each for hit in dated.hits for each in hit.why)


PASSAGES = [
    Atom("film", "Silent Harbour\nSilent Harbour is a film that was directed by Orla Venn."),
    Atom("person", "Orla Venn\nOrla Venn is a director who was born in Ghent."),
    Atom("ghent", "Ghent\nGhent is a city on the river Scheldt."),
    Atom("port", "Old port\nThe port by the Scheldt was closed."),
    *(Atom(f"other{i}", f"Subject {i}\nNothing that matters, number {i}.") for i in range(40)),
]


@pytest.mark.parametrize("limit", [2048, 0])
def test_hops_name_what_they_went_by(limit: int) -> None:
    config = config_of(**{"rank.exhaustive_up_to": limit, "rank.candidates": 8})
    with opened(config=config) as memory:
        memory.add(PASSAGES)
        found = memory.retrieve("Where was the director of the film Silent Harbour born?", k=30)
        hits = {hit.id: hit for hit in found.hits}
        assert "“Silent Harbour Silent Harbour is a film…” mentions its title" in hits["person"].why
        for hit in found.hits:
            for why in hit.why:
                if why.startswith("two hops by"):
                    names = re.split(" and ", why.removeprefix("two hops by ").partition(",")[0])
                    assert hit.signals["hop"] > 0
                    assert all(name.lower() in hit.text.lower() for name in names)
        river = {hit.id: hit for hit in memory.retrieve("Which harbour is in Ghent?", k=30).hits}
        if river["port"].signals["hop"] > 0:
            assert any("Scheldt" in each for each in river["port"].why)


def test_stated_edges_are_told() -> None:
    with Memory.open(config=load_config("contextos"), embedder=HashingEmbedder(32)) as memory:
        memory.add([Atom("a", "the comet over the harbour"), Atom("b", "saddles are sold")])
        memory.add([Atom(f"c{i}", f"nothing about number {i}") for i in range(12)])
        memory.graph.connect("a", "b", "supports")
        why = told(memory.retrieve("comet harbour", k=14))
        assert "linked (supports) to “the comet over the harbour”" in why["b"]


def test_what_is_superseded_says_so() -> None:
    with opened() as memory:
        memory.add(
            [
                Atom("old", "Nora lives in Oslo", time=1.0),
                Atom("new", "Nora lives in Rome", time=2.0),
            ]
        )
        memory.facts.supersede("old", "new")
        why = told(memory.retrieve("Where does Nora live?"))
        assert why["old"][-1] == "superseded: no longer true"
        assert "superseded: no longer true" not in why["new"]


def test_a_reply_to_the_same_question_says_so() -> None:
    with opened() as memory:
        said = ["Which boat won the race?", "The blue one."]
        memory.add(
            [
                Atom(f"t{i}", t, session="s", speaker="Ada", time=float(i))
                for i, t in enumerate(said)
            ]
        )
        memory.add(turns(24))
        assert "was said after the same question" in memory.retrieve(said[0]).hits[0].why


@pytest.mark.parametrize(
    ("question", "text", "word"),
    [
        ("北京大学怎么样？", "我在北京大学读书。", "北京大学"),
        ("Кто живёт в Осло?", "Я живу в ОСЛО и люблю море.", "ОСЛО"),
        ("Wo wohnt die Bäckerin?", "Die BÄCKERIN wohnt in Köln.", "BÄCKERIN"),
        ("オーブンを修理したのは誰？", "彼がオーブンを修理した。", "オーブン"),
        ("أين الفرن القديم؟", "الفرن القديم في البيت.", "الفرن"),
    ],
)
def test_words_of_other_languages_are_quoted_as_they_stand(
    question: str, text: str, word: str
) -> None:
    with opened() as memory:
        memory.add([text, *(f"Nothing about number {i}." for i in range(12))])
        hit = memory.retrieve(question).hits[0]
        assert hit.text == text and word in words_of(hit.why)


def test_without_token_vectors() -> None:
    def vectors(texts: list[str]) -> object:
        return HashingEmbedder(32).encode(texts).pooled.numpy()

    embedder = PooledEmbedder("plain", "plain:1", 32, vectors)
    with opened(embedder=embedder) as memory:
        memory.add(turns(48))
        hit = memory.retrieve(QUESTIONS[0]).hits[0]
        assert "canoe" in words_of(hit.why) and 0 <= hit.score <= 1


def test_reasons_are_values(tmp_path: Path) -> None:
    """Batches, threads and processes agree, and reasons outlive the memory."""
    with opened(tmp_path / "m") as memory:
        memory.add(turns(48))
        batch = memory.retrieve(QUESTIONS, k=8)
        alone = [memory.retrieve(question, k=8) for question in QUESTIONS]
        with ThreadPoolExecutor(4) as pool:
            several = list(pool.map(lambda q: memory.retrieve(q, k=8), QUESTIONS * 4))
        why = [told(result) for result in batch]
        assert [told(result) for result in alone] == why
        assert [told(result) for result in several] == why * 4
        explained = memory.explain(QUESTIONS[0], batch[0].hits[2].id, k=8)
        assert explained.why == batch[0].hits[2].why
        assert explained.score == pytest.approx(batch[0].hits[2].score, abs=1e-3)
        assert f"score {explained.score:.2f}" in str(explained)
    assert [told(result) for result in pickle.loads(pickle.dumps(batch))] == why
    plain = json.loads(json.dumps(batch[0].as_dict()))
    assert [hit["why"] for hit in plain["hits"]] == [list(hit.why) for hit in batch[0].hits]
    assert "grounds" not in plain["hits"][0] and plain["hits"][0]["raw"] == batch[0].hits[0].raw
    with opened(tmp_path / "m") as again:
        assert [told(result) for result in again.retrieve(QUESTIONS, k=8)] == why
    assert Hit("x", "text", 0.5, {}).why == ()


def test_of_a_memory_that_is_no_hit() -> None:
    with opened() as memory:
        memory.add(turns(48))
        found = memory.explain(QUESTIONS[0], "a3", scope=Scope(exclude=["a3"]))
        assert found.rank == 0 and 0 <= found.score <= 1
        assert sum(found.signals.values()) == pytest.approx(found.raw, abs=1e-3)
