"""Versions, validity and contradictions of atoms over time."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Literal

from graphmem_torch.atoms import Atom

__all__ = ["ChainEntry", "Change", "Conflict", "History", "Validity", "Version"]


@dataclass(frozen=True, slots=True)
class Version:
    """A version of an atom, as `Memory.update` made it.

    Attributes:
        atom: What it said.
        since: From when it was current, seconds since the epoch UTC; None: from the start.
        until: When another one took its place; None: it is the one of today.
    """

    atom: Atom
    since: float | None
    until: float | None


@dataclass(frozen=True, slots=True)
class Validity:
    """From when to when what an atom says was true (`docs/mathematics.md` 5.1).

    Attributes:
        start: From when on, seconds since the epoch UTC; None: nobody knows, or always.
        stop: Until when, not included; None: open.
        by: Id of the atom that superseded it; None: none did, its end was stated by hand, or is
            the atom's own.
        known: When this was noted; None: it follows from the atom alone.
    """

    start: float | None
    stop: float | None
    by: str | None = None
    known: float | None = None

    def at(self, when: float) -> bool:
        """Whether it was true at a moment, seconds since the epoch UTC."""
        begun = self.start is None or self.start <= when
        return begun and (self.stop is None or when < self.stop)


@dataclass(frozen=True, slots=True)
class Change:
    """A change of a memory, by `Memory.changes`.

    Attributes:
        what: `added`, `updated` (a new version), `superseded`, `validity` (an end of it was stated
            or taken back), `archived`, or `deleted`.
        when: When it came to be known, seconds since the epoch UTC.
        id: Of the atom; None for those that were deleted, whose ids are not kept.
        by: Of a `superseded` atom, the id of the one in its place.
        count: How many atoms it was; 1 but for `deleted`.
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
    """An atom in a chain of supersession.

    Attributes:
        id: Of the atom.
        text: As it is shown (`Atom.rendered`).
        validity: When it was true.
    """

    id: str
    text: str
    validity: Validity


@dataclass(frozen=True, slots=True)
class History:
    """What became of an atom, by `Memory.history`.

    Attributes:
        id: Of the atom.
        versions: What it said over time, the first version first.
        statements: What was stated of its validity, in the order in which it was known.
        chain: It and the atoms that it superseded, or that superseded it, at once or by way of
            others; in the order in which they began to be true, what began nobody knows when first.
    """

    id: str
    versions: tuple[Version, ...]
    statements: tuple[Validity, ...]
    chain: tuple[ChainEntry, ...]

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values; of the versions without edges."""
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
        earlier, later: Their ids, in the order in which they began to be true.
        texts: What they say, with their speakers, in this order.
        confidence: Of the contradiction, in [0, 1].
        state: `open` while both are held to be true at once, else `resolved`.
        how: What resolved it: `superseded` (one took the place of the other), `validity` (they are
            not true at one time) or `aggregate` (both stay, and a memory states the conflict); None
            while it is open.
        by: Id of the memory that is in the place of one of them, or that states the conflict.
        reason: Difference (`number: 8080 / 9090`), if the rules find it; else `stated or
            judged`: by `connect`, `judge_edges` or an oracle.
    """

    earlier: str
    later: str
    texts: tuple[str, str]
    confidence: float
    state: Literal["open", "resolved"] = "open"
    how: Literal["superseded", "validity", "aggregate"] | None = None
    by: str | None = None
    reason: str = "stated or judged"
