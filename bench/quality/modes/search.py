"""Searches of the same rows with and without modes, and the number of rows each reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.modes import Modes, atoms_read, search_modes, select_modes
from graphmem_torch.ops import IVF, topk_cosine

__all__ = ["Found", "agreement", "by_lists", "by_modes", "by_typical", "flat"]


@dataclass(frozen=True, slots=True)
class Found:
    """Rankings of B questions, with the work they took.

    Attributes:
        ranking: [B, K] int64 rows, best first, -1 = padding at the end.
        read: [B] float64, vectors multiplied with the question's: centroids and atoms.
    """

    ranking: Tensor
    read: Tensor


def flat(x: Tensor, queries: Tensor, k: int) -> Found:  # [N, d], [B, d]
    """Search exactly: every row is read."""
    ranking = topk_cosine(queries, x, k)[1]
    return Found(ranking, torch.full((len(queries),), float(len(x)), dtype=torch.float64))


def by_modes(
    modes: Modes,
    x: Tensor,  # [N, d]
    queries: Tensor,  # [B, d]
    *,
    searched: int,
    taken: Sequence[int],
) -> list[Found]:
    """Search by the engine's modes for several numbers of atoms taken of a mode.

    All centroids are read, then every atom of the searched modes; the number of atoms *taken* does
    not change the number read.
    """
    hits = search_modes(modes, x, queries, modes_k=searched, per_mode=max(taken))
    read = len(modes) + atoms_read(modes, select_modes(modes, queries, searched)[0]).double()
    rank = _rank_in_mode(hits.mode)
    found = []
    for number in taken:
        left_out = (rank >= number) | (hits.rows < 0)
        order = left_out.to(torch.int8).argsort(dim=1, stable=True)
        rows = hits.rows.masked_fill(left_out, -1).gather(1, order)
        found.append(Found(rows[:, : searched * number], read.cpu()))
    return found


def _rank_in_mode(mode: Tensor) -> Tensor:  # [B, C] -> [B, C]
    """Return the number of earlier hits of the same mode for each hit."""
    ordered, order = mode.sort(dim=1, stable=True)
    place = torch.arange(mode.shape[1], device=mode.device).expand_as(mode).contiguous()
    first = torch.searchsorted(ordered, ordered)
    return torch.empty_like(order).scatter_(1, order, place - first)


def by_lists(index: IVF, queries: Tensor, *, probes: int, k: int) -> Found:
    """Search an inverted file: all centroids are read, then the lists nearest to the question."""
    ranking = index.search(queries, k, probes=probes)[1]
    nearest = topk_cosine(queries, index.centroids, min(probes, len(index.centroids)))[1]
    atoms = index.offsets.diff()[nearest].sum(1)
    return Found(ranking, (len(index.centroids) + atoms.double()).cpu())


def by_typical(
    modes: Modes,
    queries: Tensor,  # [B, d]
    x: Tensor | None = None,  # [N, d]
) -> Found:
    """Search an index that keeps only the typical atoms of each mode.

    Without their vectors they come mode by mode, the best mode first; with them (`x`) they are
    ranked by cosine.
    """
    typical = modes.representative.to(queries.device)
    if x is None:
        rows = typical[select_modes(modes, queries, len(modes))[0]].flatten(1)
        ranking = rows.gather(1, (rows < 0).to(torch.int8).argsort(dim=1, stable=True))
        return Found(ranking, torch.full((len(queries),), float(len(modes)), dtype=torch.float64))
    kept = typical[typical >= 0]
    place = topk_cosine(queries, x[kept], len(kept))[1]
    read = torch.full((len(queries),), float(len(kept)), dtype=torch.float64)
    return Found(kept[place], read)


def agreement(ranking: Tensor, exact: Tensor) -> Tensor:  # [B, K], [B, k] -> [B] float64
    """Return the share of the exact k best in the first k of a ranking."""
    first = ranking[:, : exact.shape[1]]
    same = (exact[:, :, None] == first[:, None, :]) & (exact >= 0)[:, :, None]
    return same.any(2).sum(1).double() / (exact >= 0).sum(1).clamp(min=1)
