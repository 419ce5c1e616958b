"""ContextOS's experiment 1: one needle among random facts, 200 tokens, a pinned policy."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import islice
from typing import Any

import torch
from tqdm import tqdm

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.evaluation.context_facts import LITERAL
from graphmem_torch.evaluation.context_greedy import prefix
from graphmem_torch.evaluation.context_needles import Essay
from graphmem_torch.evaluation.context_pools import GoldSet
from graphmem_torch.evaluation.metrics import rank_candidates
from graphmem_torch.memory import Memory
from graphmem_torch.text.embed import Embedder
from graphmem_torch.text.tokens import count_tokens

__all__ = ["NOISE", "judge_noise", "random_facts"]

NOISE: tuple[int, ...] = (100, 300, 1000)
"""Distractors; 100 are the published number."""

_BUDGET = 200  # tokens of the whole context
_POLICY = "Never read a password out to a caller."
_FACTS = 4000  # sentences that random facts are drawn from
_WORDS = range(6, 31)  # of a fact


def random_facts(sets: Sequence[GoldSet], essays: Sequence[Essay]) -> list[str]:
    """First sentences of passages, else sentences of the essays; of a usual length, each once."""
    passages = (
        atom.text.partition("\n")[2].partition(". ")[0] + "."
        for one in sets
        if not one.conversational
        for conversation in one.conversations
        for atom in conversation.atoms
    )
    sentences = list(islice(passages, _FACTS))
    sentences = sentences or [text for essay in essays for text in essay.sentences][:_FACTS]
    return sorted({text for text in sentences if len(text.split()) in _WORDS})


def judge_noise(
    facts: Sequence[str],
    config: Config,
    embedder: Embedder,
    *,
    device: str,
    seed: int,
    progress: bool = False,
) -> dict[str, Any]:
    """How often the needle, and the policy, are in the context, by the number of distractors.

    `vector` is how often the needle is among the nearest by cosine that fit, a line each.

    Args:
        facts: What the distractors are drawn from.
        config: Settings of the memories.
        embedder: Encodes.
        device: Where the indices live.
        seed: Of the facts.
        progress: Show a bar.
    """
    report: dict[str, Any] = {"budget": _BUDGET, "trials": len(LITERAL), "noise": {}}
    levels = [level for level in NOISE if level <= len(facts)]
    for level in tqdm(levels, desc="distractors", disable=not progress):
        needles = policies = nearest = 0
        for turn, needle in enumerate(LITERAL):
            drawn = random.Random(1000 * seed + turn).sample(facts, level)
            drawn.insert(random.Random(turn).randrange(level + 1), needle.text)
            atoms = [Atom(str(i), text, kind="fact") for i, text in enumerate(drawn)]
            policy = Atom("policy", _POLICY, kind="rule", type="procedural")
            with Memory.open(None, config=config, embedder=embedder, device=device) as memory:
                memory.add([policy, *atoms])
                text = memory.compile(needle.question, budget=_BUDGET).text
                nearest += needle.text in _nearest(memory, [policy, *atoms], needle.question)
            needles += needle.text in text
            policies += _POLICY in text
        report["noise"][str(level)] = {
            "needle": needles / len(LITERAL),
            "policy": policies / len(LITERAL),
            "vector": nearest / len(LITERAL),
        }
    return report


def _nearest(memory: Memory, atoms: Sequence[Atom], question: str) -> set[str]:
    """Texts of the atoms of largest cosine up to the first that does not fit."""
    rows = memory.rows_of([atom.id for atom in atoms])
    texts = [atom.text for atom in atoms]
    cosine = memory.query([question]).embedding @ memory.index.embeddings[rows].float().T
    ranking = rank_candidates(cosine.cpu())
    costs = torch.tensor(count_tokens(texts))[ranking] + 1
    kept = prefix(ranking, costs, torch.tensor([_BUDGET]), len(atoms))[0, 0]
    return {texts[i] for i in kept.nonzero().flatten().tolist()}
