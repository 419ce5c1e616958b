"""Commands of single memories: they are shown, written out, changed and taken away."""

from __future__ import annotations

import io
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import Positional, arg

from graphmem_torch.cli.ask import time_of
from graphmem_torch.cli.options import MemoryCommand, print_json, print_text
from graphmem_torch.cli.terminal import (
    atom_lines,
    clip,
    counted,
    particle_lines,
    validity_line,
    when,
    width,
)
from graphmem_torch.errors import InputError

__all__ = [
    "Archive",
    "Compact",
    "Delete",
    "Export",
    "Forget",
    "Get",
    "GiveFeedback",
    "ListMemories",
    "Restore",
    "ShowChanges",
    "ShowHistory",
    "SplitName",
    "Supersede",
    "Update",
]

_log = logging.getLogger(__name__)

_TIMES = ("time", "event_time", "event_end")
_FIELDS = ("text", "title", "kind", "speaker", "session", "time", "event_time", "event_end", "type")


@dataclass(frozen=True, kw_only=True)
class Get(MemoryCommand):
    """Show memories by their ids.

    Attributes:
        ids: The ids.
        particle: As insight particles: what they are, what they speak of, what they are tied to.
    """

    ids: Annotated[Positional[tuple[str, ...]], arg(metavar="ID ...")] = ()
    particle: bool = False

    def run(self) -> int:
        """Prints the memories, in the order asked for."""
        _expect_ids(self.ids)
        from graphmem_torch.readers.jsonl import atom_to_record

        with self.open_memory(self.store, "r") as memory:
            if self.particle:
                particles = memory.particles(self.ids)
                if self.json:
                    print_json({"particles": [asdict(each) for each in particles]})
                else:
                    print_text("\n\n".join("\n".join(particle_lines(p)) for p in particles))
                return 0
            atoms = memory.get(self.ids)
        if self.json:
            print_json({"atoms": [atom_to_record(atom) for atom in atoms]})
        else:
            print_text("\n\n".join("\n".join(atom_lines(atom)) for atom in atoms))
        return 0


@dataclass(frozen=True, kw_only=True)
class ListMemories(MemoryCommand):
    """List memories in an order, page by page.

    Attributes:
        where: Only memories that fit, as of `graphmem query`.
        order: `added`, `time`, `id` or `importance`, ascending; `--order=-time` and so on
            descending.
        limit: Memories of a page; 0 for all.
        after: Where the page before ended, as it was printed; or the id of a memory.
        archived: List what was archived instead.
    """

    where: Annotated[str | None, arg(metavar="JSON")] = None
    order: Annotated[str, arg(metavar="NAME")] = "added"
    limit: Annotated[int, arg(metavar="N")] = 20
    after: Annotated[str | None, arg(metavar="WHERE")] = None
    archived: bool = False

    def run(self) -> int:
        """Prints a page, and how to go on."""
        from graphmem_torch.readers.jsonl import atom_to_record
        from graphmem_torch.readers.source import parse_json

        where = None if self.where is None else parse_json(self.where, "--where")
        with self.open_memory(self.store, "r") as memory:
            listed = memory.archived() if self.archived else memory
            if listed is None:
                raise InputError("--archived: expected an archive, got none; leave it out")
            limit = None if self.limit == 0 else self.limit
            page = listed.list(where=where, order=self.order, limit=limit, after=self.after)
        if self.json:
            print_json({"atoms": [atom_to_record(atom) for atom in page], "next": page.next})
            return 0
        print_text("\n\n".join("\n".join(atom_lines(atom)) for atom in page) or "no memories")
        if page.next is not None:
            print_text(f"graphmem: more with --after {page.next}", to_reader=True)
        return 0


@dataclass(frozen=True, kw_only=True)
class Archive(MemoryCommand):
    """Put memories aside: no question finds them, `query --archived` and `restore` do.

    Attributes:
        ids: Their ids.
    """

    ids: Annotated[Positional[tuple[str, ...]], arg(metavar="ID ...")] = ()

    def run(self) -> int:
        """Says how many went, with what they superseded."""
        return _moved(self, "archived")


@dataclass(frozen=True, kw_only=True)
class Restore(MemoryCommand):
    """Bring archived memories back.

    Attributes:
        ids: Their ids.
    """

    ids: Annotated[Positional[tuple[str, ...]], arg(metavar="ID ...")] = ()

    def run(self) -> int:
        """Says how many came, with what superseded them."""
        return _moved(self, "restored")


def _expect_ids(ids: tuple[str, ...]) -> None:
    if not ids:
        raise InputError("expected at least one id, got none; `graphmem query` shows ids")


def _moved(command: Archive | Restore, done: str) -> int:
    """Moves what a command names, and says so."""
    _expect_ids(command.ids)
    with command.open_memory(command.store, "w") as memory:
        move = memory.archive if done == "archived" else memory.restore
        count = move(command.ids)
    if command.json:
        print_json({"store": str(command.store), done: count})
    else:
        print_text(f"{command.store}: {counted(count, 'memory', 'memories')} {done}")
    return 0


@dataclass(frozen=True, kw_only=True)
class Export(MemoryCommand):
    """Write the memories of a store as JSON lines, with pins, found types and edges between them.

    What is in its namespaces, too, unless one is named.

    Attributes:
        file: The file to write; `-` is standard output.
        vectors: Also write the vectors, so that a store of the same encoder need not encode again.
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    vectors: bool = False

    def run(self) -> int:
        """Writes the file and says how much is in it."""
        if str(self.file) == "-":
            return self._poured()
        with self.open_memory(self.store, "r") as memory:
            count = memory.export(self.file, vectors=self.vectors)
        if self.json:
            print_json({"file": str(self.file), "atoms": count})
        else:
            held = counted(count, "memory", "memories")
            print(f"{self.file}: {held}, {self.file.stat().st_size / 1e6:.1f} MB")
        return 0

    def _poured(self) -> int:
        """Writes to standard output, in UTF-8 whatever the terminal shows."""
        if self.json:
            raise InputError(
                "--json: expected a file to export to beside it, got -, which has the output for "
                "itself; leave one of them out"
            )
        out = io.TextIOWrapper(sys.stdout.buffer, encoding="utf-8", newline="\n")
        try:
            with self.open_memory(self.store, "r") as memory:
                memory.export(out, vectors=self.vectors)
            out.flush()
        finally:
            out.detach()  # else it closes standard output
        return 0


@dataclass(frozen=True, kw_only=True)
class Update(MemoryCommand):
    """Give a memory another content; what it said before is kept for `--as-of`.

    Attributes:
        id: Its id.
        text: What it says from now on.
        title: New title; an empty one takes it away, here and below.
        kind: Turn, note, ...
        speaker: Who said it.
        session: Where it belongs.
        time: When it was said: a date, a date with a time, or seconds since the epoch.
        event_time: When what it tells happened, likewise.
        event_end: When what it tells ended, likewise.
        type: Of memory: semantic, episodic, procedural or working.
        meta: Anything else, as a JSON object, in place of what it has.
    """

    id: Annotated[Positional[str], arg(metavar="ID")]
    text: Annotated[str | None, arg(metavar="TEXT")] = None
    title: Annotated[str | None, arg(metavar="TEXT")] = None
    kind: Annotated[str | None, arg(metavar="KIND")] = None
    speaker: Annotated[str | None, arg(metavar="NAME")] = None
    session: Annotated[str | None, arg(metavar="NAME")] = None
    time: Annotated[str | None, arg(metavar="TIME")] = None
    event_time: Annotated[str | None, arg(metavar="TIME")] = None
    event_end: Annotated[str | None, arg(metavar="TIME")] = None
    type: Annotated[str | None, arg(metavar="TYPE")] = None
    meta: Annotated[str | None, arg(metavar="JSON")] = None

    def run(self) -> int:
        """Stores the new version and prints it."""
        from graphmem_torch.readers.jsonl import atom_to_record
        from graphmem_torch.readers.source import parse_json

        given = {name: getattr(self, name) for name in _FIELDS}
        needed = ("text", "kind")
        changes: dict[str, Any] = {
            name: value if value or name in needed else None
            for name, value in given.items()
            if value is not None
        }
        changes |= {name: time_of(changes[name], name) for name in _TIMES if changes.get(name)}
        if self.meta is not None:
            changes["meta"] = parse_json(self.meta, "--meta")
        with self.open_memory(self.store, "w") as memory:
            atom = memory.update(self.id, **changes)
        if self.json:
            print_json({"atom": atom_to_record(atom)})
        else:
            print_text("\n".join(atom_lines(atom)))
        return 0


@dataclass(frozen=True, kw_only=True)
class Supersede(MemoryCommand):
    """Say that a memory took the place of another, which was true until then and is kept.

    Attributes:
        old: Id of the one that is true no longer.
        new: Id of the one in its place.
        at: When it took its place; by default when the new one begins to be true. A date, a date
            with a time, or seconds since the epoch.
    """

    old: Annotated[Positional[str], arg(metavar="OLD")]
    new: Annotated[Positional[str], arg(metavar="NEW")]
    at: Annotated[str | None, arg(metavar="TIME")] = None

    def run(self) -> int:
        """States it and prints the validity of the old one."""
        moment = None if self.at is None else time_of(self.at, "--at")
        with self.open_memory(self.store, "w") as memory:
            found = memory.supersede(self.old, self.new, when=moment)
        if self.json:
            print_json({"id": self.old, "validity": asdict(found)})
        else:
            print_text(f"{self.old}: {validity_line(found)}")
        return 0


@dataclass(frozen=True, kw_only=True)
class SplitName(MemoryCommand):
    """Split a name from the concept that it shares with others, for good.

    Attributes:
        name: A name of a concept.
        undo: Let a name that was split join others again.
    """

    name: Annotated[Positional[str], arg(metavar="NAME")]
    undo: bool = False

    def run(self) -> int:
        """Splits or joins the name and says whether that is new."""
        with self.open_memory(self.store, "w") as memory:
            change = memory.join_name if self.undo else memory.split_name
            changed = change(self.name)
        if self.json:
            print_json({"name": self.name, "split": not self.undo, "changed": changed})
            return 0
        state = "joins others again" if self.undo else "is a concept of its own"
        print_text(f"{self.name} {state}" + ("" if changed else ", as before"))
        return 0


@dataclass(frozen=True, kw_only=True)
class ShowHistory(MemoryCommand):
    """Show what became of a memory: its versions, its validity, what it superseded and what did it.

    Attributes:
        id: Its id.
    """

    id: Annotated[Positional[str], arg(metavar="ID")]

    def run(self) -> int:
        """Prints the history."""
        with self.open_memory(self.store, "r") as memory:
            found = memory.history(self.id)
        if self.json:
            print_json(found.as_dict())
            return 0
        lines = [self.id]
        for version in found.versions:
            since = "from the start" if version.since is None else f"since {when(version.since)}"
            lines.append(f"  version  {since}: {clip(version.atom.rendered, width())}")
        lines += [f"  stated   {validity_line(each)}" for each in found.statements]
        for each in found.chain if len(found.chain) > 1 else ():
            shown = f"{each.id}  {validity_line(each.validity)}"
            lines += [f"  chain    {shown}", f"           {clip(each.text, width())}"]
        print_text("\n".join(lines))
        return 0


@dataclass(frozen=True, kw_only=True)
class ShowChanges(MemoryCommand):
    """Show what has changed in a store from a moment on.

    Attributes:
        since: The moment: a date, a date with a time, or seconds since the epoch.
    """

    since: Annotated[str, arg(metavar="TIME")]

    def run(self) -> int:
        """Prints the changes in the order in which they were known."""
        with self.open_memory(self.store, "r") as memory:
            found = memory.changes(time_of(self.since, "--since"))
        if self.json:
            print_json({"changes": [change.as_dict() for change in found]})
            return 0
        for change in found:
            what = f"{change.count:,}" if change.id is None else change.id
            what += "" if change.by is None else f" by {change.by}"
            print_text(f"{when(change.when)}  {change.what:<10}  {what}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Delete(MemoryCommand):
    """Delete memories with what is said of them, all or none.

    Attributes:
        ids: Their ids.
    """

    ids: Annotated[Positional[tuple[str, ...]], arg(metavar="ID ...")] = ()

    def run(self) -> int:
        """Deletes the memories and says how many."""
        _expect_ids(self.ids)
        with self.open_memory(self.store, "w") as memory:
            count = memory.delete(self.ids)
        if self.json:
            print_json({"store": str(self.store), "deleted": count})
        else:
            print(f"{count:,} {'memory' if count == 1 else 'memories'} deleted from {self.store}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Forget(MemoryCommand):
    """Erase memories for good, down to the last byte; conditions beside each other must all hold.

    Attributes:
        ids: Their ids.
        session: Only those of this session.
        speaker: Only those of this speaker.
        before: Only those whose time is earlier; a date, a date with a time, or seconds since the
            epoch.
        where: Only those that fit, as of `graphmem query`.
        question: Only the best hits for it, as many as `--k` says.
        k: How many.
        receipt: Write the receipt here, for `graphmem check --receipt`.
        dry_run: Show what would be erased, and erase nothing.
    """

    ids: Annotated[Positional[tuple[str, ...]], arg(metavar="ID ...")] = ()
    session: Annotated[str | None, arg(metavar="NAME")] = None
    speaker: Annotated[str | None, arg(metavar="NAME")] = None
    before: Annotated[str | None, arg(metavar="TIME")] = None
    where: Annotated[str | None, arg(metavar="JSON")] = None
    question: Annotated[str | None, arg(metavar="QUESTION")] = None
    k: Annotated[int | None, arg(metavar="N")] = None
    receipt: Annotated[Path | None, arg(metavar="FILE")] = None
    dry_run: bool = False

    def run(self) -> int:
        """Erases the memories, and prints or writes the receipt; `dry_run`: shows them."""
        from graphmem_torch.readers.source import parse_json

        ids = self.ids or None
        conditions: dict[str, Any] = {
            "session": self.session,
            "speaker": self.speaker,
            "before": None if self.before is None else time_of(self.before, "--before"),
            "where": None if self.where is None else parse_json(self.where, "--where"),
            "question": self.question,
            "k": self.k,
        }
        if self.dry_run:
            return self._shown(ids, conditions)
        with _reserved(self.receipt), self.open_memory(self.store, "w") as memory:
            receipt = memory.forget(ids, **conditions)
            # Before anything else can fail: it cannot be had again.
            said = receipt.to_json()
            written = self.receipt is not None and _written(self.receipt, said + "\n")
        count = receipt.atoms
        if self.json or not written:
            print_text(said)
        else:
            erased = counted(count, "memory", "memories")
            print(f"{erased} erased from {self.store}; the receipt is {self.receipt}")
        return 0

    def _shown(self, ids: tuple[str, ...] | None, conditions: Mapping[str, Any]) -> int:
        from graphmem_torch.readers.jsonl import atom_to_record

        if self.receipt is not None:
            raise InputError(
                f"--receipt: expected none with --dry-run, which erases nothing, got "
                f"{str(self.receipt)!r}; leave one of them out"
            )
        with self.open_memory(self.store, "r") as memory:
            atoms = memory.forgettable(ids, **conditions)
        if self.json:
            print_json({"dry_run": True, "atoms": [atom_to_record(atom) for atom in atoms]})
            return 0
        for atom in atoms:
            print_text("\n".join(atom_lines(atom)) + "\n")
        print(f"{counted(len(atoms), 'memory', 'memories')} would be erased from {self.store}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Compact(MemoryCommand):
    """Give back to the disk what forgetting and deleting have freed."""

    def run(self) -> int:
        """Says how many bytes the store's file has lost."""
        with self.open_memory(self.store, "w") as memory:
            freed = memory.compact()
        if self.json:
            print_json({"store": str(self.store), "freed": freed})
        else:
            print(f"{self.store} is {freed / 1e6:.1f} MB smaller")
        return 0


@contextmanager
def _reserved(path: Path | None) -> Iterator[None]:
    """Makes a file that was not there before; where nothing is written into it, it goes again.

    Raises:
        InputError: It is there, or cannot be made.
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
    """Whether a text is in a file; where it is not, nothing is, with a warning."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        _log.warning("%s: %s; the receipt is printed instead", path, error.strerror)
        os.truncate(path, 0)
        return False
    return True


@dataclass(frozen=True, kw_only=True)
class GiveFeedback(MemoryCommand):
    """Say which memories helped with a question, and which it got in vain.

    `graphmem consolidate` learns from it once there is enough; `graphmem learned --learn` at once.

    Attributes:
        question: As it was asked.
        used: Ids of memories that helped.
        not_used: Ids of memories that did not.
    """

    question: Annotated[Positional[str], arg(metavar="QUESTION")]
    used: Annotated[tuple[str, ...], arg(metavar="ID ...")] = ()
    not_used: Annotated[tuple[str, ...], arg(metavar="ID ...")] = ()

    def run(self) -> int:
        """Keeps it and says how much there is by now."""
        with self.open_memory(self.store, "w") as memory:
            memory.feedback(self.question, used=self.used, not_used=self.not_used)
            counts = memory.stats()["feedback"]
        if self.json:
            print_json({"store": str(self.store), "feedback": counts})
        else:
            print(f"feedback on {counted(counts['questions'], 'question')} is kept in {self.store}")
        return 0
