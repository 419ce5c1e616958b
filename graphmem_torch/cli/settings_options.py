"""Options `--config.SECTION.FIELD VALUE`, which override single settings of a preset.

They are parsed apart from the others, for three reasons:

- They change the preset that another option names.
- A mapping, such as the weights of the signals, takes keys that the preset does not have.
- A hundred of them in each command would make `--help` unreadable.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import ConfigError

__all__ = ["HELP_CONFIG", "show_settings", "take_overrides"]

HELP_CONFIG = "help_config"
"""Name of the parameter of `--help-config`."""

_PREFIX = "--config."


@dataclass(frozen=True)
class _Overrides:
    config: Config


def take_overrides(words: Sequence[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """Remove the `--config.*` options from the words of a command, and return them.

    Args:
        words: Words after the name of the command; none after `--` is an option.

    Returns:
        Values by dotted name, None if there are none; and the other words.

    Raises:
        ConfigError: An option has no value.
    """
    end = words.index("--") if "--" in words else len(words)
    options = iter(words[:end])
    rest: list[str] = []
    overrides: dict[str, Any] = {}
    for option in options:
        if not option.startswith(_PREFIX):
            rest.append(option)
            continue
        name, equals, value = option.removeprefix(_PREFIX).partition("=")
        given = value if equals else next(options, None)
        if given is None:
            raise ConfigError(f"{option}: expected a value, got none; write {option} VALUE")
        overrides[name.replace("-", "_")] = _value(given)
    return overrides or None, [*rest, *words[end:]]


def show_settings(preset: str, overrides: Mapping[str, Any] | None) -> None:
    """Print every setting with its meaning and its value in a preset."""
    import tyro

    default = _Overrides(load_config(preset, overrides))
    with suppress(SystemExit):
        tyro.cli(_Overrides, prog="graphmem COMMAND", default=default, args=["--help"])


def _value(text: str) -> Any:
    """Read a number, a YAML value, or else the text itself."""
    import yaml

    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    try:
        return yaml.safe_load(text)
    except yaml.YAMLError:
        return text
