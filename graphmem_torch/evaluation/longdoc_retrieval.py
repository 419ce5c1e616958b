"""Recall on long documents: every system, and the segment graph with one setting changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.evaluation.bootstrap import bootstrap_interval
from graphmem_torch.evaluation.longdoc_chunks import (
    CUTOFFS,
    TOKENS,
    Chunked,
    chunk_document,
    remember,
)
from graphmem_torch.evaluation.longdoc_systems import ABLATIONS, baselines, retrieved, varied
from graphmem_torch.text.embed import Embedder

__all__ = ["ablate", "compare", "intervals", "means", "measure_all"]

Measures = Mapping[str, Tensor]
"""By name, [Q, 3] each, as of `Chunked.measure`."""


def compare(
    cases: Sequence[Chunked], *, subject: str, embedder: Embedder, device: str, seed: int
) -> dict[str, Any]:
    """Every system on the same chunks: means, intervals, and what the subject gains over each."""
    parts: dict[str, list[Measures]] = {}
    for case in cases:
        rankings = baselines(case, subject, embedder, device)
        rankings[subject] = retrieved(case, case.memory)
        for name, ranking in rankings.items():
            parts.setdefault(name, []).append(case.measure(ranking))
    whole = {name: _joined(each) for name, each in parts.items()}
    own = whole[subject]
    others = {name: values for name, values in whole.items() if name != subject}
    return {
        "systems": {
            name: {**means(values), "ci": intervals(values, seed)} for name, values in whole.items()
        },
        "difference": {
            name: intervals({key: own[key] - values[key] for key in own}, seed)
            for name, values in others.items()
        },
    }


def ablate(
    cases: Sequence[Chunked], *, config: Config, embedder: Embedder, device: str
) -> dict[str, Any]:
    """Means of the preset with one of `ABLATIONS` changed at a time; nothing where it has no hops.

    A row where the value is the preset's own is marked `own`.
    """
    if not config.segment.retrieve:
        return {}
    plain = means(measure_all(cases))
    table: dict[str, Any] = {}
    for setting, values in ABLATIONS.items():
        section, name = setting.split(".")
        own = getattr(getattr(config, section), name)
        rows = table[setting] = {}
        for value in values:
            if value == own:
                rows[str(value)] = {"own": True, **plain}
                continue
            changed = varied(config, setting, value)
            rows[str(value)] = means(measure_all(_changed(cases, changed, embedder, device)))
    return table


def _changed(
    cases: Sequence[Chunked], config: Config, embedder: Embedder, device: str
) -> list[Chunked]:
    """The same documents under other settings; cut anew only where the size of a chunk differs."""
    return [
        chunk_document(case.document, config, embedder, device)
        if config.embedder != case.memory.config.embedder
        else Chunked(case.document, remember(case.atoms, config, embedder, device), case.atoms)
        for case in cases
    ]


def measure_all(cases: Sequence[Chunked]) -> Measures:
    """What the memory of each case finds, of all questions."""
    return _joined([case.measure(retrieved(case, case.memory)) for case in cases])


def means(values: Measures) -> dict[str, dict[str, float | None]]:
    """Of each measure at each cut-off; None where no question has a value."""
    table = {}
    for name, value in values.items():
        mean = value.nanmean(0).tolist()
        table[name] = {
            str(at): None if each != each else each
            for at, each in zip(_columns(name), mean, strict=True)
        }
    return table


def intervals(values: Measures, seed: int) -> dict[str, dict[str, Any]]:
    """Mean and ends of the 95 % interval of each measure at each cut-off."""
    table = {}
    for name, value in values.items():
        found = bootstrap_interval(value, generator=torch.Generator().manual_seed(seed))
        table[name] = dict(zip(map(str, _columns(name)), found, strict=True))
    return table


def _columns(name: str) -> Sequence[int]:
    return CUTOFFS if name == "recall" else TOKENS


def _joined(parts: Sequence[Measures]) -> Measures:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
