"""Measure recall on long documents: every system, and the segment graph with single changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.memory import Memory
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.text.embedder import Embedder

from ..common.rankings import rank_candidates
from ..common.task import memory_of
from .chunked import CUTOFFS, TOKENS, Chunked, chunk_document

__all__ = [
    "ABLATIONS",
    "PRESETS",
    "ablate",
    "baselines",
    "compare",
    "intervals",
    "means",
    "measure_all",
    "retrieved",
    "varied",
    "window",
]
_DEPTH = 96  # chunks ranked: enough to fill 2,048 tokens with the smallest
PRESETS: tuple[str, ...] = ("sgrm", "default")
"""Presets that a preset under test is compared with."""

ABLATIONS: Mapping[str, tuple[float, ...]] = {
    "link.similarity_k": (0, 1, 2, 5, 10, 20),
    "link.min_similarity": (0.1, 0.2, 0.3, 0.5),
    "segment.hops": (0, 1, 2, 3, 4),
    "segment.seeds": (1, 2, 4, 8),
    "segment.discount": (0.7, 0.8, 0.9, 1.0),
    "embedder.max_tokens": (32, 64, 128, 254),
}
"""Settings of the segment graph that are varied one at a time; all others stay the preset's."""


def retrieved(case: Chunked, memory: Memory) -> Tensor:  # [Q, K] int64, -1 = padding
    """Return the chunks as ranked by a memory that holds those of the case."""
    results = memory.retrieve(case.questions, k=_DEPTH)
    return case.places([[hit.id for hit in result.hits] for result in results])


def window(
    similarity: Tensor,  # [Q, N]
) -> Tensor:  # [Q, N]
    """Return nearness to the most similar chunk in the text; the later one wins a tie."""
    seed = similarity.argmax(1, keepdim=True)
    place = torch.arange(similarity.shape[1])
    return -(place - seed).abs().double() - 0.5 * (place < seed)


def baselines(
    case: Chunked, subject: str, embedder: Embedder, device: str, presets: Sequence[Config]
) -> dict[str, Tensor]:  # each [Q, K]
    """Return every other ranking of the same chunks, by name.

    `dense`: cosine; `bm25`; `window`: the text around the most similar chunk, the most that
    chronological edges can add; the presets by name.
    """
    others = {
        preset.name: memory_of(case.atoms, preset, embedder, device)
        for preset in presets
        if preset.name != subject
    }
    anyone = next(iter(others.values()))
    rankings = {
        name: rank_candidates(score)[:, :_DEPTH] for name, score in _flat(case, anyone).items()
    }
    return rankings | {name: retrieved(case, memory) for name, memory in others.items()}


def _flat(case: Chunked, memory: Memory) -> dict[str, Tensor]:  # each [Q, N]
    """Return the scores without a graph, of the chunks in order."""
    index = memory.index
    found = Candidates(index.tensors, memory.tensors.encode(case.questions), index.config)
    rows = memory.tensors.rows([atom.id for atom in case.atoms])
    cosine = found.signal("semantic")[:, rows].cpu()
    lexical = found.signal("lexical")[:, rows].cpu()
    return {"dense": cosine, "bm25": lexical, "window": window(cosine)}


def varied(config: Config, setting: str, value: float) -> Config:
    """Return the settings with one of them changed, named `section.name`."""
    section, name = setting.split(".")
    old = getattr(config, section)
    fresh = replace(old, **{name: type(getattr(old, name))(value)})
    return replace(config, **{section: fresh})


Measures = Mapping[str, Tensor]
"""Measures of `Chunked.measure` by name, [Q, 3] each."""


def compare(
    cases: Sequence[Chunked],
    *,
    subject: str,
    embedder: Embedder,
    device: str,
    seed: int,
    presets: Sequence[Config],
) -> dict[str, Any]:
    """Measure every system on the same chunks: means, intervals, and the subject's gain."""
    parts: dict[str, list[Measures]] = {}
    for case in cases:
        rankings = baselines(case, subject, embedder, device, presets)
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
    cases: Sequence[Chunked],
    *,
    config: Config,
    embedder: Embedder,
    device: str,
    ablations: Mapping[str, Sequence[float]] = ABLATIONS,
) -> dict[str, Any]:
    """Measure the preset with one setting changed at a time; empty if it has no hops.

    A row with the preset's own value is marked `own`.
    """
    if not config.segment.retrieve:
        return {}
    plain = means(measure_all(cases))
    table: dict[str, Any] = {}
    for setting, values in ablations.items():
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
    """Return the same documents under other settings; cut again only if the chunk size differs."""
    return [
        chunk_document(case.document, config, embedder, device)
        if config.embedder != case.memory.config.embedder
        else Chunked(case.document, memory_of(case.atoms, config, embedder, device), case.atoms)
        for case in cases
    ]


def measure_all(cases: Sequence[Chunked]) -> Measures:
    """Measure the memory of each case on all questions."""
    return _joined([case.measure(retrieved(case, case.memory)) for case in cases])


def means(values: Measures) -> dict[str, dict[str, float | None]]:
    """Return the mean of each measure at each cut-off; None if no question has a value."""
    table = {}
    for name, value in values.items():
        mean = value.nanmean(0).tolist()
        table[name] = {
            str(at): None if each != each else each
            for at, each in zip(_columns(name), mean, strict=True)
        }
    return table


def intervals(values: Measures, seed: int) -> dict[str, dict[str, Any]]:
    """Return mean and ends of the 95 % interval of each measure at each cut-off."""
    return {
        name: interval_table(value, _columns(name), seed=seed) for name, value in values.items()
    }


def _columns(name: str) -> Sequence[int]:
    return CUTOFFS if name == "recall" else TOKENS


def _joined(parts: Sequence[Measures]) -> Measures:
    return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}
