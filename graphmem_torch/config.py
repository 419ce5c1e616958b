"""Configuration: a tree of frozen dataclasses, read strictly from YAML.

A preset is a file `configs/<name>.yaml`; its values override the defaults below, and overrides
given in code or on the command line override the preset. An unknown key is an error that names
the nearest known one.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from graphmem_torch.atoms import EdgeType
from graphmem_torch.errors import ConfigError

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
    "config_from_dict",
    "config_to_dict",
    "load_config",
    "preset_names",
    "preset_path",
]

T = TypeVar("T")

_LEAST = {
    "embedder.token_dim": 0,
    "embedder.max_tokens": 1,
    "link.similarity_k": 0,
    "link.window": 1,
    "link.cooccurrence": 0,
    "link.batch": 1,
    "anchors.k": 1,
    "modes.count": 0,
    "modes.look": 1,
    "modes.per_mode": 1,
    "modes.half_life_days": 0,
    "modes.drift": 0,
    "regime.factor": 0,
    "structure.eigenpairs": 1,
    "structure.top": 1,
    "structure.columns": 1,
    "structure.resolution": 1e-9,
    "spread.rounds": 0,
    "spread.retention": 0,
    "spread.spread": 0,
    "spread.inhibition": 0,
    "spread.top": 1,
    "spread.temporal_decay": 0,
    "spread.max_edges": 0,
    "spread.min_nodes": 0,
    "rank.k": 1,
    "rank.dense_limit": 0,
    "rank.candidates": 1,
}


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


def _configs_folder() -> Path:
    """`configs/` of a checkout, or the copy inside an installed package."""
    package = Path(__file__).resolve().parent
    shipped = package / "configs"
    return shipped if shipped.is_dir() else package.parent / "configs"


def preset_names() -> list[str]:
    """Names of the presets that come with graphmem_torch."""
    return sorted(p.stem for p in _configs_folder().glob("*.yaml"))


def preset_path(name: str) -> Path:
    """File of a preset by name, or a YAML file by path."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            raise ConfigError(f"expected a YAML file of settings, found no file {name!r}")
        return path
    names = preset_names()
    if name not in names:
        hint = difflib.get_close_matches(name, names, n=1)
        meant = f"; did you mean {hint[0]!r}?" if hint else ""
        raise ConfigError(f"expected a preset, one of {', '.join(names)}, got {name!r}{meant}")
    return _configs_folder() / f"{name}.yaml"


def load_config(preset: str = "default", overrides: Mapping[str, Any] | None = None) -> Config:
    """Reads a preset.

    Args:
        preset: Name of a preset or path of a YAML file.
        overrides: Settings by dotted name (`{"spread.rounds": 2}`) or as a nested mapping.

    Raises:
        ConfigError: Unknown preset, unreadable YAML, unknown key, or a value of the wrong type.
    """
    import yaml

    path = preset_path(preset)
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"expected YAML in {path.name}, got: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"expected a mapping in {path.name}, got {type(data).__name__}")
    data.setdefault("name", path.stem)
    for key, value in (overrides or {}).items():
        _assign(data, key.split("."), value)
    return config_from_dict(data)


def config_from_dict(data: Mapping[str, Any]) -> Config:
    """Builds a `Config` from nested plain values, strictly."""
    return _build(Config, data, "")


def config_to_dict(config: Config) -> dict[str, Any]:
    """The configuration as nested plain values; `config_from_dict` reads it back."""
    return dataclasses.asdict(config)


def _assign(data: dict[str, Any], path: list[str], value: Any) -> None:
    """Sets a dotted key; a mapping given for a section is merged into it, key by key."""
    head, *rest = path
    if rest:
        section = data.setdefault(head, {})
        if not isinstance(section, dict):
            raise ConfigError(f"expected a section at {head!r}, got {section!r}")
        _assign(section, rest, value)
    elif isinstance(value, Mapping) and isinstance(data.get(head), dict):
        for key, inner in value.items():
            _assign(data[head], [key], inner)
    else:
        data[head] = value


def _build(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    hints = _type_hints(cls)  # type: ignore[arg-type]
    known = {f.name for f in fields(cls)}  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in data.items():
        name = f"{where}{key}"
        if key not in known:
            hint = difflib.get_close_matches(str(key), known, n=1)
            meant = f"; did you mean {where}{hint[0]}?" if hint else ""
            raise ConfigError(
                f"unknown setting {name!r}{meant} (known: {', '.join(sorted(known))})"
            )
        values[key] = _convert(hints[key], value, name)
    return cls(**values)


@cache
def _type_hints(cls: type) -> dict[str, Any]:
    return typing.get_type_hints(cls)


def _convert(kind: Any, value: Any, name: str) -> Any:
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(f"expected settings under {name!r}, got {value!r}")
        return _build(typing.cast(type, kind), value, f"{name}.")
    origin = typing.get_origin(kind)
    if origin is Literal:
        options = typing.get_args(kind)
        if value not in options:
            raise ConfigError(f"expected {name} to be one of {', '.join(options)}, got {value!r}")
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(f"expected {name} to map names to numbers, got {value!r}")
        if name in ("spread.edges", "spread.reverse"):
            _check_edge_types(value, name)
        return {str(k): _convert(float, v, f"{name}.{k}") for k, v in value.items()}
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and not math.isfinite(value):
        raise ConfigError(f"expected {name} to be a finite number, got {value!r}")
    if number and value < _LEAST.get(name, -math.inf):
        raise ConfigError(f"expected {name} to be at least {_LEAST[name]}, got {value!r}")
    if kind is float and number:
        return float(value)
    if kind is int and number and float(value).is_integer():
        return int(value)
    if kind in (str, bool) and isinstance(value, kind):
        return value
    raise ConfigError(f"expected {name} to be {kind.__name__}, got {value!r}")


def _check_edge_types(value: Mapping[str, Any], name: str) -> None:
    known = [t.name.lower() for t in EdgeType]
    for key in value:
        if key not in known:
            hint = difflib.get_close_matches(str(key), known, n=1)
            meant = f"; did you mean {hint[0]!r}?" if hint else ""
            raise ConfigError(f"unknown edge type {key!r} in {name}{meant}")
