"""Fit the weights of `default` to kinds of data that each count alike.

`python -m bench.quality.fit --data ROOT [--gate]`

The program prints YAML, then two tables: the fit on each kind when that kind is left out, and when
it is included. Signals are gathered once and cached in the folder of encodings, under `signals`:
about 1.5 MB for 60 questions. Corpora are cut to `--atoms`, so compare the columns of the tables,
not their level with `graphmem eval all`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import tyro
import yaml
from tqdm import tqdm
from tyro.conf import arg

from graphmem_torch.config import Config
from graphmem_torch.rank.registry import SIGNALS, Weight
from graphmem_torch.text.models import cache_folder

from .all.judge import sets_of
from .all.promise import held_against, promise_table
from .common.abstention import fit_gate
from .common.compare import BuiltSet, build
from .common.encoder import CachingEmbedder, caching, load_encoders
from .common.kinds import (
    KindFit,
    KindSet,
    fit_kinds,
    ingredient_values,
    leave_kinds_out,
    preset_values,
    to_config,
)
from .common.sets import QuestionSet
from .common.signals import LEARNED_FROM, gather, gathered_file, load_gathered, save_gathered
from .common.tables import Table
from .request import Request

__all__ = ["main"]
_QUESTIONS, _CANDIDATES = 60, 200  # questions of a memory for the fit
_NAMES = {"semantic": "dense", "lexical": "bm25"}


@dataclass(frozen=True)
class Fit:
    """Fit weights to questions with evidence.

    Attributes:
        data: Root of the data, as for `graphmem eval all`.
        cache: Folder of encodings and of gathered signals.
        atoms: Maximum documents of a collection.
        gate: Fit the gate, too, which asks every memory the questions of the others.
        device: `auto`, `cpu`, `cuda`.
    """

    data: Annotated[Path, arg(metavar="ROOT")]
    cache: Annotated[Path | None, arg(metavar="FOLDER")] = None
    atoms: int = 400
    gate: bool = False
    device: str = "auto"


def main() -> int:
    """Read the options, fit, print."""
    options = tyro.cli(Fit, description=__doc__)
    request = Request(data=options.data, cache=options.cache, device=options.device, progress=True)
    encoders = load_encoders(request)
    config = request.presets[0]
    sets = [
        one.cut(options.atoms, _QUESTIONS)
        for one in sets_of(request, encoders)
        if len(one.sources) == 1  # merged sets repeat the content of their parts
    ]
    folder = (options.cache or cache_folder()) / "signals"
    fixed = _by_hand(config)
    gathered = [_gathered(one, request, encoders, folder) for one in tqdm(sets, desc="signals")]
    fit = fit_kinds(gathered, fixed)
    config = to_config(fit, config)
    result = _settings(config)
    if options.gate:
        built = [_built(one, request, encoders) for one in sets]
        with caching(encoders):
            tasks = [task for one in built for task in one.own]
            gate = fit_gate(tasks, config).gate
        result["gate"] = {"weights": dict(gate.weights), "bias": gate.bias}
    print(_yaml(result))
    for table in _tables(gathered, fit, leave_kinds_out(gathered, fixed), fixed):
        print(f"{table}\n")
    return 0


def _built(one: QuestionSet, request: Request, encoders: Sequence[CachingEmbedder]) -> BuiltSet:
    return build(one, request.presets, encoders, request.device, progress=False)


def _by_hand(config: Config) -> dict[str, float]:
    """The weights that are not learned, of signals that are gathered beside the others."""
    return {
        key: value
        for key, value in config.rank.weights.items()
        if not SIGNALS[Weight.named(key).signal].learned and key in LEARNED_FROM
    }


def _gathered(
    one: QuestionSet, request: Request, encoders: Sequence[CachingEmbedder], folder: Path
) -> KindSet:
    """Return the signals of a set, read from the cache if an earlier run has gathered them."""
    files = [
        gathered_file(folder, f"{one.name}-{number}", conversation, encoders[0].fingerprint)
        for number, conversation in enumerate(one.conversations)
    ]
    if not all(file.exists() for file in files):
        built = _built(one, request, encoders)
        with caching(encoders):
            for file, task in zip(files, built.own, strict=True):
                save_gathered(file, gather(task, built.config))
        built.close()
    found = [load_gathered(file).cut(_QUESTIONS, _CANDIDATES) for file in files]
    return KindSet(one.name, one.data_kind, one.measure, one.at, found)


def _settings(config: Config) -> dict[str, Any]:
    """Return fitted weights and constants in the form of a preset."""
    own = config.anchors
    return {
        "anchors": {"named": own.named, "temperature": own.temperature},
        "rank": {"weights": dict(config.rank.weights)},
        "hops": {
            name: getattr(config.hops, name)
            for name in ("title", "entity", "title_named", "entity_named")
        },
    }


def _tables(
    sets: Sequence[KindSet],
    fit: KindFit,
    without: Mapping[str, KindFit],
    fixed: Mapping[str, float],
) -> list[Table]:
    """Return tables by set and by kind: ingredients, fit without the kind, and fit with all."""
    values: dict[str, dict[str, torch.Tensor]] = {}
    kinds: dict[str, list[str]] = {}
    for one in sets:
        found = ingredient_values(one)
        own = {_NAMES.get(name, name): value for name, value in found.items()}
        own["kind left out"] = preset_values(one, without[one.data_kind], fixed)
        own["all kinds"] = preset_values(one, fit, fixed)
        values[one.name] = own
        kinds.setdefault(one.data_kind, []).append(one.name)
    subjects = ("kind left out", "all kinds")
    return [
        promise_table(what, held_against(groups, values, subjects, seed=0))
        for what, groups in (("set", {name: [name] for name in values}), ("kind", kinds))
    ]


def _yaml(value: object) -> str:
    return yaml.safe_dump(_rounded(value), sort_keys=False)


def _rounded(value: object) -> object:
    if isinstance(value, dict):
        return {key: _rounded(inner) for key, inner in value.items()}
    return round(value, 4) if isinstance(value, float) else value


if __name__ == "__main__":
    raise SystemExit(main())
