"""Feedback of callers: stored, used only if it helps, forgotten, shared."""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Layout, Memory
from graphmem_torch.memory.learned_values import CORRECTION
from graphmem_torch.results import Consolidated
from graphmem_torch.store.learned import KEPT, LearnedRows
from tests.memories import (
    QUESTIONS,
    WORDS,
    Counting,
    config_of,
    file_size_limit,
    opened,
    plain,
    turns,
)

COUNT = 64


def settings() -> Config:
    config = config_of(**{"link.concepts": "none"})
    return replace(config, rank=replace(config.rank, weights={"lexical": 1.0, "length": 0.0}))


def short_and_long() -> list[Atom]:
    """Two memories of each topic, alike but for their length."""
    more = " and so it goes on for ever and ever"
    return [
        Atom(f"{size}{i}", f"The {WORDS[i % 8]} of {i}{more * (size == 'long')}", session=f"s{i}")
        for i in range(COUNT)
        for size in ("short", "long")
    ]


def ask(memory: Memory, number: int, *, liked: str = "long") -> None:
    ids = [f"{size}{number}" for size in ("short", "long")]
    used = [name for name in ids if name.startswith(liked)]
    memory.feedback(
        f"{WORDS[number % 8]} {number}?", used=used, not_used=[n for n in ids if n not in used]
    )


def auc(memory: Memory, numbers: range) -> float:
    """How often the long one scores above the short one, from what retrieval says."""
    wins = []
    asked = [f"{WORDS[number % 8]} {number}?" for number in numbers]
    for number, result in zip(numbers, memory.retrieve(asked, k=2 * COUNT), strict=True):
        score = {hit.id: hit.score for hit in result.hits}
        long, short = score[f"long{number}"], score[f"short{number}"]
        wins.append((long > short) + (long == short) / 2)
    return sum(wins) / len(wins)


def correction(memory: Memory) -> Any:
    return next((each for each in memory.learning.records() if each.kind == CORRECTION), None)


def test_feedback_that_helps_is_learned_and_kept(tmp_path: Path) -> None:
    with (
        opened(tmp_path, config=settings()) as memory,
        opened(tmp_path, config=settings(), mode="r") as reader,
    ):
        memory.add(short_and_long())
        before = auc(memory, range(COUNT))
        for number in range(COUNT - 2):
            ask(memory, number)
        found = memory.learning.correct()
        assert found == correction(memory) and found is not None and found.applied
        assert found.questions + found.held_out == COUNT - 2 and found.atoms == 2 * COUNT
        assert before < found.after and found.difference is not None and found.difference[1] > 0
        assert memory.config.rank.weights == found.value
        # Also on questions that nobody gave feedback on; and whoever has it open follows.
        assert auc(memory, range(COUNT - 2, COUNT)) == auc(reader, range(COUNT)) == 1.0
        assert {f"long{i}" for i in range(COUNT - 2)} == {*found.evidence}
        assert "applied" in memory.stats()["learned"][CORRECTION]
        assert memory.stats()["feedback"] == dict.fromkeys(
            ("questions", "used", "not_used"), COUNT - 2
        )
        assert memory.check() == []
    with opened(tmp_path, config=settings()) as memory:
        assert correction(memory) == found and auc(memory, range(4)) == 1.0
        # Weights that are learned anew are corrected anew.
        memory.learning.fit(["canoe 0?", "canoe 8?"], [["long0"], ["long8"]])
        assert correction(memory) is None
        assert memory.learning.correct() is not None
        assert memory.learning.reset("feedback") == COUNT - 2 + 1
        assert [each.kind for each in memory.learning.records()] == ["weights"]
        assert memory.learning.correct() is None


def test_feedback_records_and_consolidating_learns(tmp_path: Path) -> None:
    encoder = Counting()
    with opened(tmp_path, config=settings(), embedder=encoder) as memory:
        memory.add(short_and_long())
        memory.upkeep.consolidate()
        encoder.seen.clear()
        config = memory.config
        for number in range(39):
            ask(memory, number)
        assert memory.upkeep.consolidate().learned == 0, "too few"
        for number in range(39, 62):
            ask(memory, number)
        assert correction(memory) is None and memory.config == config and not encoder.seen
        assert memory.upkeep.consolidate() == Consolidated(learned=1)
        assert correction(memory).applied and memory.config != config and encoder.seen
        assert memory.upkeep.consolidate() == Consolidated()
        for number in range(30):
            ask(memory, number)
        assert memory.upkeep.consolidate().learned == 0, "less than half as much again"
        ask(memory, 30)
    with opened(tmp_path, config=settings()) as memory:
        assert memory.upkeep.consolidate().learned == 1


def test_refining_learns_from_feedback(tmp_path: Path) -> None:
    with (
        opened(tmp_path, config=settings()) as memory,
        opened(tmp_path, config=settings()) as other,
        memory.upkeep.in_background(every=0.01) as refining,
    ):

        def wait(until: Callable[[], bool]) -> None:
            last = time.monotonic() + 60
            while not until():
                assert time.monotonic() < last and refining.error is None
                time.sleep(0.01)

        memory.add(short_and_long())
        for number in range(30):
            ask(other, number)
        wait(lambda: refining.done == Consolidated())
        with other.store.gathering():  # all at once, so that it is not tried with few
            for number in range(30, COUNT):
                ask(other, number)
        wait(lambda: correction(memory) is not None)
        assert correction(memory).applied


def test_feedback_that_cannot_be_learned_from_is_tried_once() -> None:
    encoder = Counting()
    with opened(config=settings(), embedder=encoder) as memory:
        memory.add(turns(4))
        for number in range(COUNT):
            memory.feedback(f"{number}?", not_used=["a0"])
        assert memory.upkeep.consolidate().learned == 0 and correction(memory) is None
        encoder.seen.clear()
        assert memory.upkeep.consolidate() == Consolidated() and not encoder.seen


def test_feedback_that_says_nothing_changes_nothing() -> None:
    chance = random.Random(3)
    with opened(config=settings()) as memory:
        memory.add(short_and_long())
        config = memory.config
        for number in range(COUNT):
            ask(memory, number, liked=chance.choice(["long", "short"]))
        found = memory.learning.correct()
        assert found is not None and not found.applied and "no better" in found.reason
        assert memory.config == config and found.held_out >= 20
        assert found.difference is not None and found.difference[1] <= 0.0


def test_feedback_of_used_memories_alone_is_told_from_the_best_others() -> None:
    with opened(config=settings()) as memory:
        memory.add(short_and_long())
        for number in range(COUNT):
            memory.feedback(f"{WORDS[number % 8]} {number}?", used=f"long{number}")
        found = memory.learning.correct()
        assert found is not None and found.applied and found.after > found.before
        assert memory.stats()["feedback"]["not_used"] == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"question": ""}, "expected a question"),
        ({"question": ["two", "of them"]}, "expected a question"),
        ({"used": [], "not_used": []}, "none of either"),
        ({"used": ["a0"], "not_used": ["a1", "a0"]}, "in both"),
        ({"used": ["nobody"]}, "nobody"),
        ({"used": ["only-bob"]}, "only-bob"),
        ({"used": ["concept:canoe"]}, "concept"),
        ({"used": 3}, "expected an id"),
        ({"used": [3]}, "3"),
    ],
)
def test_feedback_says_what_is_wrong(change: dict[str, Any], message: str) -> None:
    asked = {"question": "Where?", "used": ["a0"], **change}
    with opened() as memory:
        memory.add(turns(3))
        memory.namespaces.create("bob").add(Atom("only-bob", "of Bob"))
        with pytest.raises(InputError, match=message):
            memory.feedback(**asked)
        with pytest.raises(InputError, match="kinds: expected"):
            memory.learning.reset("weight")
        assert memory.stats()["feedback"]["questions"] == 0


def test_feedback_needs_a_store_that_can_be_written(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns(3))
        with file_size_limit(100), pytest.raises(StoreError):
            memory.feedback("Where?", used="a0")
        assert memory.stats()["feedback"]["questions"] == 0
        memory.feedback("Where?", used="a0")
    with opened(tmp_path, mode="r") as reader:
        for write in (lambda: reader.feedback("Where?", used="a0"), reader.learning.reset):
            with pytest.raises(StoreError, match="reading only"):
                write()
        assert reader.stats()["feedback"]["questions"] == 1
    with pytest.raises(StoreError):
        memory.feedback("Where?", used="a0")


def test_feedback_of_many_threads_and_tasks(tmp_path: Path) -> None:
    errors = []

    def give(thread: int) -> None:
        try:
            for number in range(thread, COUNT, 4):
                ask(memory, number)
                if number < COUNT // 4:
                    memory.retrieve(QUESTIONS[0])
        except Exception as error:
            errors.append(error)

    async def tasks() -> None:
        await asyncio.gather(*(memory.aio.feedback(f"{i}?", used="long0") for i in range(4)))

    with opened(tmp_path, config=settings()) as memory:
        memory.add(short_and_long())
        threads = [threading.Thread(target=give, args=(i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert errors == []
        asyncio.run(tasks())
        counts = memory.stats()["feedback"]
        assert counts == {"questions": COUNT + 4, "used": COUNT + 4, "not_used": COUNT}
        assert memory.learning.correct() is not None and memory.check() == []


def test_what_answers_cite_is_kept_behind_them(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(turns(12))
        memory.pin("a11")
        settings = {
            "llm": lambda prompt: "There [1].",
            "budget": 900,
            "layout": Layout(tokenizer=len),
        }
        first = memory.answer("Where is the canoe?", **settings)
        memory.answer("Where is the comet?", **settings | {"llm": lambda prompt: "Nobody knows."})
        sources = first.context.sources
        memory.store.uses.flush()
        (row,) = memory.store.learned.feedback()
        name = dict(zip(memory.store.columns().node.tolist(), memory.store.ids(), strict=True))
        assert row.question == "Where is the canoe?" and len(sources) > 2
        assert [name[node] for node in row.used] == [*first.cited]
        assert {name[n] for n in row.not_used} == {*sources} - {*first.cited, "a11"}
        # What goes before it is written is not written.
        again = memory.answer("And the violin?", **settings)
        memory.delete(again.cited)
    with opened(tmp_path) as memory:
        assert all(each.question != "And the violin?" for each in memory.store.learned.feedback())
        assert memory.check() == []


def test_feedback_follows_its_memories(tmp_path: Path) -> None:
    def kept() -> list[str]:
        return [each.question for each in memory.store.learned.feedback()]

    with opened(tmp_path) as memory:
        memory.add(turns(12))
        for number in range(6):
            memory.feedback(f"of the quokka {number}?", used=[f"a{number}"], not_used=["a9"])
        memory.feedback("of the quokka 0?", used=["a8"], not_used=["a0"])
        both = memory.store.learned.feedback()[0]
        assert [len(both.used), len(both.not_used)] == [1, 2]
        memory.update("a1", meta={"seen": True})  # the text stays
        memory.update("a2", text="something else")
        memory.delete("a3")
        assert kept() == [f"of the quokka {i}?" for i in (0, 1, 4, 5)] and memory.check() == []
        memory.forget(["a1", "a2", "a8"])
        assert kept() == [f"of the quokka {i}?" for i in (0, 4, 5)]
        memory.forget("a9")
        assert kept() == [] and memory.check() == []
        data = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
        assert b"quokka" not in data


def test_feedback_is_of_a_bounded_size() -> None:
    with opened() as memory:
        memory.add(turns(3))
        rows = LearnedRows(memory.store._database, kept=5)
        for number in range(8):
            rows.give(f"{number}?", [0], [1], 1.7e9)
        assert [each.question for each in rows.feedback()] == [f"{i}?" for i in range(3, 8)]
        assert rows.given() == 8 and memory.check() == [] and KEPT > 5


def test_correction_is_forgotten_with_its_memories(tmp_path: Path) -> None:
    with opened(tmp_path, config=settings()) as memory, opened(config=settings()) as fresh:
        memory.add(short_and_long())
        for number in range(COUNT):
            ask(memory, number)
        memory.learning.correct()
        assert correction(memory).applied
        memory.forget("long0")
        assert correction(memory) is None
        fresh.add([atom for atom in short_and_long() if atom.id != "long0"])
        assert plain([memory.retrieve("canoe 8?")]) == plain([fresh.retrieve("canoe 8?")])
        ask(memory, 1)  # and learned again from the rest
        assert memory.upkeep.consolidate().learned == 1 and correction(memory).applied
