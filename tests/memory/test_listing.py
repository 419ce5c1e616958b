"""Listing: pages against a sorted list, beside writers; iteration."""

from __future__ import annotations

import random
import threading
from pathlib import Path

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from tests.memories import opened, turns


def pages(memory: Memory, limit: int, order: str = "added", **where: object) -> list[str]:
    """All pages, one after another."""
    names: list[str] = []
    after = None
    while True:
        page = memory.list(order=order, limit=limit, after=after, where=where or None)
        assert len(page) <= limit and (page.next is None or len(page) == limit)
        names += [atom.id for atom in page]
        if page.next is None:
            return names
        after = page.next


@pytest.mark.parametrize("limit", [1, 5, 24, 100])
def test_pages_are_the_sorted_list_in_parts(limit: int) -> None:
    with opened() as memory:
        drawn = random.Random(0).sample(turns(), 24)
        memory.add(drawn)
        place = {atom.id: i for i, atom in enumerate(drawn)}
        dated = sorted((a for a in drawn if a.time is not None), key=lambda a: a.time or 0)
        undated = [a.id for a in drawn if a.time is None]
        assert pages(memory, limit) == [*place]
        assert pages(memory, limit, "-added") == [*place][::-1]
        assert pages(memory, limit, "id") == sorted(place)
        assert pages(memory, limit, "-id") == sorted(place, reverse=True)
        assert pages(memory, limit, "time") == [a.id for a in dated] + undated
        assert pages(memory, limit, "-time") == [a.id for a in dated[::-1]] + undated[::-1]
        worth = memory.upkeep.importance([*place])
        wanted = sorted(place, key=lambda name: (worth[name], place[name]))
        assert pages(memory, limit, "importance") == wanted
        assert pages(memory, limit, "-importance") == wanted[::-1]
        assert pages(memory, limit, "-id", speaker="Ada") == sorted(
            (a.id for a in drawn if a.speaker == "Ada"), reverse=True
        )
        assert [atom.id for atom in memory] == [*place]
        assert memory.list()[2:4] == tuple(drawn[2:4]) and memory.list()[-1] == drawn[-1]


@pytest.mark.parametrize("order", ["added", "time", "-id", "importance"])
def test_paging_goes_on_behind_what_was_deleted(order: str) -> None:
    with opened() as memory:
        memory.add(turns())
        whole = [atom.id for atom in memory.list(order=order)]
        page = memory.list(order=order, limit=6)
        memory.delete([whole[5], whole[2], whole[8]])
        left = [name for name in whole[6:] if name != whole[8]]
        if order != "importance":  # what is deleted may change how new the rest is
            assert [atom.id for atom in memory.list(order=order, after=page.next)] == left
            assert [a.id for a in memory.list(order=order, after=whole[6])] == left[1:]
        with pytest.raises(InputError, match="after: expected"):
            memory.list(order=order, after=whole[5])


def test_what_is_updated_or_added_meanwhile() -> None:
    with opened() as memory:
        memory.add(turns(6))
        page = memory.list(limit=2)
        memory.update("a4", text="Something else")
        memory.add(Atom("late", "later"))
        rest = memory.list(after=page.next)
        assert [atom.id for atom in rest] == ["a2", "a3", "a4", "a5", "late"]
        assert rest[2].text == "Something else"
        seen = []
        for atom in memory:
            seen.append(atom.id)
            if atom.id == "a0":
                memory.delete("a3")
                memory.add("more")
        assert seen == ["a0", "a1", "a2", "a4", "a5", "late"]


@pytest.mark.parametrize("seed", range(3))
def test_iteration_gives_what_is_there_when_its_turn_comes(seed: int) -> None:
    """Whatever is written between two of them: against a dictionary that is changed alongside."""
    draw = random.Random(seed)
    with opened() as memory:
        memory.add([Atom(f"k{i}", f"kept {i}") for i in range(40)])
        said = {f"k{i}": f"kept {i}" for i in range(40)}
        seen: list[str] = []
        for atom in memory:
            assert said[atom.id] == atom.text
            seen.append(atom.id)
            name = draw.choice(list(said))
            what = draw.randrange(6)
            if what == 0:
                memory.delete(name)
                del said[name]
            elif what == 1:
                said[name] = memory.update(name, text=f"changed after {atom.id}").text
            elif what == 2:
                memory.add(f"added after {atom.id}")
        left = [f"k{i}" for i in range(40) if f"k{i}" in {*said, *seen}]
        assert seen == left


def test_iteration_beside_writers(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add([Atom(f"k{i}", f"kept {i}") for i in range(300)])
        stop = threading.Event()

        def write() -> None:
            for i in range(1000):
                if stop.is_set():
                    return
                memory.add(Atom(f"w{i}", f"written {i}"))
                memory.update(f"w{i}", text=f"changed {i}")
                memory.delete(f"w{i}")

        writer = threading.Thread(target=write)
        writer.start()
        try:
            for _ in range(5):
                names = [atom.id for atom in memory if atom.id.startswith("k")]
                assert names == [f"k{i}" for i in range(300)]
                assert [n for n in pages(memory, 64) if n[0] == "k"] == names
        finally:
            stop.set()
            writer.join()


def test_an_order_a_number_or_a_place_that_is_none() -> None:
    with opened() as memory:
        memory.add(turns(6))
        assert [*opened()] == [] and opened().list().next is None
        for wrong in ("tme", "--time", "", None):
            with pytest.raises(InputError, match="order: expected"):
                memory.list(order=wrong)  # type: ignore[arg-type]
        for number in (0, -1, True, 2.5):
            with pytest.raises(InputError, match="limit: expected"):
                memory.list(limit=number)  # type: ignore[arg-type]
        mark = memory.list(limit=2).next
        with pytest.raises(InputError, match="after: expected the end of a page in the same order"):
            memory.list(order="time", after=mark)
        for nothing in ("nothing", "", 5, "W10=", "WyJhZGRlZCIsZmFsc2UsIngiXQ=="):
            with pytest.raises(InputError, match="after: expected `next`"):
                memory.list(after=nothing)  # type: ignore[arg-type]
