"""Uses of modes: retrieval through the best modes of a question, and comparing two memories."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_no_gradient, check_range, check_tensor
from graphmem_torch.modes.find import Modes
from graphmem_torch.ops.fading import DAY, fading
from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.ivf import scan_each_list
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.ops.topk_cosine import check_pair, inner_products

__all__ = [
    "Alignment",
    "ModeHits",
    "align_modes",
    "atoms_read",
    "mode_weights",
    "principal_angles",
    "search_modes",
    "select_modes",
]


class ModeHits(NamedTuple):
    """Result of `search_modes`, best first.

    Attributes:
        rows: [B, C] int64 atoms, -1 if there are fewer.
        scores: [B, C] float32 cosines, minus infinity where rows is -1.
        mode: [B, C] int64, mode of each atom, -1 where rows is -1.
    """

    rows: Tensor
    scores: Tensor
    mode: Tensor


def mode_weights(
    modes: Modes,
    queries: Tensor,  # [B, d]
    *,
    half_life_days: float = 0.0,
    absolute: bool = False,
) -> Tensor:  # [B, M] float32
    """Return w_k = max(0, cos(q, μ_k)) · f(max τ - τ_k, h) / (1 + σ_k²).

    `docs/mathematics.md` 1.5.

    Args:
        modes: M modes.
        queries: Query vectors of any length.
        half_life_days: Days in which a mode without new atoms loses half of its weight; 0: no
            decay. A mode of unknown time does not decay.
        absolute: Whether to use the published |cos|, which ranks opposite centroids highly.

    Raises:
        InputError: Queries do not fit, or the half-life is negative.
    """
    return _weigh(modes, _cosine(modes, queries), half_life_days, absolute)


def _weigh(modes: Modes, cosine: Tensor, half_life_days: float, absolute: bool) -> Tensor:  # [B, M]
    near = cosine.abs() if absolute else cosine.clamp(min=0)
    return near * (_decay(modes.latest, half_life_days) / (1 + modes.variance.double())).to(
        near.dtype
    )


def _cosine(modes: Modes, queries: Tensor) -> Tensor:  # [B, M] float32
    check_pair(queries, modes.centroid)
    unit = torch.nn.functional.normalize(queries.float(), dim=1)
    return unit @ torch.nn.functional.normalize(modes.centroid.float(), dim=1).T


def _decay(latest: Tensor, half_life_days: float) -> Tensor:  # [M] float64
    """Return f(t, h), t the age before the latest time of any mode; 1 without a time."""
    check_range("half_life_days", half_life_days, 0.0)
    age = (latest.nan_to_num(nan=-torch.inf).amax() - latest).nan_to_num(nan=0.0)
    return fading(age / DAY, half_life_days)


def select_modes(
    modes: Modes,
    queries: Tensor,  # [B, d]
    modes_k: int,
    *,
    half_life_days: float = 0.0,
    absolute: bool = False,
) -> tuple[Tensor, Tensor]:  # [B, min(modes_k, M)] int64, [B, min(modes_k, M)]
    """Return the modes of largest `mode_weights`, best first, and their weights.

    Modes of weight 0 follow in the order of their cosines.
    """
    check_count("modes_k", modes_k)
    cosine = _cosine(modes, queries)
    weight = _weigh(modes, cosine, half_life_days, absolute)
    rank = torch.where(weight > 0, weight, cosine.clamp(max=0))
    chosen = stable_topk(rank, min(modes_k, len(modes)))[1]
    return chosen, weight.gather(1, chosen)


def atoms_read(modes: Modes, chosen: Tensor) -> Tensor:  # [B, m] -> [B] int64
    """Return the number of atoms that a search of these modes reads."""
    return modes.size.long()[chosen].sum(1)


def search_modes(
    modes: Modes,
    embeddings: Tensor,  # [N, d], unit rows
    queries: Tensor,  # [B, d]
    *,
    modes_k: int,
    per_mode: int,
    half_life_days: float = 0.0,
    absolute: bool = False,
    duplicate: Tensor | None = None,  # [N] int64
    allowed: Tensor | None = None,  # [B or 1, N] bool
) -> ModeHits:  # C = modes_k * per_mode
    """Return the `per_mode` best atoms by cosine of each of the `modes_k` best modes.

    `docs/mathematics.md` 1.5. A question reads M centroids and only the atoms of its modes
    (`atoms_read` of the result of `select_modes`). The work therefore grows with the sizes of the
    modes, not with N. Questions that search the same mode share a gather and a product.

    Args:
        modes: Modes of these embeddings.
        embeddings: Rows in which the modes were found.
        queries: Query vectors of any length.
        modes_k: Modes searched per question; at most M count.
        per_mode: Atoms returned from each.
        half_life_days: Days of half-life, as for `mode_weights`.
        absolute: Whether to use |cos|, as for `mode_weights`.
        duplicate: First atom of equal content for each atom, itself if it is the first; only one of
            equal atoms is a hit.
        allowed: Atoms that may be hits.

    Raises:
        InputError: Shapes or devices do not fit, or a number is out of range.
    """
    check_pair(queries, embeddings)
    check_no_gradient("search_modes", queries, embeddings)
    check_count("per_mode", per_mode)
    count = len(modes.label)
    do = "they are not the rows that the modes were found in: find the modes anew"
    check_tensor("embeddings", embeddings, "", (count, "d"), do)
    chosen, _ = select_modes(
        modes, queries, modes_k, half_life_days=half_life_days, absolute=absolute
    )
    unit = torch.nn.functional.normalize(queries.float(), dim=1)
    kept = _kept(duplicate, allowed, (len(queries), count))
    if shapes_are_fixed():
        taken = min(per_mode, count)
        scores, rows = _scan_every(
            modes.label, inner_products(unit, embeddings), chosen, taken, kept
        )
    else:
        taken = min(per_mode, int(modes.size.max()))
        scores, rows = scan_each_list(
            unit, embeddings, modes.order, modes.offsets, chosen, taken, kept=kept
        )
    scores, place = scores.flatten(1).sort(dim=1, descending=True, stable=True)
    rows = rows.flatten(1).gather(1, place)
    mode = chosen.gather(1, place // taken).masked_fill(rows < 0, -1)
    wide, missing = torch.nn.functional.pad, modes_k * per_mode - rows.shape[1]
    return ModeHits(
        wide(rows, (0, missing), value=-1),
        wide(scores, (0, missing), value=-torch.inf),
        wide(mode, (0, missing), value=-1),
    )


def _scan_every(
    label: Tensor,  # [N]
    cosine: Tensor,  # [B, N]
    chosen: Tensor,  # [B, m] int64
    k: int,
    kept: Tensor | None,  # [B or 1, N] bool
) -> tuple[Tensor, Tensor]:  # [B, m, k], [B, m, k] int64
    """Return `scan_each_list` in fixed shapes, from the cosines of all atoms."""
    parts = []
    for mode in chosen.unbind(1):
        there = label == mode[:, None]
        there = there if kept is None else there & kept
        inside = cosine.masked_fill(~there, -torch.inf)
        values, rows = stable_topk(inside, k, sorted=False)
        rows, order = rows.masked_fill(values == -torch.inf, -1).sort(dim=1)
        parts.append((values.gather(1, order), rows))
    values, rows = (torch.stack(each, 1) for each in zip(*parts, strict=True))
    return values, rows


def _kept(
    duplicate: Tensor | None, allowed: Tensor | None, shape: tuple[int, int]
) -> Tensor | None:  # [B or 1, N] bool
    """Return the atoms that may be hits: of equal ones, the first allowed one."""
    do = "make it for these embeddings"
    if allowed is not None:
        questions = 1 if len(allowed) == 1 else shape[0]
        check_tensor("allowed", allowed, "bool", (questions, shape[1]), do)
    if duplicate is None:
        return allowed
    check_tensor("duplicate", duplicate, "int64", shape[1:], do)
    number = torch.arange(shape[1], device=duplicate.device)
    if allowed is None:
        return (duplicate == number)[None]
    place = torch.where(allowed, number, shape[1])
    first = torch.full_like(place, shape[1])
    first.scatter_reduce_(1, duplicate.expand_as(place), place, "amin")
    return first.gather(1, duplicate.expand_as(place)) == number


@dataclass(frozen=True, eq=False)
class Alignment:
    """Correspondence of the modes of two sets of rows.

    Attributes:
        angles: [min(K_a, K_b)] float64 radians, ascending: principal angles between the two spaces
            of kept eigenvectors. Many near 0 mean that both sets vary along the same directions.
        first, second: [P] int64, matched modes of either set, P the smaller number of modes.
        similarity: [P] float32 cosines of their centroids, largest first.
        only_first, only_second: int64, unmatched modes.
    """

    angles: Tensor
    first: Tensor
    second: Tensor
    similarity: Tensor
    only_first: Tensor
    only_second: Tensor


def principal_angles(
    a: Tensor,  # [d, p] orthonormal columns
    b: Tensor,  # [d, q] orthonormal columns
) -> Tensor:  # [min(p, q)] float64 radians, ascending
    """Return the angles between two subspaces: their cosines are the singular values of aᵀ b.

    Small angles use their sines, the singular values of b - a aᵀ b (Björck and Golub 1973). A
    cosine near 1 has no digits for them.

    Raises:
        InputError: Columns have different lengths.
    """
    check_pair(a.T, b.T)
    if a.shape[1] < b.shape[1]:
        a, b = b, a
    a, b = a.double(), b.double()
    inside = a.T @ b
    cosines = torch.linalg.svdvals(inside).clamp(max=1)
    sines = torch.linalg.svdvals(b - a @ inside).flip(0)[: len(cosines)].clamp(max=1)
    return torch.where(cosines.square() > 0.5, sines.asin(), cosines.acos())


def align_modes(first: Modes, second: Modes) -> Alignment:
    """Match the modes of two partitions of a memory that were found separately.

    The paper does not say whether a concept in both episodic and semantic memory is one mode or two
    (Spectral Memory, section 9). This finds where it is the same: pairs of modes that maximise the
    sum of the cosines of their centroids (Kuhn 1955; Hungarian method), and the principal angles
    between the eigenspaces. It shows whether extracted facts cover the topics of a conversation (a
    mode of turns without a partner has no facts yet), and what two agents or periods share.

    Args:
        first: Modes of one partition.
        second: Modes of the other, of rows of the same encoder.

    Raises:
        InputError: The encoders' widths differ.
    """
    from scipy.optimize import linear_sum_assignment

    check_pair(first.centroid, second.centroid, "first")
    assert first.spectrum.right is not None and second.spectrum.right is not None
    one = torch.nn.functional.normalize(first.centroid.float(), dim=1)
    other = torch.nn.functional.normalize(second.centroid.float(), dim=1)
    cosine = one @ other.T
    pairs = linear_sum_assignment(cosine.double().cpu().numpy(), maximize=True)
    row, column = (torch.from_numpy(ends).long().to(cosine.device) for ends in pairs)
    best = cosine[row, column].sort(descending=True, stable=True)
    row, column = row[best.indices], column[best.indices]
    return Alignment(
        principal_angles(first.spectrum.right, second.spectrum.right),
        row,
        column,
        best.values,
        _rest(len(first), row),
        _rest(len(second), column),
    )


def _rest(count: int, taken: Tensor) -> Tensor:
    free = torch.ones(count, dtype=torch.bool, device=taken.device)
    free[taken] = False
    return free.nonzero().squeeze(1)
