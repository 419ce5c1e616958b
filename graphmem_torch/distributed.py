"""Distributed: a memory of shards in several processes, under torchrun.

    torchrun --nproc-per-node P -m graphmem_torch.distributed index FILES --store DIR --shards S
    torchrun --nproc-per-node P -m graphmem_torch.distributed query QUESTION --store DIR

Rank r holds the shards r, r + P, ... Results depend on the shards alone, not on P. All ranks ask
together; collectives go through gloo, or through nccl where the index is on CUDA.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, Self, TypeVar

import click
import torch
from torch import Tensor
from torch import distributed as dist

from graphmem_torch.cli.index_command import make_shards, set_batch, uneven_notes, with_encoder
from graphmem_torch.cli.main import run_command
from graphmem_torch.cli.options import Target, store_options
from graphmem_torch.cli.syntax import COUNT, Leaf, Tree, choice, option
from graphmem_torch.cli.terminal import Reply, result_lines
from graphmem_torch.config import Config, checked_config, config_to_dict, load_config
from graphmem_torch.errors import InputError, StoreError, first_line
from graphmem_torch.memory.at import MemoryQuestions
from graphmem_torch.memory.compatibility import resolved_settings, usable_device
from graphmem_torch.memory.sharded import ShardedMemory, open_shards
from graphmem_torch.memory.sharded_asking import ShardedAsking
from graphmem_torch.memory.sharded_writing import joined_files
from graphmem_torch.memory.stages import default_workers
from graphmem_torch.results import Hit, Indexed, Result
from graphmem_torch.store.shard_folder import ShardFolder
from graphmem_torch.version import __version__

__all__ = ["COMMANDS", "DistributedMemory", "Processes", "main", "open"]

T = TypeVar("T")

_LOOK = 0.25  # seconds between looks at the other processes


@dataclass(frozen=True)
class _Said:
    """Reasons for the hits of a result, in words."""

    words: dict[str, tuple[str, ...]]

    def reasons(self, hit: Hit) -> tuple[str, ...]:
        return self.words.get(hit.id, ())


class Processes:
    """The processes of torchrun, each with the shards of its rank.

    Attributes:
        shards: Number of shards S.
        numbers: Numbers of the shards of this process, ascending.
        rank, world: Rank of this process, and number of processes P.
    """

    def __init__(self, shards: int, device: str) -> None:
        """Take the shards of this rank; needs an initialised process group.

        Args:
            shards: Number of shards.
            device: Device of the collectives.

        Raises:
            InputError: There are more processes than shards.
        """
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.shards = shards
        self.numbers: Sequence[int] = range(self.rank, shards, self.world)
        self._device = device if dist.get_backend() == "nccl" else "cpu"
        if self.world > shards:
            raise InputError(
                f"processes: expected at most {shards}, one for each shard, got {self.world}; "
                f"start --nproc-per-node {shards}"
            )

    def exchange(self, asked: Sequence[int], what: str, own: Sequence[Tensor]) -> Tensor:
        """Return the tensors of the asked shards, in order."""
        ranks = [number % self.world for number in asked]
        places = [ranks[:place].count(rank) for place, rank in enumerate(ranks)]
        mine = torch.stack([*own])
        sent = mine.to(torch.uint8) if mine.dtype == torch.bool else mine
        sent = sent.reshape(len(own), -1).to(self._device)
        sent = torch.nn.functional.pad(sent, (0, 0, 0, max(places) + 1 - len(own)))
        every = [torch.empty_like(sent) for _ in range(self.world)]
        with self._naming(what):
            dist.all_gather(every, sent.contiguous())
        pairs = zip(ranks, places, strict=True)
        found = torch.stack([every[rank][place] for rank, place in pairs])
        return found.view(len(asked), *mine.shape[1:]).to(mine.device, mine.dtype)

    def collect(self, own: Sequence[T]) -> list[T]:
        """Return the values of all shards."""
        every = self.gather([*own], "states")
        return [every[number % self.world][number // self.world] for number in range(self.shards)]

    def gather(self, own: T, what: str) -> list[T]:
        """Return a value of each process."""
        every: list[Any] = [None] * self.world
        with self._naming(what):
            dist.all_gather_object(every, own)
        return every

    def portable(self, result: Result) -> Result:
        """Return a result whose reasons are written out."""
        said = _Said({hit.id: hit.why for hit in result.hits})
        return replace(result, hits=tuple(replace(hit, grounds=said) for hit in result.hits))

    def expect_shares(self, filled: Sequence[int]) -> None:
        """Check that every process has a shard with memories, as all take part in a question.

        Raises:
            InputError: One has none.
        """
        idle = [r for r in range(self.world) if not any(n % self.world == r for n in filled)]
        if idle and filled:
            raise InputError(
                f"rank {idle[0]}: expected a shard with memories, got none in its shards "
                f"{[*range(idle[0], self.shards, self.world)]}; start fewer processes"
            )

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        """Raise `StoreError` that names the ended rank if a collective fails."""
        try:
            yield
        except RuntimeError as error:
            time.sleep(4 * _LOOK)  # the watch names the rank, and ends this process
            raise StoreError(
                f"rank {self.rank}: expected an answer of all {self.world} processes to {what!r}, "
                f"got none of one ({first_line(error)}); run the same command again"
            ) from error


class _Watch:
    """Ends this process, with a message, when another process of this machine has ended."""

    def __init__(self, shards: int) -> None:
        """Tell the others who this process is, and begin to look."""
        self._rank, self._world, self._shards = dist.get_rank(), dist.get_world_size(), shards
        told: list[Any] = [None] * self._world
        dist.all_gather_object(told, (socket.gethostname(), os.getpid()))
        here = socket.gethostname()
        self._pids = {rank: pid for rank, (host, pid) in enumerate(told) if host == here}
        self._done = threading.Event()
        self._before: Any = signal.signal(signal.SIGTERM, lambda *_: self._leave())
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._done.wait(_LOOK):
            if self._ended():
                self._leave()

    def _ended(self) -> list[int]:
        """Return the ranks of this machine that have ended."""
        return [rank for rank, pid in self._pids.items() if rank != self._rank and not _lives(pid)]

    def _leave(self) -> None:
        """Say which rank has ended, and end this process at once; what was committed stays."""
        named = [
            f"rank {rank} (shards {', '.join(map(str, range(rank, self._shards, self._world)))})"
            for rank in self._ended()
        ]
        said = (
            f"graphmem: error: rank {self._rank}: expected {self._world} processes, got the end of "
            f"{' and '.join(named) or 'one'}; what was acknowledged is safe, and running the same "
            "command again resumes\n"
        )
        os.write(2, said.encode())
        os._exit(1)

    def end(self) -> None:
        """Stop looking; all processes call it before any of them ends."""
        self._done.set()
        self._thread.join()
        signal.signal(signal.SIGTERM, self._before)


def _lives(pid: int) -> bool:
    """Return whether a process runs; one that nobody has waited for has ended."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] not in ("Z", "X")


@contextmanager
def _together(device: str) -> Iterator[None]:
    """Hold the process group of torchrun inside the block.

    Raises:
        InputError: The process was not started by torchrun.
    """
    if dist.is_initialized():
        yield
        return
    if "RANK" not in os.environ or "WORLD_SIZE" not in os.environ:
        raise InputError(
            "processes: expected the variables of torchrun, got none; start "
            "`torchrun --nproc-per-node P -m graphmem_torch.distributed ...`"
        )
    cuda = device.startswith("cuda")
    if cuda:
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")) % torch.cuda.device_count())
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        yield
    finally:
        dist.destroy_process_group()


def _agree(
    group: Processes,
    folder: ShardFolder,
    config: Config,
    encoder: str | None,
    files: Sequence[str],
) -> None:
    """Check that all ranks have the same release, settings, encoder, shards and files.

    Raises:
        InputError: A rank has others; names it and what differs.
    """
    settings = json.dumps(config_to_dict(config), sort_keys=True, default=str)
    own = {
        "version": f"{__version__}, torch {torch.__version__}",
        "configuration": hashlib.sha256(settings.encode()).hexdigest()[:16],
        "encoder": str(encoder),
        "shards": f"{folder.shards} of memory {folder.id}",
        "files": " ".join(files),
    }
    told = group.gather(own, "configuration")
    for rank, other in enumerate(told):
        differs = next((name for name in own if other[name] != told[0][name]), None)
        if differs is not None:
            raise InputError(
                f"rank {rank}: expected the {differs} of rank 0 ({told[0][differs]}), got "
                f"{other[differs]}; give all ranks the same"
            )


class DistributedMemory(MemoryQuestions):
    """Memory of shards in several processes; all ranks call its methods together.

    It is only asked (`retrieve`, and `at` a moment). Other work is done on the stores of the
    shards, or by `Memory.open` of the folder in one process.
    """

    def __init__(self, memory: ShardedMemory, group: Processes) -> None:
        """Take the shards of this process; callers use `open`."""
        self._memory, self.group = memory, group
        self._asking: ShardedAsking = memory._asking

    @property
    def config(self) -> Config:
        """Settings of all ranks."""
        return self._memory.config

    def at(self, as_of: Any = None, *, valid_at: Any = None) -> Any:
        """Return a view at a moment, to retrieve; see `Memory.at`."""
        return self._memory.at(as_of, valid_at=valid_at)

    def close(self) -> None:
        """Close the shards of this process."""
        self._memory.close()

    def __enter__(self) -> Self:
        """Return the memory."""
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the shards of this process; after an error without saving."""
        self._memory.__exit__(kind)


def open(
    path: str | os.PathLike[str],
    *,
    preset: str = "default",
    config: Config | None = None,
    embedder: Any = None,
    device: str = "auto",
    clock: Callable[[], float] = time.time,
) -> DistributedMemory:
    """Open a memory of shards on all ranks, to ask it together.

    Needs an initialised process group, as under torchrun.

    Args:
        path: Folder of the shards.
        preset: Name of a preset, or path of a YAML file.
        config: Settings, instead of a preset.
        embedder: Encoder, as in `Memory.open`.
        device: Device of the index: `auto` (CUDA if there is one), `cpu`, `cuda`, ...
        clock: Function that returns now, in seconds since the epoch UTC.

    Raises:
        InputError: Ranks differ in release, settings, encoder or shards; or are more than shards.
        StoreError: A shard is missing.
    """
    given = load_config(preset) if config is None else checked_config(config)
    memory, group = _opened(path, "r", given, embedder, device, clock)
    return DistributedMemory(memory, group)


def _opened(
    path: str | os.PathLike[str],
    mode: Literal["w", "r"],
    config: Config,
    embedder: Any,
    device: str,
    clock: Callable[[], float] = time.time,
    files: Sequence[str] = (),
) -> tuple[ShardedMemory, Processes]:
    """Open the shards of this rank, after all ranks have agreed."""
    place = usable_device(device)
    if place.startswith("cuda"):
        place = f"cuda:{torch.cuda.current_device()}"
    folder = ShardFolder.open(path)
    group = Processes(folder.shards, place)
    settings = resolved_settings(config)
    named = embedder if isinstance(embedder, str) else type(embedder).__name__
    _agree(group, folder, settings, named, files)
    shared = {"config": settings, "device": place, "clock": clock, "namespaces_open": 64}
    memory = open_shards(path, mode, embedder, False, shared, group)
    prints = {str(each.store.fingerprint) for each in memory.shards}
    told = group.gather(sorted(prints), "encoders")
    if any(each != told[0] for each in told):
        memory.close()
        raise InputError(
            f"encoder: expected {told[0]} on all ranks, got {told}; give all ranks the same"
        )
    return memory, group


COMMANDS = Tree("graphmem_torch.distributed", help="A memory of shards in several processes.")
"""All commands of `python -m graphmem_torch.distributed`."""


def _on_all(run: Callable[..., Reply]) -> Callable[..., Reply]:
    """Run a command inside the process group, and print on rank 0 alone."""

    def command(target: Target, **own: Any) -> Reply:
        device = usable_device(target.settings.device)
        with _together(device):
            reply = run(target, **own)
            dist.barrier()
            if dist.get_rank():
                raise click.exceptions.Exit(reply.code)
            return reply

    command.__doc__ = run.__doc__
    return command


def _index(
    target: Target,
    files: tuple[str, ...],
    format: str | None,
    prune: bool,
    skip_bad: bool,
    shards: int | None,
    workers: int | None,
    encoder_batch: int | None,
    encoder_dtype: str | None,
) -> Reply:
    """Bring the shards up to date with files, each rank its own."""
    target = with_encoder(target, encoder_dtype)
    config, embedder = target.settings.config, target.settings.embedder
    if dist.get_rank() == 0:
        if shards is not None:
            make_shards(target, shards, dry_run=False)
        if target.sharded:  # so that no rank takes a store that is not made yet for a lost one
            shared = {"config": resolved_settings(config), "device": "cpu", "clock": time.time}
            open_shards(target.store, "w", embedder, True, shared).close()
    dist.barrier()
    folder = ShardFolder.open(target.store, shards)
    watch = _Watch(folder.shards)
    start = time.perf_counter()
    device = target.settings.device
    memory, group = _opened(target.store, "w", config, embedder, device, files=files)
    with memory:
        set_batch(memory.embedder, encoder_batch)
        given: Any = {"format": format, "input": "raw", "prune": prune, "dry_run": False}
        given |= {"skip_bad": skip_bad, "progress": group.rank == 0}
        beside = max(1, default_workers() // group.world)
        given["workers"] = beside if workers is None else workers
        own = [index(files, **given) for index in memory.indexers()]
        done: Indexed = joined_files([part for each in group.gather(own, "ends") for part in each])
        memory.count()
    watch.end()
    seconds = round(time.perf_counter() - start, 3)
    text = f"{done.new:,} memories added to {target.store} by {group.world} processes"
    return Reply(
        data={"store": str(target.store), "processes": group.world, **asdict(done)}
        | {"seconds": seconds},
        text=f"{text} in {seconds:.1f} s, {done.known:,} were there already",
        note="\n".join(uneven_notes(target)) if group.rank == 0 else "",
        code=3 if done.skipped else 0,
    )


def _query(target: Target, questions: tuple[str, ...], k: int | None) -> Reply:
    """Find the memories that answer questions, asking all shards together."""
    folder = ShardFolder.open(target.store)
    watch = _Watch(folder.shards)
    settings = target.settings
    with open(
        target.store, config=settings.config, embedder=settings.embedder, device=settings.device
    ) as memory:
        found = memory.retrieve(list(questions), k=k)
    watch.end()
    blocks = ["\n".join(result_lines(result, shown=k or 5, full=False)) for result in found]
    return Reply(
        data=lambda: {"results": [result.as_dict() for result in found]},
        text="\n\n\n".join(blocks),
    )


@COMMANDS.command("index", cls=Leaf)
@click.argument("files", nargs=-1, required=True, metavar="FILE ...")
@option(
    "--format",
    type=choice("text", "jsonl", "locomo", "whatsapp-dmy", "whatsapp-mdy"),
    help="Read the files in this format, not in that of their names.",
)
@option("--prune", is_flag=True, help="Delete the memories of files that are gone.")
@option("--skip-bad", is_flag=True, help="Leave out files and lines that cannot be used.")
@option("--shards", type=COUNT, metavar="S", help="Make a memory of S shards.")
@option(
    "--workers",
    type=COUNT,
    metavar="N",
    help="Find concepts in at most N processes of each rank.",
)
@option("--encoder-batch", type=COUNT, metavar="PIECES", help="Encode this many pieces in a pass.")
@option(
    "--encoder-dtype",
    type=choice("float32", "bfloat16"),
    help="Compute vectors in this type; a store is bound to it.",
)
@store_options
def index(target: Target, **own: Any) -> Reply:
    """Bring a memory of shards up to date with files, each process its own shards."""
    return _on_all(_index)(target, **own)


@COMMANDS.command("query", cls=Leaf)
@click.argument("questions", nargs=-1, required=True, metavar="QUESTION ...")
@option("-k", type=COUNT, help="Find at most N memories.")
@store_options
def query(target: Target, **own: Any) -> Reply:
    """Find the memories that answer questions; all processes ask together."""
    return _on_all(_query)(target, **own)


def main() -> int:
    """Run the command of the process and return its exit code."""
    return run_command(COMMANDS, "graphmem_torch.distributed")


if __name__ == "__main__":
    sys.exit(main())
