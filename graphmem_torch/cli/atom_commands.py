"""Commands of single memories: `graphmem atoms`."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from graphmem_torch.cli.options import Target, expect_archive, store_options
from graphmem_torch.cli.syntax import COUNT, JSON, PATH, TIME, Tree, choice, option, time_of
from graphmem_torch.cli.terminal import Reply, atom_lines, counted, particle_lines
from graphmem_torch.errors import InputError
from graphmem_torch.text.times import parse_duration

if TYPE_CHECKING:
    from graphmem_torch.atoms import Atom
    from graphmem_torch.memory import Memory
    from graphmem_torch.results import Receipt

__all__ = ["atoms"]

_log = logging.getLogger(__name__)

_ORDERS = ("added", "time", "id", "importance")
_TIMES = ("time", "event_time", "event_end", "expires")
_FIELDS = ("text", "title", "kind", "speaker", "session", *_TIMES, "ttl", "type")
_NEEDED = ("text", "kind")  # fields that an empty text does not remove

atoms = Tree("atoms", help="Show, change and remove single memories.")
_ids = click.argument("ids", nargs=-1, required=True, metavar="ID ...")
_id = click.argument("id")


@atoms.command("get")
@_ids
@option("--particle", is_flag=True, help="Show what they are about and what they are tied to.")
@store_options
def get(target: Target, ids: tuple[str, ...], particle: bool) -> Reply:
    """Show memories by their ids."""
    if particle:
        with target.open("r") as memory:
            particles = memory.upkeep.particles(ids)
        return Reply(
            data={"particles": [asdict(each) for each in particles]},
            text="\n\n".join("\n".join(particle_lines(each)) for each in particles),
        )
    with target.read() as memory:
        found = memory.get(ids)
    return Reply(data={"atoms": _records(found)}, text=_blocks(found))


@atoms.command("list")
@option("--where", type=JSON, help="List only memories whose fields fit, as in `graphmem query`.")
@option(
    "--order",
    type=choice(*_ORDERS, *(f"-{order}" for order in _ORDERS)),
    default="added",
    metavar="NAME",
    help="List by added, time, id or importance; -time and so on descend.  [default: added]",
)
@option("--limit", type=COUNT, default=20, help="List at most N; 0 for all.  [default: 20]")
@option("--after", metavar="PLACE", help="Go on after this place, which the page before printed.")
@option("--archived", is_flag=True, help="List the archive instead.")
@option("--expired", is_flag=True, help="List what has expired and is not deleted yet, instead.")
@store_options
def list_atoms(target: Target, where: Any, archived: bool, **given: Any) -> Reply:
    """List memories in an order, page by page."""
    given["limit"], order = given["limit"] or None, given["order"]
    if where is not None or order.endswith("importance"):  # both need the engine
        with target.open("r") as memory:
            asked = expect_archive(memory.upkeep.archived()) if archived else memory
            page = asked.list(where=where, **given)
    else:
        with target.read() as stored:
            kept = expect_archive(stored.archived()) if archived else stored
            page = kept.list(**given)
    return Reply(
        data={"atoms": _records(page), "next": page.next},
        text=_blocks(page) or "no memories",
        note="" if page.next is None else f"graphmem: more with --after {page.next}",
    )


@atoms.command("update")
@_id
@option("--text", help="Replace the text.")
@option("--title", help="Replace the title; an empty text takes it away, here and below.")
@option("--kind", metavar="KIND", help="Replace the kind: turn, note, ...")
@option("--speaker", metavar="NAME", help="Replace the speaker.")
@option("--session", metavar="NAME", help="Replace the session.")
@option("--time", metavar="TIME", help="Replace the time at which it was said.")
@option("--event-time", metavar="TIME", help="Replace the time at which its event began.")
@option("--event-end", metavar="TIME", help="Replace the time at which its event ended.")
@option("--expires", metavar="TIME", help="Replace the time from which no command shows it.")
@option("--ttl", metavar="SECONDS", help="Let it expire so many seconds from now.")
@option("--type", metavar="TYPE", help="Replace the type: semantic, episodic, procedural, working.")
@option("--meta", type=JSON, help="Replace everything else it has.")
@store_options
def update(target: Target, id: str, meta: Any, **given: str | None) -> Reply:
    """Change a memory; `--as-of` still finds what it said before."""
    changes: dict[str, Any] = {
        name: given[name] if given[name] or name in _NEEDED else None
        for name in _FIELDS
        if given[name] is not None
    }
    for name in _TIMES:
        if changes.get(name):
            changes[name] = time_of(changes[name], f"--{name.replace('_', '-')}")
    if changes.get("ttl"):
        changes["ttl"] = _seconds(changes["ttl"])
    if meta is not None:
        changes["meta"] = meta
    with target.open("w") as memory:
        atom = memory.update(id, **changes)
    (record,) = _records([atom])
    return Reply(data={"atom": record}, text=_blocks([atom]))


def _seconds(text: str) -> float:
    """Return a number of seconds.

    Raises:
        InputError: Another text.
    """
    try:
        return parse_duration(float(text), "--ttl")
    except ValueError as error:
        raise InputError(
            f"--ttl: expected a number of seconds, got {text!r:.60}; write --ttl 3600"
        ) from error


@atoms.command("forget")
@click.argument("ids", nargs=-1, metavar="ID ...")
@option("--session", metavar="NAME", help="Erase only memories of this session.")
@option("--speaker", metavar="NAME", help="Erase only memories of this speaker.")
@option("--before", type=TIME, help="Erase only memories from before this time.")
@option("--where", type=JSON, help="Erase only memories whose fields fit, as in `graphmem query`.")
@option("--question", metavar="TEXT", help="Erase only the best hits for this; -k says how many.")
@option("-k", type=COUNT, help="Erase the N best hits for --question.")
@option(
    "--receipt",
    type=PATH,
    metavar="FILE",
    help="Write the receipt here, for `graphmem store check --receipt`.",
)
@option("--dry-run", is_flag=True, help="Show what would be erased, and erase nothing.")
@store_options
def forget(
    target: Target, ids: tuple[str, ...], receipt: Path | None, dry_run: bool, **conditions: Any
) -> Reply:
    """Erase memories for good, to the last byte; print a receipt.

    Conditions are combined: all of them must hold. The archive is erased likewise, unless
    --question is given.
    """
    named = ids or None
    if dry_run:
        return _forgettable(target, named, receipt, conditions)
    with _reserved(receipt), target.open("w") as memory:
        given = memory.forget(named, **conditions)
        # Before anything else can fail: the receipt cannot be made again.
        several = given if isinstance(given, list) else [given]  # one of each shard
        said = "\n".join(each.to_json() for each in several)
        written = receipt is not None and _written(receipt, said + "\n")
    count = counted(sum(each.atoms for each in several), "memory", "memories")
    done = f"{count} erased from {target.store}; the receipt is {receipt}"
    data = json.loads(several[0].to_json()) if given is several[0] else _told(several)
    return Reply(data=data, text=done if written else said)


def _told(receipts: Iterable[Receipt]) -> dict[str, Any]:
    """Return the receipts of several shards as one JSON object."""
    return {"receipts": [json.loads(each.to_json()) for each in receipts]}


def _forgettable(
    target: Target, ids: tuple[str, ...] | None, receipt: Path | None, conditions: dict[str, Any]
) -> Reply:
    """Return the reply of a dry run of `forget`."""
    if receipt is not None:
        raise InputError(
            f"--receipt: expected none with --dry-run, which erases nothing, got "
            f"{str(receipt)!r}; leave one of them out"
        )
    asked = {name: conditions.pop(name) for name in ("where", "question", "k")}
    if any(value is not None for value in asked.values()):  # these need the engine
        with target.open("r") as memory:
            found = memory.forget(ids, **conditions, **asked, dry_run=True)
    else:
        with target.read() as stored:
            found = [*stored.forgettable(ids, **conditions)]
    count = f"{counted(len(found), 'memory', 'memories')} would be erased from {target.store}"
    return Reply(
        data={"dry_run": True, "atoms": _records(found)},
        text="\n\n".join([*filter(None, [_blocks(found)]), count]),
    )


@contextmanager
def _reserved(path: Path | None) -> Iterator[None]:
    """Create a new file, and remove it again if nothing is written into it.

    Raises:
        InputError: The file exists, or cannot be created.
    """
    if path is None:
        yield
        return
    try:
        path.open("x").close()
    except OSError as error:
        raise InputError(
            f"--receipt: expected a new file, got {str(path)!r} ({error.strerror}); name another"
        ) from error
    try:
        yield
    finally:
        if not path.stat().st_size:
            path.unlink()


def _written(path: Path, text: str) -> bool:
    """Write a text into a file and return True; on failure warn, empty the file, return False."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        _log.warning("%s: %s; the receipt is printed instead", path, error.strerror)
        os.truncate(path, 0)
        return False
    return True


@dataclass(frozen=True)
class _Change:
    """Command that changes the memories of some ids and prints their number.

    Attributes:
        name: Name of the command.
        help: Help text of the command.
        done: Participle for the changed memories, such as `deleted`.
        run: Changes the memories of some ids and returns their number.
    """

    name: str
    help: str
    done: str
    run: Callable[[Memory, tuple[str, ...]], int]


_CHANGES = (
    _Change(
        "delete",
        "Delete memories with their edges and versions, all or none.",
        "deleted",
        lambda memory, ids: memory.delete(ids),
    ),
    _Change(
        "archive",
        "Put memories aside: only `query --archived` finds them.",
        "archived",
        lambda memory, ids: memory.upkeep.archive(ids),
    ),
    _Change(
        "restore",
        "Bring archived memories back.",
        "restored",
        lambda memory, ids: memory.upkeep.restore(ids),
    ),
)


def _add(change: _Change) -> None:
    """Add the command of a change."""

    @atoms.command(change.name, help=change.help)
    @_ids
    @store_options
    def command(target: Target, ids: tuple[str, ...]) -> Reply:
        with target.open("w") as memory:
            count = change.run(memory, ids)
        return Reply(
            data={"store": str(target.store), change.done: count},
            text=f"{target.store}: {counted(count, 'memory', 'memories')} {change.done}",
        )


for _change in _CHANGES:
    _add(_change)


def _records(found: Iterable[Atom]) -> list[dict[str, Any]]:
    """Return memories as JSON objects."""
    from graphmem_torch.readers.jsonl import atom_to_record

    return [atom_to_record(atom) for atom in found]


def _blocks(found: Iterable[Atom]) -> str:
    """Return memories as blocks of lines."""
    return "\n\n".join("\n".join(atom_lines(atom)) for atom in found)
