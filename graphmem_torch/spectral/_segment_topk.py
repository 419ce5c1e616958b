"""segment_topk: the best rows of each segment that a query asks for, without a loop over either."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["segment_topk"]

_ROWS = 64  # rows of a block: segments are cut into these
_FEW = 8  # queries that share a block where many ask for the same segment
_NUMBERS = {"cpu": 1 << 21, "cuda": 1 << 25}  # floats that are gathered at once


def segment_topk(
    queries: Tensor,  # [B, d] float32
    rows: Tensor,  # [N, d]
    order: Tensor,  # [N], row numbers, segment by segment
    offsets: Tensor,  # [S + 1], where each segment begins in `order`
    asked: Tensor,  # [B, m] int64, segments of each query
    k: int,
    *,
    kept: Tensor | None = None,  # [B or 1, N] bool, rows that count
) -> tuple[Tensor, Tensor]:  # [B, m, k] int64 rows, [B, m, k] float32 inner products
    """The k rows of largest inner product of each segment asked for; -1 and -inf past its end.

    Pairs of query and segment are sorted by segment and cut into items: up to `_ROWS` rows of a
    segment against up to `_FEW` of the queries that ask for it. A tile of items is one gather and
    one batched product; each item leaves its k best for the end, so that no more than a k-th of
    what is read is kept. Work and memory follow the rows that are read, not N.
    """
    shape = (*asked.shape, k)
    pairs = asked.numel()
    device = queries.device
    if pairs == 0:
        return torch.full(shape, -1, device=device), torch.full(shape, -torch.inf, device=device)
    begin, size = offsets[:-1].long(), offsets.diff().long()
    # Pairs in the order of segments; a group is a run of them that shares blocks.
    segment, pair = asked.flatten().sort(stable=True)
    asking = torch.bincount(segment, minlength=len(size))
    share = min(_FEW, max(1, pairs // max(1, int((asking > 0).sum()))))
    rank = torch.arange(pairs, device=device) - (asking.cumsum(0) - asking)[segment]
    leads = rank % share == 0
    lead = leads.nonzero().squeeze(1)
    own = segment[lead]
    members = torch.minimum(asking[own] - rank[lead], torch.tensor(share, device=device))
    blocks = (size[own] + _ROWS - 1) // _ROWS
    # Each group's items hold the k best of each of its blocks, side by side.
    width = min(k, _ROWS)
    group = torch.arange(len(lead), device=device).repeat_interleave(blocks)
    block = torch.arange(len(group), device=device) - (blocks.cumsum(0) - blocks)[group]
    slots = int(blocks.max()) * width
    best = torch.full((len(lead), share, slots), -torch.inf, device=device)
    place = torch.full((len(lead), share, slots), -1, dtype=torch.int32, device=device)
    lane, fellow = torch.arange(_ROWS, device=device), torch.arange(share, device=device)
    step = max(1, _NUMBERS.get(device.type, _NUMBERS["cpu"]) // (_ROWS * rows.shape[1]))
    for part in range(0, len(group), step):
        g, b = group[part : part + step], block[part : part + step]
        inside = b[:, None] * _ROWS + lane
        there = inside < size[own[g], None]
        at = (begin[own[g], None] + inside).clamp(max=len(order) - 1)
        number = order[at].long()
        query = pair[(lead[g, None] + fellow).clamp(max=pairs - 1)] // shape[1]
        tile = rows.index_select(0, number.flatten()).float().view(*number.shape, -1)
        score = torch.bmm(queries[query], tile.transpose(1, 2))
        score.masked_fill_(~there[:, None], -torch.inf)
        if kept is not None:
            line = query if len(kept) > 1 else torch.zeros_like(query)
            score.masked_fill_(~kept[line[:, :, None], number[:, None]], -torch.inf)
        top = score.topk(width, dim=2)
        slot = (b[:, None] * width + torch.arange(width, device=device))[:, None].expand_as(
            top.values
        )
        best[g[:, None, None], fellow[None, :, None], slot] = top.values
        chosen = number[:, None].expand_as(score).gather(2, top.indices).to(torch.int32)
        place[g[:, None, None], fellow[None, :, None], slot] = chosen
    values, index = best.topk(min(k, slots), dim=2)
    found = place.gather(2, index).long().masked_fill(values == -torch.inf, -1)
    missing = k - values.shape[2]
    values = torch.nn.functional.pad(values, (0, missing), value=-torch.inf)
    found = torch.nn.functional.pad(found, (0, missing), value=-1)
    # Back from groups to pairs, and from the order of segments to that of queries.
    real = fellow < members[:, None]
    out_rows = torch.empty(pairs, k, dtype=torch.int64, device=device)
    out_values = torch.empty(pairs, k, device=device)
    out_rows[pair], out_values[pair] = found[real], values[real]
    return out_rows.view(shape), out_values.view(shape)
