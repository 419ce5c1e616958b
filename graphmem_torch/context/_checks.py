"""What `select` asks of its arguments."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.checks import check_matrix
from graphmem_torch.errors import InputError

__all__ = ["check_overlap", "check_problem", "check_room"]

_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)


def check_problem(
    values: Tensor,
    costs: Tensor,
    budget: Tensor,
    pinned: Tensor | None,
    requires: Tensor | None,
) -> None:
    """Raises `InputError` unless shapes, dtypes, signs and places fit `select`."""
    check_matrix("values", values, "[B, n]")
    for name, tensor, shape in (
        ("costs", costs, values.shape),
        ("budget", budget, values.shape[:1]),
    ):
        if tensor.dtype not in _WHOLE or tensor.shape != shape:
            raise InputError(
                f"{name} must be whole tokens {list(shape)} like the values; got {tensor.dtype} "
                f"{list(tensor.shape)}. Round costs up and the budget down, and give a row each."
            )
        if tensor.numel() and int(tensor.min()) < 0:
            raise InputError(f"{name} must be at least 0 tokens; got {int(tensor.min())}")
    if values.numel() and not bool(((values >= 0) & values.isfinite()).all()):
        raise InputError(
            "values must be finite and at least 0; got others. Subtract the least, or drop items."
        )
    if pinned is not None and (pinned.dtype != torch.bool or pinned.shape != values.shape):
        raise InputError(
            f"pinned must be a bool matrix {list(values.shape)} like the values; got "
            f"{pinned.dtype} {list(pinned.shape)}. Compare or call .bool()."
        )
    if requires is not None:
        if requires.dtype != torch.int64 or requires.dim() != 2 or requires.shape[0] != 3:
            raise InputError(
                "requires must be int64 [3, R]: row, item, needed item; got "
                f"{requires.dtype} {list(requires.shape)}"
            )
        _check_places("requires", requires, values)


def check_overlap(
    row: Tensor,  # [P]
    item: Tensor,
    other: Tensor,
    share: Tensor,
    values: Tensor,  # [B, n]
) -> None:
    """Raises `InputError` unless these name pairs of items and shares in [0, 1]."""
    places = (row, item, other)
    if any(part.dtype != torch.int64 or part.dim() != 1 for part in places) or any(
        part.shape != share.shape for part in places
    ):
        raise InputError(
            "overlap must hold row, item and other, int64 [P], and a share [P] each; got "
            f"{[(str(part.dtype), list(part.shape)) for part in (*places, share)]}"
        )
    _check_places("overlap", torch.stack(places), values)
    if not bool(((share >= 0) & (share <= 1)).all()):
        raise InputError("overlap: every share must be in [0, 1]; got others. Clamp them.")


def _check_places(name: str, places: Tensor, values: Tensor) -> None:  # [3, R]
    if not places.numel():
        return
    limit = torch.tensor([values.shape[0], values.shape[1], values.shape[1]], device=places.device)
    wrong = ((places < 0) | (places >= limit[:, None])).any(0)
    if bool(wrong.any()):
        raise InputError(
            f"{name} must name rows below {values.shape[0]} and items below {values.shape[1]}; got "
            f"{places[:, wrong][:, 0].tolist()}. Drop what is not among the candidates."
        )


def check_room(costs: Tensor, budget: Tensor, inside: Tensor, pinned: Tensor) -> None:
    """Raises `InputError` where the budget does not hold what is inside anyway."""
    needed = torch.where(inside, costs, 0).sum(1)
    short = (needed > budget).nonzero()
    if len(short):
        row = int(short[0])
        raise InputError(
            f"budget of row {row} must hold its pinned items and what they require: "
            f"{int(needed[row])} tokens for {int(inside[row].sum())} items "
            f"({int(pinned[row].sum())} of them pinned); got {int(budget[row])}. Raise the budget "
            "or unpin some."
        )
