"""Fit the weights of a preset, or of the linear baseline, to LoCoMo conversations.

`python -m bench.quality.fit --data FILE [--evidence FILE] [--preset default] [--linear]`

Prints YAML. The questions of every conversation are asked of two memories, one with the turns alone
and one with the facts of the file, so that one set of weights serves both.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro
import yaml
from tyro.conf import arg

from graphmem_torch.config import load_config

from .common.encoder import load_encoder
from .common.fitting import fit_linear, fit_preset, linear_names
from .common.questions import read_conversations
from .common.task import build_tasks
from .request import Request

__all__ = ["main"]


@dataclass(frozen=True)
class Fit:
    """Fit weights to questions with evidence.

    Attributes:
        data: LoCoMo file.
        evidence: Repaired evidence, JSON lines.
        preset: Whose signals, graph and gate.
        linear: Fit the linear baseline: the preset's signals without activation and PageRank.
        device: `auto`, `cpu`, `cuda`.
    """

    data: Annotated[Path, arg(metavar="FILE")]
    evidence: Annotated[Path | None, arg(metavar="FILE")] = None
    preset: str = "default"
    linear: bool = False
    device: str = "auto"


def main() -> int:
    """Read the options, fit, print."""
    options = tyro.cli(Fit, description=__doc__)
    config = load_config(options.preset)
    encoder = load_encoder(Request(data=options.data, config=config, device=options.device))
    tasks = []
    for source in ("raw", "observations"):
        conversations = read_conversations(options.data, evidence=options.evidence, input=source)
        tasks += build_tasks(conversations, config, encoder, options.device, progress=True)[0]
    with encoder.caching():
        if options.linear:
            weights = fit_linear(tasks, linear_names(config))
            result: dict[str, object] = {"rank": {"weights": weights}}
        else:
            fitted = fit_preset(tasks, config)
            gate = {"weights": dict(fitted.gate.weights), "bias": fitted.gate.bias}
            result = {"rank": {"weights": dict(fitted.rank.weights)}, "gate": gate}
    print(yaml.safe_dump(_rounded(result), sort_keys=False), end="")
    return 0


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    raise SystemExit(main())
