"""Pool of the items that a context may hold (retrieved, pinned, needed), with their values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.checks import check_choice, check_matrix
from graphmem_torch.coo import offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.ops.ragged import row_entries

__all__ = ["Pool", "Relations", "ValueKind", "gather_pool", "values_from_scores"]

ValueKind = Literal["share", "rank", "score"]

# Edges whose source comes first: a cause before its effect, a premise before its conclusion.
# In all others the target does: a dependency, or the origin of an elaboration or derivation.
_SOURCE_FIRST = (
    EdgeType.TEMPORAL,
    EdgeType.ABSTRACTION,
    EdgeType.IMPLICATION,
    EdgeType.SUPPORTS,
    EdgeType.CAUSES,
    EdgeType.PRECEDES,
)


@dataclass(frozen=True, eq=False)
class Relations:
    """Predecessors of each of A atoms.

    Attributes:
        indptr: [A + 1] int64 offsets.
        first: [E] int64; `first[indptr[i]:indptr[i + 1]]` are the predecessors of atom i.
    """

    indptr: Tensor
    first: Tensor

    @classmethod
    def of(
        cls,
        edges: EdgeBlock,  # between rows
        types: Sequence[str],
        atoms: int,
    ) -> Relations:
        """Build the relations that edges of these types make between the first A rows."""
        kinds = [EdgeType[name.upper()] for name in types]
        named = torch.isin(edges.type, torch.tensor([int(kind) for kind in kinds]).byte())
        named &= (edges.source < atoms) & (edges.target < atoms) & (edges.source != edges.target)
        source, target, kind = edges.source[named], edges.target[named], edges.type[named]
        forward = torch.isin(kind, torch.tensor([int(kind) for kind in _SOURCE_FIRST]).byte())
        first = torch.where(forward, source, target)
        later = torch.where(forward, target, source)
        order = later.argsort(stable=True)
        counts = torch.bincount(later, minlength=atoms)
        return cls(offsets_of(counts), first[order])

    def __len__(self) -> int:
        """Return the number of relations, E."""
        return len(self.first)

    def before(self, rows: Tensor) -> tuple[Tensor, Tensor]:  # [n] -> [m], [m]
        """Return the direct predecessors of these atoms.

        Returns:
            Places among `rows`, each with a predecessor of the atom there.
        """
        place, at = row_entries(self.indptr, rows)
        return place, self.first[at]


@dataclass(frozen=True, eq=False)
class Pool:
    """Items of B questions, on the CPU.

    Attributes:
        rows: [B, n] int64 atom rows, -1 = padding.
        values: [B, n] float64, at least 0; 0 for items that were not retrieved.
        pinned: [B, n] bool.
        place: [B, n] float64, the rank among the retrieved items; a needed item comes just before
            the item that needs it.
        barred: [B, n] bool, items whose needs are too many to be listed.
        requires: [3, R] int64: question, item, needed item.
    """

    rows: Tensor
    values: Tensor
    pinned: Tensor
    place: Tensor
    barred: Tensor
    requires: Tensor

    def of(self, question: Tensor, requires: Tensor) -> Pool:  # [R] int64, [3, R']
        """Return the items of these questions, as independent copies, with their requirements."""
        return Pool(
            rows=self.rows[question],
            values=self.values[question],
            pinned=self.pinned[question],
            place=self.place[question],
            barred=self.barred[question],
            requires=requires,
        )


def gather_pool(
    rows: Tensor,  # [B, k] int64, -1 = none
    values: Tensor,  # [B, k] float64
    *,
    atoms: int,
    pinned: Tensor | None = None,  # [P] int64 rows
    needs: Relations | None = None,
    allowed: Tensor | None = None,  # [B or 1, A] bool
    limit: int = 4096,
) -> Pool:
    """Gather the items that the contexts of these questions may hold.

    Args:
        rows: Retrieved atoms, best first.
        values: Values of the retrieved atoms.
        atoms: Number of atoms, A.
        pinned: Atoms that are in every context.
        needs: Requirements, followed transitively, also through atoms that were not retrieved.
        allowed: Atoms visible to the question; no other is pinned or needed.
        limit: Maximum number of needed items of a question; an item that needs more is barred.
    """
    count, width = rows.shape
    there = rows >= 0
    if (pinned is None or not len(pinned)) and (needs is None or not len(needs)):
        return _alone(rows, values.masked_fill(~there, 0.0))
    question = torch.arange(count)[:, None]
    # A key names a question and an atom; sorted keys are looked up by bisection.
    keys = torch.where(there, question * atoms + rows, -1)
    place = torch.arange(width, dtype=torch.float64).expand(count, -1)
    known = _Known(keys[there], place[there])
    if pinned is not None and len(pinned):
        fixed = (question * atoms + pinned[None]).flatten()
        fixed = fixed[_is_allowed(fixed, atoms, allowed)]
        known.add(fixed, torch.full((len(fixed),), -1.0, dtype=torch.float64))
    pairs, missing = _closed(known, needs, atoms, allowed, limit * count)

    extra = known.keys[~torch.isin(known.keys, keys[there])]
    owner = extra // atoms
    slot = torch.arange(len(extra)) - torch.searchsorted(owner, owner)
    more = int(slot.max()) + 1 if len(extra) else 0
    columns = torch.full((count, width + more), -1, dtype=torch.int64)
    columns[:, :width] = keys
    columns[owner, width + slot] = extra

    filled = columns >= 0
    at = known.find(columns.clamp(min=0))
    sorted_columns, column_of = columns.flatten().sort()
    item, need = (column_of[torch.searchsorted(sorted_columns, end)] for end in pairs)
    total = width + more
    barred = torch.zeros(count * total, dtype=torch.bool)
    barred[column_of[torch.searchsorted(sorted_columns, missing)]] = True
    is_pinned = torch.zeros_like(filled)
    if pinned is not None and len(pinned):
        is_pinned = filled & torch.isin(columns % atoms, pinned)
    return Pool(
        rows=torch.where(filled, columns % atoms, -1),
        values=torch.nn.functional.pad(values.masked_fill(~there, 0.0), (0, more)),
        pinned=is_pinned,
        place=torch.where(filled, torch.nn.functional.pad(known.place, (0, 1))[at], torch.inf),
        barred=barred.view(count, total),
        requires=torch.stack([item // total, item % total, need % total]),
    )


def _alone(rows: Tensor, values: Tensor) -> Pool:
    """Make a pool of the retrieved atoms alone."""
    place = torch.arange(rows.shape[1], dtype=torch.float64).expand(rows.shape)
    none = torch.zeros_like(rows, dtype=torch.bool)
    requires = torch.zeros(3, 0, dtype=torch.int64)
    return Pool(rows, values, none, place.masked_fill(rows < 0, torch.inf), none, requires)


class _Known:
    """Sorted keys, each with its place."""

    def __init__(self, keys: Tensor, place: Tensor) -> None:
        self.keys, order = keys.sort()
        self.place = place[order]

    def find(self, keys: Tensor) -> Tensor:
        """Return the positions of these keys, known or not."""
        return torch.searchsorted(self.keys, keys).clamp(max=max(len(self.keys) - 1, 0))

    def holds(self, keys: Tensor) -> Tensor:
        """Return whether each key is known."""
        if not len(self.keys):
            return torch.zeros(keys.shape, dtype=torch.bool)
        return self.keys[self.find(keys)] == keys

    def add(self, keys: Tensor, place: Tensor) -> Tensor:
        """Add the new keys, each with its minimum place, and return them."""
        new = ~self.holds(keys)
        fresh, group = keys[new].unique(return_inverse=True)
        least = torch.full((len(fresh),), torch.inf, dtype=torch.float64)
        least = least.scatter_reduce(0, group, place[new], "amin")
        self.keys, order = torch.cat([self.keys, fresh]).sort()
        self.place = torch.cat([self.place, least])[order]
        return fresh


def _closed(
    known: _Known, needs: Relations | None, atoms: int, allowed: Tensor | None, limit: int
) -> tuple[Tensor, Tensor]:  # [2, R], [m]
    """Follow needs transitively; return pairs of keys, and the keys with needs left unknown."""
    none = torch.zeros(2, 0, dtype=torch.int64)
    if needs is None or not len(needs):
        return none, none[0]
    pairs, frontier, most = [none], known.keys, len(known.keys) + limit
    while len(frontier):
        at, needed = needs.before(frontier % atoms)
        item = frontier[at]
        need = item - item % atoms + needed
        there = _is_allowed(need, atoms, allowed)
        item, need = item[there], need[there]
        pairs.append(torch.stack([item, need]))
        if len(known.keys) + len(need.unique()) > most:
            break
        # By relevance, a needed item comes just before the first item that needs it.
        frontier = known.add(need, known.place[known.find(item)] - 1e-6)
    found = torch.cat(pairs, dim=1)
    complete = known.holds(found[1])
    return found[:, complete], found[0, ~complete].unique()


def _is_allowed(keys: Tensor, atoms: int, allowed: Tensor | None) -> Tensor:  # [n] bool
    if allowed is None:
        return torch.ones(len(keys), dtype=torch.bool)
    question = keys // atoms if allowed.shape[0] > 1 else torch.zeros_like(keys)
    return allowed[question, keys % atoms]


def values_from_scores(
    scores: Tensor,  # [B, k]; -inf: nothing there
    *,
    kind: ValueKind = "rank",
    temperature: float = 1.5,
) -> Tensor:  # [B, k] float64 in [0, 1], or the scores where they count themselves
    """Convert hybrid scores to values that a knapsack may add up (`docs/mathematics.md` 6).

    Scores are made to rank, and their sums mean nothing: two memories of a fair score would be
    worth more than the one that answers, and short ones would win. The sum should be the expected
    evidence in the context, so the value of a memory is its probability of being evidence:

    - `share`: softmax(scores / temperature), the share of the expected evidence; for scores that
      are log-odds, as fitted ones are. The sum over a context is the share that it holds.
    - `rank`: 1 / rank, ranks from 1, divided by the sum of all; independent of the scale of scores.
    - `score`: the score itself, at least 0: the utility of ContextOS. With 512 tokens on LoCoMo it
      fills nearly all of them with short turns and keeps a fifth of what a top-k does.

    Args:
        scores: Scores in any order.
        kind: Kind of value.
        temperature: Temperature of `share`; 1 uses the scores as log-odds.

    Raises:
        InputError: A score is NaN or +inf, the kind is unknown, or the temperature is not above 0.
    """
    check_matrix("scores", scores, "[B, k]")
    check_choice("kind", kind, get_args(ValueKind))
    if not temperature > 0:
        raise InputError(f"temperature: expected more than 0, got {temperature}; 1.5 is usual")
    there = scores > -torch.inf
    if bool((torch.isnan(scores) | (scores == torch.inf)).any()):
        raise InputError("scores: expected finite numbers or -inf, got others; repair the signals")
    worth = scores.double()
    if kind == "share":
        # A row without candidates would be NaN.
        return torch.softmax(worth / temperature, dim=1).where(there, 0.0)
    if kind == "rank":
        order = worth.argsort(dim=1, descending=True, stable=True)
        place = torch.arange(1, scores.shape[1] + 1, dtype=torch.float64, device=scores.device)
        value = torch.zeros_like(worth).scatter(1, order, (1.0 / place).expand_as(worth))
        value = value.where(there, 0.0)
        return value / value.sum(1, keepdim=True).clamp(min=1e-300)
    return worth.clamp(min=0.0)
