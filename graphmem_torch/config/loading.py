"""Loading of settings: presets in `configs/` read strictly; an error names the nearest key."""

from __future__ import annotations

import math
import os
import types
import typing
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, Literal, TypeVar

from graphmem_torch.atoms import MEMORY_TYPES, EdgeType
from graphmem_torch.config.former import now_called
from graphmem_torch.config.settings import Config, DecayConfig
from graphmem_torch.errors import ConfigError, nearest_path, output_file, unknown

__all__ = [
    "checked_config",
    "config_from_dict",
    "config_to_dict",
    "load_config",
    "preset_names",
    "preset_path",
    "save_preset",
]

T = TypeVar("T")

_EDGE_TYPES = [kind.name.lower() for kind in EdgeType]
_UNBOUNDED = (-math.inf, math.inf)


@cache
def _configs_folder() -> Path:
    """Return `configs/` of a checkout, or the copy inside an installed package."""
    package = Path(__file__).resolve().parents[1]
    shipped = package / "configs"
    return shipped if shipped.is_dir() else package.parent / "configs"


def preset_names() -> list[str]:
    """Return the names of the presets of graphmem_torch."""
    return sorted(p.stem for p in _configs_folder().glob("*.yaml"))


def preset_path(name: str) -> Path:
    """Return the file of a preset by name, or a YAML file by path."""
    if name.endswith((".yaml", ".yml")):
        path = Path(name)
        if not path.is_file():
            near = nearest_path(path, Path.is_file)
            do = f"did you mean {near}?" if near else "give its path"
            raise ConfigError(
                f"preset: expected a YAML file of settings, or one of {', '.join(preset_names())}, "
                f"got {name!r}, which is no file; {do}"
            )
        return path
    path = _configs_folder() / f"{name}.yaml"
    if not path.is_file() or path.parent != _configs_folder():
        raise ConfigError(unknown("preset", name, preset_names()))
    return path


def load_config(preset: str = "default", overrides: Mapping[str, Any] | None = None) -> Config:
    """Load a preset.

    Args:
        preset: Name of a preset, or path of a YAML file.
        overrides: Settings by dotted name (`{"spread.rounds": 2}`) or as a nested mapping.

    Raises:
        ConfigError: The preset or a key is unknown, the YAML is unreadable, or a value is invalid.
    """
    path = preset_path(preset)
    data = _filled(path, ())
    for key, value in (overrides or {}).items():
        _assign(data, key.split("."), value)
    config = config_from_dict(data)
    if not config.rank.weights:
        raise ConfigError(
            f"{path.name}: expected the weights of signals under `rank`, got none; write "
            "`extends: default` above your settings, or the weights"
        )
    return config


def save_preset(config: Config, path: str | os.PathLike[str]) -> None:
    """Write settings as a preset for `load_config`: the differences from a shipped one.

    The shipped one has the name of the settings, else it is `default`. The file gives the new name.

    Raises:
        ConfigError: The path does not end in .yaml or .yml.
        InputError: The path is a folder, or its folder does not exist.
    """
    import yaml

    target = output_file(path)
    if target.suffix not in (".yaml", ".yml"):
        raise ConfigError(
            f"path: expected a file that ends in .yaml, got {str(path)!r}; name it so"
        )
    base = config.name if config.name in preset_names() else "default"
    written, shipped = _filled(preset_path(base), ()), config_to_dict(load_config(base))
    changed: dict[str, Any] = {"extends": base}
    for section, own in config_to_dict(config).items():
        for key, value in own.items() if section != "name" else ():
            if value == shipped[section][key]:
                continue
            said = written.get(section, {}).get(key)
            if isinstance(value, dict) and isinstance(said, dict):  # merged key by key
                left = {name: None for name in said if name not in value}
                value = left | {k: v for k, v in value.items() if said.get(k) != v}
            changed.setdefault(section, {})[key] = value
    target.write_text(yaml.safe_dump(changed, sort_keys=False), encoding="utf-8")


def _filled(path: Path, above: tuple[Path, ...]) -> dict[str, Any]:
    """Read a file and fill it from the preset that it extends.

    Args:
        path: YAML file.
        above: Files that extend it, to detect a circle.
    """
    import yaml

    try:
        data = _plain(_parsed(path.read_text(encoding="utf-8"))) or {}  # a copy of the cache
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path.name}: expected YAML, got {error}; mend the file") from error
    if not isinstance(data, dict):
        raise ConfigError(
            f"{path.name}: expected a mapping, got {type(data).__name__}; write `section: {{...}}`"
        )
    data.setdefault("name", path.stem)
    if "extends" not in data:
        return data
    base, chain = _extended(path, data.pop("extends")), (*above, path.resolve())
    if base.resolve() in chain:
        circle = " -> ".join(each.name for each in (*chain, base))
        raise ConfigError(
            f"extends: expected a preset that does not lead back here, got {circle}; let one of "
            "them stand alone"
        )
    return _merged(_filled(base, chain), data, f"{path.name}: ")


def _extended(path: Path, base: Any) -> Path:
    """Return the file that `extends` names: a shipped preset, or a path from this file."""
    where = f"{path.name}: extends"
    if not isinstance(base, str):
        raise ConfigError(
            f"{where}: expected the name of a preset or a YAML file, got {base!r}; write "
            "`extends: default`"
        )
    if not base.endswith((".yaml", ".yml")):
        if base not in preset_names():
            raise ConfigError(unknown(where, base, preset_names()))
        return preset_path(base)
    found = path.parent / base
    if not found.is_file():
        near = nearest_path(found, Path.is_file)
        do = f"did you mean {near.name!r}?" if near else "give its path from there"
        raise ConfigError(
            f"{where}: expected a YAML file beside {path.name}, got {base!r}, which is no file; "
            f"{do}"
        )
    return found


def _merged(base: dict[str, Any], own: dict[str, Any], where: str) -> dict[str, Any]:
    """Merge own settings into `base`: mappings key by key; null removes a key."""
    for key, value in own.items():
        if value is None:
            if key not in base:
                known = sorted(map(str, base))
                what = "null for one of"
                raise ConfigError(unknown(f"{where}{key}", key, known, what=what))
            del base[key]
        elif isinstance(value, dict) and isinstance(base.get(key), dict):
            _merged(base[key], value, f"{where}{key}.")
        else:
            base[key] = value
    return base


@lru_cache(maxsize=32)
def _parsed(text: str) -> Any:
    """Parse YAML; cached, as parsing a preset takes longer than using it."""
    import yaml

    # The C parser, if PyYAML has it, takes a tenth of the time.
    return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def config_from_dict(data: Mapping[str, Any]) -> Config:
    """Build a `Config` from nested plain values, strictly.

    Raises:
        ConfigError: An unknown name or an invalid value; it lists all former settings.
    """
    if former := _former(data):
        raise ConfigError(f"config: expected settings, got {'; '.join(former)}")
    return _build(Config, data, "")


def checked_config(config: Config) -> Config:
    """Return a copy of the settings, checked as `load_config` checks a file.

    Raises:
        ConfigError: The value is no `Config`, a setting has a wrong type or is out of its bounds,
            or a name is unknown.
    """
    if not isinstance(config, Config):
        raise ConfigError(
            f"config: expected a Config, got {config!r:.80}; load_config(preset, overrides) makes "
            "one"
        )
    return config_from_dict(config_to_dict(config))


def config_to_dict(config: Any) -> dict[str, Any]:
    """Return a configuration or a section as nested plain values, for `config_from_dict`."""
    plain: dict[str, Any] = _plain(config)
    return plain


def _plain(value: Any) -> Any:
    """Convert dataclasses to mappings and tuples to lists, as in JSON and YAML."""
    if isinstance(value, (str, int, float)) or value is None:
        return value
    if is_dataclass(value):
        names = _known(type(value))  # type: ignore[arg-type]
        return {name: _plain(getattr(value, name)) for name in names}
    if isinstance(value, Mapping):
        return {key: _plain(inner) for key, inner in value.items()}
    return [_plain(inner) for inner in value] if isinstance(value, (tuple, list)) else value


def _assign(data: dict[str, Any], path: list[str], value: Any) -> None:
    """Set a dotted key; a mapping for a section is merged into it, key by key."""
    head, *rest = path
    if rest:
        section = data.setdefault(head, {})
        if not isinstance(section, dict):
            raise ConfigError(
                f"{head}: expected a section, got {section!r}; it has no {'.'.join(rest)!r}"
            )
        _assign(section, rest, value)
    elif isinstance(value, Mapping) and isinstance(data.get(head), dict):
        for key, inner in value.items():
            _assign(data[head], [key], inner)
    else:
        data[head] = value


def _build(cls: type[T], data: Mapping[str, Any], where: str) -> T:
    known = _known(cls)  # type: ignore[arg-type]
    values: dict[str, Any] = {}
    for key, value in data.items():
        if key not in known:
            dotted = sorted(f"{where}{name}" for name in known)
            raise ConfigError(unknown("config", f"{where}{key}", dotted))
        kind, bounds = known[key]
        values[key] = _convert(kind, value, f"{where}{key}", bounds)
    return cls(**values)


def _former(data: Mapping[str, Any]) -> list[str]:
    """Return what became of each former setting, as clauses; those of one answer together."""
    became: dict[str, list[str]] = {}
    for section, own in data.items():
        for key in own if isinstance(own, Mapping) else ():
            clause = now_called(f"{section}.{key}")
            if clause is not None and not _is_setting(section, key):
                became.setdefault(clause, []).append(f"'{section}.{key}'")
    return [f"{', '.join(names)}, {clause}" for clause, names in became.items()]


def _is_setting(section: str, key: str) -> bool:
    kind = _known(Config).get(section, (None,))[0]
    return is_dataclass(kind) and key in _known(typing.cast(type, kind))


@cache
def _known(cls: type) -> dict[str, tuple[Any, tuple[float, float]]]:
    """Return the type and the bounds of each setting of a section."""
    hints = typing.get_type_hints(cls)
    return {f.name: (hints[f.name], f.metadata.get("bounds", _UNBOUNDED)) for f in fields(cls)}


def _fits(kind: Any, value: Any, bounds: tuple[float, float]) -> bool:
    """Return whether a value is valid as it is, as nearly all are; a fast path."""
    if type(value) is not kind:
        return False
    if kind is float or kind is int:
        return math.isfinite(value) and bounds[0] <= value <= bounds[1]
    return kind is str or kind is bool


def _convert(kind: Any, value: Any, name: str, bounds: tuple[float, float] = _UNBOUNDED) -> Any:
    if _fits(kind, value, bounds):
        return value
    low, high = bounds
    if is_dataclass(kind):
        if not isinstance(value, Mapping):
            raise ConfigError(f"{name}: expected settings, got {value!r}; write `name: value`")
        return _build(typing.cast(type, kind), value, f"{name}.")
    origin = typing.get_origin(kind)
    if origin is Literal:
        if value not in typing.get_args(kind):
            raise ConfigError(unknown(name, value, typing.get_args(kind)))
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None:
            return None
        kind = next(k for k in typing.get_args(kind) if k is not type(None))
    if origin is not None and issubclass(origin, Mapping):
        if not isinstance(value, Mapping):
            raise ConfigError(
                f"{name}: expected a mapping of names to numbers, got {value!r}; "
                "write `name: number`"
            )
        if name in ("spread.edges", "spread.reverse"):
            _check_names(value, _EDGE_TYPES, name)
        bounds = _UNBOUNDED
        if name == "decay.half_life_days":
            _check_names(value, MEMORY_TYPES, name)
            value, bounds = {**DecayConfig().half_life_days, **value}, (0.0, math.inf)
        kind = typing.get_args(kind)[1]  # numbers, or mappings of these
        return {
            str(k): v if _fits(kind, v, bounds) else _convert(kind, v, f"{name}.{k}", bounds)
            for k, v in value.items()
        }
    if origin is tuple:
        if not isinstance(value, (list, tuple)):
            raise ConfigError(
                f"{name}: expected a list of edge types, got {value!r}; write [{_EDGE_TYPES[0]}]"
            )
        _check_names(value, _EDGE_TYPES, name)
        return tuple(value)
    if kind is str and isinstance(value, str):
        return value
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if kind not in (int, float) or not number or (kind is int and value % 1):
        words = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}
        raise ConfigError(
            f"{name}: expected {words[kind]}, got {value!r}; leave it out for the default"
        )
    if not (math.isfinite(value) and low <= value <= high):
        least = f" of at least {low:g}" if low > -math.inf else ""
        most = f" of at most {high:g}" if high < math.inf else ""
        raise ConfigError(
            f"{name}: expected a finite number{least}{' and' * bool(least and most)}{most}, got "
            f"{value!r}; leave it out for the default"
        )
    return kind(value)


def _check_names(value: Iterable[Any], known: Sequence[str], name: str) -> None:
    for key in value:
        if key not in known:
            raise ConfigError(unknown(name, key, known))
