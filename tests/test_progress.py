"""Progress of long work: lines where standard error is no terminal, and nothing of a short one."""

from __future__ import annotations

import io
import sys

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
        "graphmem: index: 1,000 of 2,000 atoms, 10 s",
        "graphmem: index: 2,000 of 2,000 atoms, 20 s",
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
    assert lines == ["graphmem: index: 3 atoms, 11 s", "graphmem: index: 7 atoms, 16 s"]


def test_a_terminal_gets_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    assert list(Progress([1, 2, 3], "sets")) == [1, 2, 3]
    assert "sets" in terminal.getvalue() and "3/3" in terminal.getvalue()
