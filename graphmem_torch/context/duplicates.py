"""Near-duplicates among the items of a question."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.context.select import Overlap

__all__ = ["near_duplicates"]

_MOST = 1024  # items of a question that are compared: a context rarely holds more
_CELLS = 1 << 23  # numbers of a tile
_ROUNDING = 1e-6  # of vectors; nothing is above a cosine of 1 but by that


def near_duplicates(
    rows: Tensor,  # [B, n] int64 atom rows, -1 = none
    chosen: Tensor,  # [B, n] bool
    embeddings: Tensor,  # [A, d] unit rows
    least: float,
) -> Overlap:
    """Pairs of items that say nearly the same, of the questions where two of those chosen do.

    Of these questions all items are compared: a choice that knew only of what was chosen would
    take the next copies instead.

    Args:
        rows: The items.
        chosen: Those to compare; then with all others, up to 1,024 of a question.
        embeddings: Their vectors.
        least: Cosine from which the share of a pair rises, from 0 to 1 at a cosine of 1.
    """
    found = _pairs(rows, chosen.to(torch.int8), embeddings, least)
    more = found.row.unique()
    if not len(more):
        return found
    first = (rows[more] >= 0).to(torch.int8) + chosen[more]
    every = _pairs(rows[more], first, embeddings, least)
    return Overlap(more[every.row], every.item, every.other, every.share)


def _pairs(rows: Tensor, first: Tensor, embeddings: Tensor, least: float) -> Overlap:
    """The pairs among the items [B, n] that count more than 0, those that count most first."""
    width = min(int((first > 0).sum(1).max()) if first.numel() else 0, _MOST)
    place = first.argsort(dim=1, descending=True, stable=True)[:, :width]
    there = first.gather(1, place) > 0
    item = rows.gather(1, place).clamp(min=0)
    cells = max(1, width * max(width, embeddings.shape[1]))
    found = []
    for tile in torch.arange(len(rows)).split(max(1, _CELLS // cells)):
        vectors = embeddings[item[tile].to(embeddings.device)].float()
        alike = torch.bmm(vectors, vectors.transpose(1, 2)).cpu()
        both = (there[tile][:, :, None] & there[tile][:, None]).triu_(1)
        row, one, other = (both & (alike >= min(least, 1.0) - _ROUNDING)).nonzero(as_tuple=True)
        share = (alike[row, one, other].double() - least) / max(1.0 - least, _ROUNDING)
        share = torch.ones_like(share) if least >= 1.0 else share.clamp(0.0, 1.0)
        row = tile[row]
        ends = torch.stack([place[row, one], place[row, other]]).sort(dim=0).values
        found.append((row, *ends, share))
    return Overlap(*(torch.cat(column) for column in zip(*found, strict=True)))
