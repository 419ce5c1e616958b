"""What maxsim and token_maxima accept."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError

__all__ = ["check_token_inputs"]


def check_token_inputs(
    query_tokens: Tensor,  # [B, Q, m] floating point
    name: str,
    per_token: Tensor,  # [B, Q], the argument called `name`
    tokens: Tensor,  # [T, m] int8
    offsets: Tensor,  # [N + 1] int64
    candidates: Tensor | None,  # [B, C] int64
) -> None:
    """Raises `InputError` for shapes, dtypes or devices that do not fit, and for gradients."""
    if query_tokens.dim() != 3 or not query_tokens.is_floating_point():
        raise InputError(
            f"query_tokens must be floating point [B, Q, m]; got {query_tokens.dtype} "
            f"{list(query_tokens.shape)}. Pad the questions to one length."
        )
    if per_token.shape != query_tokens.shape[:2]:
        raise InputError(
            f"{name} must have shape {list(query_tokens.shape[:2])}; got "
            f"{list(per_token.shape)}. Give one value for each question token."
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
    given = {"query_tokens": query_tokens, name: per_token, "offsets": offsets}
    if candidates is not None:
        given["candidates"] = candidates
    for label, value in given.items():
        if value.device != tokens.device:
            raise InputError(
                f"{label} must be on {tokens.device} like the tokens; got {value.device}. Move it."
            )
