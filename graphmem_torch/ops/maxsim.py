"""maxsim: late interaction, the weighted mean of the question tokens' best matches in each atom."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register
from graphmem_torch.ops._token_tiles import ROWS, UNIT, best_in_atoms, best_in_candidates

__all__ = ["maxsim", "maxsim_reference"]


def maxsim(
    query_tokens: Tensor,  # [B, Q, m], unit rows
    query_weights: Tensor,  # [B, Q], >= 0, 0 for padding
    tokens: Tensor,  # [T, m] int8, unit rows times 127
    offsets: Tensor,  # [N + 1] int64
    *,
    candidates: Tensor | None = None,  # [B, C] int64, -1 for padding
) -> Tensor:  # [B, N] or [B, C]
    """Late interaction of every question with every atom, or with its own candidates.

    sum_w weight_w max_t cos(q_w, t) / sum_w weight_w, t over the tokens of the atom
    (`mathematics.md` 8.1). An atom without tokens, a padded candidate and a question without
    weights get 0. Token vectors are stored int8 and multiplied in float32; temporaries stay below
    256 MB whatever the sizes.

    Args:
        query_tokens: Token vectors of the questions.
        query_weights: Weight of each question token, e.g. its idf over the atoms.
        tokens: Token vectors of all atoms, packed.
        offsets: Atom i has rows `offsets[i]:offsets[i + 1]` of `tokens`.
        candidates: Atoms to score for each question; all of them when omitted.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit, or a candidate that is no atom.
    """
    _check(query_tokens, query_weights, tokens, offsets, candidates)
    return _maxsim(query_tokens.float(), query_weights.float(), tokens, offsets, candidates)


def maxsim_reference(
    query_tokens: Tensor,  # [B, Q, m]
    query_weights: Tensor,  # [B, Q]
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1]
) -> Tensor:  # [B, N]
    """`maxsim` over all atoms as it is written in the formula; forms `[B, Q, T]`."""
    similarity = query_tokens @ (tokens.to(query_tokens.dtype) / UNIT).T
    lengths = offsets.diff()
    atom = torch.repeat_interleave(torch.arange(len(lengths), device=offsets.device), lengths)
    shape = (*query_weights.shape, len(lengths))
    place = atom.expand_as(similarity)
    best = similarity.new_full(shape, -torch.inf).scatter_reduce(2, place, similarity, "amax")
    best = torch.where(lengths > 0, best, 0.0)
    total = query_weights.sum(1)[:, None]
    score = (best * query_weights[:, :, None]).sum(1) / total
    return torch.where(total > 0, score, 0.0)


def _run(
    query_tokens: Tensor,
    query_weights: Tensor,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
) -> Tensor:
    total = query_weights.sum(1, keepdim=True)
    share = query_weights / (total * UNIT).masked_fill(total <= 0, torch.inf)
    if candidates is None:
        return _all_atoms(query_tokens, share, tokens, offsets)
    if candidates.numel() and (
        int(candidates.max()) >= len(offsets) - 1 or int(candidates.min()) < -1
    ):
        raise InputError(
            f"candidates must be in 0..{len(offsets) - 2}, or -1 for padding; got "
            f"{int(candidates.min())}..{int(candidates.max())}. Take them from the same index."
        )
    return _candidates(query_tokens, share, tokens, offsets, candidates)


def _all_atoms(query_tokens: Tensor, share: Tensor, tokens: Tensor, offsets: Tensor) -> Tensor:
    """The weighted sum is a product too: with the matrix that holds each token's share."""
    out = torch.zeros(share.shape[0], offsets.shape[0] - 1, device=tokens.device)
    width = max(1, ROWS // max(1, share.shape[1]))
    for first in range(0, share.shape[0], width):
        part = slice(first, first + width)
        question, place = share[part].nonzero(as_tuple=True)
        weight = share[part][question, place]
        mix = torch.zeros(len(weight), len(share[part]), device=tokens.device)
        mix.scatter_(1, question[:, None], weight[:, None])
        for atoms, best in best_in_atoms(query_tokens[part][question, place], tokens, offsets):
            out[part, atoms] = (best @ mix).T
    return out


def _candidates(
    query_tokens: Tensor, share: Tensor, tokens: Tensor, offsets: Tensor, candidates: Tensor
) -> Tensor:
    out = torch.zeros(candidates.shape, device=tokens.device)
    for part, place, best in best_in_candidates(query_tokens, tokens, offsets, candidates):
        out[part].scatter_(1, place, torch.bmm(share[part, None], best).squeeze(1))
    return out


def _fake(
    query_tokens: Tensor,
    query_weights: Tensor,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
) -> Tensor:
    if candidates is None:
        return query_tokens.new_empty(query_tokens.shape[0], offsets.shape[0] - 1)
    return query_tokens.new_empty(candidates.shape)


def _check(
    query_tokens: Tensor,
    query_weights: Tensor,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
) -> None:
    if query_tokens.dim() != 3 or not query_tokens.is_floating_point():
        raise InputError(
            f"query_tokens must be floating point [B, Q, m]; got {query_tokens.dtype} "
            f"{list(query_tokens.shape)}. Pad the questions to one length with weight 0."
        )
    if query_weights.shape != query_tokens.shape[:2]:
        raise InputError(
            f"query_weights must have shape {list(query_tokens.shape[:2])}; got "
            f"{list(query_weights.shape)}. "
            "Give one weight for each question token."
        )
    if tokens.dtype != torch.int8 or tokens.dim() != 2 or tokens.shape[1] != query_tokens.shape[2]:
        raise InputError(
            f"tokens must be int8 [T, {query_tokens.shape[2]}]; got {tokens.dtype} "
            f"{list(tokens.shape)}. "
            "Use the projection that made the question tokens, times 127, rounded."
        )
    if offsets.dtype != torch.int64 or offsets.dim() != 1 or offsets.shape[0] < 1:
        raise InputError(
            f"offsets must be int64 [N + 1]; got {offsets.dtype} {list(offsets.shape)}. "
            "Start with 0 and end with T."
        )
    if candidates is not None and (
        candidates.dtype != torch.int64
        or candidates.dim() != 2
        or candidates.shape[0] != query_tokens.shape[0]
    ):
        raise InputError(
            f"candidates must be int64 [{query_tokens.shape[0]}, C]; got {candidates.dtype} "
            f"{list(candidates.shape)}. Pad with -1."
        )
    if not query_tokens.device == query_weights.device == tokens.device == offsets.device:
        raise InputError(
            f"all tensors must be on one device; got {query_tokens.device}, "
            f"{query_weights.device}, "
            f"{tokens.device}, {offsets.device}. Move them."
        )


_maxsim = register(
    "maxsim(Tensor query_tokens, Tensor query_weights, Tensor tokens, Tensor offsets, Tensor? "
    "candidates)"
    " -> Tensor",
    _run,
    fake=_fake,
)
