"""Where questions are led along chains of supersession, against a walk from atom to atom."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.succession import WAYS, SuccessionBatch

ATOMS, TERMS = 40, 12


@pytest.fixture(scope="module")
def index(random_columns: Callable[..., IndexInput]) -> MemoryIndex:
    """Texts of four words out of few, so that most words are in several."""
    terms = torch.randint(TERMS, (4 * ATOMS,), generator=torch.Generator().manual_seed(5))
    offsets = torch.arange(ATOMS + 1) * 4
    columns = random_columns(ATOMS, 4, terms=terms, term_offsets=offsets)
    return MemoryIndex.build(columns, load_config("default"))


@st.composite
def cases(draw: st.DrawFn) -> dict[str, Any]:
    """Chains without circles: what takes the place of an atom is behind it in some order."""
    order = draw(st.permutations(range(ATOMS)))
    olds = draw(st.lists(st.integers(0, ATOMS - 2), unique=True, max_size=30))
    pairs = [(order[i], order[draw(st.integers(i + 1, ATOMS - 1))]) for i in olds]
    count = draw(st.integers(1, 4))
    rows = st.lists(st.integers(-1, ATOMS - 1), min_size=6, max_size=6)
    words = st.lists(st.integers(0, TERMS - 1), max_size=2, unique=True)
    return {
        "pairs": pairs,
        "way": [draw(st.sampled_from(WAYS)) for _ in range(count)],
        "named": [draw(words) for _ in range(count)],
        "about": [draw(words) for _ in range(count)],
        "unknown": [draw(st.integers(0, 1)) for _ in range(count)],
        "best": [draw(rows) for _ in range(count)],
    }


def asked_of(case: dict[str, Any]) -> SuccessionBatch:
    def padded(rows: list[list[int]]) -> torch.Tensor:
        return torch.tensor([row + [-1] * (2 - len(row)) for row in rows])

    pairs = torch.tensor(case["pairs"], dtype=torch.int64).view(-1, 2)
    return SuccessionBatch(
        torch.tensor([WAYS.index(way) for way in case["way"]]),
        padded(case["named"]),
        padded(case["about"]),
        torch.tensor(case["unknown"]),
        *pairs.T,
    )


def walked(index: MemoryIndex, case: dict[str, Any], row: int) -> list[int]:
    """One question, from atom to atom."""
    bm25 = index.tensors.bm25
    texts: list[set[int]] = [set() for _ in range(ATOMS)]
    for term in range(TERMS):
        for doc in bm25.docs[int(bm25.indptr[term]) : int(bm25.indptr[term + 1])].tolist():
            texts[doc].add(term)

    def weight(term: int) -> float:
        df = sum(term in text for text in texts)
        return math.log(1 + (ATOMS - df + 0.5) / (df + 0.5))

    def share(atom: int, words: list[int]) -> float:
        return sum(weight(term) for term in words if term in texts[atom])

    pairs: list[tuple[int, int]] = case["pairs"]
    named, unknown, about = (case[key][row] for key in ("named", "unknown", "about"))
    best = [atom for atom in case["best"][row] if atom >= 0]
    whole = sum(map(weight, named)) + unknown * max(map(weight, named), default=0.0)

    def speaks(atom: int) -> bool:
        return bool(named) and share(atom, named) >= whole / 2 - 1e-6

    def states(atom: int) -> bool:
        return not (named or unknown) or (
            speaks(atom) and not any(speaks(old) for old, new in pairs if new == atom)
        )

    there = {atom for pair in pairs for atom in pair}
    most = max((share(atom, about) for atom in best), default=0.0)
    sources = [
        atom
        for atom in best
        if atom in there and states(atom) and share(atom, about) >= most / 2 - 1e-6
    ]
    if not sources:
        return []
    top = max(share(atom, about) for atom in sources)
    start = next(atom for atom in sources if share(atom, about) >= top - 1e-6)
    following = dict(pairs)

    def end(atom: int) -> int:
        while atom in following:
            atom = following[atom]
        return atom

    start = start if named or unknown else end(start)
    if case["way"][row] == "after":
        return [following[start]] if start in following else []
    if case["way"][row] == "first":
        news = set(following.values())
        first = next(old for old, _ in pairs if old not in news and end(old) == end(start))
        return [first] if first != start else []
    return [old for old, new in reversed(pairs) if new == start][:8]


@given(cases())
def test_against_a_walk(index: MemoryIndex, case: dict[str, Any]) -> None:
    best = torch.tensor(case["best"])
    led = index.follow(asked_of(case), best)
    assert len(led) == len(best)
    for row, own in enumerate(led.tolist()):
        assert [atom for atom in own if atom >= 0] == walked(index, case, row)


def test_a_long_chain_and_many_at_once(index: MemoryIndex) -> None:
    chain = {"pairs": [(i, i + 1) for i in range(ATOMS - 1)], "named": [[]], "about": [[]]}
    chain |= {"unknown": [0], "best": [[7]]}
    ways = {"first": [0], "before": [ATOMS - 2], "after": []}
    for way, led in ways.items():
        asked = asked_of({**chain, "way": [way]})
        assert index.follow(asked, torch.tensor([[7]])).flatten().tolist() == led
    star = {**chain, "pairs": [(i, ATOMS - 1) for i in range(ATOMS - 1)], "way": ["before"]}
    led = index.follow(asked_of(star), torch.tensor([[7]]))[0].tolist()
    assert led == [*range(ATOMS - 2, ATOMS - 10, -1)], "the latest of very many"


def test_a_stored_circle_is_no_end_of_all(index: MemoryIndex) -> None:
    case = {"pairs": [(0, 1), (1, 2), (2, 0)], "named": [[]] * 3, "about": [[]] * 3}
    case |= {"way": [*WAYS], "unknown": [0] * 3}
    assert index.follow(asked_of(case), torch.tensor([[1]] * 3)).shape[0] == 3


def test_nothing_asked_and_nothing_there(index: MemoryIndex) -> None:
    case = {"pairs": [], "way": ["before"], "named": [[1]], "about": [[]], "unknown": [0]}
    assert index.follow(asked_of(case), torch.tensor([[1, 2]])).shape == (1, 0)
    case["pairs"] = [(1, 2)]
    assert index.follow(asked_of(case), torch.empty(1, 0, dtype=torch.int64)).shape == (1, 0)
    with pytest.raises(InputError, match=r"asked\.way"):
        index.follow(asked_of(case), torch.tensor([[1], [2]]))
