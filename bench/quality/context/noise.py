"""ContextOS's experiment 1: one needle among random facts, 200 tokens, a pinned policy."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import torch

from graphmem_torch.atoms import MEMORY_TYPES, Atom
from graphmem_torch.config import Config
from graphmem_torch.context.formats import load_format
from graphmem_torch.evaluation.bootstrap import interval_table, mean_interval
from graphmem_torch.memory import Memory
from graphmem_torch.progress import Progress
from graphmem_torch.rank.signals import CENTRALITY
from graphmem_torch.text.embedder import Embedder

from ..common.sets import QuestionSet
from ..common.texts import split_at_marks
from .facts import LITERAL, Needle
from .greedy import kept_whole, nearest_that_fit
from .needles import Essay

__all__ = ["DAYS", "NOISE", "judge_decay", "judge_noise", "random_facts"]
NOISE: tuple[int, ...] = (100, 300, 1000)
"""Numbers of distractors; 100 is the published one."""

_BUDGET = 200  # tokens of the whole context
_POLICY = "Never read a password out to a caller."
_FACTS = 4000  # maximum sentences to draw random facts from
_WORDS = range(6, 31)  # words of a fact
_KEPT = ("needle", "policy", "vector")


def random_facts(sets: Sequence[QuestionSet], essays: Sequence[Essay]) -> list[str]:
    """Return distinct first sentences of passages, else sentences of essays, of usual length."""
    passages = (
        split_at_marks(_body(atom.text))[0]
        for one in sets
        if not one.conversational
        for conversation in one.conversations
        for atom in conversation.atoms
    )
    facts = _usual(passages)
    return sorted(facts or _usual(text for essay in essays for text in essay.sentences))


def _usual(sentences: Iterable[str]) -> set[str]:
    fitting = (" ".join(text.split()) for text in sentences if len(text.split()) in _WORDS)
    return set(islice(fitting, _FACTS))


def _body(passage: str) -> str:
    """Return a passage without the line of its title, if it has one."""
    title, _, text = passage.strip().partition("\n")
    return text.strip() or title


def judge_noise(
    facts: Sequence[str],
    config: Config,
    embedder: Embedder,
    *,
    device: str,
    seed: int,
    levels: Sequence[int] = NOISE,
    progress: bool = False,
) -> dict[str, Any]:
    """Return how often needle and policy are in the context, by number of distractors.

    `vector` counts the needle among the nearest by cosine that fit, one a line.

    Args:
        facts: Texts that distractors are drawn from.
        config: Settings of the memories.
        embedder: Encoder.
        device: Device of the indices.
        seed: Seed of the facts and the intervals.
        levels: Numbers of distractors; those above the number of facts are left out.
        progress: Whether to show a bar.
    """
    report: dict[str, Any] = {"budget": _BUDGET, "trials": len(LITERAL), "noise": {}}
    enough = [level for level in levels if level <= len(facts)]
    for level in Progress(enough, "distractors", shown=progress):
        rows = []
        for turn, needle in enumerate(LITERAL):
            chance = random.Random(1000 * seed + turn)
            drawn = chance.sample(facts, level)
            drawn.insert(chance.randrange(level + 1), needle.text)
            atoms = [Atom(str(i), text, kind="fact") for i, text in enumerate(drawn)]
            policy = Atom("policy", _POLICY, kind="rule", type="procedural")
            with Memory.open(None, config=config, embedder=embedder, device=device) as memory:
                rows.append(_trial(memory, [policy, *atoms], needle))
        kept = torch.tensor(rows, dtype=torch.float64)  # [T, 3]
        more = kept[:, 0] - kept[:, 2]
        report["noise"][str(level)] = {
            **dict(zip(_KEPT, kept.mean(0).tolist(), strict=True)),
            "ci": interval_table(kept, _KEPT, seed=seed),
            "difference": mean_interval(more, seed=seed),
        }
    return report


def _trial(memory: Memory, atoms: Sequence[Atom], needle: Needle) -> list[bool]:
    """Return whether needle and policy are kept, and whether plain vector search has the needle.

    The first of the atoms is the policy.
    """
    memory.add(atoms)
    hidden = next(i for i, atom in enumerate(atoms) if atom.text == needle.text)
    context = memory.compile(needle.question, budget=_BUDGET)
    kept = kept_whole(context, [atoms[0], atoms[hidden]], load_format("text"))
    nearest = nearest_that_fit(memory, atoms, [needle.question], [_BUDGET])[0, 0]
    return [atoms[hidden].id in kept, atoms[0].id in kept, bool(nearest[hidden])]


DAYS: tuple[int, ...] = (0, 1, 7)

_DAY = 86_400.0
_BORN = 1_700_000_000.0  # seconds since the epoch


def judge_decay(config: Config) -> dict[str, dict[str, float]]:
    """Return the strength of a memory of each type by days since its last use, without centrality.

    Measured on a real memory, not computed from the half-lives.
    """
    found = {}
    for name in MEMORY_TYPES:
        with Memory.open(None, config=config, embedder="hashing", device="cpu") as memory:
            memory.add(Atom(id=name, text="A memory.", type=name, time=_BORN))
            # Alone in its memory an atom has the maximum PageRank.
            strength = [
                memory.upkeep.strength(name, as_of=_BORN + day * _DAY)[name] for day in DAYS
            ]
        found[name] = {
            str(day): round(value - CENTRALITY, 6)
            for day, value in zip(DAYS, strength, strict=True)
        }
    return found
