"""Lockstep against the same sums without it; errors in one function end all."""

from __future__ import annotations

import threading

import pytest
import torch
from torch import Tensor

from graphmem_torch.index.lockstep import gather, run_together


@pytest.mark.parametrize("count", [1, 2, 5])
def test_all_get_the_tensors_of_all_in_order(count: int) -> None:
    def work(number: int) -> list[Tensor]:
        return [gather(f"round {i}", torch.tensor([number * 10 + i])) for i in range(4)]

    for found in run_together([lambda n=n: work(n) for n in range(count)]):
        for i, every in enumerate(found):
            assert every.flatten().tolist() == [n * 10 + i for n in range(count)]


def test_only_one_function_runs_at_a_time() -> None:
    running, most = 0, 0

    def work() -> None:
        nonlocal running, most
        for i in range(20):
            running += 1
            most = max(most, running)
            torch.randn(50, 50).mm(torch.randn(50, 50))
            running -= 1
            gather(str(i), torch.zeros(1))

    run_together([work] * 4)
    assert most == 1


def test_an_error_in_one_ends_all() -> None:
    ended = []

    def work(number: int) -> None:
        try:
            gather("first", torch.zeros(1))
            if number == 1:
                raise ValueError("the second fails")
            gather("second", torch.zeros(1))
        finally:
            ended.append(number)

    with pytest.raises(ValueError, match="the second fails"):
        run_together([lambda n=n: work(n) for n in range(3)])
    assert sorted(ended) == [0, 1, 2]


def test_functions_that_do_not_meet_are_refused() -> None:
    def work(number: int) -> None:
        gather("one" if number else "other", torch.zeros(1))

    with pytest.raises(RuntimeError, match="expected one exchange, got"):
        run_together([lambda n=n: work(n) for n in range(2)])
    with pytest.raises(RuntimeError, match="the end"):
        run_together([lambda: None, lambda: gather("one", torch.zeros(1))])


def test_several_runs_at_once_do_not_wait_for_each_other() -> None:
    def ask(results: list[float]) -> None:
        def work() -> float:
            return float(sum(gather(str(i), torch.ones(1)).sum() for i in range(30)))

        results += run_together([work] * 3)

    found: list[list[float]] = [[] for _ in range(6)]
    threads = [threading.Thread(target=ask, args=(own,)) for own in found]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert found == [[90.0] * 3] * 6
