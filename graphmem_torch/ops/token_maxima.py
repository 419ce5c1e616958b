"""token_maxima: the best match of every question token in every atom, the part of `maxsim` before it is summed."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register
from graphmem_torch.ops.maxsim import _TOGETHER, _TOKENS, _UNIT, _gather, _token_index

__all__ = ["token_maxima", "token_maxima_reference"]

_PRODUCT = 1 << 20  # elements of a tile's products over all atoms: 4 MB, inside the cache
_ROWS = 1024  # question tokens a tile multiplies


def token_maxima(
    query_tokens: Tensor,  # [B, Q, m], unit rows
    known: Tensor,  # [B, Q] bool, False for padding
    tokens: Tensor,  # [T, m] int8, unit rows times 127
    offsets: Tensor,  # [N + 1] int64
    *,
    candidates: Tensor | None = None,  # [B, C] int64, -1 for padding
) -> Tensor:  # [B, Q, N] or [B, Q, C]
    """max_t cos(q_w, t) over the tokens t of each atom; 0 for padding and for atoms without tokens.

    What `maxsim` sums up; kept apart where several weightings, powers or windows are made of the same maxima.

    Raises:
        InputError: For shapes or dtypes that do not fit.
    """
    if query_tokens.dim() != 3 or known.shape != query_tokens.shape[:2]:
        raise InputError(
            f"expected query_tokens [B, Q, m] and known [B, Q]; got {list(query_tokens.shape)} and "
            f"{list(known.shape)}. Pad the questions to one length."
        )
    if tokens.dtype != torch.int8 or tokens.shape[1] != query_tokens.shape[2]:
        raise InputError(
            f"tokens must be int8 [T, {query_tokens.shape[2]}]; got {tokens.dtype} {list(tokens.shape)}. "
            "Use the projection that made the question tokens."
        )
    if candidates is not None and candidates.shape[:1] != query_tokens.shape[:1]:
        raise InputError(
            f"candidates must be [{query_tokens.shape[0]}, C]; got {list(candidates.shape)}. Pad with -1."
        )
    return _token_maxima(query_tokens.float(), known, tokens, offsets, candidates)


def token_maxima_reference(
    query_tokens: Tensor,  # [B, Q, m]
    known: Tensor,  # [B, Q]
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1]
) -> Tensor:  # [B, Q, N]
    """`token_maxima` over all atoms as it is written; forms `[B, Q, T]`."""
    similarity = query_tokens @ (tokens.to(query_tokens.dtype) / _UNIT).T
    lengths = offsets.diff()
    atom = torch.repeat_interleave(torch.arange(len(lengths), device=offsets.device), lengths)
    shape = (*known.shape, len(lengths))
    place = atom.expand_as(similarity)
    best = similarity.new_full(shape, -torch.inf).scatter_reduce(2, place, similarity, "amax")
    return torch.where((lengths > 0) & known[:, :, None], best, 0.0)


def _run(
    query_tokens: Tensor,
    known: Tensor,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
) -> Tensor:
    query_tokens = query_tokens * known[:, :, None] / _UNIT
    if candidates is None:
        return _all_atoms(query_tokens, known, tokens, offsets)
    return _candidates(query_tokens, tokens, offsets, candidates)


def _all_atoms(query_tokens: Tensor, known: Tensor, tokens: Tensor, offsets: Tensor) -> Tensor:
    """Atoms in order of length, so that a segment maximum is a plain one; tile by tile."""
    shape = (*known.shape, offsets.shape[0] - 1)
    out = torch.zeros(shape, device=tokens.device)
    flat = out.view(-1, shape[2])
    lengths, order = torch.sort(offsets.diff(), descending=True, stable=True)
    lengths, order = lengths[lengths > 0], order[lengths > 0]
    per_length = lengths.tolist()
    places = known.flatten().nonzero().squeeze(1)
    for place in places.split(_ROWS) if len(places) else ():
        rows = query_tokens.flatten(0, 1)[place].T.contiguous()  # [m, R]
        scores = rows.new_zeros(rows.shape[1], shape[2])
        begin = 0
        while begin < len(per_length):
            longest = per_length[begin]
            end = min(begin + max(1, _PRODUCT // (longest * rows.shape[1])), len(per_length))
            index = _token_index(offsets[order[begin:end]], lengths[begin:end], longest)
            product = _gather(tokens, index.flatten()) @ rows
            best = product.view(longest, end - begin, -1).amax(0)
            scores[:, order[begin:end]] = best.T
            begin = end
        flat[place] = scores
    return out


def _candidates(
    query_tokens: Tensor, tokens: Tensor, offsets: Tensor, candidates: Tensor
) -> Tensor:
    """Each question's candidates in order of length; a tile takes the same ranks of several questions."""
    atom = candidates.clamp(min=0)
    lengths = torch.where(candidates >= 0, offsets.diff()[atom], 0)
    lengths, order = torch.sort(lengths, dim=1, descending=True)
    atom = atom.gather(1, order)
    shape = (*query_tokens.shape[:2], candidates.shape[1])
    ranked = torch.zeros(shape, device=tokens.device)
    for first in range(0, len(atom), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        longest = lengths[part].amax(0).tolist()
        begin = 0
        while begin < len(longest) and longest[begin] > 0:
            count = len(lengths[part])
            end = min(begin + max(1, _TOKENS // (longest[begin] * count)), len(longest))
            tile = lengths[part, begin:end]
            index = _token_index(offsets[atom[part, begin:end]], tile, longest[begin])
            rows = _gather(tokens, index.flatten()).view(count, -1, tokens.shape[1])
            product = torch.bmm(query_tokens[part], rows.transpose(1, 2))
            best = product.view(count, -1, longest[begin], end - begin).amax(2)  # [b, Q, c]
            ranked[part, :, begin:end] = best.masked_fill_((tile == 0)[:, None], 0.0)
            begin = end
    return torch.empty_like(ranked).scatter_(2, order[:, None].expand(shape), ranked)


def _fake(
    query_tokens: Tensor,
    known: Tensor,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
) -> Tensor:
    atoms = offsets.shape[0] - 1 if candidates is None else candidates.shape[1]
    return query_tokens.new_empty(*known.shape, atoms)


_token_maxima = register(
    "token_maxima(Tensor query_tokens, Tensor known, Tensor tokens, Tensor offsets, Tensor? candidates) -> Tensor",
    _run,
    fake=_fake,
)
