"""maxsim: late interaction, the weighted mean of the best matches of question tokens in atoms."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphmem_torch.checks import all_finite, check_count, check_tensor
from graphmem_torch.errors import InputError
from graphmem_torch.ops._library import register
from graphmem_torch.ops.fixed_shapes import shapes_are_fixed
from graphmem_torch.ops.token_products import ROWS, UNIT, Tiling, best_in_atoms, best_in_candidates

__all__ = ["maxsim", "maxsim_on_cpu", "maxsim_reference", "token_maxima", "token_maxima_reference"]

_USUAL = Tiling()


def maxsim(
    query_tokens: Tensor,  # [B, Q, m], unit rows
    query_weights: Tensor,  # [B, Q], >= 0, 0 for padding
    tokens: Tensor,  # [T, m] int8, unit rows times 127
    offsets: Tensor,  # [N + 1] int64
    *,
    candidates: Tensor | None = None,  # [B, C] int64, -1 for padding
) -> Tensor:  # [B, N] or [B, C]
    """Score every question against every atom, or its own candidates, by late interaction.

    sum_w weight_w max_t cos(q_w, t) / sum_w weight_w, t over the tokens of the atom
    (`docs/mathematics.md` 8.1). Atoms without tokens, padded candidates and questions without
    weights get 0.

    Token vectors are stored int8. A processor that multiplies int8 rounds question tokens to 16
    bits, which changes cosines by about 1e-5. Others compute in float32, and a GPU is as accurate.
    Temporaries stay below 256 MB whatever the sizes.

    Args:
        query_tokens: Token vectors of the questions, used unchanged. Products with vectors of
            length other than 1 are not cosines; a vector of zeros scores 0.
        query_weights: Weight of each question token, e.g. its idf over the atoms.
        tokens: Token vectors of all atoms, packed.
        offsets: `tokens[offsets[i]:offsets[i + 1]]` are the tokens of atom i.
        candidates: Atoms to score for each question; all when omitted.

    Raises:
        InputError: Shapes, dtypes or devices do not fit, an input requires a gradient (there is
            none), a question token is not finite, offsets do not ascend within the tokens, or a
            candidate is not an atom. The last three are not checked on a GPU, because that would
            wait for it; there, a candidate that is not an atom gets 0.
    """
    _check_token_inputs(query_tokens, "query_weights", query_weights, tokens, offsets, candidates)
    _check_finite(query_tokens, torch.ones_like(query_weights, dtype=torch.bool))
    return _maxsim(query_tokens.float(), query_weights.float(), tokens, offsets, candidates)


def maxsim_reference(
    query_tokens: Tensor,  # [B, Q, m]
    query_weights: Tensor,  # [B, Q]
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1]
) -> Tensor:  # [B, N]
    """`maxsim` over all atoms by its formula; forms `[B, Q, T]`."""
    known = torch.ones_like(query_weights, dtype=torch.bool)
    best = token_maxima_reference(query_tokens, known, tokens, offsets)
    total = query_weights.sum(1)[:, None]
    score = (best * query_weights[:, :, None]).sum(1) / total
    return torch.where(total > 0, score, 0.0)


def maxsim_on_cpu(
    query_tokens: Tensor,
    query_weights: Tensor,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
    *,
    tiling: Tiling = _USUAL,
) -> Tensor:
    """`graphmem::maxsim` on a CPU."""
    total = query_weights.sum(1, keepdim=True)
    share = query_weights / total.masked_fill(total <= 0, torch.inf)
    if candidates is not None:
        out = query_tokens.new_zeros(candidates.shape)
        found = best_in_candidates(query_tokens, tokens, offsets, candidates, tiling)
        for part, place, best in found:
            out[part].scatter_(1, place, torch.bmm(share[part, None], best).squeeze(1))
        return out
    out = share.new_zeros(share.shape[0], offsets.shape[0] - 1)
    width = max(1, ROWS // max(1, share.shape[1]))
    for first in range(0, share.shape[0], width):
        part = slice(first, first + width)
        question, place = share[part].nonzero(as_tuple=True)
        weight = share[part][question, place]
        # The weighted sum is a product with the matrix of each token's share.
        mix = share.new_zeros(len(share[part]), len(weight))
        mix.scatter_(0, question[None], weight[None])
        rows = query_tokens[part][question, place]
        for atoms, best in best_in_atoms(rows, tokens, offsets, tiling):
            out[part, atoms] = mix @ best
    return out


def _fake(query_tokens: Tensor, per_token: Tensor, *stored: Any) -> Tensor:
    """Return one value per question and atom; with known tokens (bool), one per token too."""
    _, offsets, candidates = stored
    atoms = offsets.shape[0] - 1 if candidates is None else candidates.shape[1]
    rows = per_token.shape if per_token.dtype == torch.bool else per_token.shape[:1]
    return query_tokens.new_empty(*rows, atoms)


_maxsim = register(
    "maxsim(Tensor query_tokens, Tensor query_weights, Tensor tokens, Tensor offsets, "
    "Tensor? candidates) -> Tensor",
    maxsim_on_cpu,
    launcher="maxsim:launch_maxsim",
    fake=_fake,
)


def token_maxima(
    query_tokens: Tensor,  # [B, Q, m], unit rows
    known: Tensor,  # [B, Q] bool, False for padding
    tokens: Tensor,  # [T, m] int8, unit rows times 127
    offsets: Tensor,  # [N + 1] int64
    *,
    candidates: Tensor | None = None,  # [B, C] int64, -1 for padding
) -> Tensor:  # [B, Q, N] or [B, Q, C]
    """Return max_t cos(q_w, t) over the tokens t of each atom; 0 for padding and empty atoms.

    `maxsim` sums these maxima. Use them to compute several weightings, powers or windows at once.
    Precision and memory are those of `maxsim`.

    Raises:
        InputError: See `maxsim`.
    """
    _check_token_inputs(query_tokens, "known", known, tokens, offsets, candidates)
    _check_finite(query_tokens, known)
    return _token_maxima(query_tokens.float(), known, tokens, offsets, candidates)


def token_maxima_reference(
    query_tokens: Tensor,  # [B, Q, m]
    known: Tensor,  # [B, Q]
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1]
) -> Tensor:  # [B, Q, N]
    """`token_maxima` over all atoms by its formula; forms `[B, Q, T]`."""
    similarity = query_tokens @ (tokens.to(query_tokens.dtype) / UNIT).T
    lengths = offsets.diff()
    atom = torch.repeat_interleave(lengths)
    shape = (*known.shape, len(lengths))
    place = atom.expand_as(similarity)
    best = similarity.new_full(shape, -torch.inf).scatter_reduce(2, place, similarity, "amax")
    return torch.where((lengths > 0) & known[:, :, None], best, 0.0)


def _token_maxima_on_cpu(
    query_tokens: Tensor,
    known: Tensor,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
) -> Tensor:
    if candidates is not None:
        query_tokens = query_tokens.masked_fill(~known[:, :, None], 0.0)
        out = query_tokens.new_zeros(*known.shape, candidates.shape[1])
        found = best_in_candidates(query_tokens, tokens, offsets, candidates)
        for part, place, best in found:
            out[part].scatter_(2, place[:, None].expand_as(best), best)
        return out
    out = query_tokens.new_zeros(*known.shape, offsets.shape[0] - 1)
    flat, rows = out.flatten(0, 1), query_tokens.flatten(0, 1)
    for place in known.flatten().nonzero().squeeze(1).split(ROWS):
        for atoms, best in best_in_atoms(rows[place], tokens, offsets):
            flat[place[:, None], atoms] = best
    return out


_token_maxima = register(
    "token_maxima(Tensor query_tokens, Tensor known, Tensor tokens, Tensor offsets, "
    "Tensor? candidates) -> Tensor",
    _token_maxima_on_cpu,
    launcher="maxsim:launch_token_maxima",
    fake=_fake,
)


def _check_token_inputs(
    query_tokens: Tensor,  # [B, Q, m] floating point
    name: str,
    per_token: Tensor,  # [B, Q], the argument called `name`
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1] int64
    candidates: Tensor | None,  # [B, C] int64
) -> None:
    """Raise `InputError` for shapes, dtypes or devices that do not fit."""
    device = tokens.device
    do = "pad the questions to one length, where the tokens are"
    check_tensor("query_tokens", query_tokens, "floating point", ("B", "Q", "m"), do, device=device)
    questions, size, width = query_tokens.shape
    do = "use the projection that made the question tokens, times 127, rounded"
    check_tensor("tokens", tokens, "int8", ("T", width), do)
    kind = "bool" if name == "known" else ""
    do = "give one value for each question token"
    check_tensor(name, per_token, kind, (questions, size), do, device=device)
    check_tensor("offsets", offsets, "int64", ("N + 1",), "start with 0, end with T", device=device)
    check_count("the length of offsets", offsets.shape[0])
    if candidates is not None:
        do = "pad with -1"
        check_tensor("candidates", candidates, "int64", (questions, "C"), do, device=device)


def _check_finite(query_tokens: Tensor, counted: Tensor) -> None:  # [B, Q, m], [B, Q] bool
    """Raise `InputError` if a token that counts is not finite; only on a CPU."""
    if query_tokens.device.type != "cpu" or shapes_are_fixed():
        return
    if all_finite(query_tokens):
        return
    bad = counted & ~query_tokens.isfinite().all(2)
    if bool(bad.any()):
        question, place = bad.nonzero()[0].tolist()
        raise InputError(
            f"query_tokens: expected finite vectors, got others in token {place} of question "
            f"{question}; check the embedder"
        )
