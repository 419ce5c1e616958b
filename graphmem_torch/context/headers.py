"""Headers as items: an entry needs the header of its group, which costs tokens only once."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Headed", "with_headers"]


class Headed(NamedTuple):
    """Items with their headers.

    Attributes:
        costs: [B, n] int64 tokens, with the header where an item is alone under it.
        header: [B, n] int64 place of the header that an item shares, -1 = none.
        prices: [B, h] int64 tokens of the headers.
    """

    costs: Tensor
    header: Tensor
    prices: Tensor


def with_headers(
    costs: Tensor,  # [B, n] int64 tokens
    groups: Tensor,  # [B, n] int64 number of a group, -1 = no item
    header_costs: Tensor,  # [G] int64 tokens
) -> Headed:
    """The items of B questions and a header for each group among them.

    An item that is alone in its group pays its header itself, and items without a label (group 0)
    need one only where others have labels.
    """
    count, number = len(costs), len(header_costs)
    labelled = (groups > 0).any(1, keepdim=True)
    row, column = ((groups > 0) | ((groups == 0) & labelled)).nonzero(as_tuple=True)
    key = row * number + groups[row, column]
    headers, which, size = torch.unique(key, return_inverse=True, return_counts=True)
    price = header_costs[headers % number]
    alone = size[which] == 1
    paid = costs.clone()
    paid[row[alone], column[alone]] += price[which[alone]]
    shared = size > 1
    owner = headers[shared] // number  # ascending, as headers are
    slot = torch.arange(len(owner)) - torch.searchsorted(owner, owner)
    prices = costs.new_zeros(count, int(slot.max()) + 1 if len(slot) else 0)
    prices[owner, slot] = price[shared]
    header = torch.full_like(costs, -1)
    place = (shared.cumsum(0) - 1)[which[~alone]]
    header[row[~alone], column[~alone]] = slot[place]
    return Headed(paid, header, prices)
