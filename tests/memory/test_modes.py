"""Modes of a memory: listed, summarised, aligned, and as the way to its atoms."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import QUESTIONS, config_of, ids, opened, plain, turns

THEMES = {
    "boat": "canoe paddle river rapids",
    "star": "comet telescope orbit nebula",
    "bread": "bakery dough oven crust",
}


def spectral(**overrides: Any) -> Config:
    small = {"link.concepts": "pattern", "modes.count": 3}
    return load_config("spectral", {**small, **overrides})


def by_cosine(config: Config) -> Config:
    """No graph, whose activation brings candidates of its own."""
    return replace(config, rank=replace(config.rank, weights={"semantic": 1.0}, scale="raw"))


def themed(**change: Any) -> list[Atom]:
    """Three themes of different sizes, with a kind for every part of a summary."""
    atoms = []
    for place, (name, words) in enumerate(THEMES.items()):
        for i in range(10 - 2 * place):
            text = f"{words}. {words} {words} number {i}."
            atoms.append(Atom(f"{name}{i}", text, time=1.7e9 + 100 * place + i))
        atoms.append(Atom(f"{name}?", f"{words}? Is it {words}?", time=None))
    return [replace(atom, **change) for atom in atoms]


def filled(config: Config, atoms: list[Atom]) -> Memory:
    memory = opened(config=config)
    memory.add(atoms)
    return memory


@pytest.mark.parametrize("preset", ["spectral", "default"])
def test_modes_are_the_themes(preset: str) -> None:
    config = spectral() if preset == "spectral" else config_of(**{"modes.count": 3})
    with filled(config, themed()) as memory:
        modes = memory.themes.list()
        assert [mode.number for mode in modes] == [0, 1, 2]
        assert [mode.size for mode in modes] == [11, 9, 7]
        assert [mode.latest for mode in modes] == [1.7e9 + 9, 1.7e9 + 107, 1.7e9 + 205]
        for mode, name in zip(modes, THEMES, strict=True):
            assert len(mode.typical) == 3
            assert all(one.id.startswith(name) for one in mode.typical)
            assert all(one.text == memory.store.atoms(memory.store.known([one.id])[one.id][:1])[0]
                       .rendered for one in mode.typical)  # fmt: skip
            assert 0 < mode.variance < 1
        assert 0.5 < sum(mode.energy for mode in modes) <= 1
        hits = memory.retrieve("canoe paddle river rapids").hits
        named = {mode.number for mode in modes} if preset == "spectral" else {None}
        assert {hit.mode for hit in hits} <= named
        if preset == "spectral":
            assert hits[0].mode == 0


def test_modes_cost_other_presets_nothing() -> None:
    with filled(config_of(), turns()) as memory:
        assert memory.index.modes is None
        assert not [name for name in memory.index.state_dict() if "mode" in name]
        assert memory.index.duplicate is None
        assert memory.themes.list()
        assert not [name for name in memory.index.state_dict() if "mode" in name]


def test_modes_of_no_atoms() -> None:
    for config in (spectral(), config_of()):
        with opened(config=config) as memory:
            assert memory.themes.list() == []
            assert memory.themes.summary() == []
            assert memory.themes.summary("Where is the canoe?") == []
            assert memory.retrieve("Where is the canoe?").hits == ()


def test_modes_of_one_atom_and_of_equal_atoms() -> None:
    with filled(spectral(), [Atom("a", "The canoe.")]) as memory:
        assert [mode.size for mode in memory.themes.list()] == [1]
        assert memory.themes.list()[0].latest is None
        assert ids(memory.retrieve("canoe")) == ["a"]
    with filled(spectral(), [Atom(f"a{i}", "The canoe.") for i in range(6)]) as memory:
        assert [mode.size for mode in memory.themes.list()] == [6]
        assert ids(memory.retrieve("canoe")) == ["a0"]


def test_hits_come_from_the_best_modes() -> None:
    with filled(by_cosine(spectral(**{"modes.modes_searched": 1})), themed()) as memory:
        for name, words in THEMES.items():
            hits = memory.retrieve(words, k=27).hits
            assert hits and all(hit.id.startswith(name) for hit in hits)
    few = spectral(**{"modes.modes_searched": 2, "modes.atoms_per_mode": 1})
    with filled(by_cosine(few), themed()) as memory:
        hits = memory.retrieve("canoe paddle river rapids", k=2).hits
        assert sorted(Counter(hit.mode for hit in hits).values()) == [1, 1]
        # As many atoms of a mode as the hits asked for need.
        assert len(memory.retrieve("canoe paddle river rapids", k=14).hits) == 14


def test_hits_are_k_in_fewer_modes_than_are_looked_into() -> None:
    few = spectral(**{"modes.modes_searched": 99, "modes.atoms_per_mode": 1})
    with filled(by_cosine(few), themed()) as memory:
        assert len(memory.retrieve("canoe paddle river rapids", k=9).hits) == 9
        # Tables are as long as there are atoms, not as long as k.
        assert len(memory.retrieve("canoe paddle river rapids", k=10**12).hits) == 27


def test_modes_are_found_once_however_often_asked_for() -> None:
    for config in (spectral(), config_of(**{"modes.count": 3})):
        with filled(config, themed()) as memory:
            for _ in range(2):
                memory.themes.list(), memory.themes.summary(), memory.retrieve("canoe")
            assert memory.stats()["modes_found"] == 1


def test_modes_all_together_give_all_candidates() -> None:
    one = by_cosine(spectral(**{"modes.modes_searched": 99, "modes.atoms_per_mode": 99}))
    other = by_cosine(config_of())
    with filled(one, turns()) as memory, filled(other, turns()) as flat:
        found = [[(h.id, h.raw) for h in r.hits] for r in memory.retrieve(QUESTIONS, k=24)]
        wanted = [[(h.id, h.raw) for h in r.hits] for r in flat.retrieve(QUESTIONS, k=24)]
        for a, b in zip(found, wanted, strict=True):
            assert dict(a) == pytest.approx(dict(b), abs=1e-5)


def test_filters_reach_into_the_modes() -> None:
    with filled(
        spectral(**{"modes.modes_searched": 1, "modes.atoms_per_mode": 2}), turns()
    ) as memory:
        for result in memory.retrieve(QUESTIONS, k=2, scope=Scope(kinds=["note"])):
            assert {hit.kind for hit in result.hits} == {"note"}
        until = 1.7e9 + 10 * 86400
        for result in memory.at(as_of=until).retrieve(QUESTIONS, k=2):
            assert all(hit.time is not None and hit.time <= until for hit in result.hits)


def test_snapshot_keeps_the_modes(tmp_path: Path) -> None:
    with opened(tmp_path / "m", config=spectral()) as memory:
        memory.add(themed())
        modes, found = memory.themes.list(), plain(memory.retrieve(QUESTIONS))
    with opened(tmp_path / "m", config=spectral()) as memory:
        _ = memory.index
        assert memory.stats()["modes_found"] == 0
        assert [replace(m, energy=0) for m in memory.themes.list()] == [
            replace(m, energy=0) for m in modes
        ]
        assert found == plain(memory.retrieve(QUESTIONS))
    # How many modes are looked into is asked anew each time; how they are found is baked in.
    for change, kept in (({"modes.modes_searched": 1}, True), ({"modes.count": 2}, False)):
        with opened(tmp_path / "m", config=spectral(**change), mode="r") as memory:
            _ = memory.index
            assert memory.stats()["modes_found"] == (0 if kept else 1)
            assert len(memory.themes.list()) == (3 if kept else 2)


def test_index_moves_with_its_modes(random_columns: Any, random_questions: Any) -> None:
    config = load_config("spectral", {"modes.count": 4, "modes.half_life_days": 30})
    weights = {"semantic": 1.0, "mode": 0.5}
    config = replace(config, rank=replace(config.rank, weights=weights))
    index, asked = MemoryIndex.build(random_columns(40), config), random_questions()
    whole = index(asked, k=9)
    assert index.modes is not None
    assert len(index.modes) == 4
    again = MemoryIndex.from_state_dict(index.state_dict(), config)(asked, k=9)
    torch.testing.assert_close(again.scores, whole.scores)
    latest = index.modes.latest.clone()
    halved = index.half()
    assert halved.modes is not None
    assert torch.equal(halved.modes.latest.nan_to_num(), latest.nan_to_num())
    torch.testing.assert_close(halved(asked, k=9).scores, whole.scores, atol=3e-2, rtol=0)


def test_signal_is_the_weight_of_the_mode(random_columns: Any, random_questions: Any) -> None:
    own = {"modes.count": 4, "modes.use": "kept", "modes.half_life_days": 0}
    config = load_config("spectral", own)
    config = replace(config, rank=replace(config.rank, weights={"mode": 1.0}))
    index, asked = MemoryIndex.build(random_columns(40), config), random_questions()
    modes = index.modes
    assert modes is not None
    found = index(asked, k=40)
    unit = torch.nn.functional.normalize(asked.embedding, dim=1)
    for b in range(5):
        for row, score in zip(found.rows[b].tolist(), found.scores[b].tolist(), strict=True):
            mean = modes.centroid[modes.label[row]]
            cosine = float(unit[b] @ mean / mean.norm())
            variance = float(modes.variance[modes.label[row]])
            assert score == pytest.approx(max(0.0, cosine) / (1 + variance), abs=1e-5)


def test_summary_by_form() -> None:
    with filled(spectral(), themed()) as memory:
        summaries = memory.themes.summary()
        assert [summary.mode for summary in summaries] == [0, 1, 2]
        for summary, (name, words) in zip(summaries, THEMES.items(), strict=True):
            assert summary.claim and summary.evidence and summary.question
            assert summary.claim.id.startswith(name) and summary.evidence.id.startswith(name)
            assert summary.claim.id != summary.evidence.id
            assert summary.claim.text == f"{words}."
            assert summary.question.id == f"{name}?"
            assert summary.question.text == f"Is it {words}?"
            assert summary.weight is None
        assert len(memory.themes.summary(modes=2)) == 2


def test_summary_by_kind() -> None:
    extra = [
        Atom("c", "Canoe rapids are wild", kind="claim"),
        Atom("e", "Canoe rapids measured", kind="evidence"),
        Atom("q", "Paddle the canoe river", kind="task"),
    ]
    with filled(spectral(), themed() + extra) as memory:
        summary = memory.themes.summary("canoe paddle river rapids")[0]
        assert summary.claim and summary.evidence and summary.question
        assert (summary.claim.id, summary.evidence.id, summary.question.id) == ("c", "e", "q")
        rest = memory.themes.summary("bakery dough oven crust", modes=1)
        assert len(rest) == 1
        assert rest[0].claim and rest[0].claim.id.startswith("bread")


def test_summary_of_a_question_is_ranked() -> None:
    with filled(spectral(), themed()) as memory:
        found = memory.themes.summary("comet telescope orbit nebula")
        assert found[0].mode == 1
        weights = [summary.weight or 0.0 for summary in found]
        assert weights == sorted(weights, reverse=True)
        assert weights[0] > 0


def test_summary_without_some_parts() -> None:
    with filled(spectral(), [Atom("a", "Is the canoe gone?")]) as memory:
        (summary,) = memory.themes.summary()
        assert summary.claim is None
        assert summary.evidence is None
        assert summary.question and summary.question.id == "a"
    same = [Atom(f"a{i}", "The canoe is gone.") for i in range(4)]
    with filled(spectral(), same) as memory:
        (summary,) = memory.themes.summary()
        assert summary.claim and summary.claim.text == "The canoe is gone."
        assert summary.evidence is None, "the same sentence twice says nothing new"


def test_alignment_of_types() -> None:
    told = themed(type="episodic")
    facts = [
        Atom(f"fact {name} {i}", f"{words} {i}", type="semantic")
        for name, words in list(THEMES.items())[::2]
        for i in range(3)
    ]
    with filled(spectral(), told + facts) as memory:
        found = memory.themes.align()
        best = found.pairs[:2]
        assert {
            (pair.first.typical[0].id.rstrip("?0123456789"), pair.second.typical[0].id.split()[1])
            for pair in best
        } == {("boat", "boat"), ("bread", "bread")}
        assert all(pair.similarity > 0.8 for pair in best)
        sizes = {mode.size for mode in found.only_first} | {p.first.size for p in found.pairs}
        assert sizes == {11, 9, 7}
        assert all(0 <= angle <= 90 for angle in found.angles)
        other = memory.themes.align("semantic", "episodic")
        assert [p.similarity for p in other.pairs] == pytest.approx(
            [p.similarity for p in found.pairs], abs=1e-5
        )


def test_modes_say_what_is_wrong() -> None:
    with filled(spectral(), themed()) as memory:
        with pytest.raises(InputError, match="none has any"):
            memory.themes.align()
        with pytest.raises(InputError, match="turn"):
            memory.themes.align("turn", "observation", by="kind")
        with pytest.raises(InputError, match="by"):
            memory.themes.align("turn", "turn", by="colour")
        with pytest.raises(InputError, match="question"):
            memory.themes.summary("  ")
        for modes in (0, -1, 1.5):
            with pytest.raises(InputError, match="modes"):
                memory.themes.summary(modes=modes)  # type: ignore[arg-type]


def test_modes_need_no_encoder(tmp_path: Path) -> None:
    """They come from what is stored; only a question has to be encoded."""
    with opened(tmp_path / "m", config=spectral()) as memory:
        memory.add(themed())
    absent = spectral(**{"embedder.name": "no such model"})
    with Memory.open(tmp_path / "m", config=absent, mode="r") as memory:
        assert len(memory.themes.list()) == 3
        with pytest.raises(EmbedderError, match="no such model"):
            memory.themes.summary("canoe")


def test_modes_without_times() -> None:
    atoms = [replace(atom, time=None) for atom in themed()]
    with filled(spectral(**{"modes.half_life_days": 1}), atoms) as memory:
        assert all(mode.latest is None for mode in memory.themes.list())
        weights = [s.weight or 0.0 for s in memory.themes.summary("canoe paddle river rapids")]
        assert all(math.isfinite(weight) for weight in weights)
        assert memory.retrieve("canoe").hits


def test_embedder_of_the_tests_separates_the_themes() -> None:
    """What these tests rest on."""
    rows = HashingEmbedder(32).encode(list(THEMES.values())).pooled
    assert (rows @ rows.T - torch.eye(3)).abs().max() < 0.5
