"""Reconciliation: memories that contradict or repeat each other are found, flagged, or ended.

A contradiction is a negative edge weighted by its confidence. A duplicate is an edge that supports
the first memory that said it. The rules only flag. A memory ends if a later one of the same speaker
states the change, or if an oracle says that the two contradict each other. Nothing is deleted.
Conflicts are stored in the graph and the validities only, so they are deleted with the memories,
and an interrupted run can be repeated. `docs/mathematics.md` 5.8.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from graphmem_torch.atoms import AGGREGATE, Atom, EdgeType, Link
from graphmem_torch.config import ReconcileConfig
from graphmem_torch.coo import unique_pairs
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.judge.entailment import LexicalJudge
from graphmem_torch.judge.statements import split_speaker
from graphmem_torch.memory.conflict_pairs import SharedKeys, similar_nodes
from graphmem_torch.memory.conflicts import aggregates_of, atoms_of, begin_of, conflicts_of
from graphmem_torch.memory.duplicates import DUPLICATE_COSINE, ComparedContent
from graphmem_torch.memory.edge_writes import (
    connect_all,
    contradiction,
    disconnect,
    told_since,
)
from graphmem_torch.memory.validity import Superseding, supersede, validity_of
from graphmem_torch.memory.writing import Writing
from graphmem_torch.oracle import Judge, Verdict, ask_judge
from graphmem_torch.results import Conflict, Reconciled
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.times import told_days
from graphmem_torch.text.unicode_forms import composed

__all__ = ["SURE", "Resolver", "find"]

SURE = 0.8
"""Minimum confidence for resolving a contradiction; below it the conflict stays open."""

_log = logging.getLogger(__name__)


_SIMILAR = 0.5  # minimum cosine for memories that linking found similar to be compared
_SHARED = 16  # memories of a key that each new one is compared with, the latest first
_RARE = 32  # maximum number of memories with a rare word; two shared rare words compare them

_JUDGED = "reconcile.judged"  # by judge, the node up to which all pairs were judged
_LOCAL = "lexical 4"  # name and version of the rules: a new version judges again
_ASKED = 32  # pairs in a call of an oracle, each in both orders
_LEAST = 0.5  # minimum confidence of a contradiction
_DAY = 86400.0


def find(
    store: MemoryStore,
    config: ReconcileConfig,
    keys: SharedKeys,
    *,
    local: LexicalJudge,
    judge: Judge | None,
    by: Resolver,
    block: int,
    stop: int | None = None,
) -> Iterator[Reconciled]:
    """Find and store contradictions and duplicates among new memories; yields what each block did.

    Each block commits before the next one starts, so an interrupted run can be repeated.

    Args:
        store: Store of the memories.
        config: Settings of the comparison and the policy.
        keys: Keys of this store.
        local: Rules that judge without an oracle.
        judge: Oracle; None uses the rules.
        by: Access to the memory.
        block: Memories whose pairs are judged and stored together.
        stop: First node that is left to the next run; None compares all that is stored now.

    Raises:
        StoreError: Read-only store or full disk; what was stored stays.
    """
    name = _LOCAL if judge is None else _named(judge)
    start, end = _judged(store).get(name, 0), store.next_node
    stop = end if stop is None else min(stop, end)
    if start >= stop:
        return
    store.expect_writable()
    with store.reading():
        links = store.edges()
        fresh = store.nodes(start, concepts=False).tolist()
        first = list(zip(fresh, store.first_nodes(start).tolist(), strict=True))
        present = store.nodes(concepts=False)
        there = torch.zeros(stop, dtype=torch.bool)
        there[present[present < stop]] = True
    near, cosine = similar_nodes(links, start, min_cosine=_SIMILAR)
    every = keys.pairs(store, start, shared=_SHARED, rare=0 if judge is None else _RARE)
    if judge is not None:
        every = unique_pairs(torch.cat([near, every], 1))[0]
    every = every[:, every[0] < stop]  # later memories are left to the next run
    every = every[:, there[every].all(0)]
    alike = near[:, cosine >= DUPLICATE_COSINE]
    for low in range(start, stop, block):
        high = min(low + block, stop)
        pairs = every[:, (every[0] >= low) & (every[0] < high)]
        same = alike[:, (alike[0] >= low) & (alike[0] < high)]
        equal = [(node, of) for node, of in first if low <= node < high and of < node]
        if judge is None:
            judged = _flag_block(store, pairs, local, config, by)
        else:
            judged = _judge_block(store, pairs, judge, local, config, by)
        done = judged + _repeat_block(store, same, equal, by.now)
        if judge is not None and 0 < judged.failed == judged.compared:  # unavailable: ask later
            yield done
            return
        known = _judged(store)
        store.meta_set(_JUDGED, json.dumps(known | {name: max(high, known.get(name, 0))}))
        yield done


def _judged(store: TensorReader) -> dict[str, int]:
    kept = store.meta_get(_JUDGED)
    return {} if kept is None else json.loads(kept)


def _named(judge: Judge) -> str:
    """Return the name of an oracle: its model, else its class or its own name."""
    owner = getattr(judge, "__self__", judge)
    model = getattr(getattr(owner, "client", None), "model", None)
    kind = owner if hasattr(owner, "__qualname__") else type(owner)
    return f"oracle {kind.__module__}.{kind.__qualname__}" + (f" {model}" if model else "")


def _read(store: TensorReader, nodes: Sequence[int]) -> dict[int, Atom]:
    """Return the memories that are still stored and visible, without aggregates."""
    with store.reading():
        hidden = store.expiry.hidden()
        there = [node for node in store.present(nodes) if node not in hidden]
        atoms = dict(zip(there, store.atoms(there), strict=True))
    return {node: atom for node, atom in atoms.items() if atom.kind != AGGREGATE}


def _paired(
    store: TensorReader,
    pairs: Tensor,  # [2, P]
) -> list[tuple[Atom, Atom]]:
    """Return the memories of each pair that are still stored, the one that was true first first."""
    atoms = _read(store, pairs.unique().tolist())
    kept = [pair for pair in pairs.T.tolist() if pair[0] in atoms and pair[1] in atoms]
    with store.reading():
        there = {node: atom for node, atom in atoms.items() if store.present([node])}
        spans = validity_of(store, {atom.id: node for node, atom in there.items()})
    begin = {node: (begin_of(spans[atom.id]), node) for node, atom in there.items()}
    kept = [pair for pair in kept if pair[0] in begin and pair[1] in begin]
    ordered = [sorted(pair, key=begin.__getitem__) for pair in kept]
    return [(atoms[one], atoms[other]) for one, other in ordered]


def _flag_block(
    store: MemoryStore,
    pairs: Tensor,  # [2, P]
    local: LexicalJudge,
    config: ReconcileConfig,
    by: Resolver,
) -> Reconciled:
    """Flag what the rules find, and end memories that a later one states to have changed."""
    both = _paired(store, pairs)
    if not both:
        return Reconciled()
    ends = [[pair[side].said for pair in both] for side in (0, 1)]
    found = [
        (earlier, later, said)
        for (earlier, later), said in zip(both, local.compare(*ends), strict=True)
        if said is not None
    ]
    new = _store_edges(
        store,
        [contradiction(later.id, earlier.id, said.confidence) for earlier, later, said in found],
        _checked([pair[:2] for pair in found]),
    )
    stated = [
        (earlier.id, later.id)
        for earlier, later, said in found
        if said.ends and said.confidence >= SURE and _ends(earlier, later)
    ]
    done = Reconciled(compared=len(both), conflicts=new)
    if config.policy == "both":  # nothing ends: the conflicts are stated
        return done + _state(store, {frozenset([a.id, b.id]) for a, b, _ in found}, by)
    return done + _end(store, stated, "recency", by)


def _ends(earlier: Atom, later: Atom) -> bool:
    """Return whether a change that one memory states can end another one.

    Both have the same speaker or source, and the change is not dated before the day of the
    earlier memory: "I moved to Rome in 2019" ends nothing of 2024.
    """
    said = [atom.speaker or split_speaker(atom.text)[0] or "" for atom in (earlier, later)]
    names = [composed(name).strip().casefold() for name in said]
    sessions = [composed(atom.session or "") for atom in (earlier, later)]
    if names[0] != names[1] or (not names[0] and sessions[0] != sessions[1]):
        return False
    first, behind = told_days(later.text, later.time)
    if behind <= first:
        return True
    return earlier.time is not None and behind * _DAY > earlier.time


def _judge_block(
    store: MemoryStore,
    pairs: Tensor,  # [2, P]
    judge: Judge,
    local: LexicalJudge,
    config: ReconcileConfig,
    by: Resolver,
) -> Reconciled:
    """Ask an oracle about each pair, in both orders; its answer decides."""
    both = _paired(store, pairs)
    done = Reconciled()
    for start in range(0, len(both), _ASKED):
        part = both[start : start + _ASKED]
        ends = [[pair[side].said for pair in part] for side in (0, 1)]
        said = ask_judge(judge, ends[0] + ends[1], ends[1] + ends[0])
        found, denied, failed = [], [], 0
        for place, (earlier, later) in enumerate(part):
            sure = _agreed((said[place], said[place + len(part)]))
            failed += sure is None
            if sure is not None and sure >= _LEAST:
                found.append((earlier, later, sure))
            elif sure is not None:
                denied.append((earlier, later))
        new = _store_edges(
            store,
            [contradiction(later.id, earlier.id, sure) for earlier, later, sure in found],
            _checked([pair[:2] for pair in found]),
        )
        _take_back(store, denied, local)
        done += Reconciled(compared=len(part), conflicts=new, failed=failed)
        certain = [(a.id, b.id) for a, b, sure in found if sure >= SURE]
        if config.policy == "both":
            done += _state(store, {frozenset(pair) for pair in certain}, by)
        else:
            done += _end(store, certain, config.policy, by)
    if done.failed:
        _log.warning(
            "reconcile: %d of %d pairs have no verdict, or two that contradict each other; they "
            "count as neutral",
            done.failed,
            done.compared,
        )
    return done


def _take_back(
    store: MemoryStore, denied: Sequence[tuple[Atom, Atom]], local: LexicalJudge
) -> None:
    """Remove the flags of the rules from pairs that an oracle finds free of contradiction.

    A contradiction that the rules do not find was stated by a caller, and stays.
    """
    if not denied:
        return
    with store.reading():
        edges = store.edges()
        flagged = edges.take(edges.type == int(EdgeType.CONTRADICTS))
        ends = {frozenset(pair) for pair in zip(*_ids(store, flagged), strict=True)}
    open_ = [pair for pair in denied if frozenset(atom.id for atom in pair) in ends]
    texts = [[pair[side].said for pair in open_] for side in (0, 1)]
    for (earlier, later), said in zip(open_, local.compare(*texts), strict=True):
        if said is not None:
            with store.turn():
                if len(store.known([earlier.id, later.id])) == 2:
                    disconnect(store, later.id, earlier.id, EdgeType.CONTRADICTS)


def _ids(store: TensorReader, edges: EdgeBlock) -> tuple[list[str], list[str]]:
    """Return the ids at both ends of edges; for deleted nodes, their numbers."""
    nodes = sorted({*edges.source.tolist(), *edges.target.tolist()})
    there = atoms_of(store, nodes)
    names = {node: there[node].id if node in there else str(node) for node in nodes}
    return ([names[n] for n in edges.source.tolist()], [names[n] for n in edges.target.tolist()])


def _agreed(verdicts: tuple[Verdict | None, Verdict | None]) -> float | None:
    """Return the confidence of a contradiction from both orders; None if they differ, or fail.

    A contradiction does not depend on the order: if only one order finds it, the confidence is
    averaged with 0.
    """
    one, other = verdicts
    if one is None or other is None:
        return None
    labels = {one.label, other.label}
    if labels == {"contradict", "entail"}:
        return None
    return sum(each.confidence for each in verdicts if each and each.label == "contradict") / 2


def _checked(found: Sequence[tuple[Atom, Atom]]) -> dict[str, str]:
    """Return digests of memories as they were judged, by id."""
    return {atom.id: atom.digest for pair in found for atom in pair}


def _store_edges(
    store: MemoryStore, edges: Sequence[tuple[str, Link]], judged: Mapping[str, str]
) -> int:
    """Connect memories that are still as they were judged; returns the number of new edges."""
    if not edges:
        return 0
    with store.turn():
        now = {name: digest for name, (_, digest) in store.known(list(judged)).items()}
        kept = [
            (source, link)
            for source, link in edges
            if all(now.get(name) == judged[name] for name in (source, link.target))
        ]
        return connect_all(store, kept).new if kept else 0


def _repeat_block(
    store: MemoryStore, alike: Tensor, equal: Sequence[tuple[int, int]], now: float
) -> Reconciled:
    """Connect duplicates, and record them as uses of the memory that said it first."""
    nodes = {*alike.flatten().tolist(), *(node for pair in equal for node in pair)}
    read = {node: ComparedContent.of(atom) for node, atom in _read(store, sorted(nodes)).items()}
    pairs = {
        later: earlier
        for later, earlier in [*alike.T.tolist()[::-1], *equal]
        if later in read and earlier in read and read[later].repeats(read[earlier])
    }
    count = 0
    for later, earlier in pairs.items():
        one, other = read[later].atom, read[earlier].atom
        link = Link(other.id, EdgeType.SUPPORTS)
        if _store_edges(store, [(one.id, link)], _checked([(one, other)])):
            # Of the two, only the edge is looked up again: it must not be stored twice.
            store.uses.note([earlier], now if one.time is None else one.time)
            count += 1
    if count:
        store.uses.flush()
    return Reconciled(duplicates=count)


@dataclass(frozen=True)
class Resolver:
    """Access to the memory that a resolution writes to.

    Attributes:
        writing: Writing to the memory.
        now: Seconds since the epoch UTC.
    """

    writing: Writing
    now: float


def _state(store: MemoryStore, pairs: Collection[frozenset[str]], by: Resolver) -> Reconciled:
    """State open conflicts in separate memories; both sides stay."""
    left = _open(store, pairs)
    return (
        Reconciled(stated=by.writing.add(aggregates_of(store, left)).new) if left else Reconciled()
    )


def _open(store: TensorReader, pairs: Collection[frozenset[str]]) -> list[Conflict]:
    """Return the open conflicts of some pairs of ids."""
    if not pairs:
        return []
    return [
        each
        for each in conflicts_of(store, open_from=0.0)
        if frozenset([each.earlier, each.later]) in pairs
    ]


def _end(
    store: MemoryStore,
    pairs: Sequence[tuple[str, str]],
    policy: Literal["recency", "importance"],
    by: Resolver,
) -> Reconciled:
    """End one memory of each pair whose conflict is still open.

    Args:
        store: Store of the memories.
        pairs: Pairs of ids, the earlier one first.
        policy: Policy that says which of the two ends.
        by: Access to the memory.

    Raises:
        StoreError: Read-only store or full disk; what was ended stays.
    """
    left = _open(store, {frozenset(pair) for pair in pairs})
    if not left:
        return Reconciled()
    chosen: dict[str, tuple[str, tuple[float, ...]]] = {}
    with store.reading():
        node = store.known([name for c in left for name in (c.earlier, c.later)])
        spans = validity_of(store, {name: number for name, (number, _) in node.items()})
        since = told_since(store, node)
    left = [each for each in left if each.earlier in node and each.later in node]
    rank = by.writing.state.importance_of(list(node)) if policy == "importance" else {}
    for each in left:
        old, new = each.earlier, each.later
        if rank and rank[old] > rank[new]:
            old, new = new, old
        # The successor among several: the strongest, else the one that was true first.
        key = (-rank[new],) if rank else (begin_of(spans[new]), float(node[new][0]))
        if old not in chosen or key < chosen[old][1]:
            chosen[old] = new, key
    ended: list[Superseding] = [
        (old, new, None, _known(since[old], since[new])) for old, (new, _) in chosen.items()
    ]
    done = _supersede(store, ended, by)
    # A statement that was known later stays in force, so it is overridden as of that time.
    with store.reading():
        there = {name: node[name][0] for name in chosen if store.present([node[name][0]])}
        after = validity_of(store, there)
    again: list[Superseding] = [
        (old, chosen[old][0], None, span.known)
        for old, span in after.items()
        if span.by != chosen[old][0] and span.known is not None
    ]
    if again:
        _supersede(store, again, by)
    return Reconciled(superseded=done)


def _known(*since: float | None) -> float | None:
    """Return the time from which two contradicting memories were both known; None: now."""
    known = [moment for moment in since if moment is not None]
    return max(known) if len(known) == len(since) else None


def _supersede(store: MemoryStore, pairs: list[Superseding], by: Resolver) -> int:
    """Supersede all pairs together, else one by one; those that fail stay open."""
    try:
        supersede(store, pairs, by.writing.state.resolve_ids, by.now)
    except InputError as error:
        if len(pairs) == 1:
            _log.warning("reconcile: %s stays open (%s)", pairs[0][:2], error)
            return 0
        return sum(_supersede(store, [pair], by) for pair in pairs)
    return len(pairs)
