"""Concepts are found when enough memories wait: the graph is that of those who never waited."""

from __future__ import annotations

from pathlib import Path

import pytest

from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.cli.main import main
from graphmem_torch.config import load_config
from graphmem_torch.errors import StoreError
from graphmem_torch.memory import Memory
from tests.memories import config_of, opened, stored

PLACES = ["Vienna", "Lisbon", "Porto", "Oslo", "Kyoto", "Quito"]
MENTIONS = (EdgeType.ABSTRACTION, EdgeType.ASSOCIATION)


def trips(count: int) -> list[Atom]:
    """Turns of two sessions by turns, every seventh late, some of no session; all name places."""
    return [
        Atom(
            f"t{i}",
            f"After {PLACES[i % 6]} comes {PLACES[(i * i + 1) % 6]}, story {i}.",
            session=(None if i % 5 == 4 else f"s{i % 2}"),
            time=1.7e9 + (3600.0 * i if i % 7 else 0.0),
        )
        for i in range(count)
    ]


def waiting(every: int) -> dict[str, object]:
    return {"config": config_of(**{"link.batch_concepts": every})}


def edges(memory: Memory) -> list[object]:
    """Comparable with those of another memory: cosines may differ in their last bits."""
    return [(edge, pytest.approx(weight, abs=1e-5)) for edge, weight in stored(memory.store)]


def mentions(memory: Memory) -> int:
    return sum(kind in MENTIONS for kind in memory.store.edges().type.tolist())


@pytest.fixture(scope="module")
def expected() -> list[object]:
    """The edges of who never waited."""
    with opened() as memory:
        memory.add(trips(23))
        return edges(memory)


@pytest.mark.parametrize("every", [5, 10, 100])
@pytest.mark.parametrize("size", [1, 4, 23])
def test_waiting_changes_no_edge(every: int, size: int, expected: list[object]) -> None:
    atoms = trips(23)
    with opened(**waiting(every)) as memory:
        for start in range(0, len(atoms), size):
            memory.add(atoms[start : start + size])
            assert memory.stats()["waiting"] == min(start + size, 23) % every
        assert memory.upkeep.consolidate().linked == 23 % every
        assert memory.upkeep.consolidate().linked == 0
        assert memory.stats()["waiting"] == 0
        assert stored(memory.store) == expected


def test_what_waits_has_no_concepts() -> None:
    with opened(**waiting(5)) as memory:
        memory.add(trips(4))
        assert mentions(memory) == 0
        memory.add(trips(5)[4:])
        assert mentions(memory) > 0


def test_waiting_outlives_the_process(tmp_path: Path, expected: list[object]) -> None:
    atoms = trips(23)
    for start in range(0, 23, 8):
        with opened(tmp_path / "m", **waiting(5)) as memory:
            memory.add(atoms[start : start + 8])
            assert memory.check() == []
    with opened(tmp_path / "m", mode="r", **waiting(5)) as memory:
        assert memory.stats()["waiting"] == 3
        with pytest.raises(StoreError, match="for reading only"):
            memory.upkeep.consolidate()
    with opened(tmp_path / "m", **waiting(5)) as memory:
        memory.upkeep.consolidate()
        assert stored(memory.store) == expected
        assert memory.check() == []


def test_one_consolidates_what_another_added(tmp_path: Path, expected: list[object]) -> None:
    atoms = trips(23)
    with opened(tmp_path / "m", **waiting(7)) as one, opened(tmp_path / "m", **waiting(7)) as other:
        for i, atom in enumerate(atoms):
            (one, other)[i % 3 == 0].add([atom])
            if i == 12:
                one.upkeep.consolidate()
        other.upkeep.consolidate()
        assert stored(one.store) == expected


def test_a_shorter_wait_takes_in_all(tmp_path: Path, expected: list[object]) -> None:
    with opened(tmp_path / "m", **waiting(50)) as memory:
        memory.add(trips(22))
    with opened(tmp_path / "m") as memory:
        memory.add(trips(23))
        assert memory.stats()["waiting"] == 0
        assert stored(memory.store) == expected


@pytest.mark.parametrize("gone", [["t20", "t3"], ["t22", "t21", "t20"], ["t0", "t6", "t19"]])
def test_deletion_beside_what_waits(gone: list[str]) -> None:
    left = [atom for atom in trips(23) if atom.id not in gone]
    with opened() as memory:
        memory.add(left)
        expected = edges(memory)
    with opened(**waiting(5)) as memory:
        memory.add(trips(23))
        memory.delete(gone)
        assert memory.stats()["waiting"] == len({"t20", "t21", "t22"} - {*gone})
        memory.upkeep.consolidate()
        assert stored(memory.store) == expected


@pytest.mark.parametrize("id", ["t21", "t2"])
def test_update_of_what_waits_and_of_what_does_not(id: str) -> None:
    with opened() as memory:
        memory.add(trips(23))
        memory.update(id, text="Nothing but Trieste.")
        expected = edges(memory)
    with opened(**waiting(5)) as memory:
        memory.add(trips(23))
        memory.update(id, text="Nothing but Trieste.")
        assert memory.stats()["waiting"] == 3
        memory.upkeep.consolidate()
        assert stored(memory.store) == expected


def test_text_without_concepts_waits_no_longer_either() -> None:
    with opened(**waiting(5)) as memory:
        memory.add([Atom("a", "nothing here")])
        assert memory.upkeep.consolidate().linked == 1
        assert memory.stats()["waiting"] == 0


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "m"
    config = load_config("synapse", {"link.concepts": "pattern"})
    with opened(path, config=config, embedder="hashing:32") as memory:
        memory.add(trips(7))
        assert memory.stats()["waiting"] == 2
    fast = ["--preset", "synapse", "--embedder", "hashing:32", "--device", "cpu"]
    assert main(["store", "consolidate", "--store", str(path), *fast]) == 0
    assert "2 linked" in capsys.readouterr().out
