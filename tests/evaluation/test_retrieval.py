"""`evaluate` on rankings whose measures are known."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence

import pytest

import graphmem_torch
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.retrieval import (
    evaluate,
    mean_range,
    measure_rankings,
    text_table,
)
from graphmem_torch.results import Hit, Result

IDS = [f"a{i}" for i in range(12)]


class _Ranked:
    """Answers the n-th question with the ids from the n-th on."""

    def retrieve(self, questions: Sequence[str], /, *, k: int) -> list[Result]:
        return [
            Result(
                question, tuple(Hit(i, i, 0.0, {}) for i in (IDS[row:] + IDS[:row])[:k]), 1, True
            )
            for row, question in enumerate(questions)
        ]

    def __contains__(self, id: object, /) -> bool:
        return id in IDS


QUESTIONS = ["one", "two", "three"]
EVIDENCE = [["a0"], ["a1", "a4"], []]


def test_evaluate_measures_by_hand() -> None:
    report = evaluate(_Ranked(), QUESTIONS, EVIDENCE, k=(1, 3, 5), resamples=50)
    assert report.questions == ("one", "two") and report.without_evidence == ("three",)
    means = {
        name: [table[str(k)][0] for k in (1, 3, 5)]  # type: ignore[index]
        for name, table in report.intervals.items()
    }
    assert means["recall"] == [0.75, 0.75, 1.0]
    assert means["any"] == [1.0, 1.0, 1.0]
    assert means["complete"] == [0.5, 0.5, 1.0]
    # The second question has hits at places 0 and 3; two at the top would gain 1 + 1 / log2(3).
    best, found = 1 + 1 / math.log2(3), 1 + 1 / math.log2(5)
    assert means["ndcg"] == pytest.approx([1.0, (1 + 1 / best) / 2, (1 + found / best) / 2])
    for table in report.intervals.values():
        for mean, low, high in table.values():  # type: ignore[misc]
            assert low <= mean <= high


def test_evaluate_counts_evidence_that_stands_twice_once() -> None:
    once = evaluate(_Ranked(), QUESTIONS, EVIDENCE)
    twice = evaluate(_Ranked(), QUESTIONS, [["a0", "a0"], ["a4", "a1", "a4"], []])
    assert once.intervals == twice.intervals
    # Of an id that a ranking lists twice the first place counts.
    report = measure_rankings([["x", "a", "x"]], ["?"], [["x"]], k=(1,))
    assert report.intervals["recall"]["1"] == [1.0, 1.0, 1.0]


def test_evaluate_is_the_same_for_the_same_seed() -> None:
    reports = [evaluate(_Ranked(), QUESTIONS, EVIDENCE, seed=seed) for seed in (3, 3)]
    assert reports[0].as_dict() == reports[1].as_dict()


def test_report_is_a_table_and_json() -> None:
    report = evaluate(_Ranked(), QUESTIONS, EVIDENCE, k=(1, 5))
    table = str(report)
    assert "recall 75.0 [50.0, 100.0] 100.0 [100.0, 100.0]" in " ".join(table.split())
    assert "2 questions" in table and "1 more without evidence" in table
    plain = json.loads(json.dumps(report.as_dict(), allow_nan=False))
    assert plain["n"] == 2 and plain["without_evidence"] == ["three"]
    assert plain["recall"]["1"] == [0.75, 0.5, 1.0]


def test_evidence_may_have_grades() -> None:
    grades = [{"a2": 3.0, "a0": 1}, {"a1": 1.0}, {}]
    report = evaluate(_Ranked(), QUESTIONS, grades, k=(1, 3))
    best, found = 3 + 1 / math.log2(3), 1 + 3 / math.log2(4)
    assert report.values["ndcg"].tolist() == [pytest.approx([1 / 3, found / best]), [1.0, 1.0]]
    assert report.values["recall"].tolist() == [[0.5, 1.0], [1.0, 1.0]]
    assert report.values["map"].tolist() == [pytest.approx([0.5, (1 + 2 / 3) / 2]), [1.0, 1.0]]
    with pytest.raises(InputError, match="evidence: expected grades above 0 for question 1"):
        evaluate(_Ranked(), QUESTIONS, [["a0"], {"a1": 0.0}, []])


def test_minus_pairs_the_questions() -> None:
    one = measure_rankings([["a"], ["b"]], ["x", "y"], [["a"], ["b"]], k=(1,))
    other = measure_rankings([["a"], ["c"]], ["x", "y"], [["a"], ["b"]], k=(1,))
    mean, low, high = one.minus(other)["recall"]["1"]  # type: ignore[misc]
    assert (mean, low, high) == (0.5, 0.0, 1.0)
    assert one.minus(one)["ndcg"]["1"] == [0.0, 0.0, 0.0]
    elsewhere = measure_rankings([["a"]], ["x"], [["a"]], k=(1,))
    with pytest.raises(InputError, match="same 2 questions"):
        one.minus(elsewhere)


@pytest.mark.parametrize(
    ("questions", "evidence", "k", "message"),
    [
        ([], [], (5,), "questions: expected a list of questions"),
        ("one", [["a0"]], (5,), "questions: expected a list of questions"),
        (["one"], [], (5,), "evidence: expected a list of ids for each of 1 questions, got 0"),
        (["one"], ["a0"], (5,), "evidence: expected a list of ids for question 0, got 'a0'"),
        (["one"], [[]], (5,), "evidence: expected ids for some question, got none"),
        (["one", "two"], [["a0"], ["b"]], (5,), "got 'b' for question 1"),
        (["one"], [["a0"]], (), "k: expected ascending numbers"),
        (["one"], [["a0"]], (5, 5), "k: expected ascending numbers"),
        (["one"], [["a0"]], (0, 5), "k: expected ascending numbers"),
    ],
)
def test_evaluate_refuses(
    questions: list[str], evidence: list[list[str]], k: tuple[int, ...], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        evaluate(_Ranked(), questions, evidence, k=k)


def test_measure_rankings_wants_one_for_each_question() -> None:
    with pytest.raises(InputError, match="rankings: expected one for each of 2"):
        measure_rankings([["a"]], ["x", "y"], [["a"], []])


def test_evaluate_a_memory() -> None:
    with graphmem_torch.Memory.open(None, embedder="hashing:64") as memory:
        memory.add([{"id": f"t{i}", "text": f"The boat of pier {i} is number{i}."} for i in (1, 2)])
        report = graphmem_torch.evaluate(memory, ["Which boat is number2?"], [["t2"]], k=(1, 2))
        assert report.intervals["recall"]["2"] == [1.0, 1.0, 1.0]
        with pytest.raises(InputError, match="evidence: expected ids of the memory, got 't9'"):
            graphmem_torch.evaluate(memory, ["Which?"], [["t9"]])


def test_text_table_aligns_columns_of_any_cells() -> None:
    rows = [["system", "recall", ""], ["ours", "9.1", "x"], ["a long name", "", "+1"]]
    assert text_table(rows) == [
        "system       recall",
        "ours            9.1   x",
        "a long name          +1",
    ]


def test_mean_range_is_percent() -> None:
    assert mean_range([0.5, 0.25, 0.75]) == "50.0 [25.0, 75.0]" and mean_range(None) == "-"
