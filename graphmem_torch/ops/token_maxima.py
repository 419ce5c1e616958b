"""token_maxima: the best match of every question token in every atom, before maxsim sums them."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register
from graphmem_torch.ops._token_inputs import check_token_inputs
from graphmem_torch.ops._token_product import UNIT
from graphmem_torch.ops._token_tiles import ROWS, best_in_atoms, best_in_candidates

__all__ = ["token_maxima", "token_maxima_reference"]


def token_maxima(
    query_tokens: Tensor,  # [B, Q, m], unit rows
    known: Tensor,  # [B, Q] bool, False for padding
    tokens: Tensor,  # [T, m] int8, unit rows times 127
    offsets: Tensor,  # [N + 1] int64
    *,
    candidates: Tensor | None = None,  # [B, C] int64, -1 for padding
) -> Tensor:  # [B, Q, N] or [B, Q, C]
    """max_t cos(q_w, t) over the tokens t of each atom; 0 for padding and for atoms without tokens.

    What `maxsim` sums up; kept apart where several weightings, powers or windows are made of the
    same maxima; precision and memory as there.

    Raises:
        InputError: As `maxsim` does.
    """
    check_token_inputs(query_tokens, "known", known, tokens, offsets, candidates)
    if known.dtype != torch.bool:
        raise InputError(f"known must be bool [B, Q]; got {known.dtype}. Compare or call .bool().")
    return _token_maxima(query_tokens.float(), known, tokens, offsets, candidates)


def token_maxima_reference(
    query_tokens: Tensor,  # [B, Q, m]
    known: Tensor,  # [B, Q]
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1]
) -> Tensor:  # [B, Q, N]
    """`token_maxima` over all atoms as it is written; forms `[B, Q, T]`."""
    similarity = query_tokens @ (tokens.to(query_tokens.dtype) / UNIT).T
    lengths = offsets.diff()
    atom = torch.repeat_interleave(torch.arange(len(lengths), device=offsets.device), lengths)
    shape = (*known.shape, len(lengths))
    place = atom.expand_as(similarity)
    best = similarity.new_full(shape, -torch.inf).scatter_reduce(2, place, similarity, "amax")
    return torch.where((lengths > 0) & known[:, :, None], best, 0.0)


def _cpu(
    query_tokens: Tensor,
    known: Tensor,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
) -> Tensor:
    if candidates is None:
        return _all_atoms(query_tokens, known, tokens, offsets)
    query_tokens = query_tokens.masked_fill(~known[:, :, None], 0.0)
    out = query_tokens.new_zeros(*known.shape, candidates.shape[1])
    for part, place, best in best_in_candidates(query_tokens, tokens, offsets, candidates):
        out[part].scatter_(2, place[:, None].expand_as(best), best)
    return out


def _all_atoms(query_tokens: Tensor, known: Tensor, tokens: Tensor, offsets: Tensor) -> Tensor:
    out = query_tokens.new_zeros(*known.shape, offsets.shape[0] - 1)
    flat, rows = out.flatten(0, 1), query_tokens.flatten(0, 1)
    for place in known.flatten().nonzero().squeeze(1).split(ROWS):
        for atoms, best in best_in_atoms(rows[place], tokens, offsets):
            flat[place[:, None], atoms] = best
    return out


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
    "token_maxima(Tensor query_tokens, Tensor known, Tensor tokens, Tensor offsets, Tensor? "
    "candidates) -> Tensor",
    _cpu,
    launcher="maxsim:launch_token_maxima",
    fake=_fake,
)
