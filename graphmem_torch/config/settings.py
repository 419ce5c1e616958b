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
    """Encoder that turns text into vectors.

    Attributes:
        name: A SentenceTransformer name or path, or `hashing[:dim]` for the deterministic test
            embedder.
        token_dim: Dimensions a token vector is projected to; 0 keeps none, and late
            interaction is of the words themselves.
        max_tokens: Tokens of a chunk of a document, at most.
        chunk_tokenizer: Name of the tokenizer that counts them; see `text.tokens.get_tokenizer`.
            Empty: the encoder's own.
        query_prompt, document_prompt: Texts that an encoder reads in front of a question, and of a
            text that is to be found; `auto`: those of its own settings, or of the model card of its
            family (E5, BGE, Nomic). A store is bound to them as to the encoder.
    """

    name: str = "all-MiniLM-L6-v2"
    token_dim: int = _bounded(128, 0)
    query_prompt: str = "auto"
    document_prompt: str = "auto"
    max_tokens: int = _bounded(254, 1)
    chunk_tokenizer: str = ""


@dataclass(frozen=True)
class LinkConfig:
    """Growth of the graph when atoms are added (`docs/mathematics.md` 4).

    Attributes:
        similarity_k: Similarity edges of a new atom to its most similar earlier atoms.
        min_similarity: Cosine below which no similarity edge is made.
        concepts: `spacy`, `pattern`, `none` or `auto`: what the store has, in a new one spaCy where
            installed.
        batch_concepts: Number of new atoms in which concepts are looked for together: until so
            many wait, they have none. 1: as they come; `Memory.consolidate` looks at once.
        window_turns: Turns, the mention's own included, that a concept is tied to.
        concept_dedup: Minimum cosine of two names that are one concept, if all their parts agree
            (`docs/mathematics.md` 4.1).
        cooccurrence: Co-occurrence edges of a new atom to earlier ones of its session: those 1, 2,
            4, 8, ... places before it (`docs/mathematics.md` 2.1).
        batch_atoms: Atoms per acknowledged write.
    """

    similarity_k: int = _bounded(10, 0)
    min_similarity: float = 0.3
    concepts: Literal["auto", "spacy", "pattern", "none"] = "auto"
    batch_concepts: int = _bounded(1, 1)
    window_turns: int = _bounded(5, 1)
    concept_dedup: float = 0.92
    cooccurrence: int = _bounded(0, 0)
    batch_atoms: int = _bounded(256, 1)


@dataclass(frozen=True)
class AnchorConfig:
    """Where activation starts.

    Attributes:
        source: `fused`: the best by the weighted base signals, at exp((F - max F) / temperature);
            `dual`: the union of the best by BM25 and by cosine, each at its cosine (SYNAPSE);
            `semantic`: the best by cosine, each at its cosine (ContextOS).
        k: Anchors a question (for `dual`, of each trigger).
        temperature: Temperature of `fused`: the higher, the more the anchors after the best bring.
        named: Bonus of `fused` for a document that the question names, when anchors are chosen,
            times the signal `named`.
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
        title: Lift by an anchor that mentions the title.
        entity: Lift by an anchor that shares all entities.
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
        reduce: Combination of incoming activation: its sum or its maximum.
        fan: Divisor of a source's outgoing activation: its out-degree, the root of it, or 1.
        min_fan: Minimum out-degree that a turn counts with: `one`, or the `mean` of the turns, so
            that one whose concepts are not linked yet passes on no more than others.
        inhibition, top: beta and M of lateral inhibition; 0 switches it off.
        competitors: Nodes that inhibit a node: the strongest of `all`, or those of its own `kind`,
            turns or concepts.
        spare: Number of strongest nodes of a question that keep at least half of their activation:
            inhibition is weakened until they do; 0: off.
        firing, gain, threshold: Activation that nodes fire after each round: `sigmoid` with gamma
            and theta; `zeroed`, the same less what it gives a node without activation; `linear`,
            their own. `once`: rounds of propagation alone, then inhibition and `zeroed`.
        temporal_decay_per_hour: rho in the weight exp(-rho dt) of a temporal edge.
        temporal_step_hours: dt between turns of one time: a session often has a single one.
        edges: Gain of each edge type; a type that is not named does not conduct.
        reverse: Gain of an edge travelled backwards, by type.
        max_edges: Strongest outgoing edges of the types of `capped` that a node keeps; it keeps
            all of every other type.
        capped: Types that are capped; by default those that linking draws. Stated edges are never
            left out.
        min_nodes: Smaller graphs, and graphs without edges, do not spread (cold start).
    """

    rounds: int = _bounded(3, 0)
    retention: float = _bounded(0.5, 0)
    spread: float = _bounded(0.8, 0)
    reduce: Literal["sum", "max"] = "sum"
    fan: Literal["degree", "sqrt", "none"] = "degree"
    min_fan: Literal["one", "mean"] = "one"
    inhibition: float = _bounded(0.15, 0)
    top: int = _bounded(7, 1)
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
        unique: Whether only the best of memories that say the same (`Memory.duplicates`) is a hit,
            which names the others.
        exhaustive_up_to: Number of atoms up to which every atom is a candidate.
        candidates: Candidates that each base signal contributes in a larger store.
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
    """When the memory says that it has no record.

    Attributes:
        weights: Weight of each gate statistic by name (`rank.abstention`), `NAME@FORM` where the
            first hit is of one form alone; `activation` alone is SYNAPSE's gate.
        firing, fan: Firing and fan of the gate's activation, in place of `spread.firing` and
            `spread.fan`; `score`: the gate reads the activation of the score.
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
        drift: Share of the energy by which modes that follow added atoms may fall behind before
            they are found anew (`modes.ModeTracker`); 0: after every change.
        retrieve: Whether the candidates of a question are the best atoms of its best modes, and no
            others; needs `build`.
        modes_searched: Modes that a question looks into.
        atoms_per_mode: Atoms taken from each.
        half_life_days: Days in which a mode without new atoms loses half of its weight; 0: never.
        absolute: Whether a centroid opposite to the question counts as near, as published.
    """

    build: bool = False
    select: Literal["energy", "gcv", "gcv_published", "gap"] = "energy"
    count: int = _bounded(0, 0)
    epsilon: float = 0.1
    drift: float = _bounded(0.05, 0)
    retrieve: bool = False
    modes_searched: int = _bounded(8, 1)
    atoms_per_mode: int = _bounded(16, 1)
    half_life_days: float = _bounded(0.0, 0)
    absolute: bool = False


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
        discount: Factor of the similarity for each hop, in (0, 1].
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
        relative: Whether a node counts by what edges bring to it, relative to the most that they
            bring to a node that is no seed, at most 1; if not, by its probability.
    """

    damping: float = _bounded(0.85, 0, 0.999)
    relative: bool = False


@dataclass(frozen=True)
class DecayConfig:
    """Fading of memories (`docs/mathematics.md` 6): S(t) = 2^(-t / h) + beta C(n).

    t is the time since the last use; a memory that was never used counts from its own time, or
    from when it was stored where it has none. Pinned memories do not fade.

    Attributes:
        half_life_days: Days in which a memory of a type falls to one half; 0, and a type that is
            not named: never. By default those of the published factors per hour, 0.9995 for
            `semantic` (57.7 days) and 0.90 for `episodic` (6.6 hours); `working` is not in the
            paper. A preset or an override changes those it names.
        centrality: beta; C(n) is the PageRank of the memory relative to the largest of any.
        classify: Method that finds the type of a memory that states none: `rules`
            (`text.memory_type`), or `none`, and it does not fade.
        now: Present for a question that does not state one: the `clock`, or the time of the
            `latest` memory, for a record of the past.
    """

    half_life_days: Mapping[str, float] = field(
        default_factory=lambda: {
            "semantic": 1385.9475 / 24,
            "episodic": 6.5788 / 24,
            "working": 1 / 24,
        }
    )
    centrality: float = _bounded(0.1, 0)
    classify: Literal["rules", "none"] = "none"
    now: Literal["clock", "latest"] = "clock"


@dataclass(frozen=True)
class RefineConfig:
    """Importance of memories, and archiving of the least important (`docs/mathematics.md` 5.4).

    Attributes:
        half_life_days: Days in which a memory loses half of its importance above `base`; 0: never.
        base: I_base, the importance of a memory that has faded altogether.
        prune_below: Importance below which a memory is archived; 0: none is.
        max_memories: Maximum number of memories, aggregates not counted: beyond it the least
            important are archived; 0: no maximum.
    """

    half_life_days: float = _bounded(30.0, 0)
    base: float = _bounded(0.05, 0, 1)
    prune_below: float = _bounded(0.0, 0, 1)
    max_memories: int = _bounded(0, 0)


@dataclass(frozen=True)
class AggregateConfig:
    """Insight aggregates, which a consolidation makes (`docs/mathematics.md` 5.6).

    Attributes:
        build: Whether a consolidation makes them.
        min_similarity: Minimum weight of a pair of memories that are joined: 0.7 of their cosine,
            0.2 of their shared concepts and 0.1 of their nearness in time (`memory.clusters`).
    """

    build: bool = False
    min_similarity: float = 0.5


@dataclass(frozen=True)
class ContextConfig:
    """Compilation of contexts (`docs/mathematics.md` 6).

    Attributes:
        tokenizer: Name of the tokenizer that counts; see `text.tokens.get_counter`.
        format: Format of the written memories.
        order: Order of the memories.
        value: Function from the score of a memory to its worth; see
            `context.pool.values_from_scores`.
        temperature: Temperature of the value `share`: above 1 trusts the scores less.
        min_relevance: Relevance (`rank.relevance`) below which a memory is left out, unless the
            graph leads to it or no memory reaches it; 0: none is left out for it.
        requires: Types of edges along which a memory brings what it needs: along a dependency its
            target, along a cause or an implication its source.
    """

    tokenizer: str = "cl100k_base"
    format: Literal["text", "markdown", "openai", "anthropic", "json"] = "text"
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
        threshold: Log-odds of a switch above which `spectral` reports one; above 0 a switch is
            likelier than not. The best one depends on the kind of dialogue.
    """

    detector: Literal["spectral", "published", "none"] = "spectral"
    threshold: float = 0.0


@dataclass(frozen=True)
class StructureConfig:
    """The structure of the memory's graph (`docs/mathematics.md` 2.4 and 2.5).

    Attributes:
        concepts: Whether concepts count as nodes; otherwise only the memories do.
        communities: Method that finds communities.
    """

    concepts: bool = False
    communities: Literal["leiden", "fiedler"] = "leiden"


Policy = Literal["recency", "importance", "both"]

POLICIES: tuple[Policy, ...] = get_args(Policy)
"""Values of `ReconcileConfig.policy`."""


@dataclass(frozen=True)
class ReconcileConfig:
    """Handling of memories that contradict or repeat each other (`docs/mathematics.md` 5.8).

    Attributes:
        automatic: Whether `Memory.consolidate` reconciles.
        policy: Resolution of a contradiction that an oracle confirms: by `recency` the later one
            supersedes the earlier, by `importance` the more important one the other; `both` stay,
            and an aggregate states the conflict. Without an oracle a memory ends only if a later
            one of its speaker states the change; with `both`, none does.
        confidence: Minimum confidence for resolving a contradiction; below it the conflict stays
            open.
    """

    automatic: bool = False
    policy: Policy = "recency"
    confidence: float = _bounded(0.8, 0, 1)


@dataclass(frozen=True)
class PlanConfig:
    """Narrowing of a question by the dates and the order it names (`docs/mathematics.md` 5.7).

    Attributes:
        use: Whether questions that name a date or an order are planned if the caller gives no plan.
        concepts: Whether a plan with a window of time also follows edges from the concepts that
            the question names.
    """

    use: bool = False
    concepts: bool = True


@dataclass(frozen=True)
class Config:
    """All settings; `name` is the preset they came from."""

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
