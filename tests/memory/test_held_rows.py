"""Linking on vectors mapped from the snapshot, against linking on those of the database."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.memory import Memory
from graphmem_torch.memory.held_rows import DEAD, held_rows
from graphmem_torch.store.snapshot_file import SNAPSHOT_NAME
from tests.memories import WORDS, config_of, opened

PLAIN = config_of(**{"link.concepts": "none"})


def atoms(first: int, count: int) -> list[Atom]:
    draw = random.Random(first)
    return [
        Atom(
            f"a{i}",
            f"the {' '.join(draw.choices(WORDS, k=4))} {i % 7}",
            session=f"s{i // 5}",
            edges=(Link(f"a{i - 3}", EdgeType.CAUSES),) if i % 9 == 0 else (),
        )
        for i in range(first, first + count)
    ]


def edges_of(memory: Memory) -> list[tuple[int, int, int, float]]:
    edges = memory.store.edges()
    return sorted(zip(*(column.tolist() for column in edges.columns), strict=True))


@pytest.mark.parametrize("deleted", [0, 3, DEAD, DEAD + 1])
@pytest.mark.parametrize("later", [0, 4])
def test_linking_goes_on_from_the_snapshot(tmp_path: Path, deleted: int, later: int) -> None:
    gone = [f"a{i}" for i in range(1, 1 + deleted)]
    places = tmp_path / "mapped", tmp_path / "read"
    for place in places:
        with opened(place, config=PLAIN) as memory:
            memory.add(atoms(0, 120))
        with opened(place, config=PLAIN) as memory:  # the snapshot stays as it was
            memory.add(atoms(120, later))
            if gone:
                memory.delete(gone)
    with opened(places[0], config=PLAIN, mode="r") as memory:
        held = held_rows(memory.store)
        if held is not None:
            live = [row for row in range(len(held.node)) if row not in held.dead]
            assert held.node[live].tolist() == memory.store.nodes().tolist()
            assert torch.equal(held.rows.view[live], memory.store.embeddings())
            assert len(held.dead) <= DEAD
        else:
            assert deleted > DEAD
    (places[1] / SNAPSHOT_NAME).unlink()
    for place in places:
        with opened(place, config=PLAIN) as memory:
            memory.add(atoms(200, 40))
            memory.update("a100", text="the kite is a canoe")
            memory.delete(["a101", "a210"])
            memory.add(atoms(300, 10))
    with opened(places[0], config=PLAIN) as mapped, opened(places[1], config=PLAIN) as read:
        own, other = edges_of(mapped), edges_of(read)
        assert [edge[:3] for edge in own] == [edge[:3] for edge in other]
        # The place of a row in memory changes the last bit of its cosines.
        assert [edge[3] for edge in own] == pytest.approx([edge[3] for edge in other], abs=1e-6)
        assert mapped.check() == []


def test_rows_that_are_added_change_no_file(tmp_path: Path) -> None:
    with opened(tmp_path, config=PLAIN) as memory:
        memory.add(atoms(0, 120))
    before = (tmp_path / SNAPSHOT_NAME).read_bytes()
    with opened(tmp_path, config=PLAIN) as memory:
        held = held_rows(memory.store)
        assert held is not None
        want = held.rows.view.clone()
        held.rows.append(torch.randn(500, memory.store.dim or 0))
        assert torch.equal(held.rows.view[: len(want)], want)
    assert (tmp_path / SNAPSHOT_NAME).read_bytes() == before


@pytest.mark.parametrize("change", ["flip", "cut", "gone", "junk"])
def test_a_damaged_snapshot_is_not_mapped(tmp_path: Path, change: str) -> None:
    with opened(tmp_path, config=PLAIN) as memory:
        memory.add(atoms(0, 60))
        row = memory.store.embeddings()[30].numpy().tobytes()
    path = tmp_path / SNAPSHOT_NAME
    held = bytearray(path.read_bytes())
    if change == "flip":
        held[held.index(row)] ^= 1
    path.write_bytes({"flip": held, "cut": held[:-900], "junk": b"junk" * 99}.get(change, held))
    if change == "cut":
        path.write_bytes(held[: held.index(row)])
    if change == "gone":
        path.unlink()
    with opened(tmp_path, config=PLAIN) as memory:
        assert held_rows(memory.store) is None
        memory.add(atoms(60, 3))
        assert len(memory) == 63


def test_concepts_are_read_from_the_database(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        memory.add(Atom("x", "Ada Lovelace rows in Lisbon"))
        assert memory.store.num_nodes > 1
    with opened(tmp_path) as memory:
        assert held_rows(memory.store) is None


def test_another_encoders_vectors_are_not_those_of_the_snapshot(tmp_path: Path) -> None:
    from graphmem_torch.memory.reembedding import reembed
    from graphmem_torch.text.embedder import HashingEmbedder

    with opened(tmp_path, config=PLAIN) as memory:
        memory.add(atoms(0, 30))
    kept = (tmp_path / SNAPSHOT_NAME).read_bytes()
    other = HashingEmbedder(32, 0)
    reembed(tmp_path, other, config=PLAIN)
    (tmp_path / SNAPSHOT_NAME).write_bytes(kept)  # as if it had not been dropped
    with opened(tmp_path, config=PLAIN, embedder=other, mode="r") as memory:
        held = held_rows(memory.store)
        assert held is None or torch.equal(held.rows.view, memory.store.embeddings())
