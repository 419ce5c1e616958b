"""Learned weights and gate thresholds, and how long a memory keeps them."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.optimize import minimize

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import ConfigError, InputError, StoreError
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory import Memory, weight_fitting
from graphmem_torch.memory.weight_fitting import LabelledQuestions
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import Weight
from tests.memories import QUESTIONS, config_of, ids, opened, plain, planted, turns

EVIDENCE = [["a0"], ["a2", "a6"], ["a12"]]
FEW = ("semantic", "lexical", "late", "speaker")  # signals, so that fitting takes no time


def recall(memory: Memory, questions: list[str], evidence: list[list[str]]) -> float:
    found = memory.retrieve(questions, k=3)
    kept = [len({*ids(r)} & {*gold}) / len(gold) for r, gold in zip(found, evidence, strict=True)]
    return sum(kept) / len(kept)


def test_fit_finds_what_a_planted_memory_needs() -> None:
    names = ["semantic", "lexical", "interaction_previous", "semantic_previous"]
    weights = {**dict.fromkeys(names, 1.0), "length": 9.0}
    config = load_config("default", {"link.concepts": "none"})
    config = replace(config, rank=replace(config.rank, weights=weights))
    atoms, questions, evidence = planted()
    with opened(config=config) as memory:
        memory.add(atoms)
        before = recall(memory, questions[40:], evidence[40:])
        weights = memory.learning.fit(questions[:40], evidence[:40])
        assert weights.keys() == config.rank.weights.keys()
        assert memory.config.rank.weights == weights
        assert recall(memory, questions[40:], evidence[40:]) >= max(0.9, before + 0.3)
        with pytest.raises(InputError, match="'nowhere'"):
            memory.learning.fit(questions[:1], [["nowhere"]])
        with pytest.raises(InputError, match="2 questions and 1 lists"):
            memory.learning.fit(questions[:2], evidence[:1])
        with pytest.raises(InputError, match="evidence"):
            memory.learning.fit(questions[:1], [[]])
        assert memory.config.rank.weights == weights  # what failed changed nothing


KEYS = ("semantic", "length", "role", "question", "length@peer", "role@chat", "semantic@said")


def labelled(
    columns: Callable[..., IndexInput],
    questions: Callable[..., QueryBatch],
    keys: Sequence[str],
    *,
    count: int,
    seed: int = 0,
    against: bool = False,
) -> LabelledQuestions:
    """Questions to a random memory; the first has no evidence, others up to two pieces."""
    chance = np.random.default_rng(seed)
    config = load_config("default", {"rank.scale": "raw"})
    weights = {key: 0.1 * place - 0.2 for place, key in enumerate(keys)}
    config = replace(config, rank=replace(config.rank, weights=weights))
    made = columns(seed=seed)
    index = MemoryIndex.build(replace(made, embeddings=made.embeddings.double()), config).double()
    drawn = [chance.permutation(40) for _ in range(count)]
    rows = [torch.tensor(own[: 1 + i % 2 if i else 0]) for i, own in enumerate(drawn)]
    others = [torch.tensor(own[5:9]) for own in drawn] if against else None
    texts = [f"question {i}" for i in range(count)]
    return LabelledQuestions(index, questions(count, seed=seed + 1), rows, texts, against=others)


def optimum(
    sources: Sequence[LabelledQuestions], penalty: float, start: Mapping[str, float]
) -> dict[str, float]:
    """The formula of `docs/mathematics.md` 8.2, a question at a time, minimised by scipy."""
    lists = []
    for source in sources:
        found, names = source.index.features(source.query), source.index.signal_names
        for place, gold in enumerate(source.evidence):
            rows = range(40)
            if source.against is not None:
                rows = sorted({*gold.tolist(), *source.against[place].tolist()})
            if not len(gold):
                continue
            x = np.zeros((len(rows), len(KEYS)))
            for column, one in enumerate(map(Weight.named, KEYS)):
                for line, row in enumerate(rows):
                    form = int(found.form[place, row])
                    if one.signal in names and form in one.rows:
                        x[line, column] = found.values[place, row, names.index(one.signal)]
            good = [line for line, row in enumerate(rows) if row in gold.tolist()]
            lists.append((x, good, source.weight))
    scale = np.concatenate([x for x, _, _ in lists]).std(axis=0, ddof=1)
    scale[scale < 1e-6] = np.inf
    cost = np.array([penalty * (3.0 if Weight.named(key).form else 1.0) for key in KEYS])
    begin = np.array([start.get(key, 0.0) for key in KEYS])

    def loss(step: np.ndarray) -> float:
        total = 0.0
        for x, good, weight in lists:
            score = x @ (begin + step / scale)
            total -= weight * np.mean((score - np.logaddexp.reduce(score))[good])
        return float(total / sum(weight for _, _, weight in lists) + cost @ step**2)

    best = minimize(loss, np.zeros(len(KEYS)), options={"gtol": 1e-9}).x
    return dict(zip(KEYS, begin + best / scale, strict=True))


def test_fit_is_the_optimum_of_the_loss(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    """Over two memories that count differently, one of which lacks a signal."""
    drawn = random_columns, random_questions
    sources = [
        replace(labelled(*drawn, KEYS, count=70), weight=3.0),
        replace(labelled(*drawn, KEYS[:5], count=9, seed=1), weight=0.5),
    ]
    before = [source.index.weights.clone() for source in sources]
    found = weight_fitting.fit_weights(sources, l2=0.05)
    expected = optimum(sources, 0.05, {})
    assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    assert all(map(torch.equal, before, (source.index.weights for source in sources)))


def test_correction_is_the_optimum_near_the_weights_before(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    given = labelled(random_columns, random_questions, KEYS, count=99, against=True)
    found = weight_fitting.fit_correction(given)
    assert found is not None
    half = [hashlib.sha256(text.encode()).digest()[0] % 2 == 0 for text in given.texts]
    learned = given.take([place for place, own in enumerate(half) if own])
    start = dict(given.index.config.rank.weights)
    assert found.weights == pytest.approx(optimum([learned], 0.1, start), rel=1e-4, abs=1e-4)
    assert found.learned == sum(half) - half[0]


def test_calibrate_refuses_no_more_than_it_may() -> None:
    with opened() as memory:
        memory.add([f"boat number {i} is red" for i in range(40)])
        questions = [f"which boat is number {i}?" for i in range(39)]
        threshold = memory.learning.calibrate(questions, max_refusal_rate=0.1)
        sure = sorted(result.confidence for result in memory.retrieve(questions))
        assert threshold == pytest.approx(sure[3])  # floor(0.1 * 40) = 4th smallest
        assert sum(not result.known for result in memory.retrieve(questions)) <= 4


def test_calibrate_leaves_out_what_the_encoder_does_not_read() -> None:
    unread = ["Где теперь живет Петр?", "Какая лодка красная?"]
    with opened() as memory:
        memory.add([f"boat number {i} is red" for i in range(40)])
        questions = [f"which boat is number {i}?" for i in range(39)]
        plain = memory.learning.calibrate(questions, max_refusal_rate=0.1)
        assert memory.learning.calibrate(
            [*questions, *unread], max_refusal_rate=0.1
        ) == pytest.approx(plain)
        with pytest.raises(InputError, match="a language that the encoder reads"):
            memory.learning.calibrate(unread, max_refusal_rate=0.1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"evidence": [["concept:says story 0"]]}, "got the concept"),
        ({"evidence": ["a"]}, "list of ids for each question, got 'a' for one"),
        ({"evidence": None}, "evidence: expected a list"),
        ({"questions": "?"}, "questions: expected a list"),
        ({"questions": None}, "questions: expected a list"),
        ({"validation_fraction": "half"}, "validation_fraction"),
        ({"l2": float("nan")}, "l2"),
        ({"l2": -1.0}, "l2"),
    ],
)
def test_fit_says_what_is_wrong(change: dict[str, Any], message: str) -> None:
    asked = {"questions": ["Which boats?"], "evidence": [["a0"]], **change}
    with opened() as memory:
        memory.add(turns())
        with pytest.raises(InputError, match=message):
            memory.learning.fit(**asked)


def test_calibrate_says_what_is_wrong() -> None:
    with opened() as memory:
        memory.add(turns())
        for share in (1, -0.1, "half", float("nan")):
            with pytest.raises(InputError, match=r"max_refusal_rate: expected a share in \[0, 1\)"):
                memory.learning.calibrate(["Which boats?"], max_refusal_rate=share)  # type: ignore[arg-type]
        with pytest.raises(InputError, match="questions: expected answerable questions, got none"):
            memory.learning.calibrate([])


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (None, "rank.weights: expected a mapping"),
        ({"semantic": float("nan")}, "rank.weights.semantic: expected a finite number"),
        ({"semantic": "much"}, "rank.weights.semantic: expected a number"),
        ({"semantics": 1.0}, "did you mean 'semantic'"),
    ],
)
def test_use_weights_says_what_is_wrong(weights: Any, message: str) -> None:
    with opened() as memory:
        memory.add(turns())
        before = memory.retrieve("violin").hits
        with pytest.raises(ConfigError, match=message):
            memory.learning.use_weights(weights)
        assert memory.retrieve("violin").hits == before


def few(**change: Any) -> Config:
    config = config_of(**change)
    weights = {name: config.rank.weights[name] for name in FEW}
    return replace(config, rank=replace(config.rank, weights=weights))


@pytest.fixture(scope="module")
def school(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has learned, of which each test has a copy."""
    path = tmp_path_factory.mktemp("school") / "store"
    with opened(path, config=few()) as memory:
        memory.add(turns())
        memory.learning.fit(QUESTIONS, EVIDENCE, validation_fraction=0.3)
        memory.learning.calibrate(QUESTIONS, max_refusal_rate=0.4)
    return path


@pytest.fixture
def taught(school: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(school, tmp_path / "store"))


def test_what_is_learned_stays(tmp_path: Path) -> None:
    shipped = few()
    with (
        opened(tmp_path, config=shipped) as first,
        opened(tmp_path, config=shipped, mode="r") as reader,
    ):
        first.add(turns())
        shares = [sum(result.known for result in reader.retrieve(QUESTIONS)) / 3]
        report = first.learning.fit(QUESTIONS, EVIDENCE, validation_fraction=0.3)
        threshold = first.learning.calibrate(QUESTIONS, max_refusal_rate=0.4)
        answers = plain(first.retrieve(QUESTIONS))
        assert plain(reader.retrieve(QUESTIONS)) == answers  # who has it open follows
        weights, gate = first.learning.records()
        assert reader.learning.records() == first.learning.records()
    with opened(tmp_path, config=shipped) as memory:
        assert memory.config == first.config != shipped
        assert memory.config.rank.weights == {**shipped.rank.weights, **report}
        assert memory.config.gate.threshold == threshold
        assert plain(memory.retrieve(QUESTIONS)) == answers
        assert memory.learning.records() == [weights, gate] and memory.check() == []
        assert weights.applied and weights.value == report and weights.atoms == 24
        assert (weights.questions, weights.held_out) == (2, 1)
        assert {*weights.evidence} == {name for own in EVIDENCE for name in own}
        assert report.held_out is not None
        assert (weights.before, weights.after) == (report.held_out.before, report.held_out.after)
        assert (gate.value, gate.questions, gate.difference) == (threshold, 3, None)
        assert {*gate.evidence} == {result.hits[0].id for result in memory.retrieve(QUESTIONS)}
        shares += [sum(result.known for result in memory.retrieve(QUESTIONS)) / 3]
        assert [1 - share for share in shares][1] == pytest.approx(gate.after)
        assert "from 2 questions" in memory.stats()["learned"]["weights"]
        memory.delete("a2")
        assert memory.learning.records()[0].evidence == ("a0", "a6", "a12")
        assert memory.learning.records()[0].gone == 1
        memory.update("a0", text="Something else was said")
        assert "a0" in memory.learning.records()[0].evidence
        assert memory.learning.reset("threshold") == 1 == memory.learning.reset()
        assert memory.config == shipped and memory.learning.records() == []


def test_a_reader_is_told_what_it_has_of_its_own(taught: Path) -> None:
    other = "other weights were given to this object"

    def reasons(memory: Memory) -> list[tuple[str, str]]:
        shown = memory.learning.records()
        assert all(each.applied == (not each.reason) for each in shown)
        return [(each.kind, each.reason) for each in shown]

    with opened(taught, config=few(), mode="r") as memory:
        fitted, before = memory.learning.records()[0].value, plain(memory.retrieve(QUESTIONS))
        closed = memory.learning.calibrate(QUESTIONS, max_refusal_rate=0.0)
        assert reasons(memory) == [("weights", ""), ("threshold", "")]
        assert memory.learning.records()[1].value == closed == memory.config.gate.threshold
        assert memory.config.rank.weights == fitted
        assert plain(memory.retrieve(QUESTIONS)) == before
        memory.learning.use_weights({"semantic": 2.0})
        assert reasons(memory) == [("weights", other), ("threshold", "")]
    with opened(taught, config=few(), mode="r") as memory:
        memory.learning.fit(QUESTIONS, EVIDENCE)
        assert reasons(memory) == [("weights", ""), ("threshold", "")]
        with opened(taught, config=few()) as writer:
            writer.learning.calibrate(QUESTIONS)  # what is learned anew is for all
        assert reasons(memory) == [("weights", ""), ("threshold", "")]
        with pytest.raises(ConfigError):
            memory.learning.use_weights({"semantics": 1.0})
        assert reasons(memory) == [("weights", ""), ("threshold", "")]


def test_what_is_learned_is_for_the_settings_it_was_learned_by(taught: Path) -> None:
    other = few(**{"rank.weights.semantic": 3.0})
    with opened(taught, config=other) as memory:
        assert memory.config == other
        assert all("settings" in each.reason for each in memory.learning.records())
        assert "not applied" in memory.stats()["learned"]["weights"]
    fewer = replace(other, rank=replace(other.rank, weights={"semantic": 1.0}))
    with opened(taught, config=fewer) as memory:
        assert memory.config == fewer and "signals" in memory.learning.records()[0].reason
    with opened(taught, config=few(**{"rank.k": 5})) as memory:
        assert all(each.applied for each in memory.learning.records())
        memory.learning.use_weights({"lexical": 1.0})
        assert [each.applied for each in memory.learning.records()] == [False, True]
        store = memory.store
        sql = "UPDATE learned SET checksum = 0, value = ? WHERE kind = 'weights'"
        for value in (
            "[]",
            '{"value": {"no such signal": 1}}',
            '{"value": {"semantic": "x"}}',
            "{",
        ):
            store._database.write(partial(store._database.execute_many, sql, [(value,)]))
            store.learned.reset(["threshold"])
            assert "learned: weights are damaged" in memory.check()[0]
            with opened(taught, config=few()) as damaged:
                assert damaged.config == few()
                assert "damaged" in damaged.learning.records()[0].reason


def test_preset_of_what_was_learned(taught: Path, tmp_path: Path) -> None:
    with opened(taught, config=few()) as memory:
        memory.learning.export_preset(tmp_path / "mine.yaml")
        config = load_config(str(tmp_path / "mine.yaml"))
        assert config == replace(memory.config, name="mine")
        assert (tmp_path / "mine.yaml").read_text().startswith("extends: default\n")
        with opened(config=config) as other:
            other.add(turns())
            assert plain(other.retrieve(QUESTIONS)) == plain(memory.retrieve(QUESTIONS))
        with pytest.raises(ConfigError, match=r"ends in \.yaml"):
            memory.learning.export_preset(tmp_path / "mine.txt")
        memory.learning.use_weights({"lexical": 1.0})
        memory.learning.export_preset(tmp_path / "mine.yaml")
        assert load_config(str(tmp_path / "mine.yaml")).rank.weights == {"lexical": 1.0}


@pytest.mark.parametrize("how", ["forgotten", "deleted before", "a version before", "later"])
def test_forgetting_undoes_what_was_learned_beside_it(taught: Path, how: str) -> None:
    """Any memory that was there: what is no evidence was what the evidence was told from."""
    with opened(taught, config=few()) as memory:
        learned = memory.config
        memory.add(Atom("late", "This came later"))
        if how == "deleted before":
            memory.delete("a20")
        if how == "a version before":
            memory.update("a20", text="Nothing of the kind")
        memory.forget("a20" if how in ("forgotten", "a version before") else "late")
        kept = how == "later"
        assert memory.config == (learned if kept else few())
        assert len(memory.learning.records()) == 2 * kept and memory.check() == []
    with opened(taught, config=few()) as memory:
        assert memory.config == (learned if kept else few())


def test_nothing_is_learned_from_what_is_forgotten_meanwhile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fit = weight_fitting.fit_weights

    def forgetting(*given: Any, **more: Any) -> dict[str, float]:
        found = fit(*given, **more)
        memory.forget("a20")
        return found

    with opened(config=few()) as memory:
        memory.add(turns())
        monkeypatch.setattr(weight_fitting, "fit_weights", forgetting)
        with pytest.raises(StoreError, match="forgotten some meanwhile"):
            memory.learning.fit(QUESTIONS, EVIDENCE)
        assert memory.config == few() and memory.learning.records() == []


def test_namespaces_learn_for_themselves(tmp_path: Path) -> None:
    with opened(tmp_path, config=few()) as memory:
        for name in ("ada", "ben"):
            memory.namespaces.create(name).add(turns())
        memory.namespaces["ada"].learning.fit(QUESTIONS, EVIDENCE)
        assert memory.namespaces["ada"].config != memory.config
        assert memory.namespaces["ben"].config == memory.config
    with opened(tmp_path, config=few()) as memory:
        assert [len(memory.namespaces[name].learning.records()) for name in ("ada", "ben")] == [
            1,
            0,
        ]


def test_exports_hold_what_was_learned(taught: Path, tmp_path: Path) -> None:
    file, again = tmp_path / "all.jsonl", tmp_path / "again.jsonl"
    with opened(taught, config=few()) as memory:
        memory.feedback("Where is it?", used=["a1"], not_used=["a2"])
        memory.export(file)
        learned, answers = memory.learning.records(), plain(memory.retrieve(QUESTIONS))
        given = memory.store.learned.feedback()
    with opened(config=few()) as other:
        other.import_(file)
        assert other.learning.records() == learned and plain(other.retrieve(QUESTIONS)) == answers
        assert [each.question for each in other.store.learned.feedback()] == ["Where is it?"]
        assert other.store.learned.feedback()[0].time == given[0].time
        other.import_(file)
        other.export(again)
        assert again.read_bytes() == file.read_bytes()
        other.forget("a20")
        assert other.learning.records() == [] and other.config == few()
    with opened(config=few()) as other:
        other.add(Atom("another", "A memory of its own"))
        other.import_(file)
        assert other.learning.records() == [] and other.config == few()


def test_a_threshold_that_a_reader_calibrates_leaves_the_fitted_weights_applied(
    tmp_path: Path,
) -> None:
    with opened(tmp_path, config=few()) as memory:
        memory.add(turns())
        report = memory.learning.fit(QUESTIONS, EVIDENCE)
    with opened(tmp_path, config=few(), mode="r") as memory:
        threshold = memory.learning.calibrate(QUESTIONS)
        found = {each.kind: each for each in memory.learning.records()}
        assert found["weights"].applied and found["weights"].value == report
        assert found["threshold"].applied and found["threshold"].value == threshold
        assert not any(each.reason for each in found.values())


def test_a_reader_shows_what_it_learned_where_the_store_has_nothing(tmp_path: Path) -> None:
    with opened(tmp_path, config=few()) as memory:
        memory.add(turns())
    with opened(tmp_path, config=few(), mode="r") as memory:
        report = memory.learning.fit(QUESTIONS, EVIDENCE)
        (weights,) = memory.learning.records()
        assert weights.applied and weights.value == report and weights.questions == len(QUESTIONS)
        assert {*weights.evidence} == {name for own in EVIDENCE for name in own}
        threshold = memory.learning.calibrate(QUESTIONS)
        assert [each.value for each in memory.learning.records()] == [report, threshold]
        assert "learned" in memory.stats()
    with opened(tmp_path, config=few(), mode="r") as memory:
        assert memory.learning.records() == []
