"""Checks that the public operations share; they look at shapes, dtypes and devices.

Looking at data would wait for the GPU and break `torch.compile`: only `check_unit_rows` does, and
not there. Where an operation depends on finite or nonnegative values, its docstring says so, and
the graph, the embedder and the store check at their borders.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph

__all__ = [
    "as_scalar",
    "check_choice",
    "check_count",
    "check_mask",
    "check_matrix",
    "check_no_gradient",
    "check_node_rows",
    "check_range",
    "check_scalar",
    "check_unit_rows",
    "needs_gradient",
]

_FLOATS = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_UNIT = 0.01  # by which the length of a unit row may be off, as rounding to bfloat16 makes it


def check_matrix(name: str, value: Tensor, shape: str) -> None:
    """Raises `InputError` unless `value` is a floating-point matrix; `shape` names its axes."""
    if value.dim() != 2 or value.dtype not in _FLOATS:
        raise InputError(
            f"{name} must be a floating point matrix {shape}; got {value.dtype} "
            f"{list(value.shape)}. "
            f"A single row is {name}[None]."
        )


def check_unit_rows(name: str, rows: Tensor) -> None:  # [n, d]
    """Raises `InputError` for a row that is neither of length 1 nor zero, or not finite.

    Only on a CPU and outside of `torch.compile`.
    """
    if rows.device.type != "cpu" or torch.compiler.is_compiling():
        return
    kind = torch.promote_types(rows.dtype, torch.float32)
    length = torch.linalg.vector_norm(rows, dim=1, dtype=kind)
    low, high = length.aminmax() if len(length) else (1.0, 1.0)
    if low >= 1 - _UNIT and high <= 1 + _UNIT:  # no NaN is
        return
    bad = ~(((length - 1).abs() <= _UNIT) | (length == 0))
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise InputError(
            f"{name}: expected rows of length 1 (or zeros), got length {float(length[first]):.4g} "
            f"in row {first}; divide each row by its length"
        )


def check_node_rows(name: str, value: Tensor, graph: Graph, *, boolean: bool = False) -> None:
    """Raises `InputError` unless `value` is `[B, N]` for this graph, on the graph's device."""
    if boolean:
        if value.dim() != 2 or value.dtype != torch.bool:
            raise InputError(
                f"{name} must be a bool matrix [B, N]; got {value.dtype} {list(value.shape)}. "
                "Compare or call .bool()."
            )
    else:
        check_matrix(name, value, "[B, N]")
    if value.shape[1] != graph.num_nodes:
        raise InputError(
            f"{name} must have {graph.num_nodes} columns, one for each node; got {value.shape[1]}. "
            "Was the graph rebuilt since?"
        )
    if value.device != graph.source.device:
        raise InputError(
            f"{name} must be on {graph.source.device} like the graph; got {value.device}. Move one "
            "of them."
        )


def check_mask(mask: Tensor, shape: tuple[int, ...], graph: Graph) -> None:
    """Raises `InputError` unless `mask` is bool, on the graph's device and of this `[B, N]`."""
    check_node_rows("mask", mask, graph, boolean=True)
    if mask.shape != shape:
        raise InputError(
            f"mask must have the shape of activation {list(shape)}; got {list(mask.shape)}. Expand "
            "it."
        )


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raises `InputError` unless `value` is one of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{name} must be one of {listed}; got {value!r}. Choose one of them.")


def check_count(name: str, value: int, low: int = 1) -> None:
    """Raises `InputError` unless `value` is an integer of at least `low`."""
    if isinstance(value, bool) or not isinstance(value, (int, torch.SymInt)) or value < low:
        raise InputError(
            f"{name} must be an integer of at least {low}; got {value!r}. Give a larger one."
        )


def check_range(name: str, value: float, low: float, high: float = float("inf")) -> None:
    """Raises `InputError` unless `low <= value <= high` (so NaN is refused)."""
    if not low <= value <= high:
        raise InputError(f"{name} must be in [{low}, {high}]; got {value}. Give one in that range.")


def check_no_gradient(name: str, *values: object) -> None:
    """Raises `InputError` if a gradient is asked for in any of the values that are tensors."""
    if needs_gradient(*values):
        raise InputError(
            f"{name} has no gradient; got an input that requires one. Detach it, or call under "
            "torch.no_grad()."
        )


def needs_gradient(*values: object) -> bool:
    """Whether a gradient is asked for in any of the values that are tensors."""
    return torch.is_grad_enabled() and any(
        isinstance(value, Tensor) and value.requires_grad for value in values
    )


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
