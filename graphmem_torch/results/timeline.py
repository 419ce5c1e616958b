"""Versions, validity and contradictions of atoms over time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from graphmem_torch.atoms import Atom

__all__ = ["ChainEntry", "Change", "Conflict", "History", "Validity", "Version"]


@dataclass(frozen=True, slots=True)
class Version:
    """Version of an atom, as `Memory.update` made it.

    Attributes:
        atom: Content of this version.
        since: Start of its currency, in seconds since the epoch UTC; None: from the start.
        until: Time when another version replaced it; None: it is current.
    """

    atom: Atom
    since: float | None
    until: float | None


@dataclass(frozen=True, slots=True)
class Validity:
    """Interval in which the statement of an atom was true (`docs/mathematics.md` 5.1).

    Attributes:
        start: Start, in seconds since the epoch UTC; None: unknown, or always.
        stop: End, exclusive; None: open.
        by: Id of the atom that superseded it. None: no atom did, or the end was stated by hand or
            by the atom itself.
        known: Time when this was recorded; None: it follows from the atom alone.
    """

    start: float | None
    stop: float | None
    by: str | None = None
    known: float | None = None

    def at(self, when: float) -> bool:
        """Return whether it was true at a time, in seconds since the epoch UTC."""
        begun = self.start is None or self.start <= when
        return begun and (self.stop is None or when < self.stop)


@dataclass(frozen=True, slots=True)
class Change:
    """Change of a memory, from `Memory.changes`.

    Attributes:
        what: `added`, `updated` (a new version), `superseded`, `validity` (an end of it was stated
            or withdrawn), `archived`, or `deleted`.
        when: Time when it was recorded, in seconds since the epoch UTC.
        id: Id of the atom; None for deleted atoms, whose ids are not kept.
        by: Id of the successor of a `superseded` atom.
        count: Number of atoms; 1 except for `deleted`.
    """

    what: str
    when: float
    id: str | None
    by: str | None = None
    count: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class ChainEntry:
    """Atom in a chain of supersession.

    Attributes:
        id: Id of the atom.
        text: Text of the atom (`Atom.rendered`).
        validity: Interval in which it was true.
    """

    id: str
    text: str
    validity: Validity


@dataclass(frozen=True, slots=True)
class History:
    """History of an atom, from `Memory.history`.

    Attributes:
        id: Id of the atom.
        versions: Versions of the atom, oldest first.
        statements: Statements about its validity, in the order in which they were recorded.
        chain: The atom with all atoms that it superseded or that superseded it, directly or
            indirectly; by the start of their validity, unknown starts first.
    """

    id: str
    versions: tuple[Version, ...]
    statements: tuple[Validity, ...]
    chain: tuple[ChainEntry, ...]

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values; versions have their texts and times only."""
        return {
            "id": self.id,
            "versions": [
                {"text": each.atom.rendered, "since": each.since, "until": each.until}
                for each in self.versions
            ],
            "statements": [asdict(each) for each in self.statements],
            "chain": [asdict(each) for each in self.chain],
        }


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two memories that contradict each other.

    Attributes:
        earlier, later: Ids of both, in the order in which they began to be true.
        texts: Texts of both with their speakers, in this order.
        confidence: Confidence of the contradiction, in [0, 1].
        state: `open` while both count as true at the same time, else `resolved`.
        how: Kind of resolution: `superseded` (one replaced the other), `validity` (they are not
            true at the same time) or `aggregate` (both stay, and a memory states the conflict);
            None while it is open.
        by: Id of the memory that replaced one of them, or that states the conflict.
        reason: Difference (`number: 8080 / 9090`), if the rules find it; else `stated or judged`:
            by `connect`, `judge_edges` or an oracle.
    """

    earlier: str
    later: str
    texts: tuple[str, str]
    confidence: float
    state: Literal["open", "resolved"] = "open"
    how: Literal["superseded", "validity", "aggregate"] | None = None
    by: str | None = None
    reason: str = "stated or judged"
