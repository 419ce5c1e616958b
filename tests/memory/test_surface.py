"""The surface of `Memory`: its verbs, its parts, and views at a moment."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.memory import Layout, Memory, Scope
from tests.memories import DAY, ids, opened, turns

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = "architecture"
VERBS = [
    "open",
    "close",
    "at",
    "add",
    "add_document",
    "add_files",
    "get",
    "list",
    "update",
    "delete",
    "forget",
    "retrieve",
    "compile",
    "answer",
    "explain",
    "feedback",
    "pin",
    "unpin",
    "pinned",
    "touch",
    "export",
    "import_",
    "report",
    "stats",
    "check",
    "embedder",
    "index",
]
PARTS = ["facts", "graph", "themes", "learning", "upkeep", "namespaces", "aio", "tensors"]


def members(owner: type) -> set[str]:
    return {name for name in dir(owner) if not name.startswith("_")}


def test_memory_has_its_verbs_and_parts() -> None:
    assert members(Memory) == {*VERBS, *PARTS, "config"}


def test_the_documentation_lists_every_member() -> None:
    text = (DOCS / f"{PAGE}.md").read_text("utf-8")
    for verb in VERBS:
        assert f"`{verb}`" in text, verb
    with opened() as memory:
        for part in PARTS:
            (row,) = re.findall(rf"^ *\| `{part}` \|.*$", text, re.MULTILINE)
            listed = set(re.findall(r"`(\w+)`", row.split("|")[3]))
            assert listed == members(type(getattr(memory, part))), part


def test_a_part_is_made_once() -> None:
    with opened() as memory:
        for part in PARTS:
            assert getattr(memory, part) is getattr(memory, part)


def test_at_is_the_memory_of_a_moment() -> None:
    with opened() as memory:
        memory.add(turns(24))
        moment = 1.7e9 + 10.5 * DAY
        there = {atom.id for atom in turns(24) if atom.time is not None and atom.time <= moment}
        view = memory.at(moment)
        found = view.retrieve("canoe", k=50)
        assert {*ids(found)} == there
        assert ids(view.retrieve(["canoe", "violin"], k=50)[0]) == ids(found)
        assert {*view.compile("canoe", budget=4000).sources} <= there
        assert view.answer("canoe", llm=lambda prompt: "Yes.").text == "Yes."
        assert view.explain("canoe").id in there
        each = memory.at([moment, moment + 5 * DAY]).retrieve(["canoe"], k=50)
        assert ids(each[0][0]) == ids(found) and len(each[0]) == 2
        assert memory.at().retrieve("canoe") == memory.retrieve("canoe")
        assert repr(memory.at(moment, valid_at=3)) == f"MemoryAt(as_of={moment}, valid_at=3)"


@pytest.mark.parametrize("wrong", [{"as_of": "soon"}, {"valid_at": "soon"}, {"as_of": ["soon"]}])
def test_at_refuses_what_is_no_time(wrong: dict[str, Any]) -> None:
    with opened() as memory, pytest.raises(InputError, match="expected a time, got 'soon'"):
        memory.at(**wrong)


def test_what_is_no_scope_and_no_layout_is_refused() -> None:
    with opened() as memory:
        memory.add(turns(4))
        wrong: Any = {"kinds": ["turn"]}
        with pytest.raises(InputError, match=r"scope: expected a Scope, got \{'kinds"):
            memory.retrieve("canoe", scope=wrong)
        with pytest.raises(InputError, match=r"layout: expected a Layout, got \{'kinds"):
            memory.compile("canoe", budget=100, layout=wrong)
        with pytest.raises(InputError, match="namespaces: expected none for an explanation"):
            memory.explain("canoe", scope=Scope(namespaces=["ada"]))
        assert memory.compile("canoe", budget=100, layout=Layout()).sources


def test_namespaces_are_a_mapping() -> None:
    with opened() as memory:
        assert len(memory.namespaces) == 0 and [*memory.namespaces] == []
        with pytest.raises(InputError, match="namespace: expected one that this memory has"):
            _ = memory.namespaces["ben"]
        ben = memory.namespaces.create("ben")
        memory.namespaces.create("ada")
        ben.add(turns(3))
        assert [*memory.namespaces] == ["ada", "ben"] and len(memory.namespaces) == 2
        assert memory.namespaces["ben"] is ben and memory.namespaces.create("ben") is ben
        assert "ben" in memory.namespaces and "cy" not in memory.namespaces
        assert len(ben) == 3 and len(memory) == 0 and [*ben.namespaces] == []
        memory.namespaces.drop("ben")
        assert [*memory.namespaces] == ["ada"]


def test_a_dry_run_returns_what_forget_erases() -> None:
    with opened() as memory:
        memory.add(turns(8))
        memory.upkeep.archive("a1")
        atoms = memory.forget(speaker="Ben", dry_run=True)
        assert len(memory) == 7 and atoms[-1].id == "a1"
        receipt = memory.forget(speaker="Ben")
        assert memory.upkeep.check_receipt(receipt) == []
        assert {atom.id for atom in atoms}.isdisjoint(atom.id for atom in memory)
