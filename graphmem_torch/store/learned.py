"""Results of learning from a store's memories, and the feedback to learn from.

Memories are named by node number only, so the tables hold none of their text. The questions of
feedback are texts; a question is deleted with any of its memories.
"""

from __future__ import annotations

import json
import uuid
import zlib
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from graphmem_torch.errors import StoreError
from graphmem_torch.store.database import Database

__all__ = ["KEPT", "Feedback", "LearnedRow", "LearnedRows"]

KEPT = 1024
"""Maximum number of questions with feedback; older ones are dropped."""

_VERSION = "store.learned"
_LISTED = "(SELECT value FROM json_each(?))"
_ORPHANS = "DELETE FROM feedback_atom WHERE entry NOT IN (SELECT entry FROM feedback)"


class LearnedRow(NamedTuple):
    """One learned value.

    Attributes:
        value: The value that was stored; None if the row is damaged.
        stop: `next_node` at the time of learning: it saw only nodes below.
    """

    value: Mapping[str, Any] | None
    stop: int


class Feedback(NamedTuple):
    """Feedback on the memories retrieved for a question.

    Attributes:
        question: Text of the question.
        used, not_used: Node numbers of memories that helped, and that did not.
        time: Time of the latest feedback, seconds since the epoch UTC.
    """

    question: str
    used: tuple[int, ...]
    not_used: tuple[int, ...]
    time: float


class LearnedRows:
    """Learned values by kind, and feedback, in the database of a store."""

    def __init__(self, database: Database, *, kept: int = KEPT) -> None:
        """Read and write the tables of `database`, with feedback on up to `kept` questions."""
        self._database, self._kept = database, kept

    @property
    def version(self) -> str:
        """Token that changes with the learned values; empty if there never were any."""
        return self._database.value(_VERSION) or ""

    @property
    def erased(self) -> str:
        """Token that changes when memories are erased."""
        return self._database.value("store.erased") or ""

    def rows(self) -> dict[str, LearnedRow]:
        """Return the learned values, by kind."""
        if not self._database.has("learned"):
            return {}
        found = self._database.query("SELECT kind, stop, checksum, value FROM learned")
        return {kind: LearnedRow(_read(value, crc), stop) for kind, stop, crc, value in found}

    def put(
        self, kind: str, value: Mapping[str, Any], erased: str, *, drop: Iterable[str] = ()
    ) -> None:
        """Store a learned value, replacing the one before, in one transaction.

        Args:
            kind: Kind of the value.
            value: JSON-serialisable value.
            erased: `erased`, read before the memories were.
            drop: Kinds to delete.

        Raises:
            StoreError: Memories were erased meanwhile, or `Database.write` failed.
        """
        text = json.dumps(value)
        row = kind, zlib.crc32(text.encode()), text

        def work() -> None:
            if self.erased != erased:
                raise StoreError(
                    f"{self._database.place}: expected the memories that it was learned from, got "
                    "a store that has forgotten some meanwhile; learn it again"
                )
            self._drop([kind, *drop])
            # Node numbers are never reused.
            put = (
                "INSERT INTO learned (kind, stop, checksum, value) VALUES (?, coalesce((SELECT seq "
                "FROM sqlite_sequence WHERE name = 'atom'), -1) + 1, ?, ?)"
            )
            self._database.execute_many(put, [row])

        self._database.write(work)

    def ids(self, nodes: Sequence[int]) -> list[str]:
        """Return the ids of the nodes that still exist, themselves or as a later version."""
        sql = f"SELECT id FROM atom WHERE node IN {_LISTED}"
        found = self._database.query(sql, (json.dumps(list(nodes)),))
        if self._database.has("version"):
            sql = (
                "SELECT atom.id FROM version JOIN atom ON atom.node = version.current "
                f"WHERE version.node IN {_LISTED}"
            )
            found += self._database.query(sql, (json.dumps(list(nodes)),))
        return list(dict.fromkeys(id_ for (id_,) in found))

    def reset(self, kinds: Collection[str]) -> int:
        """Delete the learned values of some kinds; return their number."""

        def work() -> int:
            there = len(set(kinds) & self.rows().keys())
            if there:
                self._drop(kinds)
            return there

        return self._database.write(work)

    def give(
        self, question: str, used: Sequence[int], not_used: Sequence[int], when: float
    ) -> None:
        """Store feedback, on disk on return; does nothing if one of its atoms no longer exists.

        Args:
            question: Text of the question.
            used: Node numbers of atoms that helped.
            not_used: Node numbers of atoms that did not.
            when: Seconds since the epoch UTC.
        """
        self._database.write(lambda: self.add_feedback(question, used, not_used, when))

    def add_feedback(
        self, question: str, used: Sequence[int], not_used: Sequence[int], when: float
    ) -> None:
        """Store feedback like `give`; only inside `Database.write`."""
        run, nodes = self._database.execute_many, {**dict.fromkeys(not_used, 0)}
        nodes |= dict.fromkeys(used, 1)
        there = f"SELECT count(*) FROM atom WHERE node IN {_LISTED}"
        if self._database.query(there, (json.dumps(list(nodes)),))[0][0] != len(nodes):
            return
        entry = self.given() + 1
        run("INSERT INTO feedback VALUES (?, ?, ?)", [(entry, when, question)])
        rows = [(entry, node, said) for node, said in nodes.items()]
        run("INSERT INTO feedback_atom (entry, node, used) VALUES (?, ?, ?)", rows)
        run("DELETE FROM feedback WHERE entry <= ?", [(entry - self._kept,)])
        run("DELETE FROM feedback_atom WHERE entry <= ?", [(entry - self._kept,)])
        run("INSERT OR REPLACE INTO meta VALUES ('store.feedback', ?)", [(str(entry),)])

    def given(self) -> int:
        """Count all feedback given so far, dropped feedback included."""
        return int(self._database.value("store.feedback") or 0)

    def feedback(self) -> list[Feedback]:
        """Return the kept feedback, oldest first; later feedback on the same question wins."""
        if not self._database.has("feedback"):
            return []
        said: dict[str, dict[int, int]] = {}
        last: dict[str, float] = {}
        sql = (
            "SELECT question, time, node, used FROM feedback JOIN feedback_atom USING (entry) "
            "ORDER BY entry, row"
        )
        for question, time, node, used in self._database.query(sql):
            said.setdefault(question, {})[node], last[question] = used, time
        sides = {
            q: ([n for n in own if own[n]], [n for n in own if not own[n]])
            for q, own in said.items()
        }
        return [
            Feedback(question, tuple(used), tuple(not_used), last[question])
            for question, (used, not_used) in sides.items()
        ]

    def counts(self) -> dict[str, int]:
        """Count the kept questions, and their verdicts `used` and `not_used` on memories."""
        if not self._database.has("feedback"):
            return {"questions": 0, "used": 0, "not_used": 0}
        questions = self._database.query("SELECT count(*) FROM feedback")[0][0]
        used, every = self._database.query(
            "SELECT coalesce(sum(used), 0), count(*) FROM feedback_atom"
        )[0]
        return {"questions": questions, "used": used, "not_used": every - used}

    def drop_feedback(self) -> int:
        """Delete all feedback; return the number of questions."""

        def work() -> int:
            count = self.counts()["questions"]
            self._database.execute_many("DELETE FROM feedback", [()])
            self._database.execute_many("DELETE FROM feedback_atom", [()])
            return count

        return self._database.write(work)

    def pass_on(self, old: int, new: int) -> None:
        """Move feedback on an atom to its next version; only inside `Database.write`."""
        run = self._database.execute_many
        run("UPDATE feedback_atom SET node = ? WHERE node = ?", [(new, old)])

    def remove(self, nodes: str) -> None:
        """Delete the questions with feedback on some nodes (a JSON list); only inside a write."""
        run = self._database.execute_many
        about = f"SELECT entry FROM feedback_atom WHERE node IN {_LISTED}"
        run(f"DELETE FROM feedback WHERE entry IN ({about})", [(nodes,)])
        run(_ORPHANS, [()])

    def erase(self, first: int | None) -> None:
        """Delete values learned while an erased atom was stored; only inside a write.

        Every memory influences learning: as a positive, as a negative, or in background statistics.
        Remaining feedback is rewritten, so that no page keeps a copy of deleted rows.

        Args:
            first: The smallest erased node number; None: none.
        """
        run, query = self._database.execute_many, self._database.query
        if first is not None:
            sql = "SELECT kind FROM learned WHERE stop > ?"
            if gone := [kind for (kind,) in query(sql, (first,))]:
                self._drop(gone)
        if rows := query("SELECT entry, time, question FROM feedback ORDER BY entry"):
            run("DELETE FROM feedback", [()])
            run("INSERT INTO feedback VALUES (?, ?, ?)", rows)

    def problems(self) -> list[str]:
        """Return sentences about what is wrong with the tables."""
        found = [
            f"learned: {kind} are damaged; reset them, or learn them again"
            for kind, row in self.rows().items()
            if row.value is None
        ]
        if self._database.has("feedback"):
            lost = self._database.query(
                "SELECT count(*) FROM feedback_atom WHERE node NOT IN (SELECT node FROM atom) "
                "OR entry NOT IN (SELECT entry FROM feedback)"
            )[0][0]
            if lost:
                found.append(f"feedback: {lost} entries on memories that are not there")
        return found

    def _drop(self, kinds: Iterable[str]) -> None:
        run = self._database.execute_many
        run("DELETE FROM learned WHERE kind = ?", [(kind,) for kind in kinds])
        put = "INSERT OR REPLACE INTO meta VALUES (?, ?)"
        run(put, [(_VERSION, uuid.uuid4().hex)])


def _read(text: str, checksum: int) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text) if zlib.crc32(text.encode()) == checksum else None
    except (ValueError, AttributeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
