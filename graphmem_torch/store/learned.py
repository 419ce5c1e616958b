"""What was learned from a store's memories, and the feedback to learn from.

Memories are named by their node numbers, so that nothing here says what they said; the questions of
feedback are texts, and go with any of the memories that they are about.
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
"""Questions whose feedback is kept: the last ones."""

_VERSION = "store.learned"
_LISTED = "(SELECT value FROM json_each(?))"
_ORPHANS = "DELETE FROM feedback_atom WHERE entry NOT IN (SELECT entry FROM feedback)"


class LearnedRow(NamedTuple):
    """Something learned.

    Attributes:
        value: As it was put; None where the row is damaged.
        stop: Memories whose node numbers are below were there.
    """

    value: Mapping[str, Any] | None
    stop: int


class Feedback(NamedTuple):
    """What was said of the memories that a question got.

    Attributes:
        question: As asked.
        used, not_used: Node numbers.
        time: When it was said last, seconds since the epoch UTC.
    """

    question: str
    used: tuple[int, ...]
    not_used: tuple[int, ...]
    time: float


class LearnedRows:
    """What was learned, by kind, and feedback, in the database of a store."""

    def __init__(self, database: Database, *, kept: int = KEPT) -> None:
        """Of a store (`StoreReader.learned`), of feedback so much."""
        self._database, self._kept = database, kept

    @property
    def version(self) -> str:
        """A word that changes with what was learned; empty where nothing ever was."""
        return self._meta(_VERSION)

    @property
    def erased(self) -> str:
        """A word that changes when memories are erased."""
        return self._meta("store.erased")

    def rows(self) -> dict[str, LearnedRow]:
        """What was learned, by kind."""
        if not self._database.has("learned"):
            return {}
        found = self._database.query("SELECT kind, stop, checksum, value FROM learned")
        return {kind: LearnedRow(_read(value, crc), stop) for kind, stop, crc, value in found}

    def put(
        self, kind: str, value: Mapping[str, Any], erased: str, *, drop: Iterable[str] = ()
    ) -> None:
        """Keeps what was learned, in place of what was before, in one transaction.

        Args:
            kind: Of what was learned.
            value: Anything that JSON holds.
            erased: `erased` as it was before the memories were read.
            drop: Kinds that are not of use any more.

        Raises:
            StoreError: Memories were erased meanwhile; or as `Database.write`.
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
            # Node numbers are never given twice.
            put = (
                "INSERT INTO learned (kind, stop, checksum, value) VALUES (?, coalesce((SELECT seq "
                "FROM sqlite_sequence WHERE name = 'atom'), -1) + 1, ?, ?)"
            )
            self._database.execute_many(put, [row])

        self._database.write(work)

    def ids(self, nodes: Sequence[int]) -> list[str]:
        """Ids of those of these nodes that are still there, as they are or in a later version."""
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
        """Drops what was learned of these kinds; how many there were."""

        def work() -> int:
            there = len(set(kinds) & self.rows().keys())
            if there:
                self._drop(kinds)
            return there

        return self._database.write(work)

    def give(
        self, question: str, used: Sequence[int], not_used: Sequence[int], when: float
    ) -> None:
        """Keeps feedback, on disk when it returns; not where one of its atoms is gone by now.

        Args:
            question: As asked.
            used: Node numbers of atoms that helped.
            not_used: Those of atoms that did not.
            when: Seconds since the epoch UTC.
        """
        self._database.write(lambda: self.add_feedback(question, used, not_used, when))

    def add_feedback(
        self, question: str, used: Sequence[int], not_used: Sequence[int], when: float
    ) -> None:
        """`give`, inside `Database.write`."""
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
        """How often feedback was given so far, that which is not kept any more included."""
        return int(self._meta("store.feedback") or 0)

    def feedback(self) -> list[Feedback]:
        """What is kept, the oldest first; what the same question got twice counts as the last."""
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
        """Questions that feedback is kept of, and how many memories it says were used, and not."""
        if not self._database.has("feedback"):
            return {"questions": 0, "used": 0, "not_used": 0}
        questions = self._database.query("SELECT count(*) FROM feedback")[0][0]
        used, every = self._database.query(
            "SELECT coalesce(sum(used), 0), count(*) FROM feedback_atom"
        )[0]
        return {"questions": questions, "used": used, "not_used": every - used}

    def drop_feedback(self) -> int:
        """Drops all feedback; of how many questions."""

        def work() -> int:
            count = self.counts()["questions"]
            self._database.execute_many("DELETE FROM feedback", [()])
            self._database.execute_many("DELETE FROM feedback_atom", [()])
            return count

        return self._database.write(work)

    def pass_on(self, old: int, new: int) -> None:
        """Makes feedback on an atom that on its next version; only inside `Database.write`."""
        run = self._database.execute_many
        run("UPDATE feedback_atom SET node = ? WHERE node = ?", [(new, old)])

    def remove(self, nodes: str) -> None:
        """Drops feedback on atoms that go, a JSON list; only inside `Database.write`."""
        run = self._database.execute_many
        about = f"SELECT entry FROM feedback_atom WHERE node IN {_LISTED}"
        run(f"DELETE FROM feedback WHERE entry IN ({about})", [(nodes,)])
        run(_ORPHANS, [()])

    def erase(self, first: int | None) -> None:
        """Drops what was learned while an atom was there that is erased; only inside a write.

        Every memory takes part: as evidence, as one that is none, or in the background. What is
        left of feedback is written anew, so that no page holds a copy of what was dropped.

        Args:
            first: The smallest node number that is erased; None: none.
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
        """What is wrong with it, in sentences."""
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

    def _meta(self, key: str) -> str:
        rows = self._database.query("SELECT value FROM meta WHERE key = ?", (key,))
        return rows[0][0] if rows else ""


def _read(text: str, checksum: int) -> Mapping[str, Any] | None:
    try:
        value = json.loads(text) if zlib.crc32(text.encode()) == checksum else None
    except (ValueError, AttributeError, RecursionError):
        return None
    return value if isinstance(value, dict) else None
