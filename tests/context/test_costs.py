"""Costs: tokens of entries, shortened texts, values of scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from scipy.special import softmax

from graphmem_torch.atoms import Atom
from graphmem_torch.context import load_format, render
from graphmem_torch.context.costs import TokenCosts, shortened, values_from_scores
from graphmem_torch.errors import InputError
from graphmem_torch.text.tokens import get_counter

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


WRITTEN = ["one two", "three four"]


def test_what_a_function_makes_is_taken() -> None:
    def first(question: str, texts: Sequence[str]) -> list[str]:
        return [f"{question}: {text.split()[0]}" for text in texts]

    assert shortened(first, "q", WRITTEN) == ["q: one", "q: three"]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (["only one"], WRITTEN),
        ([], WRITTEN),
        (None, WRITTEN),
        (7, WRITTEN),
        (["a", None], ["a", "three four"]),
        (["a", "  "], ["a", "three four"]),
        ([1, "b"], ["one two", "b"]),
    ],
)
def test_what_it_makes_nothing_of_stays(
    made: Any, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert shortened(lambda question, texts: made, "q", WRITTEN) == expected
    assert "shortening" in caplog.text


def test_what_fails_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(question: str, texts: Sequence[str]) -> list[str]:
        raise RuntimeError("down")

    assert shortened(broken, "q", WRITTEN) == WRITTEN
    assert "down" in caplog.text


INF = float("inf")


def test_share_is_the_softmax_at_a_temperature() -> None:
    scores = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)) * 4
    expected = softmax(scores.double().numpy() / 1.5, axis=1)
    np.testing.assert_allclose(values_from_scores(scores, kind="share"), expected, rtol=1e-12)


def test_share_is_monotone_and_sums_to_one_without_what_is_not_there() -> None:
    scores = torch.tensor([[3.0, -INF, 1.0, 2.0]])
    values = values_from_scores(scores, kind="share", temperature=0.5)
    assert values[0, 1] == 0
    assert values.sum().item() == pytest.approx(1.0)
    assert values[0].argsort(descending=True).tolist() == [0, 3, 2, 1]


def test_rank_knows_no_scale() -> None:
    scores = torch.tensor([[0.1, 0.3, 0.2], [5.0, 70.0, 6.0]])
    values = values_from_scores(scores, kind="rank")
    expected = np.array([1 / 3, 1, 1 / 2]) / (1 + 1 / 2 + 1 / 3)
    np.testing.assert_allclose(values, [expected, expected], rtol=1e-12)


def test_rank_of_equal_scores_goes_by_place() -> None:
    values = values_from_scores(torch.zeros(1, 3), kind="rank")
    assert values[0, 0] > values[0, 1] > values[0, 2] > 0


def test_score_is_taken_as_it_is_but_never_below_zero() -> None:
    scores = torch.tensor([[2.5, -1.0, -INF, 0.0]])
    assert values_from_scores(scores, kind="score").tolist() == [[2.5, 0.0, 0.0, 0.0]]


@pytest.mark.parametrize("kind", ["share", "rank", "score"])
@pytest.mark.parametrize("shape", [(0, 4), (2, 0), (1, 1)])
def test_odd_shapes_and_rows_without_candidates(kind: str, shape: tuple[int, int]) -> None:
    values = values_from_scores(torch.full(shape, -INF), kind=kind)  # type: ignore[arg-type]
    assert values.shape == shape
    assert values.dtype == torch.float64
    assert bool((values == 0).all())


def test_far_scores_stay_finite() -> None:
    values = values_from_scores(torch.tensor([[1e30, -1e30, 0.0]]), kind="share")
    assert values.tolist() == [[1.0, 0.0, 0.0]]


@pytest.mark.parametrize("bad", [float("nan"), INF])
def test_scores_that_are_no_scores(bad: float) -> None:
    with pytest.raises(InputError, match="finite"):
        values_from_scores(torch.tensor([[1.0, bad]]))


def test_bad_arguments() -> None:
    with pytest.raises(InputError, match=r"\[B, k\]"):
        values_from_scores(torch.zeros(3))
    with pytest.raises(InputError, match="temperature"):
        values_from_scores(torch.zeros(1, 3), kind="share", temperature=0.0)
    with pytest.raises(InputError, match="kind"):
        values_from_scores(torch.zeros(1, 3), kind="rang")  # type: ignore[arg-type]
