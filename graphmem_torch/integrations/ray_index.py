"""Ray: the shards of a memory indexed by the workers of a Ray cluster.

    graphmem index FILES --store DIR --shards S --ray ADDRESS

One task indexes one shard. Ray places the tasks, waits for free CPUs or GPUs, and repeats a task
whose worker or machine is lost; the repeated task goes on where the lost one stopped. All machines
must have the files and the folder of the memory at the same paths.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

from graphmem_torch.config import Config
from graphmem_torch.errors import InputError, StoreError, first_line, optional_import
from graphmem_torch.memory.compatibility import resolved_settings, usable_device
from graphmem_torch.memory.sharded import open_shards
from graphmem_torch.memory.sharded_writing import joined_files
from graphmem_torch.progress import Progress
from graphmem_torch.results import Indexed, Result
from graphmem_torch.store.shard_folder import ShardFolder
from graphmem_torch.version import __version__

__all__ = ["index_on_ray"]

T = TypeVar("T")

_RETRIES = 8  # lost workers of one task


@dataclass
class _OneShard:
    """The shard of one worker, which indexes it and asks nothing.

    Attributes:
        shards: Number of shards S.
        numbers: Number of the shard.
    """

    shards: int
    numbers: Sequence[int]

    def exchange(self, asked: Sequence[int], what: str, own: Any) -> Any:
        raise AssertionError(what)

    def collect(self, own: Sequence[T]) -> list[T]:
        raise AssertionError(own)

    def portable(self, result: Result) -> Result:
        return result

    def expect_shares(self, filled: Sequence[int]) -> None:
        return None


@dataclass(frozen=True)
class _Task:
    """Arguments of a worker that indexes a shard.

    Attributes:
        store: Folder of the shards.
        files: Files and folders.
        reading: Other arguments of `Memory.add_files`.
        config: Settings.
        embedder: Encoder, its name, or None.
        device: Device of the encoder and the index.
        version: Release of the driver.
    """

    store: str
    files: Sequence[str]
    reading: dict[str, Any]
    config: Config
    embedder: Any
    device: str
    version: str


def _index_shard(task: _Task, number: int) -> Indexed:
    """Bring one shard up to date with files; runs in a worker, and may be repeated."""
    if task.version != __version__:
        raise InputError(
            f"ray: expected release {task.version} of graphmem_torch on all machines, got "
            f"{__version__} on {os.uname().nodename}; install the same one"
        )
    folder = ShardFolder.open(task.store)
    group = _OneShard(folder.shards, [number])
    shared = {"config": task.config, "device": usable_device(task.device), "clock": time.time}
    with open_shards(task.store, "w", task.embedder, False, shared, group) as memory:
        (index,) = memory.indexers()
        return index(task.files, dry_run=False, progress=False, **task.reading)


def index_on_ray(
    store: str | os.PathLike[str],
    files: Sequence[str],
    address: str,
    *,
    config: Config,
    embedder: Any = None,
    device: str = "cpu",
    progress: bool = False,
    **reading: Any,
) -> Indexed:
    """Bring a memory of shards up to date with files on a Ray cluster.

    Can be repeated at any time, also after it was interrupted. The result is that of one process.

    Args:
        store: Folder of the shards, which exists; the same path on all machines.
        files: Files and folders; the same paths on all machines.
        address: Address of the cluster, such as `ray://head:10001` or `auto`; `local` starts one on
            this machine, which ends with the call.
        config: Settings.
        embedder: Encoder, as in `Memory.open`; a name is loaded by each worker.
        device: Device of the workers; with `cuda` each task asks Ray for a GPU.
        progress: Whether to show a bar on stderr.
        reading: `format`, `input`, `prune` and `skip_bad`, as in `Memory.add_files`.

    Raises:
        InputError: No cluster answers, unusable files, or another release on a machine.
        MissingPackageError: Ray is not installed.
        StoreError: A worker of one shard was lost too often; the same call resumes.
    """
    ray = optional_import("ray", "--ray", "graphmem-torch[ray]")
    folder, settings = ShardFolder.open(store), resolved_settings(config)
    if "-" in map(str, files):
        raise InputError(
            f"files: expected files for {folder.shards} shards, got standard input, which can be "
            "read only once; write it to a file first"
        )
    shared = {"config": settings, "device": "cpu", "clock": time.time}
    # Make all stores first, so that no worker takes one that is not made yet for a lost one.
    open_shards(folder.path, "w", embedder, True, shared).close()
    place, paths = folder.path.resolve(), [os.path.abspath(each) for each in files]
    task = _Task(str(place), paths, reading, settings, embedder, device, __version__)
    with _cluster(ray, address):
        options = {"num_cpus": 1, "num_gpus": int(device.startswith("cuda"))}
        run = ray.remote(max_retries=_RETRIES, **options)(_index_shard)
        waiting = {run.remote(task, number): number for number in range(folder.shards)}
        parts: dict[int, Indexed] = {}
        with Progress(what="index", unit="shards", total=folder.shards, shown=progress) as bar:
            while waiting:
                ended, _ = ray.wait([*waiting], num_returns=1)
                for each in ended:
                    number = waiting.pop(each)
                    parts[number] = _result(ray, each, number)
                    bar.update(1)
    with open_shards(folder.path, "w", embedder, False, shared) as memory:
        memory.count()
    return joined_files([parts[number] for number in sorted(parts)])


@contextmanager
def _cluster(ray: Any, address: str) -> Iterator[None]:
    """Hold the connection to a cluster inside the block; one that is open already stays.

    Raises:
        InputError: No cluster answers.
    """
    if ray.is_initialized():
        yield
        return
    own: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(address=address, log_to_driver=False, logging_level="error", **own)
    except (ConnectionError, ValueError, RuntimeError) as error:
        raise InputError(
            f"ray: expected the address of a cluster, got {address!r}, where none answers "
            f"({first_line(error)}); start one with `ray start --head`, or write "
            "`local`"
        ) from error
    try:
        yield
    finally:
        ray.shutdown()


def _result(ray: Any, task: Any, number: int) -> Indexed:
    """Return the result of a task.

    Raises:
        StoreError: Its worker was lost too often.
    """
    try:
        found: Indexed = ray.get(task)
    except ray.exceptions.RayTaskError as error:  # an error of ours, with a trace of the worker
        raise error.cause from error
    except ray.exceptions.RayError as error:
        raise StoreError(
            f"shard {number}: expected its worker to end, got it lost {_RETRIES + 1} times "
            f"({type(error).__name__}); run the same command again, which resumes"
        ) from error
    return found
