"""Atoms, the unit of memory, and the typed edges between them.

An atom is one piece of text that can be remembered on its own: a dialogue turn, a chunk of a
document, an extracted fact, a concept. Every atom is one node of the graph.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from json.encoder import encode_basestring
from math import isfinite
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
"""Kind of the nodes that linking extracts from texts; they conduct activation but are no hits."""

FieldName = Literal["id", "kind", "speaker", "session", "time", "type", "title", "meta"]
"""Fields of atoms that can be read one at a time."""

AGGREGATE = "aggregate"
"""Kind of atoms made from other memories; derived from each of them."""

BUILT = "aggregate:"
"""Prefix of the ids of aggregates made by consolidation."""

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
"""Kinds of nodes with their meaning; any other word is also a kind."""

MEMORY_TYPES = ("semantic", "episodic", "procedural", "working")
"""Types of memory (`docs/mathematics.md` 6): facts, events, instructions, current context."""

SIGNIFIERS = (
    "assertion",
    "question",
    "hypothesis",
    "plan",
    "preference",
    "event",
    "instruction",
)
"""Signifiers of a text, which may have several (`docs/mathematics.md` 5.3)."""

MAX_EDGE_WEIGHT = 1000.0
"""Maximum size of a stated weight; keeps sums over many edges finite in float32."""


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
"""Default weight of an edge of each type (`docs/mathematics.md` 2.1)."""


@dataclass(frozen=True, slots=True)
class Link:
    """Edge stated by an input: from the atom that carries it to the atom with id `target`."""

    target: str
    type: EdgeType = EdgeType.RELATED_TO
    weight: float | None = None

    @property
    def strength(self) -> float:
        """Return the stated weight, else the type's default; a contradiction is never positive."""
        if self.weight is None:
            return DEFAULT_EDGE_WEIGHT[self.type]
        return -abs(self.weight) if self.type == EdgeType.CONTRADICTS else self.weight


@dataclass(frozen=True, slots=True)
class Atom:
    """One memory.

    Attributes:
        id: Unique in its store; ids with the same Unicode normal form (NFC) are equal.
        text: The content, verbatim.
        kind: One of `KINDS`, or any other word.
        speaker: Name of the speaker.
        session: Dialogue session or document; temporal edges stay inside it.
        time: Time of the utterance, seconds since the epoch, UTC. `Memory.add` converts a
            `datetime` or an ISO string (`text.times.parse_time`).
        event_time: Start of the event in the text, in the same form.
        type: Memory type: `semantic`, `episodic`, `procedural` or `working`.
        meta: Any JSON value, stored but never interpreted. Numbers of any size and decimals keep
            all digits (`exact`). `Memory.add` converts a `datetime` with a time zone (to UTC), a
            `date`, a `UUID`, an `Enum` and numpy scalars (`plain`); reads and filters see the
            result.
        edges: Edges stated by the input.
        event_end: End of the event, in the form of `event_time`; None if it lasts or is unknown.
        title: Title in one line: of a document, or the headings above a section. It is searched and
            shown as a line above the text.
        expires: Moment from which no read returns the atom, in the form of `time`. Not part of
            its content: equal atoms may expire at different times.
        ttl: Seconds from now to `expires`, also after each read that refreshes. `Memory.add` takes
            a `timedelta`, too. Only with `expires`, which `add` computes if it is missing.

        The `time` of an aggregate made by consolidation is that of its latest member: before that,
        it could not be known. Its `event_time` and `event_end` are the first and last day that its
        members mention. They do not say how long it is true.
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
    expires: float | None = None
    ttl: float | None = None

    @property
    def whole(self) -> str:
        """Title and text, from which concepts and names are extracted."""
        return titled(self.title, self.text)

    @property
    def said(self) -> str:
        """Speaker and text, as compared with what others say."""
        return f"{self.speaker}: {self.text}" if self.speaker else self.text

    @property
    def rendered(self) -> str:
        """Title, speaker and text, as embedded and shown."""
        return titled(self.title, self.said)

    @property
    def is_built(self) -> bool:
        """Return whether it is an aggregate made by consolidation."""
        return self.kind == AGGREGATE and self.id.startswith(BUILT)

    @property
    def content(self) -> str:
        """Return everything but the id and the expiry, as JSON."""
        values: list[object] = [
            self.text,
            self.kind,
            self.speaker,
            self.session,
            self.time,
            self.event_time,
            self.type,
            dict(self.meta),
            [[e.target, int(e.type), e.weight] for e in self.edges],
        ]
        # Omitted if None, so that digests of older stores stay the same.
        if self.event_end is not None:
            values.append(self.event_end)
        if self.title is not None:
            values.append({"title": self.title})
        return f"[{', '.join(map(_json, values))}]"

    @property
    def digest(self) -> str:
        """SHA-256 of `content`; atoms with equal id and digest are equal."""
        return text_hash(self.content)

    @property
    def former_digest(self) -> str:
        """Digest of releases that kept the title in `meta`, as in ids made from content."""
        if self.title is None:
            return self.digest
        return replace(self, title=None, meta={"title": self.title, **self.meta}).digest

    def is_of(self, digest: str) -> bool:
        """Return whether a stored digest is that of this atom, now or in the former form."""
        return digest in (self.digest, self.former_digest)


def _json(value: object) -> str:
    """Return a value as JSON; `dump_json`, for most values in a tenth of its time."""
    if type(value) is str:
        return encode_basestring(value)
    if value is None:
        return "null"
    if type(value) is float and isfinite(value):
        return repr(value)
    if type(value) in (dict, list) and not value:
        return str(value)
    return dump_json(value, sort_keys=True, ensure_ascii=False)


def titled(title: str | None, text: str) -> str:
    """Return a text with its title on a line above it."""
    return f"{title}\n{text}" if title else text


def one_line(title: str | None) -> str | None:
    """Return a title without line breaks and repeated spaces; None if nothing is left."""
    return " ".join(title.split()) or None if title else None


def text_hash(text: str) -> str:
    """Return the SHA-256 of a text as 64 hex digits, the cache key of its embedding."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
