"""Two hops: results of the vector alone, of the graph alone, and of both.

ContextOS's experiment 2 ("Project Apollo" -> "Memory Safety"). The question names the subject of
the first fact. The second fact shares with the first only a name that the question leaves out. Many
facts of the same form are distractors, so that wording does not identify it.
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
"""Arms of the ablation.

The score without graph signals (published beta = 0), graph signals alone (alpha = 0; the vector may
still find the seeds), PageRank without a question, all, and all with ten times the graph weights.
"""

DEPTHS: tuple[int, ...] = (2, 5, 10)

MEMORIES = 10
"""Number of memories of chains."""

_CHAINS = 5  # chains of a memory, one of each pattern
_RANDOM = 100  # and unrelated facts


def judge_hops(
    facts: Sequence[str],
    config: Config,
    embedder: Embedder,
    *,
    device: str,
    seed: int,
    memories: int = MEMORIES,
) -> dict[str, Any]:
    """Return the ablation on made-up chains, with two graphs.

    `stated`: only the edges within a chain are given, as published. `found`: no edges are given;
    linking creates them.

    Args:
        facts: Texts that random facts are drawn from.
        config: Settings of the memories.
        embedder: Encoder.
        device: Device of the indices.
        seed: Seed of names, facts and intervals.
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
    """Return `recall_at` of each arm; the memory keeps its weights.

    Args:
        memory: Memory with the gold.
        questions: B questions.
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
    """Return the means of each arm with their intervals."""
    names = [f"{what}@{depth}" for what in ("recall", "complete") for depth in DEPTHS]
    return {arm: interval_table(found, names, seed=seed) for arm, found in arms.items()}


def arm_weights(weights: Mapping[str, float], arm: str) -> dict[str, float] | None:
    """Return the weights of an arm, others 0; None if all would be 0."""
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
    """Return the share of gold in the best hits, then whether all of it is, at each of `DEPTHS`."""
    results = memory.retrieve(list(questions), k=max(DEPTHS))
    rows = []
    for result, wanted in zip(results, gold, strict=True):
        # A hit without any signal was not found; it only fills the list.
        ids = [hit.id for hit in result.hits if max(hit.signals.values()) > 0.0]
        found = [len(wanted & set(ids[:depth])) / len(wanted) for depth in DEPTHS]
        rows.append([*found, *(float(share == 1.0) for share in found)])
    return torch.tensor(rows, dtype=torch.float64)


def _atoms(chains: Sequence[Chain], own: range, stated: bool) -> Iterator[Atom]:
    """Yield the chains of a memory, and the second facts of others."""
    for i in own:
        edges = (Link(f"{i}b", EdgeType.RELATED_TO),) if stated else ()
        yield Atom(id=f"{i}a", text=chains[i].first, kind="fact", edges=edges)
        yield Atom(id=f"{i}b", text=chains[i].second, kind="fact")
        # The patterns take turns, so these have the form of this chain.
        for j in range(i % _CHAINS, len(chains), _CHAINS):
            if j != i:
                yield Atom(id=f"{j}b", text=chains[j].second, kind="fact")
