"""`add(replace=True)`: new memories and new versions in one transaction."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphmem_torch import Atom, InputError, Memory
from graphmem_torch.atoms import Link
from tests.memories import WORDS, config_of, opened


def said(number: int, word: str) -> Atom:
    return Atom(id=f"a{number}", text=f"Nora keeps the {word} of room {number}", kind="note")


def both(memory: Memory, atoms: list[Atom]) -> None:
    """The same by one call for each atom."""
    for atom in atoms:
        if atom.id not in memory:
            memory.add(atom)
        else:
            memory.update(atom.id, text=atom.text, kind=atom.kind, meta=atom.meta)


def test_replacing_is_adding_and_updating() -> None:
    first = [said(i, WORDS[i]) for i in range(8)]
    second = [said(i, WORDS[i % 3]) for i in range(4, 12)]
    with opened() as one, opened() as other:
        for memory in (one, other):
            memory.add(first)
            memory.pin("a5")
        added = one.add(second, replace=True)
        both(other, second)
        assert (added.new, added.known, added.ids) == (4, 4, tuple(atom.id for atom in second))
        assert [*one] == [*other] == first[:4] + second
        assert one.check() == other.check() == []
        assert one.pinned() == ["a5"]
        for name in ("a2", "a4", "a5", "a11"):
            texts = [[each.atom.text for each in m.facts.versions(name)] for m in (one, other)]
            assert texts[0] == texts[1]
        for question in ("Where is the comet?", "What is in room 7?"):
            hits = [[(h.id, h.raw) for h in m.retrieve(question, k=12).hits] for m in (one, other)]
            assert [name for name, _ in hits[0]] == [name for name, _ in hits[1]]
            assert dict(hits[0]) == pytest.approx(dict(hits[1]), abs=1e-4)


def test_replacing_in_batches_again_and_with_bad_input(tmp_path: Path) -> None:
    atoms = [said(i, WORDS[i % 8]) for i in range(10)]
    changed = [said(i, WORDS[(i + 1) % 8]) for i in range(10)]
    with opened(tmp_path / "store", config=config_of(**{"link.batch_atoms": 4})) as memory:
        memory.add(atoms, replace=True)
        state = memory.store.state
        assert memory.add(atoms, replace=True).known == 10
        assert memory.store.state == state  # nothing was written
        bad = [*changed[:2], Atom(id="empty", text=" ")]
        with pytest.raises(InputError, match="expected text"):
            memory.add(bad, replace=True)
        with pytest.raises(InputError, match="is given twice"):
            memory.add([changed[0], said(0, "other")], replace=True)
        with pytest.raises(InputError, match="edges: expected none"):
            memory.add(Atom(id="a1", text="x", edges=(Link("a2"),)), replace=True)
        with pytest.raises(InputError, match="replace: expected"):
            memory.add(changed, replace="yes")  # type: ignore[arg-type]
        assert memory.store.state == state
        with pytest.raises(InputError, match="is stored already"):
            memory.add(changed)
        assert memory.add(iter(changed), replace=True).known == 10
        assert [*memory] == changed
    with opened(tmp_path / "store") as memory:
        assert [*memory] == changed
        assert memory.check() == []


def test_stated_edges_stay() -> None:
    with opened() as memory:
        memory.add([said(0, "comet"), Atom(id="b", text="It shines.", edges=(Link("a0"),))])
        memory.add([Atom(id="b", text="It shone."), said(1, "river")], replace=True)
        assert memory.get("b").edges == (Link("a0"),)
        assert memory.get("b").text == "It shone."
        assert memory.check() == []
