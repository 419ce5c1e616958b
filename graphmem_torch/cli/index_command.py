"""`graphmem index`: bring a store up to date with files."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal

import click

from graphmem_torch.checks import check_count
from graphmem_torch.cli.options import Target, expect_no_slip, store_options
from graphmem_torch.cli.syntax import COUNT, PATH, Leaf, choice, option
from graphmem_torch.cli.terminal import Reply, counted
from graphmem_torch.errors import InputError
from graphmem_torch.results import Added, Indexed
from graphmem_torch.store.shard_folder import ShardFolder

__all__ = [
    "RESUMES",
    "added_reply",
    "index",
    "make_shards",
    "set_batch",
    "uneven_notes",
    "with_encoder",
]

RESUMES = "what was acknowledged is safe, and running the same command again resumes"
"""State that Ctrl-C leaves while memories are added."""


@click.command("index", cls=Leaf, after_interrupt=RESUMES)
@click.argument("files", nargs=-1, required=True, metavar="FILE ...")
@option(
    "--format",
    type=choice("text", "jsonl", "locomo", "whatsapp-dmy", "whatsapp-mdy"),
    help="Read the files in this format, not in that of their names. whatsapp-dmy and -mdy say "
    "whether the day comes first.",
)
@option(
    "--input",
    type=choice("raw", "observations"),
    default="raw",
    help="Read only the turns of LoCoMo files, or their facts too.  [default: raw]",
)
@option("--prune", is_flag=True, help="Delete the memories of files that are gone.")
@option("--dry-run", is_flag=True, help="Say what would change, and change nothing.")
@option(
    "--skip-bad",
    is_flag=True,
    help="Leave out files and lines that cannot be used, list them, and exit with 3.",
)
@option(
    "--embeddings",
    type=PATH,
    multiple=True,
    metavar="VECTORS",
    help="Take the vectors of the memories from this .npy, .safetensors or .parquet file, by id or "
    "in the order of the memories. Repeatable.",
)
@option(
    "--normalise", is_flag=True, help="Divide these vectors, and those in lines, by their lengths."
)
@option(
    "--fingerprint",
    metavar="NAME",
    help="Make a store for vectors of this encoder, without loading it. --embedder names what "
    "loads it for the first question.",
)
@option(
    "--shards",
    type=COUNT,
    metavar="S",
    help="Make a memory of S stores, which are searched as one; S is fixed for good.",
)
@option(
    "--workers",
    type=COUNT,
    metavar="N",
    help="Find concepts in at most N processes beside the encoder, 0: in this one alone.  "
    "[default: the cores less one, none for few texts]",
)
@option(
    "--encoder-batch",
    type=COUNT,
    metavar="PIECES",
    help="Encode this many word pieces in one pass.  [default: 65536 on a GPU, 1024 on a CPU]",
)
@option(
    "--encoder-dtype",
    type=choice("float32", "bfloat16"),
    help="Compute vectors in this type. bfloat16 is faster on a GPU, and its vectors differ: a "
    "store is bound to it.",
)
@option(
    "--ray",
    metavar="ADDRESS",
    help="Index the shards on this Ray cluster, such as ray://head:10001; local starts one here.",
)
@option("--new", is_flag=True, help="Make a store even if its name is much like another's.")
@store_options
def index(
    target: Target,
    files: tuple[str, ...],
    format: str | None,
    input: str,
    prune: bool,
    dry_run: bool,
    skip_bad: bool,
    embeddings: tuple[Path, ...],
    normalise: bool,
    fingerprint: str | None,
    shards: int | None,
    workers: int | None,
    encoder_batch: int | None,
    encoder_dtype: str | None,
    ray: str | None,
    new: bool,
) -> Reply:
    """Bring a store up to date with files, or make one.

    Run it again after files were edited, moved or deleted. Files that have not changed are not
    read, and texts that have not changed are not encoded again.

    FILE is a text, Markdown, JSON lines, an export of ChatGPT, Claude, Slack, WhatsApp, Telegram
    or Discord (as downloaded, or unpacked), LoCoMo JSON, a proof library, a folder of these, or
    - for standard input.
    """
    from graphmem_torch.readers.read import check_paths

    there = target.exists
    if not there and not new:
        expect_no_slip(target.store)
    if not (skip_bad or target.is_there()):
        check_paths(files, format)  # before a store or a namespace is made for nothing
    start = time.perf_counter()
    if workers is not None:
        check_count("--workers", workers, 0)
    if encoder_batch is not None:
        check_count("--encoder-batch", encoder_batch)
    target = with_encoder(target, encoder_dtype)
    given: dict[str, Any] = {"format": format, "input": input, "prune": prune}
    given |= {"normalise": normalise, "workers": workers}
    mode: Literal["r", "w"] = "r" if dry_run and there else "w"
    if fingerprint is not None and not embeddings:
        raise InputError(
            "--fingerprint: expected --embeddings beside it, got none; name the vectors"
        )
    if ray is None and not dry_run:
        target.settings.load_engine()
        from graphmem_torch.memory.capacity import expect_room

        own = target.settings.config
        given_vectors = bool(embeddings) or fingerprint is not None
        expect_room(files, target.store, own, vectors=given_vectors, shards=shards)
    if shards is not None:
        make_shards(target, shards, dry_run=dry_run)
    if ray is not None:
        given["skip_bad"] = skip_bad
        return _on_ray(target, files, ray, given, apart=dry_run or bool(embeddings))
    target.settings.load_engine()
    from graphmem_torch.memory.file_vectors import opened_vectors

    with ExitStack() as stack:
        vectors = stack.enter_context(opened_vectors(embeddings or None, normalise=normalise))
        if fingerprint is not None and vectors is not None:
            target = target.with_embedder(vectors.encoder(fingerprint, target.settings.embedder))
        memory = stack.enter_context(
            target.open(mode, create=True, in_memory=dry_run and not there)
        )
        before = len(memory)
        if encoder_batch is not None:
            set_batch(memory.embedder, encoder_batch)
        given["embeddings"] = vectors
        try:
            done = memory.add_files(
                files, **given, dry_run=dry_run, skip_bad=skip_bad, progress=True
            )
        except InputError as error:
            stored = counted(len(memory) - before, "memory", "memories")
            kept = f" {stored} stored all the same, which the next run passes over;"
            raise InputError(
                f"{error}.{kept if len(memory) > before else ''} --skip-bad leaves out what "
                "cannot be used"
            ) from error
    return _indexed(target, done, time.perf_counter() - start, dry_run, skip_bad)


def _on_ray(
    target: Target, files: tuple[str, ...], address: str, reading: dict[str, Any], *, apart: bool
) -> Reply:
    """Bring a memory of shards up to date on a Ray cluster.

    Args:
        target: Folder of the shards.
        files: Files and folders.
        address: Address of the cluster.
        reading: Other arguments of `Memory.add_files`.
        apart: Whether an option was given that does not go with it.

    Raises:
        InputError: One store, a namespace, or such an option.
    """
    if not target.sharded or target.namespace is not None or apart:
        got = "--dry-run or --embeddings" if apart else "a namespace"
        got = got if target.sharded else f"{target.store} without shards"
        raise InputError(
            f"--ray: expected a memory of shards alone, got {got}; make one with --shards S, and "
            "leave out --namespace, --dry-run and --embeddings"
        )
    start, settings = time.perf_counter(), target.settings
    settings.load_engine()
    from graphmem_torch.integrations.ray_index import index_on_ray

    own: Any = {"embedder": settings.embedder, "device": settings.device, "progress": True}
    done = index_on_ray(target.store, files, address, config=settings.config, **own, **reading)
    return _indexed(target, done, time.perf_counter() - start, False, reading["skip_bad"])


def _indexed(target: Target, done: Indexed, took: float, dry_run: bool, skip_bad: bool) -> Reply:
    """Return the reply of what was done, or would be."""
    data = {"store": str(target.store), "dry_run": dry_run, **asdict(done)}
    data["seconds"] = round(took, 3)
    if not skip_bad:
        del data["skipped"]
    return Reply(
        data=data,
        text="\n".join(_lines(done, str(target.store), None if dry_run else data["seconds"])),
        note="\n".join(
            [
                *(f"graphmem: left out: {' '.join(why.split())}" for why in done.skipped),
                *uneven_notes(target),
            ]
        ),
        code=3 if done.skipped else 0,
    )


def with_encoder(target: Target, dtype: str | None) -> Target:
    """Return a target whose encoder computes in this type."""
    return target if dtype is None else target.with_overrides(embedder_dtype=dtype)


def set_batch(embedder: Any, pieces: int | None) -> None:
    """Set the pieces of a pass of an encoder that is loaded here; others have none."""
    if pieces is not None and hasattr(embedder, "batch_pieces"):
        embedder.batch_pieces = pieces


def uneven_notes(target: Target) -> list[str]:
    """Return a note if one session has more than its share of the shards of a store."""
    if not target.sharded:
        return []
    with target.read() as stored:
        told = stored.stats()["shards"]
    if not told["uneven"]:
        return []
    return [
        f"graphmem: the session {told['largest_session']!r} has {told['memories_of_it']:,} of "
        f"{sum(told['memories']):,} memories, more than one of {told['number']} shards should"
    ]


def make_shards(target: Target, shards: int, *, dry_run: bool) -> None:
    """Make the folder of shards of a command, unless it is there.

    Raises:
        InputError: The folder holds a store or another number of shards, or a dry run of a new one.
    """
    if dry_run and not target.sharded:
        raise InputError(
            f"--shards: expected none with --dry-run of a new memory, got {shards}; leave it out"
        )
    ShardFolder.create(target.store, shards)


def _lines(done: Indexed, store: str, seconds: float | None) -> list[str]:
    """List the counts, and the files that have changed, moved or gone."""
    counts = {
        "replaced": done.replaced,
        "deleted": done.deleted,
        "left out": len(done.skipped),
    }
    new = counted(done.new, "memory", "memories")
    would, took = ("would be ", "") if seconds is None else ("", f" in {seconds:.1f} s")
    said = [f"{new} {would}added to {store}{took}"]
    said += [f"{count:,} {what}" for what, count in counts.items() if count]
    said += [_known(done.known)] if done.known else []
    return [
        ", ".join(said),
        *_kept_vectors(done.kept_vectors),
        *(f"changed  {name}" for name in done.changed),
        *(f"moved    {before} -> {now}" for before, now in done.moved),
        *(f"deleted  {name}" for name in done.pruned),
        *(f"gone     {name} (kept; --prune deletes it)" for name in done.gone),
        *_lost(done.losses),
    ]


def _kept_vectors(count: int) -> list[str]:
    """Return a line about memories whose given vectors are not those stored."""
    if not count:
        return []
    said = counted(count, "memory keeps", "memories keep")
    return [f"{said} other vectors than those given; index into a new store to have these"]


def _lost(losses: Mapping[str, int]) -> list[str]:
    """List what could not be kept, by kind."""
    return [f"not kept {count:,} x {kind}" for kind, count in losses.items()]


def added_reply(target: Target, added: Added, seconds: float) -> Reply:
    """Return the reply with the counts of new and known memories."""
    data = {"store": str(target.store), "new": added.new, "known": added.known}
    known = f", {_known(added.known)}" if added.known else ""
    new = counted(added.new, "memory", "memories")
    return Reply(
        data=data | {"losses": dict(added.losses), "seconds": round(seconds, 3)},
        text="\n".join(
            [f"{new} added to {target.store} in {seconds:.1f} s{known}", *_lost(added.losses)]
        ),
    )


def _known(count: int) -> str:
    return f"{count:,} {'was' if count == 1 else 'were'} there already"
