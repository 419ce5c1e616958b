"""Prompts never exceed their budgets, however little the tokens of their parts add up."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.memories import opened, turns

COUNTERS: dict[str, Callable[[str], int]] = {
    "longer than its parts": lambda text: int(len(text.split()) ** 1.25),
    "much longer": lambda text: len(text) ** 2 // 50,
    "shorter than its parts": lambda text: int(3 * len(text.split()) ** 0.8),
    "every line feed for free": lambda text: len(text.replace("\n", "")) // 4,
    "something for every text": lambda text: len(text.split()) + 7,
}


@pytest.mark.parametrize("name", COUNTERS)
@pytest.mark.parametrize("order", ["time", "relevance"])
def test_any_way_of_counting(name: str, order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("bpe_openai")
    counter = COUNTERS[name]
    for module in ("formats", "costs"):
        monkeypatch.setattr(f"graphmem_torch.context.{module}.get_counter", lambda _: counter)
    with opened() as memory:
        memory.add(turns())
        memory.pin(["a2"])
        least = counter(memory.compile("canoe", budget=10**9, k=1, order="time").text)
        budgets = [least + more for more in (0, 3, 20, 60, 200, 1000, 10_000)]
        for context in memory.compile("Where is the canoe?", budget=budgets, order=order):
            assert context.tokens == counter(context.text) <= context.budget
            assert "a2" in context.sources
            assert context.value <= context.upper_bound
        if name != "much longer":
            assert len(context.sources) > 1


def test_what_merges_into_fewer_tokens_makes_room() -> None:
    pytest.importorskip("bpe_openai")
    with opened() as memory:
        memory.add(turns())
        with pytest.MonkeyPatch.context() as patch:
            counter = COUNTERS["something for every text"]
            for module in ("formats", "costs"):
                patch.setattr(f"graphmem_torch.context.{module}.get_counter", lambda _: counter)
            found = memory.compile("Where is the canoe?", budget=150)
            # By the costs of the entries alone a third of the budget would stay empty.
            assert found.tokens > 120
