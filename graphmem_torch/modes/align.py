"""Alignment: which modes of one set of memories are those of another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from graphmem_torch.modes.find import Modes
from graphmem_torch.ops.topk_cosine import check_pair

__all__ = ["Alignment", "align_modes", "principal_angles"]


@dataclass(frozen=True, eq=False)
class Alignment:
    """How the modes of two sets of rows correspond.

    Attributes:
        angles: [min(K_a, K_b)] float64 radians, ascending: the principal angles between the two
            spaces of kept eigenvectors. Many near 0: both sets vary along the same directions.
        first, second: [P] int64, modes of either that are matched, P the smaller number of modes.
        similarity: [P] float32 cosines of their centroids, largest first.
        only_first, only_second: int64, modes that found no partner.
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
    """Angles between two subspaces: cosines are the singular values of aᵀ b.

    Small angles from their sines, the singular values of b - a aᵀ b, because a cosine near 1 has no
    digits left for them (Björck and Golub 1973).

    Raises:
        InputError: For columns of different lengths.
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
    """Matches the modes of two partitions of a memory, found apart from each other.

    The paper leaves open whether a concept that is in episodic and in semantic memory is one mode
    or two (Spectral Memory, section 9); this says where it is the same: pairs of modes so that the
    sum of the cosines of their centroids is largest (Kuhn 1955; Hungarian method), and the
    principal angles between the eigenspaces. Good for: checking that the facts extracted from a
    conversation cover what was talked about (a mode of turns without a partner has no facts yet),
    showing what two agents or two periods have in common, naming episodic modes by their facts.

    Args:
        first: Modes of the one partition.
        second: Modes of the other, of rows of the same encoder.

    Raises:
        InputError: If the encoders' widths differ.
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
