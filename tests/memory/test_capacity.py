"""Estimates of memory, disk and time, and the refusal of what cannot fit."""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.memory import create_shards
from graphmem_torch.memory.capacity import Sizes, estimate, expect_room
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import config_of, opened, turns


def sparse(path: Path, size: int, head: bytes = b"") -> Path:
    """Make a file of this size that takes no room."""
    path.write_bytes(head)
    os.truncate(path, size)
    return path


def store_with(path: Path, count: int) -> Path:
    with opened(path) as memory:
        memory.add(turns(count))
    return path


@pytest.mark.parametrize("count", [1, 1_000, 10**6, 10**9])
def test_estimate_grows_with_the_number(tmp_path: Path, count: int) -> None:
    found = estimate(count, tmp_path, config_of(), embedder=HashingEmbedder(32), device="cpu")
    assert found.atoms == count
    assert set(found.seconds) >= {"encoder", "concepts", "link and store", "index"}
    assert all(value >= 0 for value in found.seconds.values())
    each = found.disk["database"] / count
    assert 4 * 32 < each < 20_000
    assert found.memory["indexing"] > found.disk["snapshot"] / found.shards
    assert found.shards >= -(-count // 1_000_000)
    if count == 10**9:
        assert any("of disk" in why and "token-dim" in why for why in found.misfits)
    if count <= 1000:
        assert found.misfits == []
        assert found.shards == 1


def test_estimate_like_a_store_takes_the_sizes_of_its_files(tmp_path: Path) -> None:
    folder = store_with(tmp_path / "own", 24)
    held = {path.name: path.stat().st_size for path in folder.iterdir() if path.is_file()}
    config, embedder = config_of(), HashingEmbedder(32)
    found = estimate(24, tmp_path, config, embedder=embedder, device="cpu", like=folder)
    assert abs(found.disk["database"] - held["memory.sqlite"]) <= 1
    assert abs(found.disk["snapshot"] - held["snapshot.safetensors"]) <= 1


def test_a_store_without_memories_is_like_none(tmp_path: Path) -> None:
    folder = store_with(tmp_path / "own", 0)
    with pytest.raises(InputError, match="expected a store with memories"):
        estimate(10, tmp_path, config_of(), embedder=HashingEmbedder(32), like=folder)


@pytest.mark.parametrize("count", [0, -1])
def test_no_memories_are_refused(tmp_path: Path, count: int) -> None:
    with pytest.raises(InputError, match="atoms: expected at least 1"):
        estimate(count, tmp_path, config_of())


@pytest.mark.parametrize(
    ("name", "head"),
    [
        ("a.txt", b""),
        ("a.md", b"# A title\n"),
        ("a.jsonl", b'{"text": "The kiln is hot"}\n' * 100),
    ],
)
def test_files_that_cannot_fit_are_refused_with_what_would(
    tmp_path: Path, name: str, head: bytes
) -> None:
    big = sparse(tmp_path / name, 1 << 42, head)
    with pytest.raises(InputError, match="expected room for about") as caught:
        expect_room([big], tmp_path / "store", config_of())
    said = str(caught.value)
    assert "index at most" in said or "--shards" in said
    assert re.search(r"[\d,.]+ GB of disk", said)
    assert not (tmp_path / "store").exists()


def test_files_that_fit_are_not_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("A kiln. " * 200_000)
    (tmp_path / "b.jsonl").write_text('{"text": "hot"}\n' * 5_000)
    (tmp_path / "sub").mkdir()
    expect_room([tmp_path], tmp_path / "store", config_of())
    expect_room(["-"], tmp_path / "store", config_of())


def test_shards_lower_the_memory_of_indexing() -> None:
    sizes = Sizes.of(400, 384, 5_000, 0.0)
    assert sizes.memory(10**6, 8) < sizes.memory(10**6, 1)
    assert sizes.disk == sizes.database + sizes.snapshot


def test_vectors_in_lines_are_no_text(tmp_path: Path) -> None:
    line = json.dumps({"text": "a word", "embedding": [0.0123456789] * 384}).encode() + b"\n"
    count = int(0.9 * shutil.disk_usage(tmp_path).free / 4000)  # 2 kB of vectors each, twice
    count = min(count, 2_000_000)  # memory for them
    file = sparse(tmp_path / "big.jsonl", count * len(line), line * 12)
    expect_room([file], tmp_path / "store", config_of())
    made = estimate(1000, tmp_path, config_of(), embedder=HashingEmbedder(32), device="cpu")
    assert made.seconds["names of concepts"] < made.seconds["link and store"]


def test_an_empty_file_is_told_by_the_run_itself(tmp_path: Path) -> None:
    (tmp_path / "e.jsonl").write_bytes(b"")
    expect_room([tmp_path / "e.jsonl", tmp_path], tmp_path / "store", config_of())


def test_estimate_like_shards_of_which_some_are_empty(tmp_path: Path) -> None:
    create_shards(tmp_path / "s", 8)
    with opened(tmp_path / "s") as memory:
        memory.add(turns(1))
    config, encoder = config_of(), HashingEmbedder(32)
    assert estimate(10, tmp_path, config, embedder=encoder, like=tmp_path / "s").atoms == 10
