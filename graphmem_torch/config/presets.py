"""Presets: settings read strictly from YAML; an unknown key is an error naming the nearest."""

from __future__ import annotations

import dataclasses
import difflib
import math
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from graphmem_torch.atoms import MEMORY_TYPES, EdgeType
from graphmem_torch.config.settings import Config, DecayConfig
from graphmem_torch.errors import ConfigError

__all__ = ["config_from_dict", "config_to_dict", "load_config", "preset_names", "preset_path"]

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
    "context.pool": 1,
    "context.work": 0,
    "context.gap": 0,
    "context.summary": 1e-9,
    "context.temperature": 1e-3,
    "walk.damping": 0,
    "walk.kept": 1,
    "decay.initial": 0,
    "decay.centrality": 0,
    "segment.hops": 0,
    "segment.discount": 1e-9,
    "segment.seeds": 1,
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

_MOST = {"context.summary": 1, "segment.discount": 1, "walk.damping": 0.999}


def _configs_folder() -> Path:
    """`configs/` of a checkout, or the copy inside an installed package."""
    package = Path(__file__).resolve().parents[1]
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
    return {name: _plain(value) for name, value in dataclasses.asdict(config).items()}


def _plain(value: Any) -> Any:
    """The value with lists for tuples, as JSON and YAML give them back."""
    if isinstance(value, dict):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, tuple) else value


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
        if name == "decay.half_life":
            _check_half_lives(value, name)
            value = {**DecayConfig().half_life, **value}
        return {str(k): _convert(float, v, f"{name}.{k}") for k, v in value.items()}
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(f"expected {name} to be a list of edge types, got {value!r}")
        _check_edge_types(value, name)
        return tuple(value)
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if number and not math.isfinite(value):
        raise ConfigError(f"expected {name} to be a finite number, got {value!r}")
    if number and value < _LEAST.get(name, -math.inf):
        raise ConfigError(f"expected {name} to be at least {_LEAST[name]}, got {value!r}")
    if number and value > _MOST.get(name, math.inf):
        raise ConfigError(f"expected {name} to be at most {_MOST[name]}, got {value!r}")
    if kind is float and number:
        return float(value)
    if kind is int and number and float(value).is_integer():
        return int(value)
    if kind in (str, bool) and isinstance(value, kind):
        return value
    raise ConfigError(f"expected {name} to be {kind.__name__}, got {value!r}")


def _check_edge_types(value: Iterable[Any], name: str) -> None:
    _check_names(value, [t.name.lower() for t in EdgeType], "edge type", name)


def _check_half_lives(value: Mapping[str, Any], name: str) -> None:
    _check_names(value, list(MEMORY_TYPES), "memory type", name)
    for kind, hours in value.items():
        if isinstance(hours, (int, float)) and hours < 0:
            raise ConfigError(f"expected {name}.{kind} to be at least 0 hours, got {hours!r}")


def _check_names(value: Iterable[Any], known: list[str], what: str, name: str) -> None:
    for key in value:
        if key not in known:
            hint = difflib.get_close_matches(str(key), known, n=1)
            meant = f"; did you mean {hint[0]!r}?" if hint else ""
            raise ConfigError(f"unknown {what} {key!r} in {name}{meant}")
