"""Lists of similar atoms beside the snapshot: kept, continued, erased."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from graphmem_torch import Memory
from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.config import Config, LinkConfig
from graphmem_torch.memory import similarity
from graphmem_torch.memory.similarity import SimilarRows
from graphmem_torch.ops.growing_ivf import Training
from graphmem_torch.store.snapshot_file import LISTS_NAME

WORDS = ["river", "canoe", "lantern", "tower", "violin"]
WORDS += ["orchard", "harbour", "winter", "copper", "meadow"]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Use lists from 160 atoms on, and save them after every batch."""
    monkeypatch.setitem(SimilarRows.__init__.__kwdefaults__, "large", 160)
    monkeypatch.setattr(similarity, "_UNSAVED", 1)
    yield


def atoms_of(first: int, last: int) -> list[Atom]:
    return [
        Atom(f"a{i}", " ".join(WORDS[(i * (j + 3) + i // 7 * j) % 10] for j in range(5)) + f" {i}")
        for i in range(first, last)
    ]


def opened(path: Path, *, exact: bool = False) -> Memory:
    link = LinkConfig(concepts="none", batch_atoms=50, exact=exact)
    return Memory.open(path, config=Config(link=link), embedder="hashing")


def similar(memory: Memory) -> dict[tuple[int, int], float]:
    edges = memory.store.edges()
    own = edges.take((edges.type == int(EdgeType.SIMILARITY)).nonzero().flatten())
    ends = zip(own.source.tolist(), own.target.tolist(), strict=True)
    return dict(zip(ends, own.weight.tolist(), strict=True))


def test_a_run_of_a_few_lines_neither_trains_nor_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path / "whole") as memory:
        memory.add(atoms_of(0, 512))
        expected = similar(memory)
    with opened(tmp_path / "parts") as memory:
        memory.add(atoms_of(0, 505))
    monkeypatch.setattr(Training, "of", None)
    monkeypatch.setattr(Training, "measured", None)
    for first, last in ((505, 506), (506, 507), (507, 512)):
        with opened(tmp_path / "parts") as memory:
            memory.add(atoms_of(first, last))
            found = similar(memory)
    assert found.keys() == expected.keys()
    assert all(found[ends] == pytest.approx(expected[ends], abs=1e-6) for ends in found)


@pytest.mark.parametrize("left", ["none", "old", "cut", "flipped"])
def test_a_lost_or_old_file_changes_no_edge(tmp_path: Path, left: str) -> None:
    """After a kill there may be no file, one of fewer atoms, or part of one."""
    with opened(tmp_path / "whole") as memory:
        memory.add(atoms_of(0, 520))
        expected = similar(memory)
    path = tmp_path / "parts" / LISTS_NAME
    with opened(tmp_path / "parts") as memory:
        memory.add(atoms_of(0, 350))
        old = path.read_bytes()
        memory.add(atoms_of(350, 430))
    data = bytearray(old if left == "old" else path.read_bytes())
    if left == "flipped":
        data[len(data) // 2] ^= 0x55
    path.write_bytes(data[: len(data) // 2] if left == "cut" else data)
    if left == "none":
        path.unlink()
    with opened(tmp_path / "parts") as memory:
        memory.add(atoms_of(430, 520))
        assert similar(memory).keys() == expected.keys()


def test_edges_of_lists_are_nearly_those_of_all_products(tmp_path: Path) -> None:
    with opened(tmp_path / "lists") as memory, opened(tmp_path / "all", exact=True) as judge:
        for each in (memory, judge):
            each.add(atoms_of(0, 700))
        expected, found = similar(judge), similar(memory)
        assert not (tmp_path / "all" / LISTS_NAME).exists()
    assert len(found.keys() & expected.keys()) >= 0.96 * len(expected)
    small = {ends for ends in expected if ends[0] < 160}
    assert small == {ends for ends in found if ends[0] < 160}


def test_erased_atoms_leave_the_lists(tmp_path: Path) -> None:
    path = tmp_path / LISTS_NAME
    with opened(tmp_path) as memory:
        memory.add(atoms_of(0, 300))
        before = load_file(path)
        memory.forget(["a7", "a200"])
        assert not path.exists()
        memory.add(atoms_of(300, 310))
        after = load_file(path)
        problems = memory.check()
    assert problems == []
    for row in (7, 200):
        label = before["labels"][row]
        assert not torch.equal(before["centroids"][label], after["centroids"][label])
    with opened(tmp_path) as memory:
        memory.add(atoms_of(310, 330))
        targets = {memory.store.atoms([end])[0].id for _, end in similar(memory)}
    assert not targets & {"a7", "a200"}


@pytest.mark.parametrize("gone", [3, 100])
def test_deletions_keep_the_training(
    tmp_path: Path, gone: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(tmp_path) as memory:
        memory.add(atoms_of(0, 490))
        monkeypatch.setattr(Training, "of", None)
        memory.delete([f"a{i * 3}" for i in range(gone)])
        memory.add(atoms_of(490, 500))
    with opened(tmp_path) as memory:
        memory.add(atoms_of(500, 510))
        assert memory.check() == []
        nodes = set(memory.store.columns().node.tolist())
        assert all(set(ends) <= nodes for ends in similar(memory))
