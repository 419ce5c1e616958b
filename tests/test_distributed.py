"""Memories of shards in several real processes: equal results, ended ranks, ranks that differ."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.memory import Memory
from tests.memories import config_of, turns

ASKED = ["Where is the canoe?", "What did Ada say about the violin?", "comet story 12"]
OWN = ["--config.link.concepts", "pattern"]

# Starts a process for each rank, as torchrun does, without its agent, which takes ten seconds.
STARTED = """
import os, sys
rank, world, port, *arguments = sys.argv[1:]
os.environ.update(RANK=rank, WORLD_SIZE=world, LOCAL_RANK=rank, MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=port)
sys.argv = ["graphmem_torch.distributed", *arguments]
from graphmem_torch.distributed import main
sys.exit(main())
"""


def _port() -> str:
    import socket

    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return str(one.getsockname()[1])


def started(world: int, arguments: list[str], **of_rank: list[str]) -> list[subprocess.Popen[str]]:
    """Start all ranks; `rank_1=[...]` gives rank 1 other arguments."""
    port, begun = _port(), (sys.executable, "-c", STARTED)
    return [
        subprocess.Popen(
            [*begun, str(rank), str(world), port, *of_rank.get(f"rank_{rank}", arguments)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"OMP_NUM_THREADS": "1"},
        )
        for rank in range(world)
    ]


def ended(ranks: list[subprocess.Popen[str]]) -> list[tuple[int, str, str]]:
    told = [each.communicate(timeout=240) for each in ranks]
    return [(each.returncode, *own) for each, own in zip(ranks, told, strict=True)]


def lines_of(path: Path, count: int) -> Path:
    rows = (
        {"id": a.id, "text": a.text, "session": a.session, "speaker": a.speaker, "time": a.time}
        for a in turns(count)
    )
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def indexed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A memory of five shards that two processes have indexed."""
    folder = tmp_path_factory.mktemp("distributed")
    files = str(lines_of(folder / "turns.jsonl", 200))
    store = str(folder / "memory")
    command = ["index", files, "--store", store, "--shards", "5", "--embedder", "hashing", *OWN]
    (code, out, _), (other, silent, _) = ended(started(2, command))
    assert (code, other, silent) == (0, 0, "")
    assert "200 memories added" in out
    return folder / "memory"


def hits_of(results: list[Any]) -> list[Any]:
    return [
        [[h["id"], h["raw"], h["score"], [*h["why"]]] for h in each["hits"]] for each in results
    ]


def test_hits_are_the_same_in_any_number_of_processes(indexed: Path) -> None:
    """To the last bit: at P = 1, 2 and 3, and in one process without a group."""
    with Memory.open(indexed, config=config_of(), mode="r") as memory:
        assert len(memory) == 200 and memory.check() == []
        expected = hits_of([each.as_dict() for each in memory.retrieve(ASKED, k=10)])
    expected = json.loads(json.dumps(expected))
    command = ["query", *ASKED, "-k", "10", "--store", str(indexed), "--json", *OWN]
    for world in (1, 2, 3):
        (code, out, said), *others = ended(started(world, command))
        assert code == 0, said
        assert all((rest, silent) == (0, "") for rest, silent, _ in others)
        assert hits_of(json.loads(out)["results"]) == expected


def test_an_ended_rank_ends_all_and_the_same_command_resumes(tmp_path: Path) -> None:
    files = str(lines_of(tmp_path / "turns.jsonl", 4000))
    store = tmp_path / "memory"
    command = ["index", files, "--store", str(store), "--shards", "4", *OWN]
    command += ["--embedder", "hashing", "--config.link.batch_atoms", "16"]
    ranks = started(2, command)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (store / "0003" / "memory.sqlite").exists():
        time.sleep(0.05)
    time.sleep(1.0)
    ranks[1].send_signal(signal.SIGKILL)
    began = time.monotonic()
    code, _, said = ended(ranks)[0]
    assert time.monotonic() - began < 10
    assert code != 0 and "rank 1 (shards 1, 3)" in said and "resumes" in said, said
    outcome = ended(started(2, command))
    assert [each[0] for each in outcome] == [0, 0], outcome
    with Memory.open(store, config=config_of(), mode="r") as memory:
        assert len(memory) == 4000 and memory.check() == []


@pytest.mark.parametrize(
    ("other", "named"),
    [
        (["--embedder", "hashing", "--config.rank.k", "7", *OWN], "configuration"),
        (["--embedder", "hashing:32", *OWN], "encoder"),
    ],
    ids=["configuration", "encoder"],
)
def test_ranks_that_differ_refuse_to_begin(other: list[str], named: str, indexed: Path) -> None:
    same = ["query", "canoe?", "--store", str(indexed)]
    ranks = started(2, [*same, "--embedder", "hashing", *OWN], rank_1=[*same, *other])
    for code, out, said in ended(ranks):
        assert code == 2 and out == ""
        assert f"rank 1: expected the {named} of rank 0" in said


def test_ranks_with_other_files_refuse_to_begin(indexed: Path) -> None:
    command = ["index", __file__, "--store", str(indexed), "--embedder", "hashing", *OWN]
    other = ["index", str(indexed.parent / "turns.jsonl"), *command[2:]]
    for code, _, said in ended(started(2, command, rank_1=other)):
        assert code == 2 and "rank 1: expected the files of rank 0" in said


def test_more_processes_than_shards_and_another_number_are_refused(indexed: Path) -> None:
    command = ["query", "canoe?", "--store", str(indexed), *OWN]
    for code, _, said in ended(started(6, command)):
        assert code != 0
        assert "expected at most 5" in said or "expected 6 processes" in said
    command = ["index", __file__, "--store", str(indexed), "--shards", "3", *OWN]
    ((code, _, said),) = ended(started(1, command))
    assert code == 2 and "shards: expected 5" in said


def test_a_process_of_its_own_is_told_to_use_torchrun(indexed: Path) -> None:
    clean = {name: each for name, each in os.environ.items() if name not in ("RANK", "WORLD_SIZE")}
    command = [sys.executable, "-m", "graphmem_torch.distributed", "query", "canoe?"]
    done = subprocess.run(
        [*command, "--store", str(indexed)], capture_output=True, text=True, env=clean
    )
    assert done.returncode == 2 and "torchrun --nproc-per-node" in done.stderr
