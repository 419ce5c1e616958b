"""Spherical k-means: unit centroids that the rows of a list have the largest cosine with."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops.topk_cosine import best_keys

__all__ = ["nearest_centroid", "spherical_kmeans"]

_SAMPLE = 48  # training rows a list: more improve recall by less than another probe does


def spherical_kmeans(
    x: Tensor,  # [N, d], unit rows
    lists: int,
    iterations: int,
    generator: torch.Generator,
    *,
    start: Tensor | None = None,  # [lists, d] float32, unit rows
) -> Tensor:  # [lists, d] float32, unit rows
    """Lloyd's iteration on a random sample, centroids brought to unit length (Dhillon and Modha).

    A list that lost all its rows starts again at a random one.

    Args:
        x: At least as many rows as lists.
        lists: Centroids.
        iterations: Of assigning and averaging.
        generator: Draws the sample, of which the first rows are the first centroids.
        start: The first centroids; all rows are trained on then.
    """
    where = generator.device  # not the default device, which may be another
    if start is None:
        chosen = torch.randperm(x.shape[0], generator=generator, device=where)[: _SAMPLE * lists]
        sample = x[chosen.to(x.device)].float()
        centroids = sample[:lists].clone()
    else:
        sample, centroids = x.float(), start
    for _ in range(iterations):
        label = nearest_centroid(sample, centroids)
        sums = torch.zeros_like(centroids).index_add_(0, label, sample)
        again = torch.randint(len(sample), (lists,), generator=generator, device=where)
        empty = torch.bincount(label, minlength=lists) == 0
        sums = torch.where(empty[:, None], sample[again.to(x.device)], sums)
        centroids = torch.nn.functional.normalize(sums, dim=1)
    return centroids


def nearest_centroid(x: Tensor, centroids: Tensor) -> Tensor:  # [N] int64
    """The list of each row."""
    return best_keys(x, centroids, 1)[1][:, 0]
