"""Sums of the embeddings that an index keeps, through every change of a memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.rank.population import row_sums
from tests.memories import QUESTIONS, WORDS, config_of, ids, opened

FEW = {"rank.exhaustive_up_to": 5, "rank.candidates": 3}
CHANGES = st.lists(
    st.tuples(st.sampled_from(["add", "delete", "update", "forget"]), st.integers(0, 99)),
    min_size=1,
    max_size=9,
)


def note(number: int) -> Atom:
    text = f"The {WORDS[number % 8]} number {number} is {WORDS[3 * number % 8]} like"
    return Atom(f"n{number}", text, time=1.7e9 + number)


def check(memory: Memory) -> None:
    """The sums are those of the rows, or there are none in a memory that reads every atom."""
    index = memory.index
    sums, rows = index.tensors.row_sums, index.embeddings
    if len(rows) <= FEW["rank.exhaustive_up_to"]:
        assert sums is None
        return
    assert sums is not None
    torch.testing.assert_close(sums, row_sums(rows), rtol=1e-9, atol=1e-9)


@settings(max_examples=8)
@given(CHANGES, st.integers(4, 12))
def test_sums_follow_every_change(changes: list[tuple[str, int]], count: int) -> None:
    with opened(config=config_of(**FEW)) as memory:
        memory.add([note(i) for i in range(count)])
        names, number = [f"n{i}" for i in range(count)], count
        check(memory)
        for what, place in changes:
            if what == "add" or not names:
                memory.add(note(number))
                names.append(f"n{number}")
                number += 1
            else:
                name = names[place % len(names)]
                if what == "update":
                    memory.update(name, text=f"Something else: the {WORDS[place % 8]} {place}")
                else:
                    names.remove(name)
                    memory.delete(name) if what == "delete" else memory.forget(name)
            check(memory)


def test_sums_are_stored_and_followed_after_opening(tmp_path: Path) -> None:
    config = config_of(**FEW)
    with opened(tmp_path / "m", config=config) as memory:
        memory.add([note(i) for i in range(9)])
        check(memory)
    with opened(tmp_path / "m", config=config) as memory:
        check(memory)
        memory.delete("n3")
        memory.add(note(20))
        check(memory)


def test_masks_and_moments_of_time_scale_as_a_memory_without_the_others() -> None:
    """A scope and `as_of` count the allowed atoms alone, as if the others did not exist."""
    config = config_of(**FEW)
    config = replace(config, rank=replace(config.rank, weights={"semantic": 1.0}))
    with opened(config=config) as memory, opened(config=config) as alone:
        memory.add([note(i) for i in range(30)])
        alone.add([note(i) for i in range(12)])
        expected = [
            [(hit.id, pytest.approx(hit.raw, abs=1e-5)) for hit in each.hits[:3]]
            for each in alone.retrieve(QUESTIONS, k=4)
        ]
        scope = Scope(exclude=[f"n{i}" for i in range(12, 30)])
        for found in (
            memory.at(as_of=1.7e9 + 11.5).retrieve(QUESTIONS, k=4),
            memory.at(valid_at=1.7e9 + 99, as_of=1.7e9 + 11.5).retrieve(QUESTIONS, k=4),
        ):
            assert [[(hit.id, hit.raw) for hit in each.hits[:3]] for each in found] == expected
        for each in memory.retrieve(QUESTIONS, k=4, scope=scope):
            assert {*ids(each)} <= {f"n{i}" for i in range(12)}
