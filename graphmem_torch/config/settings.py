"""Everything that can be set: a tree of frozen dataclasses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = [
    "AnchorConfig",
    "Config",
    "EmbedderConfig",
    "GateConfig",
    "LinkConfig",
    "ModesConfig",
    "RankConfig",
    "RegimeConfig",
    "SpreadConfig",
    "StructureConfig",
]


@dataclass(frozen=True)
class EmbedderConfig:
    """Which encoder turns text into vectors.

    Attributes:
        name: A SentenceTransformer name or path, or `hashing[:dim]` for the deterministic test
            embedder.
        token_dim: Dimensions a token vector is projected to; 0 keeps no token vectors (no
            interaction signal).
        max_tokens: Encoder pieces per chunk of a document.
    """

    name: str = "all-MiniLM-L6-v2"
    token_dim: int = 128
    max_tokens: int = 254


@dataclass(frozen=True)
class LinkConfig:
    """How the graph grows when atoms are added (`mathematics.md` 4).

    Attributes:
        similarity_k: Similarity edges of a new atom to its most similar earlier atoms.
        similarity_min: Cosine below which no similarity edge is made.
        concepts: `spacy`, `pattern`, `auto` (spaCy where installed) or `none`.
        window: Turns, the mention's own included, that a concept is tied to.
        concept_dedup: Cosine from which two concepts are one.
        cooccurrence: Co-occurrence edges of a new atom to earlier ones of its session: those 1, 2,
            4, 8, ... places before it (`mathematics.md` 2.1).
        batch: Atoms per acknowledged write.
    """

    similarity_k: int = 10
    similarity_min: float = 0.3
    concepts: Literal["auto", "spacy", "pattern", "none"] = "auto"
    window: int = 5
    concept_dedup: float = 0.92
    cooccurrence: int = 0
    batch: int = 256


@dataclass(frozen=True)
class AnchorConfig:
    """Where activation starts.

    Attributes:
        source: `fused`: the best by the weighted strong signals, at exp(F - max F); `dual`: the
            union of the best by BM25 and by cosine, each at its cosine (SYNAPSE).
        k: Anchors a question (for `dual`, of each trigger).
    """

    source: Literal["fused", "dual"] = "fused"
    k: int = 10


@dataclass(frozen=True)
class SpreadConfig:
    """Spreading activation (`mathematics.md` 4); defaults are SYNAPSE's.

    Attributes:
        rounds: Rounds T.
        retention: Share of its activation a node keeps each round, 1 - delta.
        spread: S.
        reduce: How incoming activation adds up.
        fan: What a source's outgoing activation is divided by: its out-degree, the root of it, or
            nothing.
        inhibition, top: beta and M of lateral inhibition; 0 switches it off.
        firing, gain, threshold: Sigmoid firing with gamma and theta, or `linear`.
        temporal_decay: rho, per hour, in the weight exp(-rho dt) of a temporal edge.
        edges: Gain of each edge type; a type that is not named does not conduct.
        reverse: Gain of an edge travelled backwards, by type.
        max_edges: Strongest outgoing edges a node keeps.
        min_nodes: Smaller graphs, and graphs without edges, do not spread (cold start).
    """

    rounds: int = 3
    retention: float = 0.5
    spread: float = 0.8
    reduce: Literal["sum", "max"] = "sum"
    fan: Literal["degree", "sqrt", "none"] = "degree"
    inhibition: float = 0.15
    top: int = 7
    firing: Literal["sigmoid", "linear"] = "sigmoid"
    gain: float = 5.0
    threshold: float = 0.5
    temporal_decay: float = 0.01
    edges: Mapping[str, float] = field(default_factory=dict)
    reverse: Mapping[str, float] = field(default_factory=dict)
    max_edges: int = 15
    min_nodes: int = 10


@dataclass(frozen=True)
class RankConfig:
    """The hybrid score.

    Attributes:
        weights: Weight of each signal by its registered name; only named signals are computed.
        cold_weights: The weights at a cold start, while the graph has fewer than
            `spread.min_nodes` nodes or no edges; empty: the same weights, activation is 0.
        k: Hits a question.
        dense_limit: Up to this many atoms every atom is a candidate.
        candidates: Candidates that each strong signal contributes in a larger store.
    """

    weights: Mapping[str, float] = field(default_factory=dict)
    cold_weights: Mapping[str, float] = field(default_factory=dict)
    k: int = 30
    dense_limit: int = 2048
    candidates: int = 96


@dataclass(frozen=True)
class GateConfig:
    """When the memory says that it has no record.

    Attributes:
        weights: Weight of each gate statistic by name (`rank/gate.py`); `activation` alone is
            SYNAPSE's gate.
        bias: Added to the weighted sum.
        link: `sigmoid` maps the sum to a confidence; `identity` takes it as it is.
        threshold: The gate closes below this confidence.
    """

    weights: Mapping[str, float] = field(default_factory=lambda: {"activation": 1.0})
    bias: float = 0.0
    link: Literal["sigmoid", "identity"] = "identity"
    threshold: float = 0.12


@dataclass(frozen=True)
class ModesConfig:
    """Spectral modes (`mathematics.md` 1.1 to 1.6).

    Attributes:
        build: Whether the index keeps modes; `Memory.modes()` finds them on demand where not.
        select: Rule for the number of eigenpairs.
        count: Eigenpairs, instead of the rule; 0: by the rule.
        epsilon: Share of the energy that the rule `energy` may leave out.
        assign: How atoms are assigned to modes.
        drift: Share of the energy by which modes that follow added atoms may fall behind before
            they are found anew (`spectral.ModeTracker`); 0: after every change.
        retrieve: Whether the candidates of a question are the best atoms of its best modes, and no
            others; needs `build`.
        look: Modes that a question looks into.
        per_mode: Atoms taken from each.
        half_life_days: Days in which a mode without new atoms loses half of its weight; 0: never.
        absolute: Whether a centroid opposite to the question counts as near, as published.
    """

    build: bool = False
    select: Literal["energy", "gcv", "gap"] = "energy"
    count: int = 0
    epsilon: float = 0.1
    assign: Literal["kmeans", "sign", "varimax"] = "kmeans"
    drift: float = 0.05
    retrieve: bool = False
    look: int = 8
    per_mode: int = 16
    half_life_days: float = 0.0
    absolute: bool = False

    @property
    def half_life(self) -> float | None:
        """In seconds; None for no decay."""
        return self.half_life_days * 86_400 or None


@dataclass(frozen=True)
class RegimeConfig:
    """Regime switches in the stream of added atoms (`mathematics.md` 1.7).

    Attributes:
        detector: `spectral` (`spectral.RegimeDetector`), `published` (`spectral.EnergyDrift`) or
            `none`.
        threshold: Of `spectral`: log-odds; above 0 a switch is likelier than not.
        hazard: Of `spectral`: probability of a switch at any atom.
        factor: Of `published`: how many times the median drift.
    """

    detector: Literal["spectral", "published", "none"] = "spectral"
    threshold: float = 0.0
    hazard: float = 0.1
    factor: float = 3.0


@dataclass(frozen=True)
class StructureConfig:
    """The structure of the memory's graph (`mathematics.md` 2.4 and 2.5).

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
    resolution: float = 1.0
    eigenpairs: int = 20
    top: int = 10
    columns: int = 64


@dataclass(frozen=True)
class Config:
    """Everything that can be set; `name` is the preset it came from."""

    name: str = "default"
    embedder: EmbedderConfig = EmbedderConfig()
    link: LinkConfig = LinkConfig()
    anchors: AnchorConfig = AnchorConfig()
    spread: SpreadConfig = SpreadConfig()
    rank: RankConfig = RankConfig()
    gate: GateConfig = GateConfig()
    modes: ModesConfig = ModesConfig()
    structure: StructureConfig = StructureConfig()
    regime: RegimeConfig = RegimeConfig()
