"""Constants of an operation that may be learned: a number, or a tensor of no dimensions."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.ops._check import check_range

__all__ = ["as_scalar", "check_scalar"]


def check_scalar(name: str, value: float | Tensor, like: Tensor, low: float = 0.0) -> None:
    """Raises `InputError` for a number below `low`, or a tensor that is no scalar beside `like`.

    A tensor's value is not looked at, because that would wait for the device.
    """
    if not isinstance(value, Tensor):
        check_range(name, value, low)
    elif value.dim() != 0 or not value.is_floating_point() or value.device != like.device:
        raise InputError(
            f"{name} must be a number or a floating point tensor [] on {like.device}; got "
            f"{value.dtype} {list(value.shape)} on {value.device}. Reshape or move it."
        )


def as_scalar(value: float | Tensor, like: Tensor) -> Tensor:  # []
    """The constant in the type that `like` is computed in, on its device; waits for no device."""
    kind = torch.promote_types(like.dtype, torch.float32)
    if isinstance(value, Tensor):
        return value.to(kind)
    return torch.full((), value, dtype=kind, device=like.device)
