"""Triton kernel of maxsim and token_maxima: products, segment maximum and weighted sum in one pass.

A program takes some atoms and some questions. It keeps the products of atom tokens and question
tokens in registers, a block at a time. It writes only maxima or, for maxsim, the weighted sum.

Tokens stay int8 in memory, which half precision represents exactly. A question token is the sum of
two halves up to 2^-22. Two half-precision products on the tensor cores, accumulated in float32, are
therefore as accurate as one in float32.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["launch_maxsim", "launch_token_maxima"]

_UNIT = 127.0  # stored int8 value of a component 1.0
_COLUMNS = 64  # question tokens that a program multiplies at a time


@triton.jit
def _load_query(
    query, group, word, first, num_questions, num_words, width,
    GROUP: tl.constexpr, WORDS: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """[BLOCK_M, GROUP * WORDS] components of the question tokens, split into two halves."""
    column = tl.arange(0, GROUP * WORDS)
    question = group * GROUP + column // WORDS
    nth = word + column % WORDS
    inside = (question < num_questions) & (nth < num_words)
    at = first + tl.arange(0, BLOCK_M)
    row = question.to(tl.int64) * num_words + nth
    mask = (at < width)[:, None] & inside[None, :]
    values = tl.load(query + row[None, :] * width + at[:, None], mask=mask, other=0.0)
    high = values.to(tl.float16)
    return high, (values - high.to(tl.float32)).to(tl.float16)


@triton.jit
def _maxsim_kernel(
    query, share, tokens, offsets, candidates, out,
    num_questions, num_words, num_atoms, num_places, width, num_groups,
    LISTED: tl.constexpr, SUM: tl.constexpr, HELD: tl.constexpr, UNIT: tl.constexpr,
    GROUP: tl.constexpr, WORDS: tl.constexpr, ATOMS: tl.constexpr,
    BLOCK_T: tl.constexpr, BLOCK_M: tl.constexpr,
):  # fmt: skip
    """Write out[question, place] = sum_w share_w max_t, or out[question, word, place] = max_t.

    LISTED: place p is the atom candidates[question, p], and GROUP is 1; otherwise it is atom p.
    HELD: all question tokens of the program fit one block, which is loaded only once.
    """
    group = tl.program_id(0) % num_groups  # neighbours share the atoms, which stay in the cache
    block = tl.program_id(0) // num_groups
    column = tl.arange(0, GROUP * WORDS)
    question = (group * GROUP + column // WORDS).to(tl.int64)
    member = (group * GROUP + tl.arange(0, GROUP)).to(tl.int64)
    step = tl.arange(0, BLOCK_T)
    component = tl.arange(0, BLOCK_M)
    high, low = _load_query(
        query, group, 0, 0, num_questions, num_words, width, GROUP, WORDS, BLOCK_M
    )
    for nth in range(tl.minimum(ATOMS, num_places - block * ATOMS)):
        place = block.to(tl.int64) * ATOMS + nth
        atom = place
        if LISTED:
            atom = tl.load(candidates + group.to(tl.int64) * num_places + place)
        real = (atom >= 0) & (atom < num_atoms)
        start = tl.load(offsets + atom, mask=real, other=0)
        length = (tl.load(offsets + atom + 1, mask=real, other=0) - start).to(tl.int32)
        total = tl.zeros([GROUP], tl.float32)
        for word in range(0, num_words, WORDS):
            best = tl.full([GROUP * WORDS], float("-inf"), tl.float32)
            for begin in range(0, length, BLOCK_T):
                live = begin + step < length
                row = tokens + (start + begin + step)[:, None] * width
                product = tl.zeros([BLOCK_T, GROUP * WORDS], tl.float32)
                for first in range(0, width, BLOCK_M):
                    at = first + component
                    own = tl.load(
                        row + at[None, :], mask=live[:, None] & (at < width)[None, :], other=0
                    ).to(tl.float16)
                    if not HELD:
                        high, low = _load_query(
                            query, group, word, first, num_questions, num_words, width,
                            GROUP, WORDS, BLOCK_M,
                        )  # fmt: skip
                    product = tl.dot(own, low, tl.dot(own, high, product))
                product = tl.where(live[:, None], product, float("-inf"))
                best = tl.maximum(best, tl.max(product, axis=0))
            best = tl.where(length > 0, best / UNIT, 0.0)
            inside = (question < num_questions) & (word + column % WORDS < num_words)
            line = question * num_words + word + column % WORDS
            if SUM:
                best *= tl.load(share + line, mask=inside, other=0.0)
                total += tl.sum(tl.reshape(best, [GROUP, WORDS]), axis=1)
            else:
                tl.store(out + line * num_places + place, best, mask=inside)
        if SUM:
            tl.store(out + member * num_places + place, total, mask=member < num_questions)


def launch_maxsim(
    query_tokens: Tensor,  # [B, Q, m] float32
    query_weights: Tensor,  # [B, Q] float32
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1] int64
    candidates: Tensor | None,  # [B, C] int64
) -> Tensor:  # [B, N] or [B, C]
    """`graphmem::maxsim` on CUDA."""
    total = query_weights.sum(1, keepdim=True)
    share = query_weights / total.masked_fill(total <= 0, torch.inf)
    places = offsets.shape[0] - 1 if candidates is None else candidates.shape[1]
    out = torch.empty(share.shape[0], places, dtype=torch.float32, device=tokens.device)
    return _launch(query_tokens, share, tokens, offsets, candidates, out)


def launch_token_maxima(
    query_tokens: Tensor,  # [B, Q, m] float32
    known: Tensor,  # [B, Q] bool
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1] int64
    candidates: Tensor | None,  # [B, C] int64
) -> Tensor:  # [B, Q, N] or [B, Q, C]
    """`graphmem::token_maxima` on CUDA."""
    places = offsets.shape[0] - 1 if candidates is None else candidates.shape[1]
    out = torch.empty(*known.shape, places, dtype=torch.float32, device=tokens.device)
    query_tokens = torch.where(known[:, :, None], query_tokens, 0.0)
    return _launch(query_tokens, None, tokens, offsets, candidates, out)


def _launch(
    query_tokens: Tensor,
    share: Tensor | None,
    tokens: Tensor,
    offsets: Tensor,
    candidates: Tensor | None,
    out: Tensor,
) -> Tensor:
    questions, words, width = query_tokens.shape
    if out.numel() == 0:
        return out
    atoms, places = offsets.shape[0] - 1, out.shape[-1]
    listed = candidates is not None
    padded = min(_COLUMNS, max(16, triton.next_power_of_2(words)))
    group = 1 if listed else min(_COLUMNS // padded, triton.next_power_of_2(questions))
    groups = triton.cdiv(questions, group)
    several = 4 if listed else 16  # atoms that reuse a question block before it is loaded again
    block_m = max(16, min(128, triton.next_power_of_2(width)))
    mean = triton.cdiv(tokens.shape[0], max(1, atoms))
    query_tokens, offsets = query_tokens.contiguous(), offsets.contiguous()
    _maxsim_kernel[(groups * triton.cdiv(places, several),)](
        query_tokens,
        query_tokens if share is None else share.contiguous(),
        tokens.contiguous(),
        offsets,
        offsets if candidates is None else candidates.contiguous(),
        out,
        questions, words, atoms, places, width, groups,
        LISTED=listed, SUM=share is not None, HELD=words <= padded and width <= block_m,
        UNIT=_UNIT, GROUP=group, WORDS=padded, ATOMS=several,
        BLOCK_T=max(16, min(64, triton.next_power_of_2(max(1, mean)))), BLOCK_M=block_m,
    )  # fmt: skip
    return out
