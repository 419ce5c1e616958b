"""Peak memory, percentiles, the state of the code."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from graphmem_torch.quality.common.measure import (
    code_version,
    interleaved_medians,
    latencies,
    peak_memory,
    percentiles,
)


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_peak_memory_is_that_of_the_block() -> None:
    with peak_memory() as large:
        block = np.ones(8_000_000)
    del block
    with peak_memory() as small:
        pass
    assert large.megabytes is not None
    assert small.megabytes is not None
    assert large.megabytes > small.megabytes + 45


def test_latencies_ask_every_question_alone_after_one_to_warm_up() -> None:
    asked: list[list[str]] = []
    assert len(latencies(asked.append, ["a", "b"])) == 2
    assert asked == [["a"], ["a"], ["b"]]
    assert latencies(asked.append, []) == []


def test_percentiles_match_numpy() -> None:
    seconds = [0.003, 0.001, 0.010, 0.004]
    expected = 1000 * np.quantile(seconds, [0.5, 0.95])
    assert list(percentiles(seconds).values()) == pytest.approx(list(expected))


def test_code_version_is_a_commit_or_a_number() -> None:
    assert code_version().strip("v+")


def test_interleaved_medians_make_every_call_equally_often() -> None:
    made: dict[str, list[int]] = {"a": [], "b": []}
    found = interleaved_medians({name: calls.append for name, calls in made.items()}, 3)
    assert made == {"a": [0, 0, 1, 2], "b": [0, 0, 1, 2]}
    assert found.keys() == made.keys() and all(value >= 0 for value in found.values())
