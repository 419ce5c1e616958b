"""Rankings of a long document's chunks: the memory under test, and what it is held against."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch
from torch import Tensor

from graphmem_torch.config import Config, load_config
from graphmem_torch.evaluation.longdoc_chunks import Chunked, remember
from graphmem_torch.evaluation.metrics import rank_candidates
from graphmem_torch.memory import Memory
from graphmem_torch.rank.scope import Scope
from graphmem_torch.text.embed import Embedder

__all__ = ["ABLATIONS", "baselines", "retrieved", "varied", "window"]

_DEPTH = 96  # chunks ranked: enough to fill 2,048 tokens with the smallest
_PRESETS = ("sgrm", "default")  # that a preset under test is held against

ABLATIONS: Mapping[str, tuple[float, ...]] = {
    "link.similarity_k": (0, 1, 2, 5, 10, 20),
    "link.similarity_min": (0.1, 0.2, 0.3, 0.5),
    "segment.hops": (0, 1, 2, 3, 4),
    "segment.seeds": (1, 2, 4, 8),
    "segment.discount": (0.7, 0.8, 0.9, 1.0),
    "embedder.max_tokens": (32, 64, 128, 254),
}
"""Settings of the segment graph that are varied one at a time, everything else as in the preset."""


def retrieved(case: Chunked, memory: Memory) -> Tensor:  # [Q, K] int64, -1 = padding
    """The chunks as a memory ranks them; it holds those of the case."""
    results = memory.retrieve(case.questions, k=_DEPTH)
    return case.places([[hit.id for hit in result.hits] for result in results])


def window(
    similarity: Tensor,  # [Q, N]
) -> Tensor:  # [Q, N]
    """Nearness to the most similar chunk in the text; of two as near, the later first."""
    seed = similarity.argmax(1, keepdim=True)
    place = torch.arange(similarity.shape[1])
    return -(place - seed).abs().double() - 0.5 * (place < seed)


def baselines(
    case: Chunked, subject: str, embedder: Embedder, device: str
) -> dict[str, Tensor]:  # each [Q, K]
    """Every other ranking of the same chunks, by name.

    `dense`: cosine; `bm25`; `window`: the text around the most similar chunk, which is all that
    chronological edges can bring; the presets `sgrm` and `default` as shipped.
    """
    others = {
        name: remember(case.atoms, load_config(name), embedder, device)
        for name in _PRESETS
        if name != subject
    }
    anyone = next(iter(others.values()))
    rankings = {
        name: rank_candidates(score)[:, :_DEPTH] for name, score in _flat(case, anyone).items()
    }
    return rankings | {name: retrieved(case, memory) for name, memory in others.items()}


def _flat(case: Chunked, memory: Memory) -> dict[str, Tensor]:  # each [Q, N]
    """Scores that need no graph, of the chunks in their order."""
    scope = Scope(memory.index, memory.query(case.questions))
    rows = memory.rows_of([atom.id for atom in case.atoms])
    cosine = scope.memo("semantic")[:, rows].cpu()
    lexical = scope.memo("lexical")[:, rows].cpu()
    return {"dense": cosine, "bm25": lexical, "window": window(cosine)}


def varied(config: Config, setting: str, value: float) -> Config:
    """The settings with one of them changed, named `section.name`."""
    section, name = setting.split(".")
    old = getattr(config, section)
    fresh = replace(old, **{name: type(getattr(old, name))(value)})
    return replace(config, **{section: fresh})
