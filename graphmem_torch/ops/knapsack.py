"""knapsack: the most valuable items that fit a budget of tokens, exactly."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from math import isfinite

import torch
from torch import Tensor

from graphmem_torch.checks import check_count, check_matrix
from graphmem_torch.errors import InputError
from graphmem_torch.ops._knapsack_bounds import relax
from graphmem_torch.ops._knapsack_dp import tabulate
from graphmem_torch.ops._knapsack_search import search, start
from graphmem_torch.ops._library import register

__all__ = ["Packing", "knapsack", "knapsack_reference"]

_log = logging.getLogger(__name__)

_TOKENS = 1 << 40  # costs of a row: sums of two rows' worth stay whole numbers in float64
_ROWS = 1024  # questions solved side by side
_CELLS = 1 << 24  # and their items: 128 MB for each intermediate
_FEW, _MANY = 1 << 14, 1 << 20  # sets a row may make before a table is tried, and after
_ROUNDING = 1e-13  # of the bound: a selection better by less than this is no better
_WHOLE, _SLIP = 2.0**36, 1e-3  # whole values up to here are told apart, with this much rounding


@dataclass(frozen=True, eq=False)
class Packing:
    """What `knapsack` chose for each of B questions.

    Attributes:
        mask: The chosen items, `[B, n]` bool.
        value: Their value, `[B]` float64.
        cost: Their cost, `[B]` int64 tokens, never above the budget.
        upper_bound: No selection is worth more, `[B]` float64; equals `value` where exact.
        exact: Whether the selection is proven to be the best, `[B]` bool.
    """

    mask: Tensor
    value: Tensor
    cost: Tensor
    upper_bound: Tensor
    exact: Tensor

    @property
    def gap(self) -> Tensor:  # [B]
        """Value that a better selection could have more at most; 0 where exact."""
        return self.upper_bound - self.value


def knapsack(
    values: Tensor,  # [B, n]
    costs: Tensor,  # [B, n] integer tokens, >= 0
    budget: Tensor,  # [B] integer tokens, >= 0
    *,
    required: Tensor | None = None,  # [B, n] bool
    work: int = 100_000_000,
) -> Packing:
    """The most valuable items of each row whose costs fit its budget (`docs/mathematics.md` 6).

    Items that cost nothing and are worth something are always chosen, items worth nothing or less
    only where they are required. The fractional optimum decides nearly all items, a search over
    sets of small loss the rest (`_knapsack_search`), a table over tokens what is too dense for
    that (`_knapsack_dp`); all rows side by side. For many budgets of one question, expand it:
    `knapsack(values.expand(B, -1), costs.expand(B, -1), budgets)`.

    Args:
        values: Finite, far below 1e300. Computed in float64: a selection counts as best if none
            is better by more than 1e-13 of the bound.
        costs: At most 2^40 / n tokens.
        budget: Of any size.
        required: Items that are chosen whatever they are worth.
        work: Table cells (a byte each, some nanoseconds) that a row may need. Where it needs more,
            and a million sets at once do not do either, the best selection found is returned with
            its bound, `exact` False and a warning.

    Raises:
        InputError: For shapes, dtypes or devices that do not fit, values that are not finite,
            negative costs or budgets, values that require a gradient, or required items that alone
            exceed the budget of their row.
    """
    _check(values, costs, budget, required)
    check_count("work", work, 0)
    mask, value, cost, bound, exact = _knapsack(values, costs, budget, required, work)
    if not torch.compiler.is_compiling() and not bool(exact.all()):
        gap = ((bound - value) / bound.abs())[~exact].max()
        _log.warning(
            "knapsack left %d of %d questions unproven, up to %.1e of the value short: raise work",
            int((~exact).sum()),
            len(exact),
            float(gap),
        )
    return Packing(mask, value, cost, bound, exact)


def knapsack_reference(
    values: Tensor,  # [B, n]
    costs: Tensor,  # [B, n] int64
    budget: Tensor,  # [B] int64
    required: Tensor | None = None,  # [B, n] bool
) -> Tensor:  # [B, n] bool
    """`knapsack` as the table over items and tokens that textbooks give; n * B * max budget cells.

    best(j, w) = max(best(j - 1, w), best(j - 1, w - c_j) + v_j) (Bellman 1957).
    """
    if required is None:
        required = torch.zeros_like(costs, dtype=torch.bool)
    left = budget - torch.where(required, costs, 0).sum(1)
    room = torch.arange(int(left.max()) + 1 if len(left) else 0, device=values.device)
    best = values.new_zeros((len(left), len(room)), dtype=torch.float64)
    taken = []
    for value, cost, always in zip(values.T, costs.T, required.T, strict=True):
        before = (room - cost[:, None]).clamp(min=0)
        joined = best.gather(1, before) + value[:, None]
        better = (room >= cost[:, None]) & (joined > best) & ~always[:, None]
        best = torch.where(better, joined, best)
        taken.append(better)
    mask = required.clone()
    for at in reversed(range(len(taken))):
        chosen = taken[at].gather(1, left[:, None])[:, 0]
        mask[:, at] |= chosen
        left = left - torch.where(chosen, costs[:, at], 0)
    return mask


def _check(values: Tensor, costs: Tensor, budget: Tensor, required: Tensor | None) -> None:
    check_matrix("values", values, "[B, n]")
    whole = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    for name, tensor, shape in (
        ("costs", costs, values.shape),
        ("budget", budget, values.shape[:1]),
    ):
        if tensor.dtype not in whole or tensor.shape != shape:
            raise InputError(
                f"{name} must be whole tokens {list(shape)} like the values; got {tensor.dtype} "
                f"{list(tensor.shape)}. Round costs up and the budget down, and give a row each."
            )
    if required is not None and (required.dtype != torch.bool or required.shape != values.shape):
        raise InputError(
            f"required must be a bool matrix {list(values.shape)} like the values; got "
            f"{required.dtype} {list(required.shape)}. Compare or call .bool()."
        )
    given = [costs, budget] + ([] if required is None else [required])
    if any(tensor.device != values.device for tensor in given):
        raise InputError(
            f"costs, budget and required must be on {values.device} like the values; got "
            f"{[str(tensor.device) for tensor in given]}. Move them."
        )


def _run(
    values: Tensor, costs: Tensor, budget: Tensor, required: Tensor | None, work: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    worth, tokens = values.double(), costs.double()
    _check_data(worth, tokens, budget)
    room = budget
    if required is not None:
        needed = torch.where(required, costs, 0).sum(1)
        room = budget - needed
        if bool((room < 0).any()):
            row = int((room < 0).nonzero()[0])
            raise InputError(
                f"budget of row {row} must hold its required items; they cost {int(needed[row])} "
                f"of {int(budget[row])} tokens. Raise the budget or require fewer."
            )
    room = room.double().clamp(max=_TOKENS)
    fixed = (worth <= 0).logical_or_(tokens > room[:, None])
    if required is not None:
        fixed |= required
    if values.numel() == 0:
        mask, bound, exact = fixed, room * 0, room >= 0
    else:
        height = max(1, min(_ROWS, _CELLS // values.shape[1]))
        tiles = (part.split(height) for part in (worth, tokens, fixed, room))
        parts = [_solve(w, t, f, r, work) for w, t, f, r in zip(*tiles, strict=True)]
        mask, bound, exact = (torch.cat(column) for column in zip(*parts, strict=True))
    if required is not None:
        bound += (worth * required).sum(1)
        mask |= required
    value, cost = (worth * mask).sum(1), (costs * mask).sum(1, dtype=torch.int64)
    return mask, value, cost, torch.where(exact, value, torch.maximum(bound, value)), exact


def _check_data(worth: Tensor, tokens: Tensor, budget: Tensor) -> None:
    if len(budget) and int(budget.amin()) < 0:
        raise InputError(
            f"budget must be at least 0; got {int(budget.amin())}. Clamp it or give a larger one."
        )
    if not worth.numel():
        return
    if not isfinite(float(worth.sum())):  # the sum of anything infinite or NaN is no number
        raise InputError("values must be finite; got others. Drop or repair those items.")
    low, high = (int(end) for end in tokens.aminmax())
    if low < 0 or high > _TOKENS // tokens.shape[1]:
        raise InputError(
            f"costs must be in 0..{_TOKENS // tokens.shape[1]} for {tokens.shape[1]} items; got "
            f"{low}..{high}. Repair them or count in a coarser unit."
        )


def _solve(
    worth: Tensor, tokens: Tensor, fixed: Tensor, room: Tensor, work: int
) -> tuple[Tensor, Tensor, Tensor]:
    relaxation = relax(worth, tokens, fixed, room)
    bound = relaxation.bound
    incumbent, rows = start(relaxation, bound * _ROUNDING)
    exact = torch.ones_like(bound, dtype=torch.bool)
    if rows.numel():
        # Between whole values lies nothing: a better selection is better by 1.
        whole = (worth == worth.floor()).all(1) & (bound < _WHOLE)
        incumbent.target.add_(whole.double(), alpha=1 - _SLIP)
        rows = search(relaxation, incumbent, rows, _FEW)
        rows = tabulate(relaxation, incumbent, rows, work)
        exact[search(relaxation, incumbent, rows, _MANY)] = False
        bound = torch.where(whole, (bound + _SLIP).floor(), bound)
    return relaxation.inside ^ incumbent.moved, bound, exact


def _fake(
    values: Tensor, costs: Tensor, budget: Tensor, required: Tensor | None, work: int
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    rows = values.shape[:1]
    return (
        values.new_empty(values.shape, dtype=torch.bool),
        values.new_empty(rows, dtype=torch.float64),
        values.new_empty(rows, dtype=torch.int64),
        values.new_empty(rows, dtype=torch.float64),
        values.new_empty(rows, dtype=torch.bool),
    )


_knapsack = register(
    "knapsack(Tensor values, Tensor costs, Tensor budget, Tensor? required, int work)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _run,
    fake=_fake,
)
