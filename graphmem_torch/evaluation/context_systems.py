"""What each system puts into a context of so many tokens: ours, top-k truncation, ContextOS."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import chain

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.context.formats import load_format
from graphmem_torch.context.ledger import Ledger
from graphmem_torch.evaluation.arena import Arena
from graphmem_torch.evaluation.context_curves import CURVE
from graphmem_torch.evaluation.context_greedy import (
    fill_by_density,
    line_costs,
    prefix,
    skipping,
)
from graphmem_torch.evaluation.context_whole import kept_whole
from graphmem_torch.evaluation.metrics import rank_candidates
from graphmem_torch.evaluation.systems import BASELINES

__all__ = ["SYSTEMS", "chosen_by", "entry_costs"]

SYSTEMS: Mapping[str, str] = {
    "top-k dense": "the best by cosine up to the first that does not fit, written as ours",
    "top-k dense, plain": "the same, a line each, with nothing around it",
    "top-k dense, skipping": "the same, and what does not fit is passed over",
    "top-k own": "the best by the preset's own score, likewise, written as ours",
    "contextos greedy": "50 cosine + 10 PageRank decay, by value per token, plain (published)",
}
"""The baselines; the preset's own name stands for the whole of `Memory.compile`."""

_STEP = 64  # questions at once: their choices are [64, 13, N] bool


def chosen_by(arena: Arena, *, subject: str) -> dict[str, list[Tensor]]:
    """For each system its choices: tiles of [B, len(CURVE), N] bool, N candidates.

    Args:
        arena: Candidates and questions.
        subject: Name of the preset under test.
    """
    found: dict[str, list[Tensor]] = {name: [] for name in (subject, *SYSTEMS)}
    plain = line_costs(_atoms(arena, arena.ids), arena.memory.config.context.tokenizer)
    for start in range(0, len(arena.questions), _STEP):
        asked = slice(start, start + _STEP)
        found[subject].append(_compiled(arena, asked))
        for name, chosen in _baselines(arena, asked, plain).items():
            found[name].append(chosen)
    return found


def entry_costs(
    arena: Arena,
    ranking: Tensor,  # [B, L] candidates, best first, -1 = none
) -> Tensor:  # [B, L] int64 tokens
    """What each costs where it stands in the ranking, as the compiler writes it.

    The first one of a group pays for its header.
    """
    settings = arena.memory.config.context
    ledger = Ledger(load_format(settings.format), settings.tokenizer, inline=False)
    known = arena.memory.store.known(arena.ids)
    nodes = torch.tensor([known[name][0] for name in arena.ids])
    ledger.learn(nodes, arena.memory.store.atoms)
    group = ledger.groups[nodes][ranking.clamp(min=0)].masked_fill(ranking < 0, -1)
    costs = ledger.costs[nodes][ranking.clamp(min=0)]
    # Stable: of a group the best comes first.
    ordered, order = group.sort(dim=1, stable=True)
    first = torch.nn.functional.pad(ordered[:, 1:] != ordered[:, :-1], (1, 0), value=True)
    leads = torch.zeros_like(first).scatter_(1, order, first) & (group > 0)
    return costs + ledger.header_costs[group.clamp(min=0)] * leads


def _atoms(arena: Arena, ids: Sequence[str]) -> list[Atom]:
    known = arena.memory.store.known(ids)
    return arena.memory.store.atoms([known[name][0] for name in ids])


def _compiled(arena: Arena, asked: slice) -> Tensor:  # [B, K, N] bool
    """The gold that stands whole in the contexts; nothing else of them is asked for."""
    curves = arena.memory.compile(arena.questions[asked], budget=list(CURVE))
    wanted = arena.evidence[asked]
    known = {atom.id: atom for atom in _atoms(arena, sorted(set(chain(*wanted))))}
    layout = load_format(arena.memory.config.context.format)
    kept = arena.positions(
        [
            sorted(kept_whole(context, [known[name] for name in gold], layout))
            for gold, curve in zip(wanted, curves, strict=True)
            for context in curve
        ]
    )
    chosen = torch.zeros(len(kept), len(arena.ids) + 1, dtype=torch.bool)
    chosen.scatter_(1, kept.masked_fill(kept < 0, len(arena.ids)), True)
    return chosen[:, :-1].view(len(wanted), len(CURVE), -1)


def _baselines(arena: Arena, asked: slice, plain: Tensor) -> dict[str, Tensor]:
    budgets, count = torch.tensor(CURVE), len(arena.ids)
    questions = arena.questions[asked]
    deepest = max(CURVE) // int(plain.min())
    ranked = rank_candidates(BASELINES["dense"](arena, questions))
    dense = ranked[:, :deepest]
    results = arena.memory.retrieve(questions, k=max(CURVE) // 8)
    own = arena.positions([[hit.id for hit in result.hits] for result in results])
    utility = BASELINES["contextos"](arena, questions)
    return {
        "top-k dense": prefix(dense, entry_costs(arena, dense), budgets, count),
        "top-k dense, plain": prefix(dense, plain[dense.clamp(min=0)], budgets, count),
        "top-k dense, skipping": skipping(ranked, plain[ranked.clamp(min=0)], budgets, count),
        "top-k own": prefix(own, entry_costs(arena, own), budgets, count),
        "contextos greedy": fill_by_density(utility, plain, budgets),
    }
