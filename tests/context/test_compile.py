"""Costs of entries add up; prompts never exceed their budgets, however little they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import pytest
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.cli.terminal import context_note
from graphmem_torch.context.compile import TokenCosts
from graphmem_torch.context.formats import load_format, render
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Layout, Memory
from graphmem_torch.memory.request import FormatName, OrderName
from graphmem_torch.text.tokens import get_counter
from tests.memories import WORDS, opened, turns

pytest.importorskip("bpe_openai")
TEXTS = [
    "Ends well.",
    "no stop",
    "with 123 numbers 4567",
    "\u00fcber \u6f22\u5b57 \U0001f600",
    "'quoted' (text)",
    "  indented code:\n    x = 1\n\n",
    "ends in blanks   \n\n",
    "/slash and trailing/",
    "tab\tand\r\nreturn",
    "...",
]
ATOMS = [
    Atom(f"a{i}", text, session=f"s{i // 4}", speaker="Ben" if i % 3 else None, time=8e8 + i // 5)
    for i, text in enumerate(TEXTS * 3)
]


def fetch(nodes: Sequence[int]) -> list[Atom]:
    return [ATOMS[node] for node in nodes]


@pytest.mark.parametrize("tokenizer", ["cl100k_base", "o200k_base"])
@pytest.mark.parametrize("name", ["text", "markdown", "json"])
@pytest.mark.parametrize("inline", [False, True])
def test_costs_add_up_to_the_whole(tokenizer: str, name: str, inline: bool) -> None:
    layout = load_format(name)
    token_costs = TokenCosts(layout, tokenizer, inline=inline)
    nodes = torch.arange(len(ATOMS))
    token_costs.learn(nodes, fetch)
    costs, groups = token_costs.read(nodes)
    headers = (
        0 if inline or name == "json" else int(token_costs.header_costs[groups.unique()].sum())
    )
    whole = get_counter(tokenizer)(render(layout, ATOMS, inline=inline))
    # But for the last line feed, and the brackets and the last comma of JSON.
    assert abs(whole - int(costs.sum()) - headers) <= 2


def test_a_memory_is_read_once() -> None:
    asked: list[int] = []

    def noted(nodes: Sequence[int]) -> list[Atom]:
        asked.extend(nodes)
        return fetch(nodes)

    token_costs = TokenCosts(load_format("text"), "cl100k_base", inline=False)
    token_costs.learn(torch.tensor([], dtype=torch.int64), noted)
    token_costs.learn(torch.tensor([7, 2, 7]), noted)
    token_costs.learn(torch.tensor([2, 29]), noted)
    assert asked == [2, 7, 29]
    assert token_costs.ids == {2: "a2", 7: "a7", 29: "a29"}
    costs, groups = token_costs.read(torch.tensor([[2, -1], [29, 7]]))
    assert costs[0, 1] == 0
    assert groups[0, 1] == -1
    assert costs[1, 1] == get_counter()("10. Ben: /slash and trailing/\n")


COUNTERS: dict[str, Callable[[str], int]] = {
    "longer than its parts": lambda text: int(len(text.split()) ** 1.25),
    "much longer": lambda text: len(text) ** 2 // 50,
    "shorter than its parts": lambda text: int(3 * len(text.split()) ** 0.8),
    "every line feed for free": lambda text: len(text.replace("\n", "")) // 4,
    "something for every text": lambda text: len(text.split()) + 7,
}


@pytest.fixture(scope="module")
def pinned() -> Iterator[Memory]:
    """A memory of which every context holds one atom; nobody changes it."""
    with opened() as memory:
        memory.add(turns())
        memory.pin(["a2"])
        yield memory


@pytest.mark.parametrize("name", COUNTERS)
@pytest.mark.parametrize("order", ["time", "relevance"])
def test_any_way_of_counting(pinned: Memory, name: str, order: OrderName) -> None:
    counter = COUNTERS[name]
    least = counter(pinned.compile("canoe", budget=10**9, k=1, layout=Layout(order="time")).text)
    budgets = [least + more for more in (0, 3, 20, 60, 200, 1000, 10_000)]
    for context in pinned.compile(
        "Where is the canoe?", budget=budgets, layout=Layout(order=order, tokenizer=counter)
    ):
        assert context.tokens == counter(context.text) <= context.budget
        assert "a2" in context.sources
        assert context.value <= context.upper_bound
    if name != "much longer":
        assert len(context.sources) > 1


def test_what_merges_into_fewer_tokens_makes_room() -> None:
    counter = COUNTERS["something for every text"]
    with opened() as memory:
        memory.add(turns())
        found = memory.compile("Where is the canoe?", budget=150, layout=Layout(tokenizer=counter))
        # By the costs of the entries alone a third of the budget would stay empty.
        assert found.tokens > 120 and found.tokenizer == "<lambda>"


CANOE = "Where is the canoe?"
LONG = (
    "Ada bought the red canoe in Lisbon. It leaks. The harbour master wrote a long letter about "
    "moorings, fees and the tide tables of the next year! Supercalifragilisticexpialidocious? No."
)


@pytest.mark.parametrize("format", ["text", "markdown", "openai", "json"])
@pytest.mark.parametrize("order", ["time", "relevance"])
def test_where_nothing_fits_an_extract_is_written(format: FormatName, order: OrderName) -> None:
    """Every budget up to the whole memory, against the prompt with its first word."""
    layout = load_format(format)
    atom = Atom("a", LONG, speaker="Ada", session="s", time=1.7e9)

    def cost(text: str) -> int:
        prompt = layout.prompt(render(layout, [atom], [text], inline=order == "relevance"), CANOE)
        return prompt.tokens("cl100k_base")

    bare, whole = layout.prompt(layout.joined([]), CANOE).tokens("cl100k_base"), cost(atom.rendered)
    first = f"Ada: {LONG.split('. ')[0]}."
    with opened() as memory:
        memory.add(atom)
        budgets = range(bare, whole + 3)
        made = memory.compile(
            CANOE, budget=list(budgets), layout=Layout(format=format, order=order)
        )
    parts: list[str] = []
    for budget, context in zip(budgets, made, strict=True):
        assert context.tokens <= budget
        assert context.extract == (len(context.sources) > 0 and budget < whole)
        if cost("Ada:") <= budget:
            assert context.sources == ("a",)
        if budget >= cost(first):
            assert "Ada bought the red canoe in Lisbon." in context.text
        parts.append(context.text)
    assert "harbour" in parts[-1] and not made[-1].extract
    assert len(set(parts)) > 8


def test_an_extract_is_of_the_best_memory_and_said() -> None:
    with opened() as memory:
        memory.add([f"The {word} story {i}. " + LONG * 5 for i, word in enumerate(WORDS)])
        context = memory.compile("Where is the violin?", budget=30)
        assert context.extract
        assert context.sources == (memory.retrieve("Where is the violin?", k=1).hits[0].id,)
        assert "an extract stands for a memory" in context_note(context)
        assert not memory.compile("Where is the violin?", budget=4000).extract
        for counter in COUNTERS.values():
            contexts = memory.compile(
                "violin", budget=[9, 27, 81], layout=Layout(tokenizer=counter)
            )
            for budget, made in zip((9, 27, 81), contexts, strict=True):
                assert made.tokens == counter(made.text) <= budget


@pytest.mark.parametrize("count", [12.0, True, float("nan"), [1, 2], "x", None, 10**30, -1])
def test_a_counter_counts_in_whole_numbers(count: object) -> None:
    with opened() as memory:
        memory.add(turns(3))
        with pytest.raises(InputError, match="tokenizer: expected a function from a text to its"):
            memory.compile("canoe", budget=120, layout=Layout(tokenizer=lambda text: count))  # type: ignore[arg-type,return-value]
