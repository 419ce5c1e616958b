"""Checks of arguments: what is refused, and the remedy that fits its cause."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from graphmem_torch.checks import check_count, check_range, check_share
from graphmem_torch.errors import InputError
from graphmem_torch.ops import knapsack, topk_cosine
from graphmem_torch.oracle import OpenAIClient


def remedy(call: Callable[[], object]) -> str:
    """What the error of a call says to do."""
    with pytest.raises(InputError) as caught:
        call()
    return str(caught.value).rpartition("; ")[2]


@pytest.mark.parametrize("value", [True, False, "10", 2.5, None, [1]])
def test_a_count_of_another_type_is_asked_for_as_a_whole_number(value: object) -> None:
    assert remedy(lambda: check_count("k", value)) == "give a whole number"  # type: ignore[arg-type]


def test_a_count_out_of_range_is_told_the_direction() -> None:
    assert remedy(lambda: check_count("k", 0)) == "give a larger one"
    assert remedy(lambda: check_count("k", 4, 1, 3)) == "give a smaller one"
    check_count("k", 3, 3, 3)


@pytest.mark.parametrize("value", [True, "0.5", None])
def test_a_number_of_another_type_is_asked_for_as_a_number(value: object) -> None:
    assert remedy(lambda: check_range("damping", value, 0.0, 1.0)) == "give a number"  # type: ignore[arg-type]


@pytest.mark.parametrize("value", [-0.1, 1.5, float("nan")])
def test_a_number_out_of_range_is_told_the_range(value: float) -> None:
    assert remedy(lambda: check_range("damping", value, 0.0, 1.0)) == "give one in that range"


@pytest.mark.parametrize("value", [True, False, 1.0, "half"])
def test_no_truth_value_is_a_share(value: object) -> None:
    assert remedy(lambda: check_share("refused", value, usual=0.05)) == "0.05 is usual"  # type: ignore[arg-type]


def test_operations_and_clients_count_alike() -> None:
    rows = torch.eye(3)
    assert remedy(lambda: topk_cosine(rows, rows, True)) == "give a whole number"
    costs, budget = torch.ones(1, 2, dtype=torch.int64), torch.tensor([3])
    assert remedy(lambda: knapsack(rows[:1, :2], costs, budget, work="many")) == (
        "give a whole number"
    )
    for options in ({"concurrency": True}, {"max_tokens": "9"}):
        assert remedy(lambda own=options: OpenAIClient("m", **own)) == "give a whole number"
