"""Signals on the scale of the background, and weights of forms, against loops in float64."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import ConfigError
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory import Memory
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import (
    FORMS,
    SIGNALS,
    check_signal_names,
    signal_names,
    weight_table,
    weights_of,
)

Columns, Questions = Callable[..., IndexInput], Callable[..., QueryBatch]
ATOMS = 60
WEIGHTS = {
    "semantic": 1.0,
    "lexical": 0.5,
    "interaction_focus": 0.7,
    "speaker": 0.4,
    "length": -0.2,
}
WEIGHTS |= {
    "length": -0.2,
    "length@chat": -1.0,
    "semantic@peer": 0.3,
    "role@chat": 0.9,
    "question@plain": -0.6,
}


def config_of(scale: str = "background", limit: int = 4096) -> Config:
    base = load_config("default", {"rank.scale": scale, "rank.exhaustive_up_to": limit})
    return replace(base, rank=replace(base.rank, weights=WEIGHTS))


def by_name(index: MemoryIndex, found: Candidates) -> Iterator[tuple[str, torch.Tensor]]:
    return zip(index.signal_names, found.signals(index.signal_names).unbind(2), strict=True)


def scaled(values: list[float], background: list[float]) -> list[float]:
    """In units of the background, as `Candidates.signals` says."""
    mean = math.fsum(background) / len(background)
    deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in background) / len(background))
    unit = max(deviation, (max(values) - mean) / 8)
    return [max(-8.0, (x - mean) / unit) if unit > 1e-6 else 0.0 for x in values]


@pytest.mark.parametrize("filtered", [False, True])
def test_signals_are_in_units_of_all_that_there_is(
    filtered: bool, random_columns: Columns, random_questions: Questions
) -> None:
    index = MemoryIndex.build(random_columns(ATOMS), config_of())
    asked = random_questions(4)
    there = torch.ones(4, ATOMS, dtype=torch.bool)
    if filtered:
        there = torch.rand(4, ATOMS, generator=torch.Generator().manual_seed(1)) < 0.6
        asked = replace(asked, allowed=there)
    found = index.candidates(asked)
    assert found.rows is None
    for name, values in by_name(index, found):
        raw = found.signal(name).expand(found.shape)
        for b in range(4):
            own = raw[b, there[b]].tolist()
            wanted = own if SIGNALS[name].indicator else scaled(own, own)
            assert values[b, there[b]].tolist() == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_signals_of_a_large_memory_are_in_units_of_a_sample(
    random_columns: Columns, random_questions: Questions
) -> None:
    atoms = 700
    index = MemoryIndex.build(random_columns(atoms), config_of(limit=0))
    found = index.candidates(random_questions(3), k=5)
    assert found.rows is not None and found.rows.shape[1] < atoms
    drawn = [start * atoms // 8 + step for start in range(8) for step in range(8)]
    for name, values in by_name(index, found):
        everyone = Candidates(index.tensors, found.query, index.config).signal(name)
        known = name in ("semantic", "lexical")  # of these every atom is looked at anyway
        for b in range(3):
            rows = found.rows[b][found.rows[b] >= 0]
            assert set(drawn) <= set(rows.tolist())
            row = everyone.expand(3, -1)[b]
            own, background = row[rows].tolist(), row if known else row[drawn]
            wanted = own if SIGNALS[name].indicator else scaled(own, background.tolist())
            got = values[b, found.rows[b] >= 0].tolist()
            assert got == pytest.approx(wanted, rel=1e-4, abs=1e-4)


def test_the_background_is_drawn_from_what_there_is(
    random_columns: Columns, random_questions: Questions
) -> None:
    index = MemoryIndex.build(random_columns(300), config_of(limit=0))
    there = torch.zeros(3, 300, dtype=torch.bool)
    there[0, 250:] = True
    there[1, ::7] = True
    asked = replace(random_questions(3), allowed=there)
    found = index.candidates(asked, k=2)
    assert found.background is not None
    for b, rows in enumerate(found.background.tolist()):
        drawn = {row for row in rows if row >= 0}
        assert drawn <= set(there[b].nonzero().flatten().tolist())
        assert (len(drawn) > 30) is (b < 2)
    assert torch.isfinite(found.signals(index.signal_names)[found.valid.expand(found.shape)]).all()
    assert (index(asked, k=2).rows[2] == -1).all()


def test_weights_of_a_form_are_added_to_those_of_all(
    random_columns: Columns, random_questions: Questions
) -> None:
    data = random_columns(ATOMS)
    index = MemoryIndex.build(data, config_of("raw"))
    asked = random_questions(3)
    found = index(asked, k=ATOMS)
    everyone = Candidates(index.tensors, asked, index.config)
    for b in range(3):
        for place, atom in enumerate(found.rows[b].tolist()):
            form = "plain" if data.speaker[atom] < 0 else "peer"
            form = form if data.role is None or data.role[atom] == 0 else "chat"
            shares = []
            for name in index.signal_names:
                value = float(everyone.signal(name).expand(3, ATOMS)[b, atom])
                weight = WEIGHTS.get(name, 0.0) + WEIGHTS.get(f"{name}@{form}", 0.0)
                shares.append(weight * value)
            assert found.shares[b, place].tolist() == pytest.approx(shares, rel=1e-4, abs=1e-5)
            assert float(found.scores[b, place]) == pytest.approx(sum(shares), rel=1e-4, abs=1e-4)


def test_forms_of_what_is_stored() -> None:
    with Memory.open(None, embedder="hashing:32", device="cpu") as memory:
        memory.add({"id": "u", "role": "user", "content": "I moved to Oslo."})
        memory.add({"id": "a", "role": "assistant", "content": "Oslo is lovely in winter."})
        memory.add([{"id": "p", "text": "We met in Oslo.", "speaker": "Ada"}, "Oslo is a city."])
        memory.add({"id": "d", "text": "Oslo\nThe capital of a country.", "kind": "passage"})
        memory.add([f"Subject {i}\nA text of its own." for i in range(3)])
        index = memory.index
        found = index.candidates(memory.tensors.encode(["Oslo?", "What did you say of Oslo?"]))
        rows = memory.tensors.rows(["u", "a", "p", "d"])
        assert [FORMS[form] for form in found.form[0, rows].tolist()] == [
            *("chat", "chat", "peer", "plain")
        ]
        assert found.signal("role")[:, rows].tolist() == [[1, -1, 0, 0], [-1, 1, 0, 0]]


def test_what_stands_around_is_nothing_where_nobody_speaks() -> None:
    """Signals of the turns around are 0 for documents and for what is said alone."""
    with Memory.open(None, embedder="hashing:32", device="cpu") as memory:
        turns = [f"Turn {i} about Oslo and the sea." for i in range(5)]
        memory.add([{"text": t, "speaker": "Ada", "session": "s"} for t in turns])
        memory.add([{"text": t, "session": "d"} for t in turns])  # chunks of one document
        memory.add({"id": "alone", "text": "Oslo again.", "speaker": "Ada", "session": "t"})
        found = memory.index.candidates(memory.tensors.encode(["What of turn 3 and Oslo?"]))
        names = [name for name in memory.index.signal_names if SIGNALS[name].context]
        values = found.signals(names)[0]
        assert len(names) == 6 and bool(values[:5].any())
        assert not values[5:].any()


def test_a_memory_of_one_and_of_equal_texts_is_ranked() -> None:
    for texts in (["alone"], ["the same"] * 3, ["", "x"]):
        with Memory.open(None, embedder="hashing:32", device="cpu") as memory:
            memory.add([text or "." for text in texts])
            hits = memory.retrieve("the same?").hits
            assert len(hits) == len(texts) and all(math.isfinite(hit.score) for hit in hits)


def test_weight_table() -> None:
    table = weight_table({"semantic": 1.0, "length@chat": -2.0, "length": 0.5})
    assert signal_names(["semantic", "length@chat", "length"]) == ["semantic", "length"]
    assert table.tolist() == [[1.0, -1.5 if form == "chat" else 0.5] for form in FORMS]
    said = weight_table({"semantic": 1.0, "semantic@said": -0.5})
    assert said.tolist() == [[1.0 if form == "plain" else 0.5] for form in FORMS]
    for keys in (
        {"length": 0.5, "length@chat": -2.0},
        {"length": 1.0, "length@said": 0.25},
        {"length": 2.0},
    ):
        assert weights_of(["length"], weight_table(keys)) == keys
    with pytest.raises(ConfigError, match=r"form: expected .* got 'caht'; did you mean 'chat'\?"):
        check_signal_names(["length@caht"])
    with pytest.raises(ConfigError, match=r"signal: expected .* got 'lenth'"):
        check_signal_names(["lenth@chat"])
