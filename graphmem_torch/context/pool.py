"""Pool: what a context may be made of (retrieved, pinned, needed), and what each is worth."""

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

# Along these the source comes first: a cause before its effect, a premise before its conclusion.
# Along all others the target does: what is depended on, elaborated, or derived from.
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
    """For each of A atoms, those that come before it.

    Attributes:
        indptr: [A + 1] int64.
        first: [E] int64; `first[indptr[i]:indptr[i + 1]]` come before atom i.
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
        """The relations that edges of these types make between the first A rows."""
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
        """E."""
        return len(self.first)

    def before(self, rows: Tensor) -> tuple[Tensor, Tensor]:  # [n] -> [m], [m]
        """Everything that comes directly before these atoms.

        Returns:
            The places among `rows`, and the atoms that come before what is there.
        """
        place, at = row_entries(self.indptr, rows)
        return place, self.first[at]


@dataclass(frozen=True, eq=False)
class Pool:
    """The items of B questions, on the CPU.

    Attributes:
        rows: [B, n] int64 atom rows, -1 = padding.
        values: [B, n] float64, at least 0; what was not retrieved has 0.
        pinned: [B, n] bool.
        place: [B, n] float64, the rank among what was retrieved; of what is needed that of what
            needs it, a little before it.
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
        """The items of these questions, each by itself, with what theirs require."""
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
    """Everything that a context of these questions may hold.

    Args:
        rows: What was retrieved, best first.
        values: What it is worth.
        atoms: A.
        pinned: Atoms that are in every context.
        needs: What brings what; followed to its ends, over atoms that were not retrieved.
        allowed: Atoms there are for the question: no other is pinned or needed.
        limit: Needed items of a question at most; an item that needs more is barred.
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
    """What was retrieved and nothing else."""
    place = torch.arange(rows.shape[1], dtype=torch.float64).expand(rows.shape)
    none = torch.zeros_like(rows, dtype=torch.bool)
    requires = torch.zeros(3, 0, dtype=torch.int64)
    return Pool(rows, values, none, place.masked_fill(rows < 0, torch.inf), none, requires)


class _Known:
    """Keys in ascending order, each with its place."""

    def __init__(self, keys: Tensor, place: Tensor) -> None:
        self.keys, order = keys.sort()
        self.place = place[order]

    def find(self, keys: Tensor) -> Tensor:
        """Where these keys are, or would be."""
        return torch.searchsorted(self.keys, keys).clamp(max=max(len(self.keys) - 1, 0))

    def holds(self, keys: Tensor) -> Tensor:
        """Which of them are known."""
        if not len(self.keys):
            return torch.zeros(keys.shape, dtype=torch.bool)
        return self.keys[self.find(keys)] == keys

    def add(self, keys: Tensor, place: Tensor) -> Tensor:
        """Takes up those that are new, each at its least place; gives them back."""
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
    """Follows needs to their ends; pairs of keys, and the keys whose needs are not all known."""
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
        # In an order by relevance, what is needed comes just before the first that needs it.
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
    """Hybrid scores as values of which a knapsack may take the sum (`docs/mathematics.md` 6).

    A score is made to rank, and sums of scores mean nothing: two memories of a fair score are then
    worth more than the one that answers, and short ones win. What a sum should mean is the evidence
    that is expected in the context, so the value of a memory is how likely it is to be evidence:

    - `share`: softmax(scores / temperature), the memory's share of what is expected; for scores
      that are log-odds, as fitted ones are. The sum over a context is the share that it holds.
    - `rank`: 1 / rank, ranks from 1, over the sum of all: the same for scores of any scale.
    - `score`: the score itself, at least 0: ContextOS's utility. Of 512 tokens of LoCoMo it fills
      nearly all with short turns and keeps a fifth of what a top-k does.

    Args:
        scores: In any order.
        kind: As above.
        temperature: Of `share`; 1 takes the scores for log-odds as they are.

    Raises:
        InputError: A score that is NaN or +inf, a kind that there is not, a temperature of 0 or
            less.
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
