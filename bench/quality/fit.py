"""Fit the weights of a preset, or of the linear baseline, to every set of questions at once.

`python -m bench.quality.fit --data ROOT [--preset default] [--linear]`

Prints YAML. Each source of questions counts alike: those of LoCoMo are asked of two memories, one
with the turns alone and one with the facts of the file, so that one set of weights serves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
import yaml
from tyro.conf import arg

from .all.judge import fit_sets, sets_of
from .common.compare import build
from .common.encoder import caching, load_encoders
from .request import Request

__all__ = ["main"]


@dataclass(frozen=True)
class Fit:
    """Fit weights to questions with evidence.

    Attributes:
        data: Root of the data, as `graphmem eval all` takes it.
        cache: Folder of encodings.
        preset: Whose signals, graph and gate.
        linear: Print the linear baseline: the preset's signals without what the graph adds.
        device: `auto`, `cpu`, `cuda`.
    """

    data: Annotated[Path, arg(metavar="ROOT")]
    cache: Annotated[Path | None, arg(metavar="FOLDER")] = None
    preset: str = "default"
    linear: bool = False
    device: str = "auto"


def main() -> int:
    """Read the options, fit, print."""
    options = tyro.cli(Fit, description=__doc__)
    request = Request(
        data=options.data,
        preset=options.preset,
        cache=options.cache,
        device=options.device,
        progress=True,
    )
    encoders = load_encoders(request)
    built = [
        build(one, request.presets, encoders, request.device, request.progress)
        for one in sets_of(request, encoders)
        if len(one.sources) == 1  # merged sets hold nothing that their parts do not hold
    ]
    with caching(encoders):
        fitted = fit_sets(built, gate=not options.linear)
    if options.linear:
        result: dict[str, object] = {"rank": {"weights": dict(fitted.linear)}}
    else:
        gate = {"weights": dict(fitted.config.gate.weights), "bias": fitted.config.gate.bias}
        result = {"rank": {"weights": dict(fitted.config.rank.weights)}, "gate": gate}
    print(yaml.safe_dump(_rounded(result), sort_keys=False), end="")
    return 0


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    raise SystemExit(main())
