"""`graphmem eval all`: all sets of a data root in one table, and what is fitted elsewhere."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.quality.all.judge import (
    claim_set,
    format_all,
    judge,
    needle_set,
    read_sets,
)
from graphmem_torch.quality.common import fitting
from graphmem_torch.quality.context.facts import LITERAL, PARAPHRASED
from graphmem_torch.quality.context.needles import read_essays
from graphmem_torch.quality.request import Request
from graphmem_torch.text.tokens import WordTokenizer
from tests.bench.quality.made import chat_files, locomo_file, passage_files


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two conversations, a set of passages, three chats."""
    root = tmp_path_factory.mktemp("data")
    (root / "locomo").mkdir()
    locomo_file(root / "locomo")
    passage_files(root / "multihop")
    chat_files(root / "longmemeval")
    return root


def _report(root: Path, **options: Any) -> dict[str, Any]:
    config = load_config("default", {"link.concepts": "pattern"})
    # Few signals: they are fitted many times.
    weights = dict.fromkeys(("semantic", "lexical", "activation", "semantic@said"), 1.0)
    config = replace(config, rank=replace(config.rank, weights=weights))
    request = Request(data=root, embedder="hashing", device="cpu", config=config, **options)
    return judge(request, resamples=50).report


def test_all_says_who_beats_the_preset() -> None:
    ends = {"dense": [-0.2, -0.3, -0.1], "bm25": [-0.1, -0.3, 0.1], "rrf": [0.2, 0.1, 0.3]}
    figures = {name: {"recall": {"all": {"5": 0.5}}, "ci": {}} for name in (*ends, "default")}
    figures["default"]["ci"] = {"difference": {n: {"all": {"5": e}} for n, e in ends.items()}}
    column = {"title": "made up @5", "of": "systems", "measure": "recall"}
    column |= {"set": "made", "group": "all", "k": 5}
    report = {
        "preset": "default",
        "n": {"made": 3},
        "columns": [column],
        "sets": {"made": {"systems": figures}},
    }
    last = str(format_all(report)).splitlines()[-1]
    assert last == "made up @5: default is beaten by dense +20.0 [+10.0, +30.0]"


Asked = list[tuple[set[str], float, bool]]
"""First questions of the memories fitted on, the sum of what all count, weights of what is said?"""


@pytest.fixture(scope="module")
def fitted(root: Path) -> Iterator[tuple[dict[str, Any], Asked]]:
    """The report with `cv`, and what was fitted for it."""
    asked: Asked = []
    whole = fitting.fit_preset

    def seen(tasks: Any, config: Any, shares: Any = (), **options: Any) -> Any:
        if shares:
            texts = {task.questions[0] for task in tasks}
            counted = sum(s * len(t.questions) for s, t in zip(shares, tasks, strict=True))
            fitted = whole(tasks, config, shares, **options)
            asked.append((texts, counted, fitted.rank.weights["semantic@said"] != 0.0))
            return fitted
        return whole(tasks, config, shares, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fitting, "fit_preset", seen)
        yield _report(root, cv=True), asked


def test_all_is_one_table_of_every_set(fitted: tuple[dict[str, Any], Asked]) -> None:
    report, _ = fitted
    assert report["n"] == {"locomo": 8, "locomo observations": 8, "small": 2, "longmemeval": 2}
    assert [*report["sets"]] == [*report["n"]]
    titles = [column["title"] for column in report["columns"]]
    assert titles == [
        *("locomo 1-4 @10", "locomo observations 1-4 @10", "small @5", "longmemeval @5"),
        "sessions @5",
    ]
    systems = set(report["sets"]["locomo"]["systems"])
    assert systems >= {"dense", "linear", "ppr", "default"}
    header, count, *lines = str(format_all(report)).splitlines()
    assert all(title in header for title in titles) and count.split()[1:] == [*"88222"]
    assert all(any(line.startswith(name) for line in lines) for name in systems)
    json.dumps(report, allow_nan=False)


def test_all_without_fits_closes_what_it_has_asked(tmp_path: Path) -> None:
    passage_files(tmp_path)
    report = _report(tmp_path)
    assert report["n"] == {"small": 2} and not report["config"]["eval"]["cv"]
    assert not any("," in name for name in report["sets"]["small"]["systems"])


def test_all_fits_on_sets_of_other_sources(
    root: Path, fitted: tuple[dict[str, Any], Asked]
) -> None:
    report, asked = fitted
    sets = {one.name: one for one in read_sets(root, WordTokenizer())}
    first = {
        name: {one.questions[0].text for one in found.conversations} for name, found in sets.items()
    }
    talk, chats, passages = first["locomo"], first["longmemeval"], first["small"]
    assert [texts for texts, _, _ in asked] == [
        chats | passages,
        talk | chats,
        talk | passages,
    ]
    # What is said by somebody is fitted where there is some.
    assert all(said for _, _, said in asked)
    # Every source counts alike, asked of two memories or one, but by its questions below 100.
    talked, chatted, passed = (
        sum(len(one.questions) for one in sets[name].conversations) / 100
        for name in ("locomo", "longmemeval", "small")
    )
    wanted = [chatted + passed, talked + chatted, talked + passed]
    assert [counted for _, counted, _ in asked] == pytest.approx(wanted)
    for name, found in report["sets"].items():
        more = {name for name in found["systems"] if "," in name}
        whose = {"default, other kinds", "linear, other kinds"}
        if name.startswith("locomo"):
            whose |= {"default, other conversations", "linear, other conversations"}
        assert more == whose


def test_needle_set_asks_for_the_chunks_that_hold_a_needle(tmp_path: Path) -> None:
    for name in ("one", "two"):
        body = " ".join(f"The essay {name} says sentence number {i} of many." for i in range(200))
        (tmp_path / f"{name}.txt").write_text(body, encoding="utf-8")
    needles = needle_set(read_essays(tmp_path), WordTokenizer(), seed=3)
    (memory,) = needles.conversations
    texts = {atom.id: atom.text for atom in memory.atoms}
    told = {needle.question: needle.text for needle in (*LITERAL, *PARAPHRASED)}
    assert {question.text for question in memory.questions} == told.keys()
    for question in memory.questions:
        # Alone or together the chunks hold it, and no other chunk does.
        assert told[question.text] in "".join(texts[name] for name in question.gold)
        assert 1 <= len(question.gold) <= 2
        assert {i for i, text in texts.items() if told[question.text] in text} <= {*question.gold}
    assert {len(chunk.split()) <= 96 for chunk in texts.values()} == {True}


def test_claim_set_asks_for_evidence_among_all_sentences() -> None:
    claims = [
        {"claim": f"claim {i}", "label": label, "evidence": [f"first {i % 3}", f"second {i % 3}"]}
        for i, label in enumerate(["SUPPORTED", "REFUTED"] * 3)
    ]
    found = claim_set(claims, seed=1)
    (memory,) = found.conversations
    texts = {atom.id: atom.text for atom in memory.atoms}
    assert sorted(texts.values()) == sorted(
        f"{n} {i}" for n in ("first", "second") for i in range(3)
    )
    evidence = {claim["claim"]: claim["evidence"] for claim in claims}
    labels = {claim["claim"]: claim["label"].lower() for claim in claims}
    asked = {q.text: [texts[name] for name in q.gold] for q in memory.questions}
    assert asked == {text: evidence[text] for text in asked}
    assert len({tuple(gold) for gold in asked.values()}) == len(asked) == 3
    for question in memory.questions:
        assert question.category in found.groups[labels[question.text]]


def test_all_leaves_one_out_of_several_sources(root: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found none"):
        _report(tmp_path)
    passage_files(tmp_path / "multihop")
    with pytest.raises(InputError, match="at least 2 sources"):
        _report(tmp_path, cv=True)
