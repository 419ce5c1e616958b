"""Near-duplicates among what was chosen."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.context.select import Overlap

__all__ = ["near_duplicates"]

_MOST = 1024  # items of a question that are compared: a context rarely holds more


def near_duplicates(
    rows: Tensor,  # [B, n] int64 atom rows, -1 = none
    chosen: Tensor,  # [B, n] bool
    embeddings: Tensor,  # [A, d] unit rows
    least: float,
) -> Overlap:
    """Pairs of chosen items that say nearly the same.

    Args:
        rows: The items.
        chosen: Those to compare; of a question its first 1,024.
        embeddings: Their vectors.
        least: Cosine from which the share of a pair rises, from 0 to 1 at a cosine of 1.
    """
    width = min(int(chosen.sum(1).max()) if chosen.numel() else 0, _MOST)
    # The chosen ones first, in their order.
    place = chosen.to(torch.int8).argsort(dim=1, descending=True, stable=True)[:, :width]
    there = chosen.gather(1, place)
    item = rows.gather(1, place).clamp(min=0).to(embeddings.device)
    vectors = embeddings[item].float()
    alike = torch.bmm(vectors, vectors.transpose(1, 2)).cpu()
    alike = alike.masked_fill(~(there[:, :, None] & there[:, None]), -1.0)
    # Rounding of the vectors; nothing is above 1 but by that.
    row, one, other = (alike.triu(1) >= min(least, 1.0) - 1e-6).nonzero(as_tuple=True)
    rise = max(1.0 - least, 1e-6)
    share = ((alike[row, one, other].double() - least) / rise).clamp(0.0, 1.0)
    if least >= 1.0:
        share = torch.ones_like(share)
    return Overlap(row, place[row, one], place[row, other], share)
