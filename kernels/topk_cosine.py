"""Triton kernel of topk_cosine: product and running top-k in one; scores are never written.

Each program multiplies a block of queries by its share of the keys, tile by tile. It keeps the k
largest scores of every query in registers. Few later tiles hold anything larger, so most tiles cost
their product and one comparison. A second pass reduces the winners to k a query, in order.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

__all__ = ["LARGEST_K", "launch_topk_cosine"]

LARGEST_K = 128  # the most that registers hold
_PROGRAMS = 528  # four a multiprocessor on the largest cards
_QUERIES, _KEYS, _SCORES = 64, 128, 4096  # of a program: maximum rows, columns and scores of a tile
_PARTS = {torch.float16: 2, torch.bfloat16: 3}  # parts that sum to a float32 query up to 2^-22


@triton.jit
def _topk_cosine_kernel(
    queries, keys, out_values, out_indices,
    num_queries, num_keys, dim, share, num_shares, query_stride, key_stride,
    K: tl.constexpr, PADDED: tl.constexpr, PARTS: tl.constexpr,
    BLOCK_Q: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_D: tl.constexpr,
):  # fmt: skip
    """out[q, share, :K] = the largest of queries[q] . keys[share * length : ...], unordered.

    A share with fewer keys is filled with minus infinity and index -1. With PARTS, a query is the
    sum of that many numbers in the keys' half precision, whose products are exact in float32.
    Without it, both factors are widened.
    """
    # Only the first axis of a grid holds more than 65,535 programs.
    part = tl.program_id(0) % num_shares
    row = (tl.program_id(0) // num_shares * BLOCK_Q + tl.arange(0, BLOCK_Q)).to(tl.int64)
    real = row < num_queries
    lane = tl.arange(0, PADDED)[None, :]
    # Lanes beyond K hold +inf, so that the smallest of `kept` is always one of the K.
    kept = tl.where(lane < K, float("-inf"), float("inf")) + tl.zeros([BLOCK_Q, 1], tl.float32)
    place = tl.zeros([BLOCK_Q, PADDED], tl.int32) - 1
    start = part * share
    stop = tl.minimum(start + share, num_keys)
    for begin in range(start, stop, BLOCK_N):
        column = begin + tl.arange(0, BLOCK_N)
        scores = tl.zeros([BLOCK_Q, BLOCK_N], tl.float32)
        for first in range(0, dim, BLOCK_D):
            at = first + tl.arange(0, BLOCK_D)
            q = tl.load(
                queries + row[:, None] * query_stride + at[None, :],
                mask=real[:, None] & (at < dim)[None, :], other=0.0,
            )  # fmt: skip
            x = tl.load(
                keys + column.to(tl.int64)[None, :] * key_stride + at[:, None],
                mask=(column < stop)[None, :] & (at < dim)[:, None], other=0.0,
            )  # fmt: skip
            if PARTS == 0:
                scores = tl.dot(q.to(tl.float32), x.to(tl.float32), scores, input_precision="ieee")
            else:
                for nth in tl.static_range(PARTS):
                    own = q.to(x.dtype)
                    scores = tl.dot(own, x, scores)
                    if nth + 1 < PARTS:
                        q = q.to(tl.float32) - own.to(tl.float32)
        live = real[:, None] & (column < stop)[None, :] & (scores == scores)  # no NaN
        scores = tl.where(live, scores, float("-inf"))
        largest = tl.max(scores, axis=1)
        smallest = tl.min(kept, axis=1)
        while tl.max((largest > smallest).to(tl.int32), axis=0) > 0:
            gains = (largest > smallest)[:, None]
            taken = tl.argmax(scores, axis=1)
            lost = tl.argmin(kept, axis=1)
            swap = gains & (lane == lost[:, None])
            kept = tl.where(swap, largest[:, None], kept)
            place = tl.where(swap, (begin + taken)[:, None], place)
            chosen = gains & (tl.arange(0, BLOCK_N)[None, :] == taken[:, None])
            scores = tl.where(chosen, float("-inf"), scores)
            largest = tl.max(scores, axis=1)
            smallest = tl.min(kept, axis=1)
    to = (row[:, None] * num_shares + part) * K + lane
    inside = real[:, None] & (lane < K)
    tl.store(out_values + to, kept, mask=inside)
    tl.store(out_indices + to, place, mask=inside)


def launch_topk_cosine(
    queries: Tensor,  # [B, d]
    keys: Tensor,  # [N, d]
    k: int,  # at most LARGEST_K
    programs: int = _PROGRAMS,
    queries_at_once: int = _QUERIES,
    keys_at_once: int = _KEYS,
) -> tuple[Tensor, Tensor]:  # [B, min(k, N)], [B, min(k, N)] int64
    """`graphmem::topk_cosine` on CUDA; never waits for the device.

    Half-precision keys go to the tensor cores unchanged. Queries of another type are cut into parts
    of the keys' type. Products of halves are exact in float32, which also accumulates them. Other
    types are multiplied in float32.
    """
    k = min(k, keys.shape[0])
    rows, dim = queries.shape
    if rows == 0 or k == 0:
        return queries.new_empty(rows, k).float(), queries.new_empty(rows, k, dtype=torch.int64)
    queries, keys = queries.contiguous(), keys if keys.stride(1) == 1 else keys.contiguous()
    parts = _PARTS.get(keys.dtype, 0)
    if queries.dtype == keys.dtype and parts:
        parts = 1
    elif parts:
        queries = queries.float()
    if keys.dtype == torch.bfloat16 and not isinstance(
        _topk_cosine_kernel, triton.runtime.JITFunction
    ):
        parts = 0  # the interpreter computes bfloat16 incorrectly
    block_q = min(queries_at_once, max(16, triton.next_power_of_2(rows)))
    block_n = min(keys_at_once, _SCORES // block_q)
    across = triton.cdiv(rows, block_q)
    shares = max(1, min(programs // across, triton.cdiv(keys.shape[0], block_n)))
    share = triton.cdiv(triton.cdiv(keys.shape[0], shares), block_n) * block_n
    shares = triton.cdiv(keys.shape[0], share)
    values = torch.empty(rows, shares, k, dtype=torch.float32, device=keys.device)
    indices = torch.empty(rows, shares, k, dtype=torch.int32, device=keys.device)
    _topk_cosine_kernel[(shares * across,)](
        queries, keys, values, indices,
        rows, keys.shape[0], dim, share, shares, queries.stride(0), keys.stride(0),
        K=k, PADDED=triton.next_power_of_2(k), PARTS=parts,
        BLOCK_Q=block_q, BLOCK_N=block_n, BLOCK_D=min(64, max(16, triton.next_power_of_2(dim))),
    )  # fmt: skip
    best, order = values.flatten(1).topk(k, dim=1)
    return best, indices.flatten(1).gather(1, order).long()
