"""Refinement in the background does what `consolidate` does, when there is something to do."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.refining import Refining
from graphmem_torch.results import Consolidated
from graphmem_torch.store.lock import WriterLock
from tests.memories import config_of, opened, stored, turns

SOON = 1e-3
LONG = 20.0  # seconds after which a test gives up


class Steps:
    """A function as work, of which there may always be some."""

    news = None

    def __init__(self, run: Callable[[Callable[[], bool]], Consolidated]) -> None:
        self._run = run

    def run(self, *, going: Callable[[], bool]) -> Consolidated:
        return self._run(going)


class Work:
    """A consolidation that says what it did as it is told, and a name of what there is to do."""

    def __init__(self) -> None:
        self.state: object = 0
        self.does = [Consolidated()]
        self.fails: list[Exception] = []
        self.runs, self.looks = 0, 0
        self.ran, self.looked = threading.Semaphore(0), threading.Semaphore(0)

    def run(self, *, going: Any) -> Consolidated:
        self.runs += 1
        self.ran.release()
        if self.fails:
            raise self.fails.pop()
        return self.does.pop() if len(self.does) > 1 else self.does[0]

    @property
    def news(self) -> object:
        self.looks += 1
        self.looked.release()
        return self.state

    def look(self, times: int) -> None:
        for _ in range(times):
            assert self.looked.acquire(timeout=LONG)


def started(work: Work, folder: Path | None = None) -> Refining:
    return Refining(work, WriterLock(folder, "refining.lock"), SOON)


def test_it_runs_when_something_is_new() -> None:
    work = Work()
    work.does = [Consolidated(), Consolidated(linked=3)]  # the last is the first
    with started(work) as refining:
        assert work.ran.acquire(timeout=LONG) and work.ran.acquire(timeout=LONG)
        while refining.done != Consolidated():
            work.look(1)
        work.look(5)
        assert work.runs == 2  # the second time there was nothing to do
        work.state = 1
        assert work.ran.acquire(timeout=LONG)
        work.look(5)
        assert work.runs == 3
        assert refining.running
    assert not refining.running
    refining.stop()


def test_where_there_may_always_be_something_it_always_runs() -> None:
    work = Work()
    work.state = None
    with started(work):
        for _ in range(4):
            assert work.ran.acquire(timeout=LONG)


def test_errors_are_logged_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    work = Work()
    work.fails = [StoreError("no room"), ValueError("odd")]
    with caplog.at_level(logging.WARNING), started(work) as refining:
        for _ in range(3):
            assert work.ran.acquire(timeout=LONG)
        while refining.done is None or refining.error is not None:
            work.state = work.looks
            work.look(1)
    assert [each.levelno for each in caplog.records] == [logging.ERROR, logging.WARNING]
    assert "no room" in caplog.text and "odd" in caplog.text


def test_one_at_a_time_refines_a_folder(tmp_path: Path) -> None:
    first, second = Work(), Work()
    first.state = second.state = None
    held, go = threading.Event(), threading.Event()

    def slow(going: Any) -> Consolidated:
        held.set()
        assert go.wait(LONG)
        return Consolidated()

    with Refining(Steps(slow), WriterLock(tmp_path, "refining.lock"), SOON):
        assert held.wait(LONG)
        with started(second, tmp_path) as other:
            second.look(5)
            assert second.runs == 0 and other.error is not None
            go.set()
            assert second.ran.acquire(timeout=LONG)


def test_stopping_ends_a_run_between_its_steps() -> None:
    inside, told = threading.Event(), list[bool]()

    def steps(going: Any) -> Consolidated:
        told.append(going())
        inside.set()
        while going():
            pass
        told.append(going())
        return Consolidated(archived=1)

    refining = Refining(Steps(steps), WriterLock(None), SOON)
    assert inside.wait(LONG)
    refining.stop()
    assert told == [True, False] and refining.done == Consolidated(archived=1)


@pytest.mark.parametrize("every", [0.0, -1.0, float("nan"), float("inf"), None, "1"])
def test_every_must_be_a_time(every: Any) -> None:
    with opened() as memory, pytest.raises(InputError, match="every: expected"):
        memory.upkeep.in_background(every=every)


def refined(memory: Memory, refining: Refining) -> None:
    """Waits until it found nothing to do."""
    until = time.monotonic() + LONG
    while refining.done != Consolidated():
        assert time.monotonic() < until and refining.error is None
        time.sleep(SOON)


def test_a_memory_is_refined_as_by_hand(tmp_path: Path) -> None:
    config = config_of(
        **{
            "link.batch_concepts": 50,
            "refine.max_memories": 10,
            "aggregate.build": True,
            "aggregate.min_similarity": 0.1,
        }
    )
    with opened(config=config, clock=lambda: 2e9) as memory:
        memory.add(turns())
        assert memory.upkeep.consolidate() != memory.upkeep.consolidate() == Consolidated()
        expected, size = stored(memory.store), len(memory)
        assert memory.upkeep.archived() is not None
    with opened(tmp_path / "m", config=config, clock=lambda: 2e9) as memory:
        memory.add(turns())
        refining = memory.upkeep.in_background(every=SOON)
        with pytest.raises(InputError, match="nothing refines"):
            memory.upkeep.in_background()
        refined(memory, refining)
        assert stored(memory.store) == expected and len(memory) == size
        assert memory.retrieve("Where is the canoe?", k=3).hits
    assert not refining.running
    with opened(tmp_path / "m", mode="r", config=config) as memory:
        assert memory.check() == []
        with pytest.raises(StoreError, match="for reading only"):
            memory.upkeep.in_background()


def test_it_can_be_started_again_after_a_stop() -> None:
    with opened() as memory:
        with memory.upkeep.in_background(every=LONG):
            pass
        again = memory.upkeep.in_background(every=LONG)
        assert again.running
    assert not again.running
