"""Sizes of a benchmark: `configs/bench/<operation>.yaml`, read strictly."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

__all__ = ["FOLDER", "Size", "sizes"]

FOLDER = Path(__file__).resolve().parents[2] / "configs" / "bench"

_KEYS = {"threads", "rounds", "sizes", "cuda", "limits", "smoke"}
_ROUNDS = 7


@dataclass(frozen=True, eq=False)
class Size(Mapping[str, Any]):
    """Size of an operation; `size["n"]` is its parameter n.

    Attributes:
        operation: Name of its configuration.
        name: Key in the configuration.
        parameters: Parameters of the inputs.
        rounds: Minimum number of timed rounds; slow calls take fewer, fast ones more.
        threads: Numbers of CPU threads to run with.
        limits: `{contender: {parameter: largest}}`; a contender is absent above its limit. `why`
            gives the reason, by default 8 GB or 10 minutes.
        device: "cpu" or "cuda", device of the inputs.
        smoke: Whether it is the tiny size, which only tests the benchmark.
    """

    operation: str
    name: str
    parameters: Mapping[str, Any]
    rounds: int = _ROUNDS
    threads: tuple[int, ...] = (1,)
    limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    device: str = "cpu"
    smoke: bool = False

    def __getitem__(self, key: str) -> Any:
        if key not in self.parameters:
            raise KeyError(
                f"{key!r}: size {self.name} of configs/bench/{self.operation}.yaml has "
                f"{', '.join(self.parameters)}"
            )
        return self.parameters[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self.parameters)

    def __len__(self) -> int:
        return len(self.parameters)

    def __str__(self) -> str:
        return self.name

    def beyond(self, contender: str) -> str | None:
        """Return the reason why the contender is absent at this size; None if it is not.

        Call it before preparing inputs for that contender only.
        """
        limit = self.limits.get(contender, {})
        why = limit.get("why", "over 8 GB or 10 minutes")
        for parameter, largest in limit.items():
            if parameter != "why" and self.parameters.get(parameter, 0) > largest:
                return f"{why} beyond {parameter} = {largest:,}"
        return None


def sizes(operation: str, folder: Path = FOLDER) -> list[Size]:
    """Return all sizes of `<operation>.yaml`: for the CPU, for the device, and the smoke size.

    `conftest.py` drops those that the run does not include.

    Raises:
        ValueError: A key is unknown, `sizes` or `smoke` is missing, or a limit has a parameter that
            no size has.
    """
    path = folder / f"{operation}.yaml"
    document = yaml.safe_load(path.read_text(encoding="utf-8"))
    unknown = document.keys() - _KEYS
    if unknown or not document.get("sizes") or not document.get("smoke"):
        raise ValueError(
            f"{path.name}: expected sizes, smoke and optionally {sorted(_KEYS)}; got "
            f"{sorted(document)}"
        )
    limits = document.get("limits") or {}
    named = [
        *(("cpu", name, values) for name, values in document["sizes"].items()),
        *(("cuda", name, values) for name, values in (document.get("cuda") or {}).items()),
    ]
    known = {key for _, _, values in named for key in values}
    odd = {key for limit in limits.values() for key in limit} - known - {"why"}
    if odd:
        raise ValueError(f"{path.name}: limits name {sorted(odd)}, which no size has")
    rounds, threads = document.get("rounds", _ROUNDS), tuple(document.get("threads", (1,)))
    found = []
    for device, name, values in named:
        parameters = {k: v for k, v in values.items() if k not in ("rounds", "smoke")}
        found.append(
            Size(
                operation,
                name,
                parameters,
                values.get("rounds", rounds),
                threads if device == "cpu" else threads[:1],
                limits,
                device,
                bool(values.get("smoke", False)),
            )
        )
    tiny = {k: v for k, v in document["smoke"].items() if k not in ("rounds", "smoke")}
    return [*found, Size(operation, "smoke", tiny, 1, (1,), limits, smoke=True)]
