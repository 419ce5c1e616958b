"""The snapshot is used only when it fits the store exactly, and never stands in the way."""

from __future__ import annotations

import contextlib
import logging
import os
import random
import resource
import shutil
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file

from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.snapshot import load_snapshot, save_snapshot
from graphmem_torch.store.snapshot_file import SNAPSHOT_NAME

MakeBatch = Callable[..., Batch]

TENSORS = {
    "float": torch.arange(12.0).view(3, 4),
    "int8": torch.arange(-3, 4, dtype=torch.int8),
    "bool": torch.tensor([True, False]),
    "half": torch.ones(3, dtype=torch.bfloat16),
    "scalar": torch.tensor(2.5, dtype=torch.float64),
    "empty": torch.empty(0, 5, dtype=torch.int64),
}


@pytest.fixture
def filled(tmp_path: Path, make_batch: MakeBatch) -> Path:
    """A closed store with a snapshot."""
    with MemoryStore.open(tmp_path / "store") as store:
        store.append(make_batch(5, 0))
        store.save_snapshot(TENSORS, {"vocabulary": "a b c \u2603"})
    return tmp_path / "store"


def test_comes_back(filled: Path) -> None:
    for mode in ("w", "r"):
        with MemoryStore.open(filled, mode=mode) as store:
            for verify in (False, True):
                tensors, meta = store.load_snapshot(verify=verify)
                assert meta == {"vocabulary": "a b c \u2603"}
                assert tensors.keys() == TENSORS.keys()
                for name, tensor in TENSORS.items():
                    assert tensors[name].dtype == tensor.dtype
                    assert torch.equal(tensors[name], tensor)
            assert store.stats()["snapshot"] == "current"
            assert store.check() == []


def test_views_and_strides(tmp_path: Path) -> None:
    base = torch.arange(12.0).view(3, 4)
    views = {"whole": base, "again": base, "row": base[1], "column": base[:, 1], "turned": base.T}
    save_snapshot(tmp_path, views, {}, 1)
    tensors, _ = load_snapshot(tmp_path, 1, verify=True)
    for name, view in views.items():
        assert torch.equal(tensors[name], view)


def test_what_a_kill_left_is_swept_away(filled: Path) -> None:
    left = filled / f"{SNAPSHOT_NAME}.new" / ".tmp123"
    left.parent.mkdir()
    left.write_bytes(b"half")
    with MemoryStore.open(filled) as store:
        assert store.check() == []
        store.save_snapshot(TENSORS, {})
        assert not left.parent.exists()
        assert store.load_snapshot(verify=True) is not None


def test_missing(tmp_path: Path) -> None:
    with MemoryStore.open(tmp_path) as store:
        assert store.load_snapshot() is None
        assert store.stats()["snapshot"] == "missing"
        assert store.check() == []


def test_in_memory() -> None:
    store = MemoryStore.open(None)
    store.save_snapshot(TENSORS, {})
    assert store.load_snapshot() is None


def test_stale(filled: Path, make_batch: MakeBatch, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    with MemoryStore.open(filled) as store:
        state = store.state
        store.append(make_batch(2, 5))
        assert store.load_snapshot() is None
        assert "stale" in caplog.text
        assert store.stats()["snapshot"].startswith("stale")
        assert store.check() == []
        store.save_snapshot({}, {}, state=state)
        assert store.load_snapshot() is None
        store.save_snapshot({}, {})
        assert store.load_snapshot() == ({}, {})


def test_of_another_life_of_the_store(filled: Path, make_batch: MakeBatch) -> None:
    """A backup that goes another way reaches the same generation, but not the same state."""
    backup = filled.with_name("backup")
    shutil.copytree(filled, backup)
    for path, size in ((filled, 2), (backup, 3)):
        with MemoryStore.open(path) as store:
            store.append(make_batch(size, 5))
            store.save_snapshot({"a": torch.tensor([size])}, {})
    shutil.copy(backup / SNAPSHOT_NAME, filled / SNAPSHOT_NAME)
    with MemoryStore.open(filled) as store:
        assert store.generation == 2
        assert store.load_snapshot() is None


def test_of_another_format(filled: Path) -> None:
    path = filled / SNAPSHOT_NAME
    with safe_open(path, "pt") as file:
        meta = file.metadata() | {"graphmem.format": "0"}
        tensors = {name: file.get_tensor(name).clone() for name in file.keys()}  # noqa: SIM118
    save_file(tensors, path, meta)
    with MemoryStore.open(filled) as store:
        assert store.load_snapshot() is None
        assert "format 0" in store.stats()["snapshot"]


def _empty(data: bytes) -> bytes:
    return b""


def _garbage(data: bytes) -> bytes:
    return bytes(range(256)) * 20


def _truncated(data: bytes) -> bytes:
    return data[:-5]


def _header_only(data: bytes) -> bytes:
    return data[:100]


@pytest.mark.parametrize("harm", [_empty, _garbage, _truncated, _header_only])
def test_damaged(
    filled: Path, harm: Callable[[bytes], bytes], caplog: pytest.LogCaptureFixture
) -> None:
    path = filled / SNAPSHOT_NAME
    path.write_bytes(harm(path.read_bytes()))
    with MemoryStore.open(filled) as store:
        assert store.load_snapshot() is None
        assert "damaged" in caplog.text
        assert any("snapshot: damaged" in problem for problem in store.check())
        assert store.embeddings().shape == (5, 8)
        store.save_snapshot(TENSORS, {})
        assert store.load_snapshot() is not None
        assert store.check() == []


def test_interrupt_is_no_damage(tmp_path: Path) -> None:
    save_snapshot(tmp_path, {str(i): torch.ones(50, 20) for i in range(80)}, {}, 1)
    begun = time.perf_counter()
    assert load_snapshot(tmp_path, 1) is not None
    took = time.perf_counter() - begun
    drawn = random.Random(0)
    before = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        for _ in range(80):
            # torch would make a ValueError of one that comes while it looks at a storage.
            with contextlib.suppress(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, drawn.uniform(1e-5, took))
                assert load_snapshot(tmp_path, 1) is not None
                signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, before)


def test_flipped_bit_in_the_data(filled: Path) -> None:
    path = filled / SNAPSHOT_NAME
    data = bytearray(path.read_bytes())
    data[-3] ^= 16
    path.write_bytes(data)
    with MemoryStore.open(filled) as store:
        assert store.load_snapshot(verify=True) is None
        assert any("checksum" in problem for problem in store.check())


def test_is_mapped_and_outlives_its_replacement(filled: Path) -> None:
    with MemoryStore.open(filled) as store:
        tensors, _ = store.load_snapshot()
        store.save_snapshot({"float": torch.zeros(3, 4)}, {})
        assert torch.equal(tensors["float"], TENSORS["float"])
        # Private to the process: writing to a tensor does not reach the file.
        mapped, _ = store.load_snapshot()
        mapped["float"] += 1
        assert torch.equal(store.load_snapshot()[0]["float"], torch.zeros(3, 4))


def _no_room(*_: object) -> None:
    raise OSError(28, os.strerror(28))


@pytest.mark.parametrize("function", ["os.fsync", "os.replace"])
def test_full_disk(filled: Path, function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with MemoryStore.open(filled) as store:
        with monkeypatch.context() as patch:
            patch.setattr(f"graphmem_torch.store.snapshot.{function}", _no_room)
            with pytest.raises(StoreError, match=r"No space left.*free some disk space"):
                store.save_snapshot({"other": torch.zeros(3)}, {})
        tensors, _ = store.load_snapshot(verify=True)
        assert tensors.keys() == TENSORS.keys()
        assert not (filled / f"{SNAPSHOT_NAME}.new").exists()


def test_full_disk_in_the_middle_of_the_file(filled: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    with MemoryStore.open(filled) as store:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, hard))
        try:
            with pytest.raises(StoreError, match="free some disk space"):
                store.save_snapshot({"large": torch.zeros(1 << 18)}, {})
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert store.load_snapshot(verify=True)[0].keys() == TENSORS.keys()
        assert not (filled / f"{SNAPSHOT_NAME}.new").exists()
        assert store.check() == []


def test_reserved_names_and_readers(filled: Path) -> None:
    with pytest.raises(InputError, match="prefix"):
        save_snapshot(filled, {}, {"graphmem.state": "x"}, 1)
    with (
        MemoryStore.open(filled, mode="r") as store,
        pytest.raises(StoreError, match="reading only"),
    ):
        store.save_snapshot({}, {})
