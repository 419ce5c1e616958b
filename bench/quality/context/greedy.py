"""Baselines of selection: the longest prefix of a ranking, and ContextOS's published greedy."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.context.formats import Format
from graphmem_torch.memory import Memory
from graphmem_torch.results import Context
from graphmem_torch.text.tokens import count_tokens

from ..common.rankings import rank_candidates

__all__ = [
    "fill_by_density",
    "kept_part",
    "kept_whole",
    "line_costs",
    "nearest_that_fit",
    "prefix",
    "skipping",
]

_RUN = 3  # minimum words of a common run: shorter ones occur in other texts as well


def line_costs(atoms: Sequence[Atom], tokenizer: str) -> Tensor:  # [N] int64
    """Return the tokens of each atom as a line, line feed included."""
    return torch.tensor(count_tokens([atom.rendered for atom in atoms], tokenizer)) + 1


def nearest_that_fit(
    memory: Memory, atoms: Sequence[Atom], questions: Sequence[str], budgets: Sequence[int]
) -> Tensor:  # [B, K, N] bool
    """Return plain vector search: the atoms of largest cosine, one a line, until one does not fit.

    Args:
        memory: Memory that holds the atoms; its tokenizer counts.
        atoms: N candidates.
        questions: B questions.
        budgets: K budgets in tokens.
    """
    rows = memory.tensors.rows([atom.id for atom in atoms])
    cosine = memory.tensors.encode(questions).embedding @ memory.index.embeddings[rows].float().T
    ranking = rank_candidates(cosine.cpu())
    costs = line_costs(atoms, memory.config.context.tokenizer)
    return prefix(ranking, costs[ranking], torch.tensor(budgets), len(atoms))


def prefix(
    ranking: Tensor,  # [B, L] candidates, best first, -1 = nothing there
    costs: Tensor,  # [B, L] tokens of each, where it stands in the ranking
    budgets: Tensor,  # [K] tokens
    num_candidates: int,
) -> Tensor:  # [B, K, N] bool
    """Return top-k truncation: the best candidates until one does not fit."""
    there = ranking >= 0
    spent = costs.masked_fill(~there, 0).cumsum(1)
    fits = there[:, None] & (spent[:, None] <= budgets[:, None])  # [B, K, L]
    return _of_candidates(fits, ranking, num_candidates)


def skipping(
    ranking: Tensor,  # [B, L] candidates, best first, -1 = nothing there
    costs: Tensor,  # [B, L] tokens of each, where it stands in the ranking
    budgets: Tensor,  # [K] tokens
    num_candidates: int,
) -> Tensor:  # [B, K, N] bool
    """Return stronger top-k truncation: candidates that do not fit are skipped."""
    beyond = costs.masked_fill(ranking < 0, int(budgets.max()) + 1)
    taken = torch.stack([_fill(beyond, int(budget)) for budget in budgets], dim=1)
    return _of_candidates(taken, ranking, num_candidates)


def _of_candidates(taken: Tensor, ranking: Tensor, count: int) -> Tensor:  # [B, K, L] -> [B, K, N]
    # The last column receives missing candidates.
    chosen = torch.zeros(*taken.shape[:2], count + 1, dtype=torch.bool)
    slots = ranking.masked_fill(ranking < 0, count)[:, None].expand_as(taken)
    return chosen.scatter_(2, slots, taken)[:, :, :-1]


def fill_by_density(
    values: Tensor,  # [B, N] >= 0
    costs: Tensor,  # [N] tokens, > 0
    budgets: Tensor,  # [K] tokens
) -> Tensor:  # [B, K, N] bool
    """Return ContextOS's `FillKnapsack` (algorithm 1, lines 10 and 11): by falling value / cost.

    An item that does not fit is skipped. A round takes all next items until one does not fit.
    """
    order = (values / costs).argsort(dim=1, descending=True, stable=True)  # [B, N]
    sorted_costs = costs[order]
    chosen = torch.stack([_fill(sorted_costs, int(budget)) for budget in budgets], dim=1)
    return torch.zeros_like(chosen).scatter_(2, order[:, None].expand_as(chosen), chosen)


def _fill(costs: Tensor, budget: int) -> Tensor:  # [B, N] in order -> [B, N] bool
    left = torch.full((len(costs), 1), budget)
    open_ = torch.ones_like(costs, dtype=torch.bool)
    chosen = torch.zeros_like(open_)
    while True:
        open_ &= costs <= left
        if not bool(open_.any()):
            return chosen
        spent = costs.where(open_, 0).cumsum(1)
        taken = open_ & (spent <= left)
        chosen |= taken
        left = left - costs.where(taken, 0).sum(1, keepdim=True)
        open_ &= ~taken


def kept_whole(context: Context, atoms: Iterable[Atom], layout: Format) -> set[str]:
    """Return the ids of these atoms that are sources and whole in the prompt.

    The rendered prompt is searched. A prompt above its budget keeps nothing.

    Args:
        context: Result of `Memory.compile`.
        atoms: Atoms to look for.
        layout: Format of the context.
    """
    if context.tokens > context.budget:
        return set()
    sources, kept = set(context.sources), set()
    for atom in atoms:
        if atom.id in sources:
            # An entry without its number, which is unknown before its place is.
            entry = layout.entry(1, atom, atom.rendered).partition(" ")[2].rstrip(",\n")
            if entry in context.text:
                kept.add(atom.id)
    return kept


def kept_part(context: Context, atom: Atom) -> float:
    """Return the share of a memory's words that its extract holds; 0 for other memories.

    Only runs of at least three words in the same order count, each word of the prompt once.
    """
    if atom.id not in context.sources or context.tokens > context.budget:
        return 0.0
    words = atom.rendered.split()
    same = SequenceMatcher(None, words, context.text.split(), autojunk=False)
    sizes = [block.size for block in same.get_matching_blocks()]
    return sum(size for size in sizes if size >= _RUN) / max(1, len(words))
