"""Calls, waits and passes of a call, against ones that are written out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from bench.counting import StageCounts, counted

MATRIX, MASK = torch.arange(12.0).view(3, 4), torch.tensor([True, False, True])
SIZES = torch.tensor([1, 0, 2])


@pytest.mark.parametrize(
    ("call", "calls", "waits"),
    [
        (lambda: MATRIX.add(1).mul(2), 2, 0),
        (lambda: MATRIX.view(4, 3).T[:2].expand(2, 4), 0, 0),
        (lambda: MATRIX.sum().item(), 2, 1),
        (lambda: bool((MATRIX > 3).any()), 3, 1),
        (lambda: int(MATRIX.argmax()), 2, 1),
        (lambda: MATRIX.tolist(), 0, 1),
        (lambda: MATRIX.cpu().numpy(), 0, 2),
        (lambda: MATRIX.nonzero(), 1, 1),
        (lambda: (MATRIX > 3).nonzero(as_tuple=True), 2, 1),
        (lambda: MATRIX[MASK], 1, 1),
        (lambda: MATRIX[SIZES], 1, 0),
        (lambda: MATRIX.clone().index_put_((MASK,), torch.zeros(4)), 3, 1),
        (lambda: MATRIX.masked_select(MATRIX > 3), 2, 1),
        (lambda: MATRIX.flatten().unique(), 1, 1),
        (lambda: torch.bincount(SIZES), 1, 1),
        (lambda: torch.repeat_interleave(SIZES), 1, 1),
        (lambda: torch.repeat_interleave(SIZES, output_size=3), 1, 0),
        (lambda: MATRIX.masked_fill(MATRIX > 3, 0.0), 2, 0),
        (lambda: MATRIX.topk(2), 1, 0),
    ],
)
def test_counts_of_one_operation(call: Callable[[], Any], calls: int, waits: int) -> None:
    found = counted(lambda stages: call())["all"]
    assert (found.calls, found.waits) == (calls, waits)


def test_passes_are_those_over_the_whole_matrix() -> None:
    def call(stages: StageCounts) -> None:
        at = torch.zeros(3, 2, dtype=torch.long)
        MATRIX.mul(2)
        MATRIX.sum(1)
        MATRIX.gather(1, at)  # reads two of each row
        MATRIX[:, :2].add(1)

    assert counted(call, cells=12)["all"].passes == 2
    assert counted(call)["all"].passes == 0


def test_counts_by_stage_add_up_and_name_the_line() -> None:
    def call(stages: StageCounts) -> None:
        MATRIX.add(1)
        stages.done("one")
        torch.tensor([1.0])
        stages.done("two")
        MATRIX.mul(2)
        stages.done("one")
        MATRIX.sum().item()

    found = counted(call)
    assert [*found] == ["one", "two", "rest", "all"]
    assert (found["one"].calls, found["rest"].waits, found["all"].calls) == (2, 1, 4)
    assert found["two"].uploads == 1
    assert found["all"].report()["places"] == {"elsewhere": 1}


def test_inference_mode_around_changes_no_count() -> None:
    def call(stages: StageCounts) -> None:
        bool(torch.ones(2).all())

    outside = counted(call)["all"]
    with torch.inference_mode():
        assert counted(call)["all"].report() == outside.report()
