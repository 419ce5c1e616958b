"""Everything that can be set: a tree of frozen dataclasses, with the bounds of its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

__all__ = [
    "POLICIES",
    "AggregateConfig",
    "AnchorConfig",
    "CalibrationConfig",
    "Config",
    "ContextConfig",
    "DecayConfig",
    "EmbedderConfig",
    "GateConfig",
    "HopConfig",
    "LinkConfig",
    "ModesConfig",
    "PlanConfig",
    "Policy",
    "RankConfig",
    "ReconcileConfig",
    "RefineConfig",
    "RegimeConfig",
    "SegmentConfig",
    "SpreadConfig",
    "StructureConfig",
    "WalkConfig",
]


def _bounded(default: float, low: float, high: float = math.inf) -> Any:
    """A number that must lie in [low, high]; `presets` reads the bounds."""
    return field(default=default, metadata={"bounds": (low, high)})


@dataclass(frozen=True)
class EmbedderConfig:
    """Which encoder turns text into vectors.

    Attributes:
        name: A SentenceTransformer name or path, or `hashing[:dim]` for the deterministic test
            embedder.
        token_dim: Dimensions a token vector is projected to; 0 keeps none, and late
            interaction is of the words themselves.
        max_tokens: Tokens of a chunk of a document, at most.
        chunk_tokenizer: Name of the tokenizer that counts them; see `text.tokens.get_tokenizer`.
            Empty: the encoder's own.
        query_prompt, document_prompt: What an encoder reads in front of a question, and of a text
            that is to be found; `auto`: what its own settings, or the model card of its family
            (E5, BGE, Nomic), say. A store is bound to them as to the encoder.
    """

    name: str = "all-MiniLM-L6-v2"
    token_dim: int = _bounded(128, 0)
    query_prompt: str = "auto"
    document_prompt: str = "auto"
    max_tokens: int = _bounded(254, 1)
    chunk_tokenizer: str = ""


@dataclass(frozen=True)
class LinkConfig:
    """How the graph grows when atoms are added (`docs/mathematics.md` 4).

    Attributes:
        similarity_k: Similarity edges of a new atom to its most similar earlier atoms.
        similarity_min: Cosine below which no similarity edge is made.
        concepts: `spacy`, `pattern`, `none` or `auto`: what the store has, in a new one spaCy where
            installed.
        every: Atoms after which concepts are looked for, in all of them together: until then what
            is added waits without. 1: as they come; `Memory.consolidate` looks at once.
        window: Turns, the mention's own included, that a concept is tied to.
        concept_dedup: Minimum cosine of two names that are one concept, if all their parts agree
            (`docs/mathematics.md` 4.1).
        cooccurrence: Co-occurrence edges of a new atom to earlier ones of its session: those 1, 2,
            4, 8, ... places before it (`docs/mathematics.md` 2.1).
        batch: Atoms per acknowledged write.
    """

    similarity_k: int = _bounded(10, 0)
    similarity_min: float = 0.3
    concepts: Literal["auto", "spacy", "pattern", "none"] = "auto"
    every: int = _bounded(1, 1)
    window: int = _bounded(5, 1)
    concept_dedup: float = 0.92
    cooccurrence: int = _bounded(0, 0)
    batch: int = _bounded(256, 1)


@dataclass(frozen=True)
class AnchorConfig:
    """Where activation starts.

    Attributes:
        source: `fused`: the best by the weighted base signals, at exp((F - max F) / temperature);
            `dual`: the union of the best by BM25 and by cosine, each at its cosine (SYNAPSE);
            `semantic`: the best by cosine, each at its cosine (ContextOS).
        k: Anchors a question (for `dual`, of each trigger).
        temperature: Of `fused`: the higher, the more the anchors behind the best bring.
        named: Of `fused`: what a document that the question names has in addition when anchors are
            chosen, times the signal `named`.
    """

    source: Literal["fused", "dual", "semantic"] = "fused"
    k: int = _bounded(10, 1)
    temperature: float = _bounded(1.0, 1e-3)
    named: float = _bounded(0.0, 0)


@dataclass(frozen=True)
class HopConfig:
    """Lifts by the signal `hop` of documents that an anchor leads to (`docs/mathematics.md` 8.4).

    In units of the score, for the strongest anchor. A question that names no document takes the
    first two, one that names a document the last two, and one in between a mixture.

    Attributes:
        title: Of an anchor that mentions the title.
        entity: Of an anchor that shares all entities.
        title_named, entity_named: The same where the question names a document.
    """

    title: float = _bounded(1.0, 0)
    entity: float = _bounded(1.0, 0)
    title_named: float = _bounded(1.0, 0)
    entity_named: float = _bounded(1.0, 0)


@dataclass(frozen=True)
class SpreadConfig:
    """Spreading activation (`docs/mathematics.md` 4); defaults are SYNAPSE's.

    Attributes:
        rounds: Rounds T.
        retention: Share of its activation a node keeps each round, 1 - delta.
        spread: S.
        reduce: How incoming activation adds up.
        fan: What a source's outgoing activation is divided by: its out-degree, the root of it, or
            nothing.
        fan_least: What the out-degree of a turn counts as at least: `one`, or the `mean` of the
            turns, so that one whose concepts are not linked yet passes on no more than others.
        inhibition, top: beta and M of lateral inhibition; 0 switches it off.
        competitors: Which nodes inhibit a node: the strongest of `all`, or those of its own `kind`,
            turns or concepts.
        spare: Number of strongest nodes of a question that keep at least half of their activation:
            inhibition is weakened until they do; 0: off.
        firing, gain, threshold: What nodes fire after each round: `sigmoid` with gamma and theta;
            `zeroed`, the same less what it gives a node without activation; `linear`, what they
            have. `once`: rounds of propagation alone, then inhibition and `zeroed`.
        temporal_decay: rho, per hour, in the weight exp(-rho dt) of a temporal edge.
        temporal_step: dt between turns of one time, in hours: a session often has a single one.
        edges: Gain of each edge type; a type that is not named does not conduct.
        reverse: Gain of an edge travelled backwards, by type.
        max_edges: Strongest outgoing edges of the types of `capped` that a node keeps; it keeps
            all of every other type.
        capped: By default what linking draws; what is stated is never left out.
        min_nodes: Smaller graphs, and graphs without edges, do not spread (cold start).
    """

    rounds: int = _bounded(3, 0)
    retention: float = _bounded(0.5, 0)
    spread: float = _bounded(0.8, 0)
    reduce: Literal["sum", "max"] = "sum"
    fan: Literal["degree", "sqrt", "none"] = "degree"
    fan_least: Literal["one", "mean"] = "one"
    inhibition: float = _bounded(0.15, 0)
    top: int = _bounded(7, 1)
    competitors: Literal["all", "kind"] = "all"
    spare: int = _bounded(0, 0)
    firing: Literal["sigmoid", "zeroed", "once", "linear"] = "sigmoid"
    gain: float = 5.0
    threshold: float = 0.5
    temporal_decay: float = _bounded(0.01, 0)
    temporal_step: float = _bounded(0.0, 0)
    edges: Mapping[str, float] = field(default_factory=dict)
    reverse: Mapping[str, float] = field(default_factory=dict)
    max_edges: int = _bounded(15, 0)
    capped: tuple[str, ...] = (
        "temporal",
        "similarity",
        "abstraction",
        "association",
        "cooccurrence",
    )
    min_nodes: int = _bounded(10, 0)


@dataclass(frozen=True)
class RankConfig:
    """The hybrid score.

    Attributes:
        weights: Weight of each signal by its registered name; only named signals are computed.
            `length@chat` is added to the weight of `length` for memories of that form alone
            (`rank.registry.FORMS`).
        cold_weights: The weights at a cold start, while the graph has fewer than
            `spread.min_nodes` nodes or no edges; empty: the same weights, activation is 0.
        scale: `raw` weighs signals as they are; `background` in units of what they are for memories
            that have nothing to do with the question (`docs/mathematics.md` 8.8).
        k: Hits a question.
        unique: Whether of memories that say the same (`Memory.duplicates`) only the best is a hit,
            which names the others.
        echoes: Whether a stored question that asks the same may be a hit. If not, what was said
            after it takes its place (`docs/mathematics.md` 8.9).
        dense_limit: Up to this many atoms every atom is a candidate.
        candidates: Candidates that each base signal contributes in a larger store.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    cold_weights: Mapping[str, float] = field(default_factory=dict)
    scale: Literal["raw", "background"] = "raw"
    k: int = _bounded(30, 1)
    unique: bool = False
    echoes: bool = False
    dense_limit: int = _bounded(2048, 0)
    candidates: int = _bounded(96, 1)


@dataclass(frozen=True)
class GateConfig:
    """When the memory says that it has no record.

    Attributes:
        weights: Weight of each gate statistic by name (`rank.abstention`), `NAME@FORM` where the
            first hit is of one form alone; `activation` alone is SYNAPSE's gate.
        firing, fan: How activation spreads for the gate, in place of `spread.firing` and
            `spread.fan`; `score`: it reads the activation of the score.
        bias: Added to the weighted sum.
        link: `sigmoid` maps the sum to a confidence; `identity` takes it as it is.
        threshold: The gate closes below this confidence.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: {"activation": 1.0})
    firing: Literal["score", "sigmoid", "zeroed", "once", "linear"] = "score"
    fan: Literal["score", "degree", "sqrt", "none"] = "score"
    bias: float = 0.0
    link: Literal["sigmoid", "identity"] = "identity"
    threshold: float = 0.12


@dataclass(frozen=True)
class CalibrationConfig:
    """Calibration of scores as probabilities that a hit is relevant (`docs/mathematics.md` 8.10).

    Constants are `bias`, `behind` (of the root of how far a score is behind the first), `place` (of
    the logarithm of the place among the hits) and weights of statistics of `rank.abstention`.

    Attributes:
        encoders: Constants by the name of an encoder, without what stands before a slash; fitted to
            scores of the preset with that encoder.
        others: Constants of any other encoder: a rough estimate. By default, for presets that were
            not calibrated, those that read no score, fitted to `default` with all-MiniLM-L6-v2.
    """

    encoders: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    others: Mapping[str, float] = field(
        default_factory=lambda: {"bias": -2.5721, "best_semantic": 4.7421, "place": 1.6865}
    )


@dataclass(frozen=True)
class ModesConfig:
    """Spectral modes (`docs/mathematics.md` 1.1 to 1.6).

    Attributes:
        build: Whether the index keeps modes; `Memory.modes()` finds them on demand where not.
        select: Rule for the number of eigenpairs.
        count: Eigenpairs, instead of the rule; 0: by the rule.
        epsilon: Share of the energy that the rule `energy` may leave out.
        assign: How atoms are assigned to modes.
        drift: Share of the energy by which modes that follow added atoms may fall behind before
            they are found anew (`modes.ModeTracker`); 0: after every change.
        retrieve: Whether the candidates of a question are the best atoms of its best modes, and no
            others; needs `build`.
        look: Modes that a question looks into.
        per_mode: Atoms taken from each.
        half_life_days: Days in which a mode without new atoms loses half of its weight; 0: never.
        absolute: Whether a centroid opposite to the question counts as near, as published.
    """

    build: bool = False
    select: Literal["energy", "gcv", "gcv_published", "gap"] = "energy"
    count: int = _bounded(0, 0)
    epsilon: float = 0.1
    assign: Literal["kmeans", "sign", "varimax"] = "kmeans"
    drift: float = _bounded(0.05, 0)
    retrieve: bool = False
    look: int = _bounded(8, 1)
    per_mode: int = _bounded(16, 1)
    half_life_days: float = _bounded(0.0, 0)
    absolute: bool = False

    @property
    def half_life(self) -> float | None:
        """In seconds; None for no decay."""
        return self.half_life_days * 86_400 or None


@dataclass(frozen=True)
class SegmentConfig:
    """Traversal of the segment graph (`docs/mathematics.md` 3).

    The edges are those that `spread.edges` and `spread.reverse` let through, at most
    `spread.max_edges` from a node; k of section 3 is `link.similarity_k`, C is
    `embedder.max_tokens`, m is `rank.k`.

    Attributes:
        retrieve: Whether the candidates of a question are what is reached from its seed, and no
            others.
        hops: L, edges from a seed at most.
        discount: What a hop takes off the similarity: it is multiplied by discount^hops; in (0, 1].
        seeds: Most similar atoms from which a question sets out; one as published.
    """

    retrieve: bool = False
    hops: int = _bounded(2, 0)
    discount: float = _bounded(0.9, 1e-9, 1)
    seeds: int = _bounded(1, 1)


@dataclass(frozen=True)
class WalkConfig:
    """The walk of personalised PageRank from the anchors (`docs/mathematics.md` 6).

    It takes the edges that `spread.edges` and `spread.reverse` let through.

    Attributes:
        damping: Probability of following an edge; at most 0.999.
        kept: In a large graph only so many nodes of a question are ranked, the others have 0.
        relative: Whether a node has what edges bring to it, relative to the most that they bring to
            one that is no seed, at most 1; if not, it has its probability.
    """

    damping: float = _bounded(0.85, 0, 0.999)
    kept: int = _bounded(64, 1)
    relative: bool = False


@dataclass(frozen=True)
class DecayConfig:
    """How memories fade (`docs/mathematics.md` 6): S(t) = S_0 e^{-lambda t} + beta C(n).

    t is the time since the last use; a memory that was never used counts from its own time, or
    from when it was stored where it has none. Pinned memories do not fade.

    Attributes:
        half_life: Hours in which a memory of a type falls to one half; 0, and a type that is not
            named: never. By default those of the published factors per hour, 0.9995 for `semantic`
            (57.7 days) and 0.90 for `episodic` (6.6 hours); `working` is not in the paper. A preset
            or an override changes those it names.
        initial: S_0.
        centrality: beta; C(n) is the PageRank of the memory relative to the largest of any.
        classify: What finds the type of a memory that states none: `rules`
            (`text.memory_type`), or `none`, and it does not fade.
        now: What is now, for a question that does not say: the `clock`, or the time of the `latest`
            memory, for a record of the past.
    """

    half_life: Mapping[str, float] = field(
        default_factory=lambda: {"semantic": 1385.9475, "episodic": 6.5788, "working": 1.0}
    )
    initial: float = _bounded(1.0, 0)
    centrality: float = _bounded(0.1, 0)
    classify: Literal["rules", "none"] = "none"
    now: Literal["clock", "latest"] = "clock"


@dataclass(frozen=True)
class RefineConfig:
    """How important memories are, and what becomes of the least (`docs/mathematics.md` 5.4).

    I(t) = (I_0 - I_base) e^{-lambda t} + I_base between uses; with n new uses, when it is refined,
    I <- alpha I(t) + beta n / (n + 1), at most 1; gamma times the mean of its aggregates is added
    where it is asked for.

    Attributes:
        half_life: Days in which a memory loses half of what it has above `base`; 0: never.
        base: I_base.
        retained, access, aggregates: alpha, beta and gamma.
        ended: What the importance of a memory that is superseded is multiplied by.
        prune: Importance below which a memory is archived; 0: none is.
        keep: Memories beyond which the least important are archived, aggregates not counted; 0: any
            number stays.
    """

    half_life: float = _bounded(30.0, 0)
    base: float = _bounded(0.05, 0, 1)
    retained: float = _bounded(1.0, 0, 1)
    access: float = _bounded(0.3, 0, 1)
    aggregates: float = _bounded(0.1, 0, 1)
    ended: float = _bounded(0.5, 0, 1)
    prune: float = _bounded(0.0, 0, 1)
    keep: int = _bounded(0, 0)


@dataclass(frozen=True)
class AggregateConfig:
    """Insight aggregates, which a consolidation makes (`docs/mathematics.md` 5.6).

    Attributes:
        build: Whether it does.
        similarity, relation, time: Weights of the cosine, of shared concepts and of nearness in
            time of two memories.
        span: Days in which nearness in time falls to 1 / e.
        least: Weight from which two memories are joined.
        neighbours: Most similar memories that each is compared with.
        smallest, largest: Members of an aggregate.
        words: Most words of its text.
        price: Cost of so many words, as a share of what its members are about.
        depth: Up to which aggregates are made of aggregates.
    """

    build: bool = False
    similarity: float = _bounded(0.7, 0)
    relation: float = _bounded(0.2, 0)
    time: float = _bounded(0.1, 0)
    span: float = _bounded(7.0, 1e-6)
    least: float = 0.5
    neighbours: int = _bounded(8, 1)
    smallest: int = _bounded(3, 2)
    largest: int = _bounded(12, 2)
    words: int = _bounded(60, 1)
    price: float = _bounded(0.25, 0)
    depth: int = _bounded(2, 1)


@dataclass(frozen=True)
class ContextConfig:
    """How a context is compiled (`docs/mathematics.md` 6).

    Attributes:
        tokenizer: Name of the tokenizer that counts; see `text.tokens.get_counter`.
        format: How memories are written.
        order: How they are ordered.
        template: The prompt, with the fields `{context}` and `{question}`; empty: the format's own.
        pool: Memories to choose from at most, for a question.
        redundancy: Cosine from which two memories that say the same (`Memory.duplicates`) are
            near-duplicates, which lose value once one is in; above 1: none are.
        value: What the score of a memory says that it is worth; see
            `context.pool.values_from_scores`.
        temperature: Of the value `share`: above 1 trusts the scores less.
        floor: Relevance (`rank.relevance`) below which a memory is left out, unless the graph leads
            to it or no memory reaches it; 0: none is left out for it.
        summary: Share of its tokens that a memory keeps, as the sentences that speak to the
            question (`context.summarise.extract`), where `shorten` says nothing else; 1: all.
        requires: Types of edges along which a memory brings what it needs: along a dependency its
            target, along a cause or an implication its source.
        order_edges: Types of edges that say what comes first, in the same sense.
        work: Other choices of a question that are tried where the first one is not proven to be
            the best; 0 takes it as it is, with its bound.
        gap: Share of the value that a choice may be proven to be short of the best at most: no
            better one is looked for then; 0 looks on as far as `work` goes.
    """

    tokenizer: str = "cl100k_base"
    format: Literal["text", "markdown", "openai", "anthropic", "json"] = "text"
    order: Literal["relevance", "time", "topological"] = "time"
    template: str = ""
    pool: int = _bounded(4096, 1)
    redundancy: float = 0.95
    value: Literal["share", "rank", "score"] = "rank"
    temperature: float = _bounded(1.5, 1e-3)
    floor: float = _bounded(0.12, 0, 1)
    summary: float = _bounded(1.0, 1e-9, 1)
    requires: tuple[str, ...] = ()
    order_edges: tuple[str, ...] = ("dependency", "causes", "precedes", "implication")
    work: int = _bounded(64, 0)
    gap: float = _bounded(1e-4, 0)


@dataclass(frozen=True)
class RegimeConfig:
    """Regime switches in the stream of added atoms (`docs/mathematics.md` 1.7).

    Attributes:
        detector: `spectral` (`modes.RegimeDetector`), `published` (`modes.EnergyDrift`) or
            `none`.
        threshold: Of `spectral`: log-odds; above 0 a switch is likelier than not.
        hazard: Of `spectral`: probability of a switch at any atom.
        factor: Of `published`: how many times the median drift.
    """

    detector: Literal["spectral", "published", "none"] = "spectral"
    threshold: float = 0.0
    hazard: float = 0.1
    factor: float = _bounded(3.0, 0)


@dataclass(frozen=True)
class StructureConfig:
    """The structure of the memory's graph (`docs/mathematics.md` 2.4 and 2.5).

    Attributes:
        concepts: Whether concepts count as nodes; otherwise only the memories do.
        communities: How communities are found.
        resolution: Of `leiden`: larger values give more communities.
        eigenpairs: How many are kept of the Laplacian's lowest ones beyond its zeros.
        top: Bridges, suggested links and frontiers at most.
        columns: Of the random sketches that estimate resistances in a large graph.
    """

    concepts: bool = False
    communities: Literal["leiden", "fiedler"] = "leiden"
    resolution: float = _bounded(1.0, 1e-9)
    eigenpairs: int = _bounded(20, 1)
    top: int = _bounded(10, 1)
    columns: int = _bounded(64, 1)


Policy = Literal["recency", "importance", "both"]

POLICIES: tuple[Policy, ...] = get_args(Policy)
"""What `ReconcileConfig.policy` may be."""


@dataclass(frozen=True)
class ReconcileConfig:
    """What is done about memories that contradict or repeat each other (`docs/mathematics.md` 5.8).

    Attributes:
        automatic: Whether `Memory.consolidate` reconciles.
        policy: Resolution of a contradiction that an oracle confirms: by `recency` the later one
            supersedes the earlier, by `importance` the more important one the other; `both` stay,
            and an aggregate states the conflict. Without an oracle a memory ends only if a later
            one of its speaker states the change; with `both`, none does.
        least: Cosine from which memories that linking found similar are compared.
        shared: Memories that share a key, such as the home of somebody, with which each new one is
            compared, the latest first; 0: none.
        rare: Memories that may have a word for it to be rare; two that share two rare words are
            compared.
        confidence: Minimum confidence for resolving a contradiction; below it the conflict stays
            open.
        duplicate: Cosine from which memories that say the same word for word are duplicates;
            above 1: only those of equal text are.
    """

    automatic: bool = False
    policy: Policy = "recency"
    least: float = _bounded(0.5, -1, 1)
    shared: int = _bounded(16, 0)
    rare: int = _bounded(32, 0)
    confidence: float = _bounded(0.8, 0, 1)
    duplicate: float = _bounded(0.75, 0)


@dataclass(frozen=True)
class PlanConfig:
    """How a question is narrowed down by what it says itself (`docs/mathematics.md` 5.7).

    Attributes:
        use: Whether questions that name a date or an order are planned where the caller does not
            say.
        succession: Whether questions for what was before, behind or at the beginning of a value are
            led there by what was superseded, also without `use`, where the ranking weighs it
            (signal `succession`).
        dates: Whether a date in a question becomes a window of time.
        concepts: Whether concepts that a question names are set out from in such a window.
        late: Days behind such a window in which what happened in it is still told: what was said
            then stands before the others outside.
        least: Memories that such a window must leave, else others are listed behind them.
        match: Share of the best BM25 of any time that the best in the window must have, else others
            are listed behind.
        best: Memories that are taken by cosine, and as many by BM25.
        hops: Edges that are followed from these where a concept is named; 0: none.
        edges: Types of edges that are followed; empty: every one that conducts.
        discount: What an edge takes off; in (0, 1].
        kept: Memories that are left in the end at most.
        among: Hits of which those that fit are ordered by time where a question asks for the first
            or the latest; 0: none.
    """

    use: bool = False
    succession: bool = True
    dates: bool = True
    concepts: bool = True
    late: float = _bounded(31.0, 0)
    least: int = _bounded(10, 0)
    match: float = _bounded(0.6, 0, 1)
    best: int = _bounded(96, 1)
    hops: int = _bounded(1, 0)
    edges: tuple[str, ...] = ()
    discount: float = _bounded(0.9, 1e-9, 1)
    kept: int = _bounded(192, 1)
    among: int = _bounded(30, 0)


@dataclass(frozen=True)
class Config:
    """Everything that can be set; `name` is the preset it came from."""

    name: str = "default"
    embedder: EmbedderConfig = EmbedderConfig()
    link: LinkConfig = LinkConfig()
    anchors: AnchorConfig = AnchorConfig()
    spread: SpreadConfig = SpreadConfig()
    rank: RankConfig = RankConfig()
    hops: HopConfig = HopConfig()
    gate: GateConfig = GateConfig()
    calibration: CalibrationConfig = CalibrationConfig()
    modes: ModesConfig = ModesConfig()
    segment: SegmentConfig = SegmentConfig()
    structure: StructureConfig = StructureConfig()
    regime: RegimeConfig = RegimeConfig()
    context: ContextConfig = ContextConfig()
    walk: WalkConfig = WalkConfig()
    decay: DecayConfig = DecayConfig()
    refine: RefineConfig = RefineConfig()
    aggregate: AggregateConfig = AggregateConfig()
    plan: PlanConfig = PlanConfig()
    reconcile: ReconcileConfig = ReconcileConfig()
