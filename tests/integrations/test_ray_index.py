"""Shards indexed on a Ray cluster of this machine: equal to one process, also after kills."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory, create_shards
from graphmem_torch.store.shard_folder import ShardFolder
from tests.memories import config_of
from tests.test_distributed import lines_of

S = 4
ASKED = ["Where is the canoe?", "What did Ada say about the violin?", "comet story 12"]


def test_without_ray_the_command_says_what_to_install(
    tmp_path: Path, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, store = str(lines_of(tmp_path / "turns.jsonl", 12)), str(tmp_path / "m")
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    own = ["--store", store, "--embedder", "hashing", "--ray", "local"]
    assert main(["index", files, *own]) != 0
    assert "--ray: expected a memory of shards alone" in capsys.readouterr().err
    assert main(["index", files, *own, "--shards", "2"]) != 0
    assert "pip install 'graphmem-torch[ray]'" in capsys.readouterr().err
    assert main(["index", files, *own, "--dry-run"]) != 0
    assert "--ray: expected a memory of shards alone" in capsys.readouterr().err


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster of two workers on this machine."""
    ray = pytest.importorskip("ray")
    given: Any = {"include_dashboard": False, "log_to_driver": False, "logging_level": "error"}
    ray.init(address="local", num_cpus=2, object_store_memory=80_000_000, **given)
    yield ray
    ray.shutdown()


def contents(path: Path) -> list[Any]:
    """Return the content of each shard by name: atoms in order, edges with weights, and vectors."""
    found: list[Any] = []
    for place in ShardFolder.open(path).stores:
        with Memory.open(place, config=config_of(), mode="r") as shard:
            store, edges = shard.store, shard.store.edges()
            names = [atom.id for atom in store.atoms(range(store.next_node))]
            ends = zip(edges.source.tolist(), edges.target.tolist(), strict=True)
            named = [(names[one], names[other]) for one, other in ends]
            pairs = zip(named, edges.type.tolist(), edges.weight.tolist(), strict=True)
            vectors = store.vectors([*range(len(names))]).embeddings.tolist()
            found.append(
                (
                    [atom.id for atom in shard],
                    sorted((*ends, kind, weight) for ends, kind, weight in pairs),
                    dict(zip(names, vectors, strict=True)),
                )
            )
    return found


def same(found: list[Any], wanted: list[Any]) -> bool:
    """Whether two memories hold the same, weights and vectors up to rounding of their batches."""
    for (ids, edges, vectors), (own_ids, own_edges, own_vectors) in zip(found, wanted, strict=True):
        if ids != own_ids or [e[:3] for e in edges] != [e[:3] for e in own_edges]:
            return False
        if not np.allclose([e[3] for e in edges], [e[3] for e in own_edges], atol=1e-6):
            return False
        rows = [(vectors[name], own_vectors.get(name)) for name in vectors]
        if len(vectors) != len(own_vectors) or any(other is None for _, other in rows):
            return False
        if not np.allclose(*map(np.array, zip(*rows, strict=True)), atol=1e-6):
            return False
    return True


def alone(path: Path, files: str) -> Path:
    create_shards(path, S)
    with Memory.open(path, config=config_of(), embedder="hashing") as memory:
        memory.add_files(files)
    return path


def test_two_workers_make_the_index_of_one_process(cluster: Any, tmp_path: Path) -> None:
    from graphmem_torch.integrations.ray_index import index_on_ray

    files = str(lines_of(tmp_path / "turns.jsonl", 200))
    one = alone(tmp_path / "one", files)
    create_shards(tmp_path / "many", S)
    given: Any = {"format": None, "input": "raw", "prune": False, "skip_bad": False}
    own: Any = {"config": config_of(), "embedder": "hashing", **given}
    done = index_on_ray(tmp_path / "many", [files], "local", **own)
    assert done.new == 200
    assert contents(tmp_path / "many") == contents(one)
    assert (tmp_path / "many" / "statistics.safetensors").exists()
    with (
        Memory.open(one, config=config_of(), mode="r") as a,
        Memory.open(tmp_path / "many", config=config_of(), mode="r") as b,
    ):
        for mine, theirs in zip(a.retrieve(ASKED), b.retrieve(ASKED), strict=True):
            assert mine.hits == theirs.hits and mine.confidence == theirs.confidence
    again = index_on_ray(tmp_path / "many", [files], "local", **own)
    assert (again.new, again.known, again.unchanged) == (0, 200, 1)
    with pytest.raises(InputError, match=r"nowhere\.jsonl: expected a file"):
        index_on_ray(tmp_path / "many", [str(tmp_path / "nowhere.jsonl")], "local", **own)


def test_a_killed_worker_is_replaced(cluster: Any, tmp_path: Path) -> None:
    from graphmem_torch.integrations.ray_index import index_on_ray

    files = str(lines_of(tmp_path / "turns.jsonl", 400))
    one = alone(tmp_path / "one", files)
    create_shards(tmp_path / "many", S)
    killed: list[int] = []

    def kill() -> None:
        """Kill the process that writes a shard as soon as it has acknowledged something."""
        deadline = time.monotonic() + 120
        while len(killed) < 1 and time.monotonic() < deadline:
            for line in Path("/proc").glob("[0-9]*/comm"):
                try:
                    name = line.read_text()
                except OSError:
                    continue
                if name.startswith("ray::_index_sh"):
                    pid = int(line.parent.name)
                    time.sleep(0.3)
                    try:
                        os.kill(pid, signal.SIGKILL)
                    except ProcessLookupError:
                        continue
                    killed.append(pid)
                    break
            time.sleep(0.02)

    killer = threading.Thread(target=kill)
    killer.start()
    given: Any = {"format": None, "input": "raw", "prune": False, "skip_bad": False}
    config = config_of(**{"link.batch_atoms": 16})
    done = index_on_ray(
        tmp_path / "many", [files], "local", config=config, embedder="hashing", **given
    )
    killer.join()
    assert killed and done.new + done.known >= 400
    with Memory.open(tmp_path / "many", config=config_of(), mode="r") as memory:
        assert memory.check() == [] and len(memory) == 400
    assert same(contents(tmp_path / "many"), contents(one))
