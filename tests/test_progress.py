"""Progress of long work: lines where standard error is no terminal, and nothing of a short one."""

from __future__ import annotations

import contextlib
import io
import sys
import threading

import pytest

from graphmem_torch.progress import Progress


class _Clock:
    """Seconds that the test sets."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_a_log_gets_a_line_now_and_then(capsys: pytest.CaptureFixture[str]) -> None:
    clock = _Clock()
    for _ in Progress(range(2000), "index", unit="atoms", every=10.0, clock=clock):
        clock.now += 0.01
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "graphmem: index: 1,000 of 2,000 atoms, 10 s, 100 a second, 0:10 min left",
        "graphmem: index: 2,000 of 2,000 atoms, 20 s, 100 a second",
    ]


def test_short_work_and_work_that_is_not_shown_leave_nothing(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert list(Progress([1, 2], "sets")) == [1, 2]
    assert list(Progress(iter([1, 2]), "sets", every=0.0, shown=False)) == [1, 2]
    with Progress(what="index", shown=False, every=0.0) as bar:
        bar.update(5)
        assert bar.done == 5
    assert capsys.readouterr() == ("", "")


def test_the_last_line_says_how_much_it_was(capsys: pytest.CaptureFixture[str]) -> None:
    clock = _Clock()
    with Progress(what="index", unit="atoms", every=10.0, clock=clock) as bar:
        clock.now += 11
        bar.update(3)
        clock.now += 5
        bar.update(4)
    lines = capsys.readouterr().err.splitlines()
    assert lines == [
        "graphmem: index: 3 atoms, 11 s, 0.27 a second",
        "graphmem: index: 7 atoms, 16 s, 0.44 a second",
    ]


def test_a_total_that_is_known_later_tells_the_time_left(
    capsys: pytest.CaptureFixture[str],
) -> None:
    clock = _Clock()
    with Progress(what="index", unit="atoms", every=10.0, clock=clock) as bar:
        bar.expect(90_000)
        for seconds, done in ((10, 100), (10, 400), (80, 500), (100, 89_500)):
            clock.now += seconds
            bar.update(done)
    assert [line.partition("atoms, ")[2] for line in capsys.readouterr().err.splitlines()] == [
        "10 s, 10 a second, 149 min left",
        "20 s, 25 a second, 59 min left",
        "100 s, 10 a second, 148 min left",
        "200 s, 452 a second",
    ]


def test_a_log_gets_lines_while_one_item_takes_long() -> None:
    log, told = io.StringIO(), threading.Event()

    class Log(io.StringIO):
        def write(self, text: str) -> int:
            told.set()
            return log.write(text)

    with contextlib.redirect_stderr(Log()), Progress(what="index", unit="atoms", every=0.02):
        assert told.wait(60)
    assert log.getvalue().startswith("graphmem: index: 0 atoms, 0 s")


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(Progress([1, 2, 3], "sets")) == [1, 2, 3]
    assert "sets" in terminal.getvalue() and "3/3" in terminal.getvalue()
