"""Kill a writer with SIGKILL at random instants and count what it lost.

    python tests/store/killing.py FOLDER [--kills 200] [--seed 0] [--stores 3]

prints one JSON object. Each round forks a child that opens the store (the first time: creates it),
appends batches, saves a snapshot now and then, and tells every acknowledged batch down a pipe; the
parent kills it after a random delay, opens the store again and compares. It is a process of its
own, so that the forks are of a process with one thread.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import random
import select
import signal
import sys
import time
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import GraphMemError
from graphmem_torch.store import Batch, MemoryStore, TokenRows

__all__ = ["Tally", "kill_rounds"]

BATCH = 16
DIM = 32
LONGEST = 0.06  # seconds; a batch takes a few milliseconds
PATIENCE = 30.0  # seconds, for the first acknowledgement of a writer


@dataclass
class Tally:
    """Counts of the kills' effects; all but the first three must be zero.

    Attributes:
        kills: Writers killed.
        acknowledged: Atoms whose `append` had returned.
        opening: Kills before the first acknowledgement of their round: during open or creation.
        lost: Acknowledged atoms that were not there afterwards, or with other content.
        halved: Stores that held part of a batch.
        unopened: Stores that would not open.
        unsound: Stores in which `check` found something.
    """

    kills: int = 0
    acknowledged: int = 0
    opening: int = 0
    lost: int = 0
    halved: int = 0
    unopened: int = 0
    unsound: int = 0


@functools.cache
def batch_at(start: int) -> Batch:
    """A batch whose content follows from the node number of its first atom."""
    g = torch.Generator().manual_seed(start)
    atoms = [Atom(f"n{start + i}", f"memory {start + i} " * 9, time=start) for i in range(BATCH)]
    offsets = torch.arange(BATCH + 1) * 3
    total = int(offsets[-1])
    tokens = torch.randint(-127, 128, (total, 8), generator=g, dtype=torch.int8)
    ends = torch.randint(0, start + BATCH, (2, 4 * BATCH), generator=g)
    kind = torch.full((4 * BATCH,), int(EdgeType.SIMILARITY), dtype=torch.uint8)
    return Batch(
        atoms,
        torch.randn(BATCH, DIM, generator=g),
        TokenRows(tokens, torch.zeros(total, dtype=torch.int32), offsets),
        EdgeBlock(ends[0], ends[1], kind, torch.ones(4 * BATCH)),
    )


def write_for_ever(folder: Path, acknowledge: int) -> None:
    """Append batches until killed, writing the number of each acknowledged one to a pipe."""
    with MemoryStore.open(folder, fingerprint="kill", dim=DIM) as store:
        while True:
            start = store.next_node
            store.append(batch_at(start))
            os.write(acknowledge, f"{start}\n".encode())
            if start // BATCH % 8 == 7:
                store.save_snapshot({"embeddings": store.embeddings()}, {})


def kill_rounds(folder: Path, kills: int, *, seed: int = 0, stores: int = 3) -> Tally:
    """Kill writers at random instants, in turn on several stores, and tally what was lost."""
    random_ = random.Random(seed)
    tally = Tally()
    acknowledged: dict[Path, set[int]] = {}
    for number in range(kills):
        path = folder / f"store{number % stores}"
        starts = acknowledged.setdefault(path, set())
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.close(reader)
                write_for_ever(path, writer)
            finally:
                os._exit(1)
        os.close(writer)
        if number % 2:  # while it writes, however slow the machine is; else from the first instant
            select.select([reader], [], [], PATIENCE)
        time.sleep(random_.uniform(0.0, LONGEST))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        if not os.WIFSIGNALED(status):
            raise RuntimeError(f"the writer of round {number} ended by itself, see its traceback")
        with os.fdopen(reader) as pipe:
            told = [int(line) for line in pipe if line.endswith("\n")]
        starts.update(told)
        tally.kills += 1
        tally.acknowledged += len(told) * BATCH
        tally.opening += not told
        _inspect(path, starts, tally)
    return tally


def _inspect(path: Path, starts: set[int], tally: Tally) -> None:
    if not path.exists():
        # Killed before the folder was made; only right when nothing had been acknowledged.
        tally.lost += len(starts) * BATCH
        return
    try:
        with MemoryStore.open(path, fingerprint="kill", dim=DIM) as store:
            for start in starts:
                expected = {
                    atom.id: (start + i, atom.digest)
                    for i, atom in enumerate(batch_at(start).atoms)
                }
                known = store.known(list(expected))
                tally.lost += sum(known.get(id_) != row for id_, row in expected.items())
            tally.halved += store.next_node % BATCH != 0
            expected_vectors = [batch_at(s).embeddings for s in range(0, store.next_node, BATCH)]
            if expected_vectors:
                tally.unsound += not torch.equal(store.embeddings(), torch.cat(expected_vectors))
            snapshot = store.load_snapshot(verify=True)
            if snapshot is not None:
                tally.unsound += not torch.equal(snapshot[0]["embeddings"], store.embeddings())
            tally.unsound += bool(store.check())
    except GraphMemError as error:
        print(f"{path}: {error}", file=sys.stderr)
        tally.unopened += 1


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--stores", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(1)
    tally = kill_rounds(options.folder, options.kills, seed=options.seed, stores=options.stores)
    print(json.dumps(asdict(tally)))


if __name__ == "__main__":
    main()
