"""token_maxima: the best match of every question token in every atom, before maxsim sums them."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register
from graphmem_torch.ops._token_tiles import ROWS, UNIT, best_in_atoms, best_in_candidates

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
    same maxima.

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
            f"tokens must be int8 [T, {query_tokens.shape[2]}]; got {tokens.dtype} "
            f"{list(tokens.shape)}. "
            "Use the projection that made the question tokens."
        )
    if candidates is not None and candidates.shape[:1] != query_tokens.shape[:1]:
        raise InputError(
            f"candidates must be [{query_tokens.shape[0]}, C]; got {list(candidates.shape)}. Pad "
            "with -1."
        )
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


def _run(
    query_tokens: Tensor,
    known: Tensor,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
) -> Tensor:
    query_tokens = query_tokens * known[:, :, None] / UNIT
    if candidates is None:
        return _all_atoms(query_tokens, known, tokens, offsets)
    return _candidates(query_tokens, tokens, offsets, candidates)


def _all_atoms(query_tokens: Tensor, known: Tensor, tokens: Tensor, offsets: Tensor) -> Tensor:
    out = torch.zeros(*known.shape, offsets.shape[0] - 1, device=tokens.device)
    flat, rows = out.flatten(0, 1), query_tokens.flatten(0, 1)
    for place in known.flatten().nonzero().squeeze(1).split(ROWS):
        scores = torch.zeros(len(place), flat.shape[1], device=tokens.device)
        for atoms, best in best_in_atoms(rows[place], tokens, offsets):
            scores[:, atoms] = best.T
        flat[place] = scores
    return out


def _candidates(
    query_tokens: Tensor, tokens: Tensor, offsets: Tensor, candidates: Tensor
) -> Tensor:
    shape = (*query_tokens.shape[:2], candidates.shape[1])
    out = torch.zeros(shape, device=tokens.device)
    for part, place, best in best_in_candidates(query_tokens, tokens, offsets, candidates):
        out[part].scatter_(2, place[:, None].expand_as(best), best)
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
    _run,
    fake=_fake,
)
