"""Two hops: what the vector finds, what the graph finds, and what both find together.

ContextOS's experiment 2 ("Project Apollo" -> "Memory Safety"): the question names what the first
fact is about; the second fact shares only a name with the first one, which the question leaves out,
and many facts of the same form stand beside it, so that its words do not tell it from them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.config import Config
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.memory import Memory
from graphmem_torch.rank.registry import SIGNALS, Weight
from graphmem_torch.text.embedder import Embedder

from ..common.task import memory_of
from .facts import Chain, make_chains

__all__ = [
    "ARMS",
    "DEPTHS",
    "MEMORIES",
    "ablate",
    "ablation_figures",
    "arm_weights",
    "judge_hops",
    "recall_at",
]
ARMS: tuple[str, ...] = ("vector only", "graph only", "unseeded graph", "hybrid", "graph x 10")
"""The score without what reads the graph (the published beta = 0), with nothing else (alpha = 0;
where it starts may still be found by the vector), the PageRank of no question, the whole, and the
whole with ten times the weight of what reads the graph."""

DEPTHS: tuple[int, ...] = (2, 5, 10)

MEMORIES = 10
"""Memories of chains."""

_CHAINS = 5  # of a memory, one of each pattern
_RANDOM = 100  # and facts about anything


def judge_hops(
    facts: Sequence[str],
    config: Config,
    embedder: Embedder,
    *,
    device: str,
    seed: int,
    memories: int = MEMORIES,
) -> dict[str, Any]:
    """The ablation on made-up chains, with two graphs.

    `stated`: the edges between the facts of a chain are given and there are no others, as
    published; `found`: none are given, and linking finds what it finds.

    Args:
        facts: What random facts are drawn from.
        config: Settings of the memories.
        embedder: Encodes.
        device: Where the indices live.
        seed: Of names, facts and intervals.
        memories: Number of memories, each with five chains.
    """
    chains = make_chains(memories * _CHAINS, seed)
    bare = replace(config.link, similarity_k=0, concepts="none", cooccurrence=0)
    report: dict[str, Any] = {"n": len(chains)}
    for graph, link in (("stated", bare), ("found", config.link)):
        arms: dict[str, list[Tensor]] = {}
        for number in range(memories):
            own = range(number * _CHAINS, (number + 1) * _CHAINS)
            atoms = list(_atoms(chains, own, graph == "stated"))
            chance = random.Random(1000 * seed + number)
            drawn = chance.sample(facts, min(_RANDOM, len(facts)))
            atoms += [Atom(f"fact {i}", text, kind="fact") for i, text in enumerate(drawn)]
            chance.shuffle(atoms)
            settings = replace(config, link=link)
            with memory_of(atoms, settings, embedder, device) as memory:
                questions = [chains[i].question for i in own]
                gold = [{f"{i}a", f"{i}b"} for i in own]
                for arm, found in ablate(memory, questions, gold).items():
                    arms.setdefault(arm, []).append(found)
        report[graph] = ablation_figures({a: torch.cat(f) for a, f in arms.items()}, seed)
    return report


def ablate(
    memory: Memory, questions: Sequence[str], gold: Sequence[set[str]]
) -> dict[str, Tensor]:  # each [B, 2 * len(DEPTHS)]
    """`recall_at` of each arm; the memory keeps its weights.

    Args:
        memory: Holds the gold.
        questions: B.
        gold: Ids of the atoms that each question needs.
    """
    weights = dict(memory.config.rank.weights)
    found = {}
    try:
        for arm in ARMS:
            own = arm_weights(weights, arm)
            if own is not None:
                memory.learning.use_weights(own)
                found[arm] = recall_at(memory, questions, gold)
    finally:
        memory.learning.use_weights(weights)
    return found


def ablation_figures(arms: Mapping[str, Tensor], seed: int) -> dict[str, Any]:
    """Means of each arm with their intervals."""
    names = [f"{what}@{depth}" for what in ("recall", "complete") for depth in DEPTHS]
    return {arm: interval_table(found, names, seed=seed) for arm, found in arms.items()}


def arm_weights(weights: Mapping[str, float], arm: str) -> dict[str, float] | None:
    """The weights of an arm, those that it leaves out at 0; None where nothing is left."""
    of_graph = {name: SIGNALS[Weight.named(name).signal].graph for name in weights}
    kept = {
        "vector only": lambda name: not of_graph[name],
        "graph only": lambda name: of_graph[name],
        "unseeded graph": lambda name: False,
        "hybrid": lambda name: True,
        "graph x 10": lambda name: True,
    }[arm]
    own = {name: weight if kept(name) else 0.0 for name, weight in weights.items()}
    if arm == "graph x 10":
        own = {name: 10 * w if of_graph[name] else w for name, w in own.items()}
    if arm == "unseeded graph":
        own["pagerank"] = 1.0
    return own if any(own.values()) else None


def recall_at(
    memory: Memory, questions: Sequence[str], gold: Sequence[set[str]]
) -> Tensor:  # [B, 2 * len(DEPTHS)] float64
    """Share of the gold among the best, then whether all of it is, at each of `DEPTHS`."""
    results = memory.retrieve(list(questions), k=max(DEPTHS))
    rows = []
    for result, wanted in zip(results, gold, strict=True):
        # What nothing speaks for was not found; it is only listed to fill the number up.
        ids = [hit.id for hit in result.hits if max(hit.signals.values()) > 0.0]
        found = [len(wanted & set(ids[:depth])) / len(wanted) for depth in DEPTHS]
        rows.append([*found, *(float(share == 1.0) for share in found)])
    return torch.tensor(rows, dtype=torch.float64)


def _atoms(chains: Sequence[Chain], own: range, stated: bool) -> Iterator[Atom]:
    """The chains of a memory, and the second facts of others."""
    for i in own:
        edges = (Link(f"{i}b", EdgeType.RELATED_TO),) if stated else ()
        yield Atom(id=f"{i}a", text=chains[i].first, kind="fact", edges=edges)
        yield Atom(id=f"{i}b", text=chains[i].second, kind="fact")
        # The patterns take turns, so these have the form of this chain.
        for j in range(i % _CHAINS, len(chains), _CHAINS):
            if j != i:
                yield Atom(id=f"{j}b", text=chains[j].second, kind="fact")
