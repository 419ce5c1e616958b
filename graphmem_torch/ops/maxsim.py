"""maxsim: late interaction, the weighted mean of the question tokens' best matches in each atom."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register

__all__ = ["maxsim", "maxsim_reference"]

_UNIT = 127.0  # stored int8 value of a component 1.0
_ROWS = 4096  # question tokens a tile multiplies
_PRODUCT = 1 << 20  # elements of a tile's products over all atoms: 4 MB, inside the cache
_TOKENS = 5120  # token rows a tile of candidates gathers: 2.6 MB in float32, inside the cache
_TOGETHER = 8  # questions a tile of candidates takes together
_CUDA = 32  # tiles are this much larger on a GPU, where launches cost and bandwidth does not


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
    similarity = query_tokens @ (tokens.to(query_tokens.dtype) / _UNIT).T
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
    share = query_weights / (total * _UNIT).masked_fill(total <= 0, torch.inf)
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
    """Atoms in order of length, tile by tile: equal lengths make the segment maximum a plain one.

    A shorter atom of a tile repeats its last token, which cannot change its maximum.
    """
    questions, atoms = query_tokens.shape[0], offsets.shape[0] - 1
    out = torch.zeros(questions, atoms, device=tokens.device)
    lengths, order = torch.sort(offsets.diff(), descending=True, stable=True)
    lengths, order = lengths[lengths > 0], order[lengths > 0]
    per_length = lengths.tolist()
    budget = _PRODUCT * (_CUDA if tokens.is_cuda else 1)
    width = max(1, _ROWS // max(1, query_tokens.shape[1]))
    for first in range(0, questions, width):
        weights = share[first : first + width]
        question, place = weights.nonzero(as_tuple=True)
        if not len(question):
            continue
        rows = query_tokens[first : first + width][question, place].T.contiguous()  # [m, R]
        mix = torch.zeros(rows.shape[1], len(weights), device=rows.device)
        mix[torch.arange(len(question), device=rows.device), question] = weights[question, place]
        begin = 0
        while begin < len(per_length):
            longest = per_length[begin]
            end = min(begin + max(1, budget // (longest * rows.shape[1])), len(per_length))
            index = _token_index(offsets[order[begin:end]], lengths[begin:end], longest)
            product = _gather(tokens, index.flatten()) @ rows
            best = product.view(longest, end - begin, -1).amax(0)
            out[first : first + width, order[begin:end]] = (best @ mix).T
            begin = end
    return out


def _candidates(
    query_tokens: Tensor, share: Tensor, tokens: Tensor, offsets: Tensor, candidates: Tensor
) -> Tensor:
    """Candidates in order of length; a tile takes the same ranks of several questions."""
    known = candidates >= 0
    atom = candidates.clamp(min=0)
    lengths = torch.where(known, offsets.diff()[atom], 0) if known.any() else torch.zeros_like(atom)
    lengths, order = torch.sort(lengths, dim=1, descending=True)
    atom = atom.gather(1, order)
    ranked = torch.zeros(atom.shape, device=tokens.device)
    budget = _TOKENS * (_CUDA if tokens.is_cuda else 1)
    for first in range(0, len(atom), _TOGETHER):
        part = slice(first, first + _TOGETHER)
        longest = lengths[part].amax(0).tolist()
        begin = 0
        while begin < len(longest) and longest[begin] > 0:
            count = len(lengths[part])
            end = min(begin + max(1, budget // (longest[begin] * count)), len(longest))
            tile = lengths[part, begin:end]
            index = _token_index(offsets[atom[part, begin:end]], tile, longest[begin])
            rows = _gather(tokens, index.flatten()).view(count, -1, tokens.shape[1])
            product = torch.bmm(query_tokens[part], rows.transpose(1, 2))
            best = product.view(count, -1, longest[begin], end - begin).amax(2)  # [b, Q, c]
            score = torch.bmm(share[part, None], best).squeeze(1)
            ranked[part, begin:end] = score.masked_fill_(tile == 0, 0.0)
            begin = end
    return torch.empty_like(ranked).scatter_(1, order, ranked)


def _token_index(start: Tensor, lengths: Tensor, longest: int) -> Tensor:
    """`[..., longest, n]` rows of the tokens of n atoms; a shorter atom repeats its last token."""
    step = torch.arange(longest, device=start.device)[:, None]
    within = torch.minimum(step, (lengths - 1).clamp(min=0)[..., None, :])
    return torch.where(lengths[..., None, :] > 0, start[..., None, :] + within, 0)


def _gather(tokens: Tensor, index: Tensor) -> Tensor:
    """Rows of `tokens` in float32; moved eight bytes at a time, 3 times as fast on a CPU."""
    if tokens.shape[1] % 8 == 0 and tokens.storage_offset() % 8 == 0 and tokens.is_contiguous():
        return tokens.view(torch.int64).index_select(0, index).view(torch.int8).float()
    return tokens.index_select(0, index).float()


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
