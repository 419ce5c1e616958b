"""Settings: a tree of frozen dataclasses, with the bounds of its numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

__all__ = [
    "OTHER_ENCODERS",
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
    """Return a number field with the bounds [low, high], which `loading` enforces."""
    return field(default=default, metadata={"bounds": (low, high)})


@dataclass(frozen=True)
class EmbedderConfig:
    """Encoder that turns text into vectors.

    Attributes:
        name: Name or path of a SentenceTransformer, address and model of an embeddings server
            ("http://localhost:8000/v1#MODEL"), or `hashing[:dim]` for the deterministic test
            embedder.
        token_dim: Dimensions of projected token vectors; 0 keeps no vectors, and late interaction
            compares the words themselves.
        max_tokens: Maximum number of tokens of a chunk of a document.
        chunk_tokenizer: Name of the tokenizer that counts them; see `text.tokens.get_tokenizer`.
            Empty: the encoder's own.
        query_prompt, document_prompt: Prefixes that an encoder reads before a question, and before
            a stored text. `auto`: those of its own settings, or of the model card of its family
            (E5, BGE, Nomic). A store is bound to them as to the encoder.
        dtype: Type of the numbers that an encoder computes with, if it is loaded here by name.
            `bfloat16` gives other vectors, so a store is bound to it.
    """

    name: str = "all-MiniLM-L6-v2"
    token_dim: int = _bounded(128, 0)
    query_prompt: str = "auto"
    document_prompt: str = "auto"
    max_tokens: int = _bounded(254, 1)
    chunk_tokenizer: str = ""
    dtype: Literal["float32", "bfloat16"] = "float32"


@dataclass(frozen=True)
class LinkConfig:
    """Growth of the graph when atoms are added (`docs/mathematics.md` 4).

    Attributes:
        similarity_k: Number of earlier atoms, the most similar ones, that a new atom gets an edge
            to.
        min_similarity: Cosine below which no similarity edge is made.
        concepts: Method that finds concepts: `spacy`, `pattern`, `none` or `auto`: that of the
            store, in a new one `pattern`.
        batch_concepts: Number of new atoms that wait to have their concepts found together; 1: none
            wait. `Memory.consolidate` finds them at once.
        cooccurrence: Number of co-occurrence edges of a new atom to earlier ones of its session:
            1, 2, 4, 8, ... places before it (`docs/mathematics.md` 2.1).
        batch_atoms: Number of atoms per acknowledged write.
        exact: Whether a new atom is compared with all earlier ones, as judging wants. Otherwise,
            on a CPU and from 50,000 atoms on, with those of an inverted file, which finds some 98 %
            of the edges (`docs/mathematics.md` 4.2). Stored edges stay as they are.
    """

    similarity_k: int = _bounded(10, 0)
    min_similarity: float = 0.3
    concepts: Literal["auto", "spacy", "pattern", "none"] = "auto"
    batch_concepts: int = _bounded(1, 1)
    cooccurrence: int = _bounded(0, 0)
    batch_atoms: int = _bounded(256, 1)
    exact: bool = False


@dataclass(frozen=True)
class AnchorConfig:
    """Anchors, where activation starts.

    Attributes:
        source: Choice and activation of anchors. `fused`: the best by the weighted base signals, at
            exp((F - max F) / temperature); `dual`: the union of the best by BM25 and by cosine,
            each at its cosine (SYNAPSE); `semantic`: the best by cosine, each at its cosine
            (ContextOS).
        k: Number of anchors of a question (for `dual`, of each trigger).
        temperature: Temperature of `fused`; higher values activate the weaker anchors more.
        named: Weight of the signal `named` (the question names a document) in the choice of the
            anchors of `fused`.
    """

    source: Literal["fused", "dual", "semantic"] = "fused"
    k: int = _bounded(10, 1)
    temperature: float = _bounded(1.0, 1e-3)
    named: float = _bounded(0.0, 0)


@dataclass(frozen=True)
class HopConfig:
    """Lifts by the signal `hop` of documents that an anchor leads to (`docs/mathematics.md` 8.4).

    Lifts are in units of the score, for the strongest anchor. A question that names no document
    uses the first two, one that names a document the last two, others a mixture.

    Attributes:
        title: Lift by an anchor that mentions the title.
        entity: Lift by an anchor that shares all entities.
        title_named, entity_named: The same lifts if the question names a document.
    """

    title: float = _bounded(1.0, 0)
    entity: float = _bounded(1.0, 0)
    title_named: float = _bounded(1.0, 0)
    entity_named: float = _bounded(1.0, 0)


@dataclass(frozen=True)
class SpreadConfig:
    """Spreading activation (`docs/mathematics.md` 4); defaults are SYNAPSE's.

    Attributes:
        rounds: Number of rounds, T.
        retention: Share of its activation that a node keeps each round, 1 - delta.
        spread: Spreading factor S.
        reduce: Combination of incoming activation: its sum or its maximum.
        fan: Divisor of the outgoing activation of a node: its out-degree, the square root of it, or
            1.
        min_fan: Minimum out-degree of a turn: `one`, or the `mean` of the turns, so that a turn
            whose concepts are not linked yet passes on no more than others.
        inhibition: Factor beta of lateral inhibition by the 7 strongest nodes; 0 disables it.
        competitors: Nodes that inhibit a node: the strongest of `all`, or of its `kind` (turns or
            concepts).
        spare: Number of strongest nodes that keep at least half of their activation: inhibition is
            weakened until they do; 0: off.
        firing, gain, threshold: Output of nodes after each round. `sigmoid`: with gamma and theta;
            `zeroed`: the same minus its value at no activation; `linear`: the activation itself;
            `once`: rounds of propagation alone, then inhibition and `zeroed`.
        temporal_decay_per_hour: Rate rho in the weight exp(-rho dt) of a temporal edge.
        temporal_step_hours: Interval dt between turns of equal time, as in sessions with one time.
        edges: Gain of each edge type; types that are not listed do not conduct.
        reverse: Gain of an edge in reverse direction, by type.
        max_edges: Maximum number of outgoing edges of the types in `capped` that a node keeps, the
            strongest ones. Other types have no limit.
        capped: Types with a limit; by default those that linking makes. Stated edges are always
            kept.
        min_nodes: Minimum number of nodes for spreading; smaller graphs, and graphs without edges,
            do not spread (cold start).
    """

    rounds: int = _bounded(3, 0)
    retention: float = _bounded(0.5, 0)
    spread: float = _bounded(0.8, 0)
    reduce: Literal["sum", "max"] = "sum"
    fan: Literal["degree", "sqrt", "none"] = "degree"
    min_fan: Literal["one", "mean"] = "one"
    inhibition: float = _bounded(0.15, 0)
    competitors: Literal["all", "kind"] = "all"
    spare: int = _bounded(0, 0)
    firing: Literal["sigmoid", "zeroed", "once", "linear"] = "sigmoid"
    gain: float = 5.0
    threshold: float = 0.5
    temporal_decay_per_hour: float = _bounded(0.01, 0)
    temporal_step_hours: float = _bounded(0.0, 0)
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
    """Hybrid score that ranks memories.

    Attributes:
        weights: Weight of each signal by its registered name; only named signals are computed.
            `length@chat` is added to the weight of `length` for memories of that form alone
            (`rank.registry.FORMS`).
        cold_weights: Weights at a cold start, while the graph has fewer than `spread.min_nodes`
            nodes or no edges; empty: the same weights, with activation 0.
        scale: Scale of the signals: `raw`, or `background`, relative to their values for unrelated
            memories (`docs/mathematics.md` 8.8).
        k: Number of hits of a question.
        unique: Whether only the best of memories that say the same (`Memory.duplicates`) is a hit,
            which lists the others.
        exhaustive_up_to: Number of atoms up to which every atom is a candidate.
        candidates: Number of candidates from each base signal in a larger store.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    cold_weights: Mapping[str, float] = field(default_factory=dict)
    scale: Literal["raw", "background"] = "raw"
    k: int = _bounded(30, 1)
    unique: bool = False
    exhaustive_up_to: int = _bounded(2048, 0)
    candidates: int = _bounded(96, 1)


@dataclass(frozen=True)
class GateConfig:
    """Gate that decides whether the memory has a record.

    Attributes:
        weights: Weight of each gate statistic by name (`rank.abstention`); `NAME@FORM` counts only
            if the first hit has that form; `activation` alone is SYNAPSE's gate.
        firing, fan: Firing and fan of the gate's activation, in place of `spread.firing` and
            `spread.fan`; `score`: the gate reads the activation of the score.
        bias: Constant added to the weighted sum.
        link: Function from the sum to a confidence: `sigmoid` or `identity`.
        threshold: Confidence below which the gate closes.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: {"activation": 1.0})
    firing: Literal["score", "sigmoid", "zeroed", "once", "linear"] = "score"
    fan: Literal["score", "degree", "sqrt", "none"] = "score"
    bias: float = 0.0
    link: Literal["sigmoid", "identity"] = "identity"
    threshold: float = 0.12


OTHER_ENCODERS = "others"
"""Key of `CalibrationConfig.encoders` for all encoders that it does not name."""


@dataclass(frozen=True)
class CalibrationConfig:
    """Calibration of scores as probabilities that a hit is relevant (`docs/mathematics.md` 8.10).

    Attributes:
        encoders: Constants by the name of an encoder, without the part before a slash, fitted to
            scores of the preset with that encoder; `others`: a rough estimate for all others.
            Constants are `bias`, `behind` (factor of the square root of the distance to the first
            score), `place` (factor of the logarithm of the rank) and weights of statistics of
            `rank.abstention`.
    """

    encoders: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ModesConfig:
    """Spectral modes (`docs/mathematics.md` 1.1 to 1.6).

    Attributes:
        use: Use of modes by the index. `none`: `Memory.themes` finds them on demand; `kept`: the
            index keeps them; `candidates`: also, the candidates of a question are only the best
            atoms of its best modes.
        select: Rule for the number of eigenpairs. `gcv_published` is GCV as printed; a centroid
            opposite to the question counts as near then, as printed.
        count: Number of eigenpairs, instead of the rule; 0: by the rule.
        modes_searched: Number of modes searched for a question.
        atoms_per_mode: Number of atoms taken from each.
        half_life_days: Days in which a mode without new atoms loses half of its weight; 0: never.
    """

    use: Literal["none", "kept", "candidates"] = "none"
    select: Literal["energy", "gcv", "gcv_published", "gap"] = "energy"
    count: int = _bounded(0, 0)
    modes_searched: int = _bounded(8, 1)
    atoms_per_mode: int = _bounded(16, 1)
    half_life_days: float = _bounded(0.0, 0)

    @property
    def absolute(self) -> bool:
        """Return whether a centroid opposite to the question counts as near."""
        return self.select == "gcv_published"


@dataclass(frozen=True)
class SegmentConfig:
    """Traversal of the segment graph (`docs/mathematics.md` 3).

    It follows the edges that `spread.edges` and `spread.reverse` conduct, at most
    `spread.max_edges` from a node. k of section 3 is `link.similarity_k`, C is
    `embedder.max_tokens`, m is `rank.k`.

    Attributes:
        retrieve: Whether the candidates of a question are only the atoms reached from its seeds.
        hops: Maximum number of edges from a seed, L.
        discount: Factor of the similarity for each hop, in (0, 1].
        seeds: Number of most similar atoms where the traversal starts; one as published.
    """

    retrieve: bool = False
    hops: int = _bounded(2, 0)
    discount: float = _bounded(0.9, 1e-9, 1)
    seeds: int = _bounded(1, 1)


@dataclass(frozen=True)
class WalkConfig:
    """Walk of personalised PageRank from the anchors (`docs/mathematics.md` 6).

    It follows the edges that `spread.edges` and `spread.reverse` conduct.

    Attributes:
        relative: Whether the value of a node is its inflow by edges, relative to the largest one of
            a node that is no seed, at most 1; otherwise its probability.
    """

    relative: bool = False


@dataclass(frozen=True)
class DecayConfig:
    """Fading of memories (`docs/mathematics.md` 6): S(t) = 2^(-t / h) + 0.1 C(n).

    t is the time since the last use, else since the time of the memory, else since it was stored.
    C(n) is the PageRank relative to the largest one. Pinned memories do not fade.

    Attributes:
        half_life_days: Half-life of memories by type, in days; with 0 or without an entry they
            never fade. Defaults follow the published factors per hour: 0.9995 for `semantic` (57.7
            days) and 0.90 for `episodic` (6.6 hours); `working` is not in the paper. A preset or an
            override changes only the types it lists.
        classify: Method that finds the type of a memory without one: `rules`
            (`text.memory_type`), or `none`: it does not fade.
        now: Present of a question that states none: the `clock`, or the time of the `latest`
            memory, for a record of the past.
    """

    half_life_days: Mapping[str, float] = field(
        default_factory=lambda: {
            "semantic": 1385.9475 / 24,
            "episodic": 6.5788 / 24,
            "working": 1 / 24,
        }
    )
    classify: Literal["rules", "none"] = "none"
    now: Literal["clock", "latest"] = "clock"


@dataclass(frozen=True)
class RefineConfig:
    """Importance of memories, and archiving of the least important (`docs/mathematics.md` 5.4).

    Attributes:
        half_life_days: Days in which a memory loses half of its importance above `base`; 0: never.
        base: Importance of a fully faded memory, I_base.
        prune_below: Importance below which a memory is archived; 0: none is.
        max_memories: Maximum number of memories without aggregates; above it the least important
            are archived; 0: no maximum.
    """

    half_life_days: float = _bounded(30.0, 0)
    base: float = _bounded(0.05, 0, 1)
    prune_below: float = _bounded(0.0, 0, 1)
    max_memories: int = _bounded(0, 0)


@dataclass(frozen=True)
class AggregateConfig:
    """Insight aggregates made by a consolidation (`docs/mathematics.md` 5.6).

    Attributes:
        build: Whether a consolidation makes them.
        min_similarity: Minimum weight of a pair of memories to be joined: 0.7 of their cosine, 0.2
            of their shared concepts and 0.1 of their proximity in time (`memory.clusters`).
    """

    build: bool = False
    min_similarity: float = 0.5


@dataclass(frozen=True)
class ContextConfig:
    """Compilation of contexts (`docs/mathematics.md` 6).

    Attributes:
        tokenizer: Name of the tokenizer; see `text.tokens.get_counter`.
        order: Order of the memories.
        value: Function from the score of a memory to its value; see
            `context.pool.values_from_scores`.
        temperature: Temperature of the value `share`; above 1 it trusts the scores less.
        min_relevance: Minimum relevance (`rank.relevance`) of a memory, unless the graph leads to
            it or no memory reaches this minimum; 0: no minimum.
        requires: Types of edges along which a memory requires others: for a dependency its target,
            for a cause or an implication its source.
    """

    tokenizer: str = "cl100k_base"
    order: Literal["relevance", "time", "topological"] = "time"
    value: Literal["share", "rank", "score"] = "rank"
    temperature: float = _bounded(1.5, 1e-3)
    min_relevance: float = _bounded(0.12, 0, 1)
    requires: tuple[str, ...] = ()


@dataclass(frozen=True)
class RegimeConfig:
    """Regime switches in the stream of added atoms (`docs/mathematics.md` 1.7).

    Attributes:
        detector: `spectral` (`modes.RegimeDetector`), `published` (`modes.EnergyDrift`) or
            `none`.
        threshold: Log-odds above which `spectral` reports a switch; at 0 a switch is as likely as
            not. The best value depends on the kind of dialogue.
    """

    detector: Literal["spectral", "published", "none"] = "spectral"
    threshold: float = 0.0


@dataclass(frozen=True)
class StructureConfig:
    """Structure of the graph of a memory (`docs/mathematics.md` 2.4 and 2.5).

    Attributes:
        communities: Method that finds communities.
    """

    communities: Literal["leiden", "fiedler"] = "leiden"


Policy = Literal["recency", "importance", "both"]

POLICIES: tuple[Policy, ...] = get_args(Policy)
"""Values of `ReconcileConfig.policy`."""


@dataclass(frozen=True)
class ReconcileConfig:
    """Handling of memories that contradict or repeat each other (`docs/mathematics.md` 5.8).

    Attributes:
        automatic: Whether `Memory.consolidate` reconciles.
        policy: Resolution of a contradiction that an oracle confirms: `recency` keeps the later
            one, `importance` the more important one; `both` keeps both, and an aggregate states the
            conflict. Without an oracle a memory ends only if a later one of its speaker states the
            change; with `both`, none does.
    """

    automatic: bool = False
    policy: Policy = "recency"


@dataclass(frozen=True)
class PlanConfig:
    """Plans for questions that name dates or an order (`docs/mathematics.md` 5.7).

    Attributes:
        use: Whether questions that name a date or an order are planned if the caller gives no plan.
        concepts: Whether a plan with a time window also follows edges from the concepts that the
            question names.
    """

    use: bool = False
    concepts: bool = True


@dataclass(frozen=True)
class Config:
    """All settings; `name` is that of their preset."""

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
