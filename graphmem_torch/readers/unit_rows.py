"""Vectors that callers give, checked to be finite and of length 1; loads no torch."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from graphmem_torch.errors import InputError

__all__ = ["InlineVectors", "unit_rows", "without_embedding"]

_TOLERANCE = 1e-2  # of the length of a vector, for rounding to half precision


def unit_rows(
    rows: np.ndarray, where: Callable[[int], str], *, normalise: bool | None = None
) -> np.ndarray:  # [n, d]
    """Return vectors as float32, checked to be finite and of length 1.

    Args:
        rows: [n, d], of any floating type.
        where: Function from a row to its name in messages.
        normalise: Whether to divide rows by their length instead of refusing other lengths; None
            where a caller cannot ask for it.

    Raises:
        InputError: A row that is not finite, zero, or of another length; names the first.
    """
    with np.errstate(over="ignore"):  # refused below
        wide = rows.astype(np.float32, copy=False)
    length = np.sqrt(np.einsum("ij,ij->i", wide, wide, dtype=np.float64))
    fits = np.abs(length - 1) <= _TOLERANCE  # False for NaN
    if not fits.all():
        usable = np.isfinite(length) & (length > 0)
        bad = np.flatnonzero(~usable if normalise else ~fits)
        if len(bad):
            first = int(bad[0])
            fault = _fault(wide[first], float(length[first]), len(bad), normalise is not None)
            raise InputError(fault, where=where(first))
    if normalise:
        return (wide / length[:, None]).astype(np.float32)
    return wide


def _fault(row: np.ndarray, length: float, count: int, choice: bool) -> str:
    """Return what is wrong with a vector; `choice`: the caller may ask to divide by lengths."""
    more = f" (and {count - 1:,} more rows)" if count > 1 else ""
    if not np.isfinite(row).all():
        return (
            f"expected finite numbers, got NaN or infinity{more}; half precision overflows at "
            "65,504: make the vectors again"
        )
    if not length:
        return f"expected a vector, got zeros{more}; leave out what has no vector"
    return (
        f"expected a vector of length 1, got length {length:.4g}{more}; divide each vector by its "
        f"length{', or allow it with --normalise (normalise=True)' if choice else ''}"
    )


class InlineVectors(dict[str, np.ndarray]):
    """Embeddings [d] float32 by id, as lines and records bring them.

    Attributes:
        dim: Width d that they must have; None for any.
        normalise: Whether to divide them by their lengths; None where a caller cannot ask for it.
    """

    def __init__(self, dim: int | None = None, *, normalise: bool | None = None) -> None:
        super().__init__()
        self.dim, self.normalise = dim, normalise

    def empty(self) -> InlineVectors:
        """Return none, to be filled under the same conditions."""
        return InlineVectors(self.dim, normalise=self.normalise)


def without_embedding(
    record: object, where: str | None, dim: int | None, *, normalise: bool | None = None
) -> tuple[object, np.ndarray | None]:
    """Return a record without its `embedding`, and that as [d] float32; None if it has none.

    Args:
        record: Record of any kind.
        where: File and line, for messages.
        dim: Width that it must have; None for any.
        normalise: Whether to divide it by its length; None where a caller cannot ask for it.

    Raises:
        InputError: No list of numbers, another width, or a vector that is not finite or not of
            length 1.
    """
    given = record.get("embedding") if isinstance(record, Mapping) else None
    if given is None or isinstance(given, (str, bool, Mapping)):  # the latter say something else
        return record, None
    given = given.tolist() if hasattr(given, "tolist") else given  # an array, or a tensor
    numbers = isinstance(given, (list, tuple)) and not any(
        isinstance(each, (bool, str)) for each in given
    )
    try:
        row = np.asarray(given if numbers else (), dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        row = np.empty(0)
    if row.ndim != 1 or not row.size:
        raise InputError(
            f"embedding: expected a list of numbers, got {given!r:.60}; write [0.1, ...], or leave "
            "it out",
            where=where,
        )
    if dim not in (None, len(row)):
        raise InputError(
            f"embedding: expected a vector of width {dim}, that of the encoder of this memory, got "
            f"{len(row)}; make it with that encoder",
            where=where,
        )
    (unit,) = unit_rows(row[None], lambda _: where or "embedding", normalise=normalise)
    assert isinstance(record, Mapping)
    return {key: value for key, value in record.items() if key != "embedding"}, unit
