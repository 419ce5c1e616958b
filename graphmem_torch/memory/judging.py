"""Edges judged by an oracle: what follows from what, and what contradicts what."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.atoms import DEFAULT_EDGE_WEIGHT, EdgeType, Link
from graphmem_torch.errors import InputError
from graphmem_torch.memory.stated import Connected, StatedEdge, connect_all, nodes_of
from graphmem_torch.ops import knn_graph
from graphmem_torch.oracle import Judge, Verdict, ask_judge
from graphmem_torch.store import MemoryStore

__all__ = ["JudgedEdges", "checked_pairs", "judge_pairs", "similar_pairs", "verdict_edge"]

_ASKED = 64  # pairs a call: what a failing oracle can lose, and a transaction


@dataclass(frozen=True, slots=True)
class JudgedEdges:
    """What a `judge_edges` did.

    Attributes:
        entailed, contradicted, neutral: Pairs by verdict.
        failed: Pairs without a usable verdict; they got no edge and can be asked again.
        new: Edges stored.
        known: Edges that were there already, as strong or more.
    """

    entailed: int = 0
    contradicted: int = 0
    neutral: int = 0
    failed: int = 0
    new: int = 0
    known: int = 0

    @property
    def judged(self) -> int:
        """Pairs that were asked about so far."""
        return self.entailed + self.contradicted + self.neutral + self.failed


def judge_pairs(
    store: MemoryStore, judge: Judge, pairs: Sequence[tuple[str, str]]
) -> Iterator[JudgedEdges]:
    """Judges pairs (premise, hypothesis) of atom ids; yields the count after each call.

    What each call of the oracle gave is stored before the next one: an interrupted run keeps it.

    Raises:
        InputError: An id that is not stored; before anything is asked.
        StoreError: As in `connect_all`.
    """
    node = nodes_of(store, [end for pair in pairs for end in pair])
    done = JudgedEdges()
    for start in range(0, len(pairs), _ASKED):
        store.expect_writable()
        part = pairs[start : start + _ASKED]
        ends = [node[end] for pair in part for end in pair]
        texts = [atom.rendered for atom in store.atoms(ends)]
        verdicts = ask_judge(judge, texts[::2], texts[1::2])
        edges = [
            edge
            for (premise, hypothesis), verdict in zip(part, verdicts, strict=True)
            if (edge := verdict_edge(premise, hypothesis, verdict, node)) is not None
        ]
        done = _counted(done, verdicts, connect_all(store, edges))
        yield done


def verdict_edge(
    premise: str, hypothesis: str, verdict: Verdict | None, node: dict[str, int]
) -> StatedEdge | None:
    """The edge that a verdict makes; None for neutral or no verdict (`docs/mathematics.md` 2.1).

    Entailment gives an implication of weight 0.5 to 1 by its confidence, contradiction an edge of
    its default weight from the later atom to the earlier: it has no direction of its own, and one
    way of writing it keeps it from being stored twice.
    """
    if verdict is None or verdict.label == "neutral":
        return None
    if verdict.label == "entail":
        weight = 0.5 + 0.5 * verdict.confidence
        return StatedEdge(premise, Link(hypothesis, EdgeType.IMPLICATION, weight))
    if node[premise] < node[hypothesis]:
        premise, hypothesis = hypothesis, premise
    weight = DEFAULT_EDGE_WEIGHT[EdgeType.CONTRADICTS]
    return StatedEdge(premise, Link(hypothesis, EdgeType.CONTRADICTS, weight))


def checked_pairs(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Pairs (premise, hypothesis), each once.

    Raises:
        InputError: Something that is no pair of two different ids.
    """
    if not isinstance(pairs, Iterable):
        raise InputError(f"pairs: expected pairs (premise, hypothesis) of ids, got {pairs!r:.80}")
    found: dict[tuple[str, str], None] = {}
    for pair in pairs:
        whole = isinstance(pair, (tuple, list)) and len(pair) == 2
        if not whole or not all(isinstance(end, str) for end in pair) or pair[0] == pair[1]:
            raise InputError(
                f"pairs: expected pairs (premise, hypothesis) of two different ids, got {pair!r}"
            )
        found[pair[0], pair[1]] = None
    return list(found)


def similar_pairs(
    embeddings: Tensor,  # [A, d] unit rows
    *,
    k: int,
    least: float,
) -> Tensor:  # [2, P] int64, later row and earlier row
    """Each atom with its k most similar earlier ones, where the cosine is `least` or more.

    Raises:
        InputError: k below 1, or `least` outside [-1, 1].
    """
    if not isinstance(k, int) or k < 1:
        raise InputError(f"k must be a whole number of at least 1, got {k!r}")
    if not -1.0 <= least <= 1.0:
        raise InputError(f"least must be a cosine in [-1, 1], got {least!r}")
    if len(embeddings) < 2:
        return torch.empty(2, 0, dtype=torch.int64)
    neighbour, cosine = knn_graph(embeddings, k, earlier=True)
    row, place = ((cosine >= least) & (neighbour >= 0)).nonzero(as_tuple=True)
    return torch.stack([row, neighbour[row, place].long()])


def _counted(
    done: JudgedEdges, verdicts: Sequence[Verdict | None], stored: Connected
) -> JudgedEdges:
    labels = [None if verdict is None else verdict.label for verdict in verdicts]
    return replace(
        done,
        entailed=done.entailed + labels.count("entail"),
        contradicted=done.contradicted + labels.count("contradict"),
        neutral=done.neutral + labels.count("neutral"),
        failed=done.failed + labels.count(None),
        new=done.new + stored.new,
        known=done.known + stored.known,
    )
