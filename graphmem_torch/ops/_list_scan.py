"""The best rows in a few lists for each query: one product a list, whoever asks for it."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.ops._block_topk import empty_best, merge_tile

__all__ = ["scan_each_list", "scan_lists"]

_NUMBERS = 1 << 22  # floats that are gathered or scored at once: 16 MB


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


def scan_each_list(
    queries: Tensor,  # [B, d] float32
    rows: Tensor,  # [N, d], in any order
    order: Tensor,  # [N], row numbers, list by list
    offsets: Tensor,  # [L + 1], where each list begins in `order`
    probe: Tensor,  # [B, p] int64, the lists of each query
    k: int,
    *,
    kept: Tensor | None = None,  # [B or 1, N] bool, rows that count
) -> tuple[Tensor, Tensor]:  # [B, p, k], [B, p, k] int64 rows
    """The k rows of largest inner product of each list; minus infinity and -1 past its end.

    As `scan_lists`, but every list has its own k best, and rows are gathered where they lie: each
    list that anyone asks for once, for all who ask.
    """
    pair, bounds = _by_list(probe, offsets)
    query = pair // probe.shape[1]
    asked = queries[query]
    values, places = empty_best(len(pair), k, queries.device)
    done = 0
    for first, last, count in bounds:
        number, width = order[first:last], min(k, last - first)
        step = max(1, _NUMBERS // max(1, last - first))
        for start in range(done, done + count, step):
            own = slice(start, min(start + step, done + count))
            score = _gathered_scores(asked[own], rows, number)
            if kept is not None:
                line = query[own, None] if len(kept) > 1 else 0
                score.masked_fill_(~kept[line, number.long()], -torch.inf)
            values[own, :width], places[own, :width] = score.topk(width, dim=1)
        places[done : done + count, :width] += first
        done += count
    found = order[places.clamp(min=0)].long().masked_fill_(values == -torch.inf, -1)
    # Back from the order of lists to that of queries.
    back = pair.argsort()
    return values[back].view(*probe.shape, k), found[back].view(*probe.shape, k)


def _gathered_scores(queries: Tensor, rows: Tensor, number: Tensor) -> Tensor:  # [c, len(number)]
    most = max(1, _NUMBERS // max(1, rows.shape[1]))
    if len(number) <= most:
        return queries @ rows.index_select(0, number).float().T
    return torch.cat([_gathered_scores(queries, rows, part) for part in number.split(most)], dim=1)


def _by_list(probe: Tensor, offsets: Tensor) -> tuple[Tensor, list[list[int]]]:
    """Pairs of query and list, list by list; of each list begin, end and how many ask for it."""
    pair = probe.flatten().argsort(stable=True)
    lists, asking = probe.flatten()[pair].unique_consecutive(return_counts=True)
    bounds = torch.stack([offsets[lists], offsets[lists + 1], asking]).T.tolist()
    return pair, bounds


def _scores_by_list(
    queries: Tensor, rows: Tensor, offsets: Tensor, probe: Tensor, size: Tensor
) -> tuple[Tensor, Tensor]:  # [sum of size], [B, p] where each pair's scores begin
    order, bounds = _by_list(probe, offsets)
    asked = queries[order // probe.shape[1]]
    ordered = size.flatten()[order]
    begin = torch.empty_like(ordered)
    begin[order] = ordered.cumsum(0) - ordered
    flat = queries.new_empty(int(ordered.sum()))
    query = score = 0
    for first, last, count in bounds:
        out = flat[score : score + count * (last - first)].view(count, last - first)
        torch.mm(asked[query : query + count], rows[first:last].float().T, out=out)
        query += count
        score += out.numel()
    return flat, begin.view_as(probe)
