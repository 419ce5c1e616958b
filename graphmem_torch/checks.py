"""Argument checks shared by the operations: shapes, dtypes and devices.

Reading values waits for the GPU and breaks `torch.compile`. Only `check_unit_rows`, on a CPU, and
`check_entries`, for operations that wait anyway, do so. Operations that need finite or nonnegative
values say so in their docstrings. Graph, embedder and store check values on entry.
"""

from __future__ import annotations

from collections.abc import Sequence
from numbers import Real
from typing import TYPE_CHECKING

from graphmem_torch.errors import InputError

if TYPE_CHECKING:
    import torch
    from torch import Tensor

__all__ = [
    "all_finite",
    "as_scalar",
    "check_choice",
    "check_count",
    "check_entries",
    "check_flag",
    "check_matrix",
    "check_no_gradient",
    "check_range",
    "check_scalar",
    "check_share",
    "check_tensor",
    "check_unit_rows",
    "needs_gradient",
]

_KINDS = {
    "floating point": ("float16", "bfloat16", "float32", "float64"),
    "integers": ("uint8", "int8", "int16", "int32", "int64"),
}
_UNIT = 0.01  # tolerance of the length of a unit row, for rounding to bfloat16


def check_tensor(
    name: str,
    value: Tensor,
    kind: str,
    shape: Sequence[int | str],
    do: str,
    *,
    device: torch.device | None = None,
) -> None:
    """Raise `InputError` unless dtype, shape and device are as expected.

    Args:
        name: Name of the argument.
        value: Argument to check.
        kind: A dtype, "floating point" or "integers"; "" for any.
        shape: Expected lengths of the axes; a name stands for any length.
        do: Advice for the message.
        device: Expected device; None for any.
    """
    import torch

    tensor = isinstance(value, torch.Tensor)
    kinds = [getattr(torch, each) for each in _KINDS.get(kind, (kind,))] if kind else []
    fits = tensor and value.dim() == len(shape) and (not kind or value.dtype in kinds)
    fits = fits and (device is None or value.device == device)
    if fits and all(isinstance(n, str) or n == m for n, m in zip(shape, value.shape, strict=True)):
        return
    wanted = f"{kind} [{', '.join(map(str, shape))}]".lstrip()
    got = f"{value.dtype} {list(value.shape)}" if tensor else f"{value!r:.60}"
    if device is not None:
        wanted, got = f"{wanted} on {device}", f"{got} on {value.device}" if tensor else got
    raise InputError(f"{name}: expected {wanted}, got {got}; {do}")


def check_matrix(name: str, value: Tensor, shape: str) -> None:
    """Raise `InputError` unless `value` is a floating-point matrix; `shape` names its axes."""
    axes = shape.strip("[]").split(", ")
    check_tensor(name, value, "floating point", axes, f"a single row is {name}[None]")


def check_entries(name: str, values: Tensor, low: int, high: int, do: str) -> None:
    """Raise `InputError` for an integer outside `low..high`; waits for the device."""
    if not values.numel():
        return
    least, most = (int(end) for end in values.aminmax())
    if least < low or most > high:
        got = least if least < low else most
        raise InputError(f"{name}: expected numbers in {low}..{high}, got {got}; {do}")


def all_finite(values: Tensor) -> bool:
    """Return whether all numbers are finite, in one pass; waits for the device."""
    import torch

    if not values.numel():
        return True
    return bool(torch.stack(values.detach().aminmax()).isfinite().all())


def check_unit_rows(name: str, rows: Tensor) -> None:  # [n, d]
    """Raise `InputError` for a row that is not finite, or has a length other than 1 and 0.

    Checks only on a CPU and outside `torch.compile`.
    """
    import torch

    if rows.device.type != "cpu" or torch.compiler.is_compiling():
        return
    kind = torch.promote_types(rows.dtype, torch.float32)
    length = torch.linalg.vector_norm(rows.detach(), dim=1, dtype=kind)
    low, high = (float(end) for end in length.aminmax()) if len(length) else (1.0, 1.0)
    if low >= 1 - _UNIT and high <= 1 + _UNIT:  # false for NaN
        return
    bad = ~(((length - 1).abs() <= _UNIT) | (length == 0))
    if bool(bad.any()):
        first = int(bad.nonzero()[0])
        raise InputError(
            f"{name}: expected rows of length 1 (or zeros), got length {float(length[first]):.4g} "
            f"in row {first}; divide each row by its length"
        )


def check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    """Raise `InputError` unless `value` is one of `choices`."""
    if value not in choices:
        listed = ", ".join(repr(choice) for choice in choices)
        raise InputError(f"{name}: expected one of {listed}, got {value!r}; choose one of them")


def check_flag(name: str, value: bool) -> None:
    """Raise `InputError` unless `value` is True or False."""
    if not isinstance(value, bool):
        raise InputError(f"{name}: expected True or False, got {value!r:.60}; give one")


def check_count(name: str, value: int, low: int = 1, high: int | None = None) -> None:
    """Raise `InputError` unless `value` is an integer from `low` to `high`."""
    if isinstance(value, bool) or not (isinstance(value, int) or _symbolic(value)):
        raise InputError(
            f"{name}: expected an integer of at least {low}, got {value!r:.60}; give a whole number"
        )
    if value < low:
        raise InputError(
            f"{name}: expected an integer of at least {low}, got {value}; give a larger one"
        )
    if high is not None and value > high:
        raise InputError(f"{name}: expected at most {high}, got {value}; give a smaller one")


def _symbolic(value: object) -> bool:
    """Return whether a value is a symbolic number of `torch.compile`."""
    import torch

    return isinstance(value, (torch.SymInt, torch.SymFloat))


def check_range(name: str, value: float, low: float, high: float = float("inf")) -> None:
    """Raise `InputError` unless `low <= value <= high` (so NaN is refused)."""
    # Common types first, because `Real` is slow.
    number = isinstance(value, (float, int, Real)) or _symbolic(value)
    number = number and not isinstance(value, bool)
    if not number or not low <= value <= high:
        do = "give one in that range" if number else "give a number"
        raise InputError(f"{name}: expected a number in [{low}, {high}], got {value!r:.60}; {do}")


def check_share(name: str, value: float, *, usual: float) -> None:
    """Raise `InputError` unless `0 <= value < 1`; the message suggests `usual`."""
    number = isinstance(value, (int, float)) and not isinstance(value, bool)
    if not number or not 0.0 <= value < 1.0:
        raise InputError(
            f"{name}: expected a share in [0, 1), got {value!r:.60}; {usual:g} is usual"
        )


def check_no_gradient(name: str, *values: object) -> None:
    """Raise `InputError` if any tensor in `values` requires a gradient."""
    if needs_gradient(*values):
        raise InputError(
            f"{name}: expected no gradient, got an input that requires one; detach it, or "
            "call under torch.no_grad()"
        )


def needs_gradient(*values: object) -> bool:
    """Return whether any tensor in `values` requires a gradient while gradients are recorded."""
    import torch

    return torch.is_grad_enabled() and any(
        isinstance(value, torch.Tensor) and value.requires_grad for value in values
    )


def check_scalar(name: str, value: float | Tensor, like: Tensor, low: float = 0.0) -> None:
    """Raise `InputError` for a number below `low`, or a tensor that does not fit `like`.

    A tensor fits if it is a scalar or has one value for each row of `like`. Its values are not
    checked, because that would wait for the device.
    """
    import torch

    if not isinstance(value, torch.Tensor):
        check_range(name, value, low)
    else:
        do = "give a number or one for each row, reshape or move it"
        shape = tuple(like.shape[:1]) if value.dim() == 1 else ()
        check_tensor(name, value, "floating point", shape, do, device=like.device)


def as_scalar(value: float | Tensor, like: Tensor) -> Tensor:  # [] or [B]
    """Return `value` on the device of `like`, in its computing type; never waits for the device."""
    import torch

    kind = torch.promote_types(like.dtype, torch.float32)
    if isinstance(value, torch.Tensor):
        return value.to(kind)
    return torch.full((), value, dtype=kind, device=like.device)
