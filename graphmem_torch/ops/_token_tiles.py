"""Best matches of question tokens in packed atoms, by tiles: maxsim and token_maxima share it.

Atoms are taken in order of length. The atoms of a tile are then nearly equally long, and a shorter
one repeats its last token, which cannot change its maximum: a segment maximum becomes a plain one,
which is 20 times as fast as `segment_reduce`. Tiles fit the cache, so temporaries stay below 256 MB
whatever the sizes.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = ["UNIT", "best_in_atoms", "best_in_candidates"]

UNIT = 127.0
"""Stored int8 value of a component 1.0."""

ROWS = 4096  # question tokens that a tile multiplies
_PRODUCT = 1 << 20  # elements of a tile's products over all atoms: 4 MB
_TOKENS = 5120  # token rows that a tile gathers: 2.6 MB in float32
_TOGETHER = 8  # questions that a tile of candidates takes together
_CUDA = 32  # tiles are this much larger on a GPU, where launches cost and bandwidth does not


def best_in_atoms(
    query_rows: Tensor,  # [R, m]; at most ROWS of them keep a tile inside the cache
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1] int64
) -> Iterator[tuple[Tensor, Tensor]]:  # [n] int64, [n, R]
    """For every tile its atoms and the best products of every question token in each of them.

    Atoms without tokens are in no tile.
    """
    if not len(query_rows):
        return
    lengths, order = torch.sort(offsets.diff(), descending=True, stable=True)
    lengths, order = lengths[lengths > 0], order[lengths > 0]
    per_length = lengths.tolist()
    budget = min(_TOKENS, _PRODUCT // len(query_rows)) * (_CUDA if tokens.is_cuda else 1)
    columns = query_rows.T.contiguous()
    begin = 0
    while begin < len(per_length):
        longest = per_length[begin]
        end = min(begin + max(1, budget // longest), len(per_length))
        atoms = order[begin:end]
        index = _token_index(offsets[atoms], lengths[begin:end], longest)
        product = _gather(tokens, index.flatten()) @ columns
        yield atoms, product.view(longest, end - begin, -1).amax(0)
        begin = end


def best_in_candidates(
    query_tokens: Tensor,  # [B, Q, m]
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1] int64
    candidates: Tensor,  # [B, C] int64, -1 for padding
) -> Iterator[tuple[slice, Tensor, Tensor]]:  # [b, c] int64, [b, Q, c]
    """For every tile its questions, their places in `candidates`, and the best products there.

    A tile takes the same ranks by length of several questions. Where a candidate is padding or has
    no tokens, the product is 0.
    """
    if not candidates.numel() or not tokens.shape[0]:
        return
    atoms = candidates.clamp(min=0)
    lengths = torch.where(candidates >= 0, offsets.diff()[atoms], 0)
    lengths, order = torch.sort(lengths, dim=1, descending=True)
    start = offsets[atoms.gather(1, order)]
    budget = _TOKENS * (_CUDA if tokens.is_cuda else 1)
    for first in range(0, len(atoms), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        longest = lengths[part].amax(0).tolist()
        count = len(lengths[part])
        begin = 0
        while begin < len(longest) and longest[begin] > 0:
            end = min(begin + max(1, budget // (longest[begin] * count)), len(longest))
            tile = lengths[part, begin:end]
            index = _token_index(start[part, begin:end], tile, longest[begin])
            rows = _gather(tokens, index.flatten()).view(count, -1, tokens.shape[1])
            product = torch.bmm(query_tokens[part], rows.transpose(1, 2))
            best = product.view(count, -1, longest[begin], end - begin).amax(2)
            yield part, order[part, begin:end], best.masked_fill_((tile == 0)[:, None], 0.0)
            begin = end


def _token_index(start: Tensor, lengths: Tensor, longest: int) -> Tensor:
    """`[..., longest, n]` rows of the tokens of n atoms; a shorter atom repeats its last token."""
    step = torch.arange(longest, device=start.device)[:, None]
    within = torch.minimum(step, (lengths - 1).clamp(min=0)[..., None, :])
    return torch.where(lengths[..., None, :] > 0, start[..., None, :] + within, 0)


def _gather(tokens: Tensor, index: Tensor) -> Tensor:
    """Rows of `tokens` in float32; moved eight bytes at a time, 3 times as fast on a CPU."""
    aligned = tokens.shape[1] % 8 == 0 and tokens.storage_offset() % 8 == 0
    if aligned and tokens.is_contiguous():
        return tokens.view(torch.int64).index_select(0, index).view(torch.int8).float()
    return tokens.index_select(0, index).float()
