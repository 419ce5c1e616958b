"""A query plan over a batch of questions: filter by time, then meaning, then relations.

Each step reads only what the one before left (`docs/mathematics.md` 5.7; Cognitive Weave,
arXiv 2506.08098). Questions with different plans run in one pass.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphmem_torch.checks import check_tensor
from graphmem_torch.graph import Graph
from graphmem_torch.ops.ragged import ranges, segment_topk
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.ops.topk_cosine import inner_products
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.memory_tensors import MemoryTensors

__all__ = ["Events", "PlanBatch", "Pruned", "prune"]

_DAY = 86_400.0
_LONGEST = 100.0  # maximum days that an atom states (`text.times.told_days`)
_INSIDE, _UNKNOWN, _LATE, _OUTSIDE = range(4)  # tiers
_FEW = 2  # gather the atoms of several windows if at most one atom in two is inside
_TOGETHER = 8  # questions, consecutive in time, whose windows are read together


@dataclass(frozen=True, eq=False)
class PlanBatch:
    """Plans of B questions.

    Attributes:
        window: [B, 2] float64 seconds since the epoch UTC, both ends included; infinite: open. An
            atom is inside if its stated event overlaps the window. Without an event, it is inside
            if it was said in the window or states days that overlap it.
        min_in_window: [B] int64; a window with fewer atoms is followed by the others.
        match: [B] float32 in [0, 1]; so is a window whose best BM25 is a smaller share of the best
            of all.
        slack_seconds: [B] float64 seconds after a window in which people still mention it; atoms
            said then come before the others outside. None: 0.
        best: [B] int64 >= 1, number of best atoms by cosine, and as many by BM25.
        hops: [B] int64 >= 0, number of edges followed from these; 0: none.
        types: [B, 256] bool, mask of the edge types that are followed.
        starts: [B, S] int64, additional start nodes, -1 = none.
        kept: [B] int64 >= 1, number of atoms left at the end.
        discount: [B] float32 in (0, 1], factor of each edge.
        terms: [B, W] int64 terms that BM25 reads, -1 padding; None: those of the questions.
    """

    window: Tensor
    min_in_window: Tensor
    match: Tensor
    best: Tensor
    hops: Tensor
    types: Tensor
    starts: Tensor
    kept: Tensor
    discount: Tensor
    slack_seconds: Tensor | None = None
    terms: Tensor | None = None

    def __len__(self) -> int:
        """B."""
        return self.window.shape[0]

    def to(self, device: torch.device | str) -> PlanBatch:
        """Return the plans on another device."""
        return self._each(lambda tensor: tensor.to(device))

    def rows(self, part: slice) -> PlanBatch:
        """Return some of the plans."""
        return self._each(lambda tensor: tensor[part])

    def _each(self, change: Callable[[Tensor], Tensor]) -> PlanBatch:
        columns = {field.name: getattr(self, field.name) for field in fields(self)}
        return PlanBatch(
            **{n: change(column) for n, column in columns.items() if column is not None}
        )

    def check(self, count: int) -> None:
        """Raise `InputError` unless these are the plans of `count` questions."""
        axes: dict[str, tuple[int | str, ...]] = {"window": (2,), "types": (256,)}
        axes |= {"starts": ("S",), "terms": ("W",)}
        for name in (field.name for field in fields(self)):
            tensor: Tensor | None = getattr(self, name)
            if tensor is None:
                continue
            do = "give one row for each question"
            check_tensor(f"plan.{name}", tensor, "", (count, *axes.get(name, ())), do)


class Events(NamedTuple):
    """Times of the events that some atoms state.

    Attributes:
        row: [E] int64, atoms.
        span: [E, 2] float64 seconds since the epoch UTC, both ends included.
    """

    row: Tensor
    span: Tensor


class Pruned(NamedTuple):
    """Result of the steps of B plans.

    Attributes:
        rows: [B, K] int64 atoms that are left, best first, -1 = none.
        counts: [B, 4] int64: the number of possible hits, of those in the window, of the best of
            these, and of those left.
        reached: [B] int64, number of atoms reached by relations, including the best.
        open: [B] bool, mask of the questions with others after those in the window.
        tier: [B, A] uint8, distance of each atom from the window: 0 inside; 1 of unknown time; 2
            outside, but said soon after it; 3 outside. All 0 if nothing is inside.
    """

    rows: Tensor
    counts: Tensor
    reached: Tensor
    open: Tensor
    tier: Tensor

    @classmethod
    def joined(cls, parts: Sequence[Pruned]) -> Pruned:
        """Join the results of parts of a batch; lists of rows are padded to the widest."""
        width = max(part.rows.shape[1] for part in parts)
        rows = [pad(part.rows, (0, width - part.rows.shape[1]), value=-1) for part in parts]
        return cls(torch.cat(rows), *map(torch.cat, list(zip(*parts, strict=True))[1:]))


def prune(everyone: Candidates, plan: PlanBatch, events: Events | None = None) -> Pruned:
    """Return the atoms that the plan of each question leaves, out of all possible hits.

    - Time: two bisections of the sorted times, and two of the stated days.
    - Meaning: the best by cosine and by BM25 inside, each worth v = (max(cos, 0) / max cos + BM25 /
      max BM25) / 2.
    - Relations: from these, and from the starts with v = 1, an edge brings discount v, from a
      concept divided by the root of its number of edges. A node has the most that any edge brings.

    The atoms inside of largest v are left, earlier rows first on a tie; without hops, the best
    themselves. If too few are inside, the best of those outside follow, tier by tier.

    Args:
        everyone: B questions against every atom.
        plan: Plans of the questions.
        events: Events of the atoms that state one; nothing else dates these.
    """
    memory, count = everyone.memory, len(everyone.query)
    there = everyone.listed.expand(count, -1)
    if not memory.num_atoms or not count:
        none = plan.best.new_zeros(count, 4)
        empty = plan.best.new_empty(count, 0)
        tier = torch.zeros(count, memory.num_atoms, dtype=torch.uint8, device=none.device)
        return Pruned(empty, none, none[:, 0], none[:, 0].bool(), tier)
    if plan.terms is None:
        lexical = everyone.signal("lexical").expand(count, -1)
    else:
        lexical = memory.bm25.score(plan.terms)
    tier = _tiers(memory, plan, events)
    inside = there & (tier == _INSIDE)
    tier = tier.masked_fill(~inside.any(1, keepdim=True), _INSIDE)  # nothing is inside: one tier
    open_ = _few(plan, there, inside, lexical)
    key, value = _best(everyone, plan, inside, lexical)
    best = _per_row(key, count, memory.num_atoms)
    key, value = _related(memory, plan, inside, key, value)
    if bool(open_.any()):
        others = there & ~inside & open_[:, None]
        more, worth = _best(everyone, plan, others, lexical)
        best = best + _per_row(more, count, memory.num_atoms)
        more, worth = _related(memory, plan, others, more, worth)
        key, order = torch.cat([key, more]).sort()
        value = torch.cat([value, worth])[order]
        # Values are at most 1, so subtracting 2 per tier puts every nearer tier first.
        value = value - 2.0 * tier.flatten()[key]
    number = [_count(there), _count(inside), best]
    row = key // memory.num_atoms
    size = torch.bincount(row, minlength=count)
    place = segment_topk(value, row, size, min(int(plan.kept.max()), memory.num_atoms))
    lane = torch.arange(place.shape[1], device=place.device)
    place = place.masked_fill(lane >= plan.kept[:, None], -1)
    place = place[:, : int((place >= 0).sum(1).max())]
    rows = (key[place] % memory.num_atoms).masked_fill(place < 0, -1)
    number.append((rows >= 0).sum(1))
    return Pruned(rows, torch.stack(number, dim=1), size, open_, tier)


def _count(mask: Tensor) -> Tensor:  # [B, A] bool -> [B] int64
    # Takes a tenth of the time of a 64-bit sum.
    return mask.sum(1, dtype=torch.int32).long()


def _per_row(key: Tensor, count: int, width: int) -> Tensor:
    return torch.bincount(key // width, minlength=count)


def _tiers(memory: MemoryTensors, plan: PlanBatch, events: Events | None) -> Tensor:
    """Return the tier of each atom for the window of each question, [B, A]."""
    tier = torch.zeros(len(plan), memory.num_atoms, dtype=torch.uint8, device=plan.window.device)
    (own,) = plan.window.isfinite().any(1).nonzero(as_tuple=True)
    if not len(own):
        return tier
    low, high = plan.window[own].T.contiguous()
    first, last = (low / _DAY).floor(), (high / _DAY).floor()
    tells = memory.told[:, 1] > memory.told[:, 0]
    stated = torch.zeros_like(tells)
    if events is not None:
        stated[events.row] = True
    time = memory.time_bits.view(torch.float64)
    known = time.isfinite() | tells | stated
    found = torch.where(known, _OUTSIDE, _UNKNOWN).to(torch.uint8).repeat(len(own), 1)
    late = torch.zeros_like(high) if plan.slack_seconds is None else plan.slack_seconds[own]
    late = late.masked_fill(~(low.isfinite() & high.isfinite()), 0.0)
    span, row = memory.by_time.within(low, high + late)
    later = torch.where(tells[row], _OUTSIDE, _LATE)
    near = torch.where(time[row] <= high[span], _INSIDE, later)
    found[span, row] = torch.where(stated[row], _OUTSIDE, near).to(torch.uint8)
    span, row = memory.by_told.within(first - _LONGEST, last)
    touches = (memory.told[row, 1] > first[span]) & ~stated[row]
    found[span[touches], row[touches]] = _INSIDE
    if events is not None:
        begins, ends = events.span.T
        inside = (begins <= high[:, None]) & (ends >= low[:, None])
        found[:, events.row] = found[:, events.row].masked_fill(inside, _INSIDE)
    tier[own] = found
    return tier


def _few(
    plan: PlanBatch,
    there: Tensor,  # [B, A] bool
    inside: Tensor,  # [B, A] bool
    lexical: Tensor,  # [B, A]
) -> Tensor:  # [B] bool
    """Return where a window leaves too little to use it alone."""
    few = _count(inside) < plan.min_in_window
    if bool((plan.match > 0).any()):
        best, inner = (torch.where(own, lexical, 0.0).amax(1) for own in (there, inside))
        few |= inner < plan.match * best
    return few & plan.window.isfinite().any(1)


def _best(
    everyone: Candidates,
    plan: PlanBatch,
    inside: Tensor,  # [B, A] bool
    lexical: Tensor,  # [B, A]
) -> tuple[Tensor, Tensor]:  # [n] int64, question * A + row, ascending; [n]
    """Return the best atoms inside by cosine and by BM25, and their values."""
    number = torch.arange(len(inside), device=inside.device)
    few = len(inside) <= _TOGETHER
    in_time = [number] if few else plan.window[:, 0].argsort().split(_TOGETHER)
    parts = [_best_of(everyone, plan, own, inside[own], lexical[own]) for own in in_time]
    key, value = (torch.cat(each) for each in zip(*parts, strict=True))
    order = key.argsort()
    return key[order], value[order]


def _best_of(
    everyone: Candidates,
    plan: PlanBatch,
    own: Tensor,  # [b] int64, questions
    inside: Tensor,  # [b, A] bool
    lexical: Tensor,  # [b, A]
) -> tuple[Tensor, Tensor]:  # [n] int64, question * A + row; [n]
    """Compute `_best` for some questions, reading the windows of all for each."""
    embeddings, atoms = everyone.memory.embeddings, everyone.memory.num_atoms
    (column,) = inside.any(0).nonzero(as_tuple=True)
    if _FEW * len(column) > atoms:
        column = torch.arange(atoms, device=column.device)
    else:
        embeddings = embeddings.index_select(0, column)
        inside, lexical = (each.index_select(1, column) for each in (inside, lexical))
    cosine = inner_products(everyone.query.embedding[own], embeddings).detach()
    best = plan.best[own]
    most = min(int(best.max()), len(column))
    lane = torch.arange(most, device=column.device)
    worth, keys = [], []
    for values, least in ((cosine, -torch.inf), (lexical, 0.0)):
        top, place = stable_topk(torch.where(inside, values, -torch.inf), most, above=least)
        taken = (top > -torch.inf) & (lane < best[:, None])
        row, rank = taken.nonzero(as_tuple=True)
        keys.append(row * len(column) + place[row, rank])
        worth.append(top[:, :1].clamp(min=1e-12) if most else top.new_ones(1, 1))
    key = torch.cat(keys).unique()
    row, place = key // max(1, len(column)), key % max(1, len(column))
    parts = [
        values[row, place].clamp(min=0) / top.expand(len(cosine), 1)[row, 0]
        for values, top in zip((cosine, lexical), worth, strict=True)
    ]
    return own[row] * atoms + column[place], sum(parts[1:], parts[0]) / 2


def _related(
    memory: MemoryTensors,
    plan: PlanBatch,
    inside: Tensor,  # [B, A] bool
    key: Tensor,  # [n] int64, question * A + row
    value: Tensor,  # [n]
) -> tuple[Tensor, Tensor]:  # [m] int64, [m]
    """Follow edges from atoms and starts inside the mask, and return all reached atoms."""
    rounds = int(plan.hops.max())
    if not rounds:
        return key, value
    graph, atoms, nodes = memory.graph, memory.num_atoms, memory.graph.num_nodes
    row, start = (plan.starts >= 0).nonzero(as_tuple=True)
    known = row * nodes + plan.starts[row, start]
    sent = (key // atoms) * nodes + memory.node[key % atoms].long()
    sent, known_value = _largest(
        torch.cat([sent, known]), torch.cat([value, value.new_ones(len(known))])
    )
    fresh = torch.ones_like(sent, dtype=torch.bool)
    for done in range(rounds):
        (from_,) = (fresh & (plan.hops[sent // nodes] > done)).nonzero(as_tuple=True)
        if not len(from_):
            break
        goal, brought = _followed(memory, graph, plan, sent[from_], known_value[from_])
        atom = memory.atom[goal % nodes].long()
        seen = (atom < 0) | inside[goal // nodes, atom.clamp(min=0)]
        goal, brought = goal[seen], brought[seen]
        both, most = _largest(torch.cat([sent, goal]), torch.cat([known_value, brought]))
        before = most.new_full(both.shape, -1.0)
        before[torch.searchsorted(both, sent)] = known_value
        sent, known_value, fresh = both, most, most > before
    row, atom = sent // nodes, memory.atom[sent % nodes].long()
    own = atom >= 0
    return (row * atoms + atom)[own], known_value[own]


def _followed(
    memory: MemoryTensors, graph: Graph, plan: PlanBatch, key: Tensor, value: Tensor
) -> tuple[Tensor, Tensor]:  # question * N + node: [n] int64, [n] -> [m] int64, [m]
    """Return the values that edges of the wanted types bring to the nodes at their ends."""
    nodes = graph.num_nodes
    node, question = key % nodes, key // nodes
    first, count = graph.spans(node)
    own, place = ranges(first, count)
    edge, edges = graph.leaving(place).long(), graph.stored
    sent = value * plan.discount[question]
    sent = torch.where(memory.atom[node] < 0, sent / count.clamp(min=1).sqrt(), sent)
    there = plan.types[question[own], edges.type[edge].long()]
    own, edge = own[there], edge[there]
    return question[own] * nodes + edges.target[edge], sent[own]


def _largest(key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
    """Return each key once, ascending, with the largest of its values."""
    known, slot = key.unique(return_inverse=True)
    most = value.new_full(known.shape, -torch.inf)
    return known, most.scatter_reduce(0, slot, value, "amax")
