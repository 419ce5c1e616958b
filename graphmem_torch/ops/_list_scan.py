"""The best rows among a few lists for each query: one product a list, whoever asks for it."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops._block_topk import empty_best, merge_tile

__all__ = ["scan_lists"]


def scan_lists(
    queries: Tensor,  # [B, d] float32
    rows: Tensor,  # [N, d], packed list by list
    offsets: Tensor,  # [L + 1] int64
    probe: Tensor,  # [B, p] int64, the lists of each query
    k: int,
) -> tuple[Tensor, Tensor]:  # [B, k], [B, k] int64 places in `rows`
    """The k rows of largest inner product, best first; minus infinity and -1 where lists end.

    Pairs of query and list are sorted by list, so each list that anyone asks for is multiplied
    once, with all who ask: at most L products, and no row is copied. Scores are then brought back
    to their queries side by side.
    """
    values, places = empty_best(queries.shape[0], k, queries.device)
    size = offsets.diff()[probe]
    end = size.cumsum(1)
    total = end[:, -1:]
    longest = int(total.max()) if total.numel() else 0
    if not longest:
        return values, places
    flat, begin = _scores_by_list(queries, rows, offsets, probe, size)
    # From the order of lists to that of queries: each pair's scores move as one run.
    every = size.flatten()
    shift = begin.flatten() - (every.cumsum(0) - every)
    source = shift.repeat_interleave(every, output_size=len(flat))
    source += torch.arange(len(flat), device=flat.device)
    lane = torch.arange(longest, device=flat.device)
    scores = flat.new_full((len(probe), len(lane)), -torch.inf)
    scores.masked_scatter_(lane < total, flat[source])
    merge_tile(values, places, scores, 0)
    pair = torch.searchsorted(end, places, right=True).clamp_(max=probe.shape[1] - 1)
    before = (end - size).gather(1, pair)
    places = offsets[probe.gather(1, pair)] + places - before
    return values, places.masked_fill_(values == -torch.inf, -1)


def _scores_by_list(
    queries: Tensor, rows: Tensor, offsets: Tensor, probe: Tensor, size: Tensor
) -> tuple[Tensor, Tensor]:  # [sum of size], [B, p] where each pair's scores begin
    order = probe.flatten().argsort(stable=True)
    lists, asking = probe.flatten()[order].unique_consecutive(return_counts=True)
    asked = queries[order // probe.shape[1]]
    ordered = size.flatten()[order]
    begin = torch.empty_like(ordered)
    begin[order] = ordered.cumsum(0) - ordered
    flat = queries.new_empty(int(ordered.sum()))
    bounds = torch.stack([offsets[lists], offsets[lists + 1], asking]).T.tolist()
    query = score = 0
    for first, last, count in bounds:
        out = flat[score : score + count * (last - first)].view(count, last - first)
        torch.mm(asked[query : query + count], rows[first:last].float().T, out=out)
        query += count
        score += out.numel()
    return flat, begin.view_as(probe)
