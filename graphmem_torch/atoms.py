"""Atoms: the unit of memory, and the typed edges between them.

An atom is one piece of text that can be remembered on its own: a dialogue turn, a chunk of a
document, an extracted fact, a concept. Every atom is one node of the graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Any, Literal

from graphmem_torch.exact import dump_json

__all__ = [
    "AGGREGATE",
    "BUILT",
    "CONCEPT",
    "DEFAULT_EDGE_WEIGHT",
    "KINDS",
    "LINKED",
    "MAX_EDGE_WEIGHT",
    "MEMORY_TYPES",
    "RESEMBLING",
    "SIGNIFIERS",
    "Atom",
    "EdgeType",
    "FieldName",
    "Link",
    "one_line",
    "text_hash",
    "titled",
]

CONCEPT = "concept"
"""Kind of the nodes that linking derives from the text; they conduct but are never hits."""

FieldName = Literal["id", "kind", "speaker", "session", "time", "type", "title", "meta"]
"""Fields of atoms that are read one by one."""

AGGREGATE = "aggregate"
"""Kind of what is made of other memories; it is derived from each of them."""

BUILT = "aggregate:"
"""Prefix of the ids of aggregates that a consolidation makes."""

KINDS: Mapping[str, str] = {
    "turn": "what one person said in a dialogue",
    "chunk": "a piece of a document",
    "observation": "a fact extracted from other atoms",
    "claim": "a statement that may be supported or contradicted",
    "evidence": "what speaks for or against a claim",
    "theorem": "a statement with a proof",
    "definition": "what a word or symbol stands for",
    "task": "something to be done",
    "output": "what a task gave",
    "question": "what is open",
    AGGREGATE: "what several others say, or the conflict between two",
    CONCEPT: "a name that linking found in the text",
}
"""Kinds of nodes and what they mean; any other word is a kind as well."""

MEMORY_TYPES = ("semantic", "episodic", "procedural", "working")
"""Types of memory (`docs/mathematics.md` 6): facts, events, instructions, what is at hand."""

SIGNIFIERS = (
    "assertion",
    "question",
    "hypothesis",
    "plan",
    "preference",
    "event",
    "instruction",
)
"""What a text may be, more than one of them at once (`docs/mathematics.md` 5.3)."""

MAX_EDGE_WEIGHT = 1000.0
"""Largest size of a stated weight; sums over many edges then stay finite in float32."""


class EdgeType(IntEnum):
    """Type of an edge (`docs/mathematics.md` 2.1). The numbers are stored on disk: only append."""

    TEMPORAL = 0
    SIMILARITY = 1
    ABSTRACTION = 2
    ASSOCIATION = 3
    DEPENDENCY = 4
    IMPLICATION = 5
    COOCCURRENCE = 6
    SUPPORTS = 7
    CONTRADICTS = 8
    CAUSES = 9
    PRECEDES = 10
    ELABORATES = 11
    DERIVED_FROM = 12
    RELATED_TO = 13


RESEMBLING = (EdgeType.SIMILARITY, EdgeType.COOCCURRENCE)
"""Types of the weighed edges that linking makes between atoms."""

LINKED = (*RESEMBLING, EdgeType.TEMPORAL, EdgeType.ABSTRACTION, EdgeType.ASSOCIATION)
"""Types of all edges that linking makes, also those of concepts."""


DEFAULT_EDGE_WEIGHT: Mapping[EdgeType, float] = {
    EdgeType.TEMPORAL: 1.0,
    EdgeType.SIMILARITY: 1.0,
    EdgeType.ABSTRACTION: 0.8,
    EdgeType.ASSOCIATION: 1.0,
    EdgeType.DEPENDENCY: 1.0,
    EdgeType.IMPLICATION: 0.75,
    EdgeType.COOCCURRENCE: 0.3,
    EdgeType.SUPPORTS: 0.7,
    EdgeType.CONTRADICTS: -0.5,
    EdgeType.CAUSES: 1.0,
    EdgeType.PRECEDES: 1.0,
    EdgeType.ELABORATES: 0.7,
    EdgeType.DERIVED_FROM: 1.0,
    EdgeType.RELATED_TO: 0.5,
}
"""Weight of an edge that is given without one (`docs/mathematics.md` 2.1)."""


@dataclass(frozen=True, slots=True)
class Link:
    """An edge that an input states: from the atom that carries it to the atom with id `target`."""

    target: str
    type: EdgeType = EdgeType.RELATED_TO
    weight: float | None = None

    @property
    def strength(self) -> float:
        """The stated weight, else the default of the type; a contradiction is never positive."""
        if self.weight is None:
            return DEFAULT_EDGE_WEIGHT[self.type]
        return -abs(self.weight) if self.type == EdgeType.CONTRADICTS else self.weight


@dataclass(frozen=True, slots=True)
class Atom:
    """One memory.

    Attributes:
        id: Unique in its store; names in other forms of Unicode are the same (NFC).
        text: The content, verbatim.
        kind: One of `KINDS`, or any other word of the user's.
        speaker: Who said it.
        session: The dialogue session or the document it belongs to; temporal edges stay inside it.
        time: When it was said, seconds since the epoch, UTC; `Memory.add` makes them of a
            `datetime` or an ISO string (`text.times.parse_time`).
        event_time: When what it tells happened, likewise.
        type: Memory type: `semantic`, `episodic`, `procedural` or `working`.
        meta: Anything else that JSON can hold, numbers of any size and decimals with all of their
            digits among it (`exact`); stored, never interpreted. `Memory.add` makes strings of a
            `datetime` with a time zone (in UTC), a `date` and a `UUID`, and plain values of `Enum`
            and of scalars of numpy (`plain`): these come back, and are what filters compare.
        edges: Edges the input states.
        event_end: When what it tells ended, as `event_time`; None: it goes on, or nobody knows.
        title: Title in one line: of a document, or the headings above a section. It is
            searched and shown as a line of its own above the text.

    An aggregate that a consolidation makes has the time of its latest member, from which on it may
    be known; `event_time` and `event_end` are the first and the last of the days that its members
    tell of, and say nothing about how long it is true.
    """

    id: str
    text: str
    kind: str = "turn"
    speaker: str | None = None
    session: str | None = None
    time: float | None = None
    event_time: float | None = None
    type: str | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    edges: tuple[Link, ...] = ()
    event_end: float | None = None
    title: str | None = None

    @property
    def whole(self) -> str:
        """The text below its title: what concepts and names are found in."""
        return titled(self.title, self.text)

    @property
    def said(self) -> str:
        """The text with its speaker in front: what is compared with what others say."""
        return f"{self.speaker}: {self.text}" if self.speaker else self.text

    @property
    def rendered(self) -> str:
        """The text as it is embedded and shown: its speaker in front, its title above."""
        return titled(self.title, self.said)

    @property
    def is_built(self) -> bool:
        """Whether it is an aggregate that a consolidation made."""
        return self.kind == AGGREGATE and self.id.startswith(BUILT)

    @property
    def content(self) -> str:
        """Everything but the id, as JSON."""
        content = [
            self.text,
            self.kind,
            self.speaker,
            self.session,
            self.time,
            self.event_time,
            self.type,
            dict(self.meta),
            [[e.target, int(e.type), e.weight] for e in self.edges],
            # Left out where there is none, as atoms of older stores are known by.
            *([] if self.event_end is None else [self.event_end]),
            *([] if self.title is None else [{"title": self.title}]),
        ]
        return dump_json(content, sort_keys=True, ensure_ascii=False)

    @property
    def digest(self) -> str:
        """SHA-256 of `content`: atoms of one id and one digest are the same."""
        return text_hash(self.content)

    @property
    def former_digest(self) -> str:
        """The digest in releases that kept a title in `meta`; ids made of content are of it."""
        if self.title is None:
            return self.digest
        return replace(self, title=None, meta={"title": self.title, **self.meta}).digest

    def is_of(self, digest: str) -> bool:
        """Whether a stored digest is its own, or that of a release before titles had a field."""
        return digest in (self.digest, self.former_digest)


def titled(title: str | None, text: str) -> str:
    """A text with its title as a line of its own above it."""
    return f"{title}\n{text}" if title else text


def one_line(title: str | None) -> str | None:
    """A title without line breaks and doubled spaces; None where nothing is left."""
    return " ".join(title.split()) or None if title else None


def text_hash(text: str) -> str:
    """SHA-256 of a text as 64 hex digits: the key under which its embedding is cached."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
