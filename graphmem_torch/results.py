"""What a question or an addition gets back: plain values, no tensors."""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, field, fields
from typing import Any, Literal, Protocol, overload

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError

__all__ = [
    "PRESENT",
    "Added",
    "Answer",
    "ChainEntry",
    "Change",
    "Conflict",
    "Consolidated",
    "Context",
    "EdgeGradient",
    "Explanation",
    "Grounds",
    "History",
    "Hit",
    "Indexed",
    "Learned",
    "Mode",
    "ModeAlignment",
    "ModePair",
    "ModeSummary",
    "Page",
    "Particle",
    "PathStep",
    "PlanStep",
    "QueryPlan",
    "Receipt",
    "Reconciled",
    "RegimeSwitch",
    "Result",
    "Start",
    "Statement",
    "Trace",
    "Understood",
    "Validity",
    "Version",
    "WeighedPath",
]

_SHOWN = 6  # reasons of a kind in an explanation as a text
_LINE = 100  # characters of the memory in it


@dataclass(frozen=True, slots=True)
class Added:
    """What an `add` or a `connect` did.

    Attributes:
        new: Atoms, or edges, stored.
        known: Those there already: atoms of the same content, edges as strong or more.
        ids: Ids of the atoms in the order of the input, also of those that were there already.
            Messages in `skipped` have none; edges neither. Not compared, and not printed.
        skipped: Messages that were left out: the place of each in the input, and why.
        losses: What could not be kept of the input, by kind: parts of messages without text
            (images, calls without arguments), halves of surrogate pairs that were replaced.
    """

    new: int
    known: int
    ids: tuple[str, ...] = field(default=(), compare=False, repr=False)
    skipped: tuple[str, ...] = ()
    losses: Mapping[str, int] = field(default_factory=dict, hash=False)

    def __add__(self, other: Added) -> Added:
        """Both together."""
        return Added(
            self.new + other.new,
            self.known + other.known,
            self.ids + other.ids,
            self.skipped + other.skipped,
            dict(Counter(self.losses) + Counter(other.losses)),
        )


@dataclass(frozen=True, slots=True)
class Page(Sequence[Atom]):
    """Atoms in an order, by `Memory.list`; a sequence of them.

    Attributes:
        atoms: The atoms.
        next: Value of `after` for the page after this one; None if this is the last.
    """

    atoms: tuple[Atom, ...]
    next: str | None = None

    @overload
    def __getitem__(self, place: int) -> Atom: ...

    @overload
    def __getitem__(self, place: slice) -> tuple[Atom, ...]: ...

    def __getitem__(self, place: int | slice) -> Atom | tuple[Atom, ...]:
        """An atom by its place, or several."""
        return self.atoms[place]

    def __len__(self) -> int:
        """How many atoms it has."""
        return len(self.atoms)


@dataclass(frozen=True, slots=True)
class Particle:
    """A memory as an insight particle (Cognitive Weave, section 3.2), by `Memory.particles`.

    Attributes:
        id: Of the atom.
        content: Its text.
        keys: Resonance keys: concepts that it mentions, then its own words, as its text has them.
        signifiers: What it is, of `atoms.SIGNIFIERS`.
        imprint: Situational imprint: `source` (speaker, session, kind), and what its `meta` has
            under `agent_state` and `environment`; of an aggregate its `value`, too.
        created: When it was said, else when it was stored, seconds since the epoch UTC.
        modified: When its latest version took the place of the one before.
        accessed: When it was last used.
        event_start, event_end: When it began and ceased to be true, as far as it is known today; if
            nothing else is stated, it began on the first day that its text tells of. Of an
            aggregate, the first and the last day that its members tell of.
        strands: Edges to other memories: type, id of the other, weight; those from it first.
        importance: Of now, in [0, 1].
        uses: How often it was used.
    """

    id: str
    content: str
    keys: tuple[str, ...]
    signifiers: tuple[str, ...]
    imprint: Mapping[str, Any]
    created: float | None
    modified: float | None
    accessed: float | None
    event_start: float | None
    event_end: float | None
    strands: tuple[tuple[str, str, float], ...]
    importance: float
    uses: int


@dataclass(frozen=True, slots=True)
class Indexed:
    """What `Memory.add_files` did, or would do.

    Attributes:
        new: Memories stored.
        known: Memories that were there already, and stay.
        replaced: Memories that say something else now, under their ids.
        deleted: Memories that no file says any more.
        unchanged: Number of files that say what they said.
        added, changed: Names of files that are new, or say something else.
        moved: Names of files before and now.
        gone: Names of files that are no more; their memories are kept.
        pruned: Names of files that are no more; their memories are deleted.
        skipped: What was wrong with files and lines that were left out.
        losses: What could not be kept of the files that were read, by kind, as in `Added`; of
            exports of chats also messages of the program, and those that cannot be read.
    """

    new: int = 0
    known: int = 0
    replaced: int = 0
    deleted: int = 0
    unchanged: int = 0
    added: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    moved: tuple[tuple[str, str], ...] = ()
    gone: tuple[str, ...] = ()
    pruned: tuple[str, ...] = ()
    skipped: tuple[str, ...] = ()
    losses: Mapping[str, int] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class Receipt:
    """What says that memories were erased, by `Memory.forget`.

    It names them by hashes with a salt, so that whoever knows a text can tell whether it was
    erased, and nobody can read it from here.

    Attributes:
        when: Seconds since the epoch UTC.
        atoms: How many memories.
        before, after: States of the store.
        previous: Digest of the receipt that the store gave before; empty for the first.
        salt: Of the hashes.
        erased: Hashes (`hash_of`) of their ids, texts and names of concepts, in order.
        digest: SHA-256 of all the rest; the store has noted it.
    """

    when: float
    atoms: int
    before: str
    after: str
    previous: str
    salt: str
    erased: tuple[str, ...]
    digest: str

    def hash_of(self, kind: str, value: str) -> str:
        """The hash of an `id` or a `text`: SHA-256 of salt, kind and value, a line each."""
        data = f"{self.salt}\n{kind}\n{value}".encode("utf-8", "surrogatepass")
        return hashlib.sha256(data).hexdigest()

    def content_digest(self) -> str:
        """SHA-256 of everything but the digest, as JSON of sorted keys without spaces."""
        content = {name: value for name, value in asdict(self).items() if name != "digest"}
        data = json.dumps(content, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(data.encode()).hexdigest()

    def to_json(self) -> str:
        """As one JSON object."""
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def from_json(cls, text: str) -> Receipt:
        """Of what `to_json` gave, whether it was changed or not.

        Raises:
            InputError: No receipt.
        """
        try:
            values = json.loads(text)
            receipt = cls(**values | {"erased": tuple(values["erased"])})
            receipt.content_digest()
        except (TypeError, ValueError, KeyError, RecursionError) as error:
            raise InputError(
                f"receipt: expected what `forget` gave, got something else ({error}); give its file"
            ) from error
        return receipt


@dataclass(frozen=True, slots=True)
class Learned:
    """Something that a memory has learned, and from what (`Memory.learned`).

    Attributes:
        kind: `weights` of the signals (`fit`), their `correction` by feedback, or the `threshold`
            of the gate (`calibrate`).
        value: Weights by signal, or a threshold.
        applied: Whether questions are answered by it.
        reason: Why not; empty where it is.
        when: Seconds since the epoch UTC.
        questions: How many it was learned from.
        atoms: How many memories there were: those that are no evidence are what it was told from.
        evidence: Ids of those that answer the questions; of a threshold, of the best hits.
        gone: How many of them have been deleted since.
        settings: Digest of the settings and the encoder that it was learned with.
        measure: Of the following: `recall@10` or `auc` of questions that were not learned from, or
            the share that was `refused`.
        held_out: How many questions; 0: none were held back, and the following are None.
        before, after: Mean of the measure.
        difference: Mean of after minus before, and the ends of its 95 % bootstrap interval.
    """

    kind: str
    value: Mapping[str, float] | float
    applied: bool
    reason: str
    when: float
    questions: int
    atoms: int
    evidence: tuple[str, ...]
    gone: int
    settings: str
    measure: str
    held_out: int
    before: float | None
    after: float | None
    difference: tuple[float, float, float] | None

    def __str__(self) -> str:
        """Whether it is applied, of how many questions and memories, and what it gained."""
        state = "applied" if self.applied else f"not applied ({self.reason})"
        gain = ""
        if self.before is not None and self.after is not None:
            gain = f"; {self.measure} {self.before:.3f} before, {self.after:.3f} after"
        if self.held_out:
            gain += f", on {self.held_out:,} questions held back"
        return f"{state}; from {self.questions:,} questions, {self.atoms:,} memories{gain}"

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


@dataclass(frozen=True, slots=True)
class Understood:
    """What a `Memory.understand` did.

    Attributes:
        said: Memories of which the oracle said what they are.
        failed: Those it gave no usable answer for: the local rules read them, and the next call
            asks again.
    """

    said: int = 0
    failed: int = 0

    def __add__(self, other: Understood) -> Understood:
        """Both together."""
        return Understood(self.said + other.said, self.failed + other.failed)


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


def _done(counts: Mapping[str, int]) -> str:
    """`4 compared, 1 conflict`; what there is nothing of is not named."""
    named = (
        (count, name.removesuffix("s") if count == 1 else name) for name, count in counts.items()
    )
    return ", ".join(f"{count:,} {name}" for count, name in named if count) or "nothing to do"


@dataclass(frozen=True, slots=True)
class Reconciled:
    """What a `Memory.reconcile` did.

    Attributes:
        compared: Pairs of memories that were judged.
        conflicts: Contradictions that were found, and not known before.
        superseded: Memories in whose place another one was put.
        stated: Aggregates that state a conflict.
        duplicates: Memories that were found to say again what an earlier one says.
        failed: Pairs without a usable verdict, or with verdicts that contradict each other.
    """

    compared: int = 0
    conflicts: int = 0
    superseded: int = 0
    stated: int = 0
    duplicates: int = 0
    failed: int = 0

    def __add__(self, other: Reconciled) -> Reconciled:
        """Both together."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return Reconciled(*(one + more for one, more in pairs))

    def __str__(self) -> str:
        """What it did, in a line."""
        return _done(asdict(self))


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What a `Memory.consolidate` did.

    Attributes:
        linked: Memories whose concepts waited to be found.
        reinforced: Memories whose importance was raised by uses.
        reconciled: What contradicts or repeats each other.
        aggregated: Aggregates that were made.
        dissolved: Aggregates that were taken away, as what they were made of has changed.
        archived: Memories that were put aside.
        learned: 1 if a correction of the weights was learned from feedback, applied or not.
    """

    linked: int = 0
    reinforced: int = 0
    reconciled: Reconciled = field(default_factory=Reconciled)
    aggregated: int = 0
    dissolved: int = 0
    archived: int = 0
    learned: int = 0

    def __add__(self, other: Consolidated) -> Consolidated:
        """Both together."""
        names = (
            "linked",
            "reinforced",
            "reconciled",
            "aggregated",
            "dissolved",
            "archived",
            "learned",
        )
        return Consolidated(*(getattr(self, name) + getattr(other, name) for name in names))

    def __str__(self) -> str:
        """What it did, in a line."""
        counts = asdict(self)
        return _done(counts.pop("reconciled") | counts)


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
        """As plain JSON values."""
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
class PathStep:
    """One edge on the way that brought activation: from `source` to `target` (atom ids)."""

    source: str
    target: str
    type: str
    weight: float


class Grounds(Protocol):
    """Part of a question that a retrieval keeps, so that its hits can say why they were found."""

    def reasons(self, hit: Hit) -> tuple[str, ...]:
        """Return the reasons for a hit in words, the strongest first."""
        ...


@dataclass(frozen=True, slots=True)
class Hit:
    """One retrieved memory with its reasons.

    Attributes:
        id: Atom id.
        text: The atom's text as it is shown (`Atom.rendered`).
        score: Probability in [0, 1] that the memory is relevant to the question; see
            `Result.calibrated`.
        signals: Each signal's share of `raw` (weight times value).
        path: Strongest chain of edges from an anchor to this atom; empty for an anchor.
        kind, speaker, session, time, meta, title: As in `Atom`.
        mode: Number of its mode, where the index has modes.
        duplicates: Ids of the memories that say the same (`Memory.duplicates`) and may be hits for
            the question as well, where it stands for them (`rank.unique`).
        raw: Sum of `signals`, by which hits are ranked; compare it within one question only.
        grounds: What `why` is made of.
    """

    id: str
    text: str
    score: float
    signals: dict[str, float]
    path: tuple[PathStep, ...] = ()
    kind: str = "turn"
    speaker: str | None = None
    session: str | None = None
    time: float | None = None
    mode: int | None = None
    meta: Mapping[str, Any] = field(default_factory=dict)
    duplicates: tuple[str, ...] = ()
    title: str | None = None
    raw: float = 0.0
    grounds: Grounds | None = field(default=None, repr=False, compare=False)

    @property
    def why(self) -> tuple[str, ...]:
        """At most three reasons in words, the strongest first; made when they are asked for.

        They are those of the largest shares in `signals`, such as "same words: oven, restored" or
        "answers the turn before". Empty if nothing speaks for the hit.
        """
        return () if self.grounds is None else self.grounds.reasons(self)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values, with `why`."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        del own["grounds"]
        own |= {"path": [asdict(step) for step in self.path], "duplicates": list(self.duplicates)}
        return own | {"why": list(self.why)}


@dataclass(frozen=True, slots=True)
class Trace:
    """What answering a question took, by `Memory.retrieve(..., trace=True)`.

    Attributes:
        seconds: Wall clock of each stage, in their order, for the whole batch: `encode` (with the
            filters), `candidates`, `base signals`, `anchors and graph`, `score`, `paths and gate`,
            `read`, `verify`; stages that a preset or a question does not have are left out.
        questions: How many the batch had.
        atoms: In the memory.
        rule: What the candidates are.
        candidates: How many.
        activated: How many memories activation reached; None where none spread.
        anchors: Ids and activation where it started, as the settings choose them.
    """

    seconds: dict[str, float]
    questions: int
    atoms: int
    rule: str
    candidates: int
    activated: int | None
    anchors: tuple[tuple[str, float], ...]


@dataclass(frozen=True, slots=True)
class PlanStep:
    """What a step of a plan did.

    Attributes:
        name: `succession`, `time`, `semantic` or `relational`.
        does: What it does, by which settings.
        before, after: How many memories it was given, and how many it left; of `succession` how
            many are in a chain, and how many are what is asked for.
    """

    name: str
    does: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class QueryPlan:
    """How a question is narrowed down before it is ranked: time, then meaning, then relations.

    `Memory.plan` gives one, with what its steps did; one of your own needs the settings alone, and
    may be given for any question. `docs/mathematics.md` 5.7 has the formulas.

    Attributes:
        between: The window of time, as `Memory.retrieve` takes it; None: any time. A memory is in
            it whose event (`event_time` to `event_end`) it touches; of those that state none, one
            that was said in it, or tells of days that it touches.
        best: Memories that are taken by cosine, and as many by BM25, of those in the window; None:
            all of them, where there is neither a window nor any `hops`: nothing is pruned.
        hops: Edges that are followed from these at most; 0: none.
        edges: Names of the types of edges that are followed, in the directions in which the preset
            lets them conduct; empty: every type.
        concepts: Names of concepts that edges are followed from as well.
        kept: Memories that are left in the end at most.
        discount: What an edge takes off, in (0, 1].
        order: How the first `among` hits are ordered: `relevance`; `first` or `latest` by time;
            `present`: a hit gives way to later ones that are like it and fit about as well. Then as
            many are looked at, however few are asked for (`PRESENT` looks at 30).
        among: So many.
        least: Behind the memories of a window that leaves fewer, others are listed: those of
            unknown time, then those outside.
        match: So they are where the best BM25 in the window is a smaller share of the best of any
            time. Nothing outside is listed where both are 0.
        late: Days behind a window with two ends in which it is still told of; of those outside,
            what was said then stands before the rest.
        succession: What is asked for of values that took the place of each other: the one `before`
            or `after` the value `of`, or the `first`; empty: nothing.
        of: The words of a value; empty: the one that is in force.
        steps: What they did; empty where nobody asked yet.
    """

    between: tuple[Any, Any] | None = None
    best: int | None = 96
    hops: int = 1
    edges: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    kept: int = 192
    discount: float = 0.9
    order: str = "relevance"
    among: int = 5
    least: int = 0
    match: float = 0.0
    late: float = 0.0
    succession: str = ""
    of: str = ""
    steps: tuple[PlanStep, ...] = ()

    def __str__(self) -> str:
        """A line for each step, with the memories before and after it."""
        lines = [
            f"{step.name:<10} {step.before:>9,} -> {step.after:>9,}  {step.does}"
            for step in self.steps
        ]
        if self.order != "relevance":
            how = "what holds now" if self.order == "present" else f"by time, the {self.order} one"
            lines.append(f"{'order':<10} the best {self.among}: {how} first")
        return "\n".join(lines) or "no steps yet"

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


PRESENT = QueryPlan(best=None, hops=0, order="present", among=30)
"""Asks what holds now, and narrows nothing down."""


@dataclass(frozen=True, slots=True)
class Result:
    """The ranked memories of one question.

    Attributes:
        question: As asked.
        hits: Best first, or in the order of the plan: then scores may rise along the list.
        confidence: In [0, 1]: how sure the gate is that the memory holds an answer. For a
            question that the encoder does not read: the largest share of its words in one hit.
        known: True where the gate opens. False where it closes: the memory has no record of it.
            None where it cannot tell: the encoder does not read the language of the question, and
            no hit has 35 % of its words, by idf. Hits are listed all the same. `if result.known` is
            true only where there is a record.
        verified: What an oracle said that was asked whether the hits mention an answer; None where
            none was asked, as where the gate had closed before, or it failed: then the gate alone
            decides. Where the gate cannot tell, it is asked.
        trace: What answering took, where it was asked for and anything is stored.
        plan: What narrowed the question down, and to how many memories; None: nothing did.
        calibrated: Whether the scores of the hits are probabilities that were fitted to the preset
            with this encoder (`calibration` in the settings); False: a rough estimate, as for other
            encoders and for weights that the memory has learned.
    """

    question: str
    hits: tuple[Hit, ...]
    confidence: float
    known: bool | None
    verified: bool | None = None
    trace: Trace | None = None
    plan: QueryPlan | None = None
    calibrated: bool = False

    @property
    def text(self) -> str:
        """What the hits say, best first."""
        return "\n\n".join(hit.text for hit in self.hits)

    def __repr__(self) -> str:
        """The question, how many hits, the best of them, and how sure the gate is."""
        best = f", best {self.hits[0].id!r} at {self.hits[0].score:.2f}" if self.hits else ""
        return f"Result({self.question!r:.80}, {len(self.hits)} hits{best}, {_sure(self)})"

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values; without a check, a trace and a plan where there is none."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        own["hits"] = [hit.as_dict() for hit in self.hits]
        for name in ("verified", "trace", "plan"):
            if own[name] is None:
                del own[name]
            elif name != "verified":
                own[name] = asdict(own[name])
        return own


@dataclass(frozen=True, slots=True)
class Start:
    """Where activation started: an anchor, or a concept that `seed_entities` named.

    Attributes:
        id: Of the atom, or of the concept.
        activation: There.
        gradient: What the score gains by a unit more of it.
    """

    id: str
    activation: float
    gradient: float


@dataclass(frozen=True, slots=True)
class WeighedPath:
    """The strongest chain of edges from an anchor; `strength` is what would arrive by it alone."""

    strength: float
    steps: tuple[PathStep, ...]


@dataclass(frozen=True, slots=True)
class EdgeGradient:
    """An edge (ids of its ends), and what the score gains by a unit more of its weight."""

    source: str
    target: str
    type: str
    weight: float
    gradient: float


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why a memory has its score for a question, by `Memory.explain`.

    Attributes:
        question: As asked.
        id: Of the atom.
        text: As it is shown.
        score: As in `Hit`.
        raw: The sum of `signals`.
        why: As in `Hit`.
        rank: Its place among the hits, from 1, the first of those that score alike; 0 where it can
            be none.
        signals: Each signal's share of `raw`, which all figures below are in units of.
        starts: Where activation started, the strongest first.
        paths: The strongest chain from each of these to the atom, where there is one, the
            strongest first; none to an anchor from itself.
        edges: Those of largest |weight x gradient|: what the score owes to them, to first order.
        gradients: By id of an atom or a concept, the derivative of the score in how much of its
            activation it sends on, from none (0) to all (1), at 1; the largest first.
        influences: By id, the score minus what it were without that memory, the largest first;
            memories that are not named have none. `index.explain` says what stays.
        members: Ids of the memories that it is of and leads to, if it is an aggregate; it is a hit
            only if aggregates are asked for.
    """

    question: str
    id: str
    text: str
    score: float
    raw: float
    why: tuple[str, ...]
    rank: int
    signals: dict[str, float]
    starts: tuple[Start, ...]
    paths: tuple[WeighedPath, ...]
    edges: tuple[EdgeGradient, ...]
    gradients: dict[str, float]
    influences: dict[str, float]
    members: tuple[str, ...] = ()

    def __str__(self) -> str:
        """The reasons that count most, a line each, below what their numbers mean."""
        place = f"rank {self.rank}" if self.rank else "no hit"
        score = f"score {self.score:.2f} ({self.raw:.4g} before calibration)"
        lines = [f"{self.id!r} for {self.question!r:.80}: {score}, {place}"]
        lines.append("  " + " ".join(self.text.split())[:_LINE])
        if self.why:
            lines.append("why: " + " · ".join(self.why))
        if self.members:
            lines.append(f"an aggregate, listed if asked for; leads to {', '.join(self.members)}")

        def tell(heading: str, rows: Iterable[tuple[float, str]]) -> None:
            told = [f"  {number:>+10.3g}  {what}" for number, what in rows]
            lines.extend([heading, *told] if told else [])

        tell("signals: the share of each in the score before calibration", _largest(self.signals))
        starts = self.starts[:_SHOWN]
        tell(
            "starts: what the score gains by more activation there",
            [(s.gradient, f"{s.id} (has {s.activation:.3g})") for s in starts],
        )
        paths = [
            (path.strength, path.steps[0].source + "".join(map(_stepped, path.steps)))
            for path in self.paths[:_SHOWN]
        ]
        tell("paths: what arrives by each alone", paths)
        tell(
            "edges: what the score gains by more weight",
            [(e.gradient, f"{e.source}{_stepped(e)}") for e in self.edges if e.gradient],
        )
        passed = [(gradient, id) for id, gradient in self.gradients.items() if gradient]
        tell("passed on: what the score gains by what each sends on", passed)
        removed = [(-gain, id) for gain, id in _largest(self.influences)]
        tell("without: how the score changes where one memory is not there", removed)
        return "\n".join(lines)

    def __repr__(self) -> str:
        """The question, the memory, its score, and how many others it depends on."""
        return (
            f"Explanation({self.question!r:.80}, {self.id!r}, score {self.score:.2f}, rank "
            f"{self.rank}, {len(self.paths)} paths, {len(self.influences)} influences)"
        )

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def _largest(values: Mapping[str, float]) -> list[tuple[float, str]]:
    ordered = sorted(values.items(), key=lambda item: -abs(item[1]))[:_SHOWN]
    return [(value, name) for name, value in ordered if value]


def _stepped(step: PathStep | EdgeGradient) -> str:
    return f" ─{step.type} {step.weight:.2f}→ {step.target}"


@dataclass(frozen=True, slots=True)
class RegimeSwitch:
    """The stream of added memories has turned to something else.

    Attributes:
        atom: Id of the atom that raised the alarm.
        session, time: Of this atom.
        statistic, threshold: By what it did so.
        position: Number, in the order of adding and from 0, of the atom with which the new regime
            begins: this one or the one before.
    """

    atom: str
    session: str | None
    time: float | None
    statistic: float
    threshold: float
    position: int


@dataclass(frozen=True, slots=True)
class Context:
    """A ready-to-send context.

    Attributes:
        question: As asked.
        text: The rendered prompt; of a chat, what its messages say.
        tokens: Tokens of the whole prompt, the framing of messages included, counted by
            `tokenizer`; never above `budget`.
        budget: Tokens allowed.
        tokenizer: Name of the tokenizer that counted.
        sources: Ids of the atoms in the context, in their order: the first is cited as 1.
        omitted: Ids of retrieved atoms that are not in it, best first.
        unrelated: Those of them that are left out because they have nothing to do with the question
            (`context.floor`), whatever they take.
        confidence, known, verified: As in `Result`; the oracle was asked of the whole text.
        messages: Of a chat, mappings with `role` and `content`.
        system: Of a chat for Anthropic: what it takes beside the messages.
        value: What the chosen memories are worth together (`context.pool.values_from_scores`).
        upper_bound: No choice of `omitted` and chosen memories within the budget is worth more, by
            what each entry costs alone; text that merges across entries may be a token or so off.
        exact: Whether the choice is proven to be the best, in the same sense.
        extract: Whether a memory that is among the best does not fit the budget whole: the context
            holds those of its sentences, or words, that speak to the question.
    """

    question: str
    text: str
    tokens: int
    budget: int
    tokenizer: str
    sources: tuple[str, ...]
    omitted: tuple[str, ...]
    confidence: float
    known: bool | None
    messages: tuple[dict[str, str], ...] = ()
    system: str | None = None
    value: float = 0.0
    upper_bound: float = 0.0
    exact: bool = True
    extract: bool = False
    verified: bool | None = None
    unrelated: tuple[str, ...] = ()

    def __repr__(self) -> str:
        """The question, how full the budget is, of how many memories, and how sure the gate is."""
        filled = f"{self.tokens:,} of {self.budget:,} tokens ({self.tokenizer})"
        memories = f"{len(self.sources)} memories, {len(self.omitted)} omitted"
        return f"Context({self.question!r:.80}, {filled}, {memories}, {_sure(self)})"

    @property
    def gap(self) -> float:
        """Value that a better choice could have more at most; 0 where exact."""
        return self.upper_bound - self.value

    @property
    def notes(self) -> tuple[str, ...]:
        """What a reader should know of the choice, a sentence each; empty: nothing."""
        notes = []
        if self.extract:
            notes.append("an extract stands for a memory that does not fit whole")
        if not self.exact:
            short = self.gap / self.upper_bound if self.upper_bound else 1.0
            notes.append(f"the choice is within {short:.1%} of the best; no better one was found")
        if self.unrelated:
            count = len(self.unrelated)
            one = count == 1
            who, stay = ("1 memory has", "stays") if one else (f"{count} memories have", "stay")
            notes.append(f"{who} nothing to do with the question and {stay} out")
        return tuple(notes)

    @property
    def citations(self) -> dict[int, str]:
        """The id that each number in the context stands for."""
        return dict(enumerate(self.sources, start=1))

    def cited(self, answer: str) -> tuple[str, ...]:
        """Ids that an answer cites, as `[3]` or `[1, 3]`, each once, in its order.

        Numbers that the context does not have are passed over.
        """
        # Nine digits at most: Python refuses to read thousands of them.
        groups = re.findall(r"\[(\d{1,9}(?:\s*[,;]\s*\d{1,9})*)\]", answer)
        numbers = [int(n) for group in groups for n in re.findall(r"\d+", group)]
        known = self.citations
        return tuple(dict.fromkeys(known[n] for n in numbers if n in known))

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self)


def _sure(found: Result | Context) -> str:
    told = {True: "known", False: "not known", None: "cannot tell"}[found.known]
    return f"confidence {found.confidence:.2f}, {told}"


@dataclass(frozen=True, slots=True)
class Answer:
    """What a language model says, and from what.

    Attributes:
        question: As asked.
        text: The answer; None where there is none.
        context: The prompt that was sent.
        error: Why there is no answer; None where there is one.
    """

    question: str
    text: str | None
    context: Context
    error: str | None = None

    @property
    def cited(self) -> tuple[str, ...]:
        """Ids of the memories that the answer cites by their numbers."""
        return () if self.text is None else self.context.cited(self.text)

    def as_dict(self) -> dict[str, Any]:
        """As plain JSON values."""
        return asdict(self) | {"cited": list(self.cited)}


@dataclass(frozen=True, slots=True)
class Statement:
    """Something that is remembered: the atom's id, and its text or a sentence of it."""

    id: str
    text: str


@dataclass(frozen=True, slots=True)
class Mode:
    """One of the themes that the memories gather around (`docs/mathematics.md` 1.3).

    Attributes:
        number: Its place among the modes, the largest first; `Hit.mode` names it.
        size: Atoms.
        variance: Mean squared distance of their embeddings to the mean, in [0, 1].
        latest: Latest time of any, seconds since the epoch UTC; None where no time is known.
        energy: Share of all embeddings' squared length that the mean keeps of them.
        typical: The three atoms nearest to the mean.
    """

    number: int
    size: int
    variance: float
    latest: float | None
    energy: float
    typical: tuple[Statement, ...]


@dataclass(frozen=True, slots=True)
class ModeSummary:
    """The sufficient statistic of a mode (`docs/mathematics.md` 1.6): at most three sentences.

    Attributes:
        mode, size, variance: `Mode.number` and its figures; a large variance means that the
            sentences stand for unlike memories.
        claim, evidence, question: A sentence each; None where the mode has nothing of the kind.
        weight: How much the mode matters to the question, where there was one.
    """

    mode: int
    size: int
    variance: float
    claim: Statement | None
    evidence: Statement | None
    question: Statement | None
    weight: float | None = None


@dataclass(frozen=True, slots=True)
class ModePair:
    """Two modes that were matched, and the cosine of their means."""

    first: Mode
    second: Mode
    similarity: float


@dataclass(frozen=True, slots=True)
class ModeAlignment:
    """How the modes of two parts of a memory correspond.

    Attributes:
        angles: Principal angles between the two eigenspaces, in degrees, ascending.
        pairs: The most alike first.
        only_first, only_second: Modes that found no partner.
    """

    angles: tuple[float, ...]
    pairs: tuple[ModePair, ...]
    only_first: tuple[Mode, ...]
    only_second: tuple[Mode, ...]
