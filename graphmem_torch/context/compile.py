"""Compiling: from ranked memories to a context that fits a token budget."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from graphmem_torch.context.render import SEPARATOR, render, render_entry
from graphmem_torch.context.select import select_by_density
from graphmem_torch.results import Context, Result
from graphmem_torch.text.tokens import get_counter

__all__ = ["compile_context"]


def compile_context(
    result: Result, order: Sequence[int], *, budget: int, tokenizer: str
) -> Context:
    """The hits of most value per token that fit together, with their sources.

    The value of a hit is its score above the worst hit's.

    Args:
        result: The memories to choose from.
        order: For each hit, its place in the context.
        budget: Tokens of the whole rendered context.
        tokenizer: Name of the tokenizer that counts.

    Raises:
        InputError: A negative budget, or an unknown tokenizer.
    """
    count = get_counter(tokenizer)
    entries = [render_entry(hit) for hit in result.hits]
    costs = torch.tensor([count(entry + SEPARATOR) for entry in entries], dtype=torch.int64)
    scores = torch.tensor([hit.score for hit in result.hits])
    values = scores - scores.min() if len(scores) else scores
    chosen = select_by_density(values, costs, budget).nonzero().squeeze(1).tolist()
    chosen.sort(key=order.__getitem__)
    # Tokens merge across a seam, so the parts do not add up exactly: the whole has the last word.
    while chosen and count(render([entries[i] for i in chosen])) > budget:
        chosen.remove(min(chosen, key=lambda i: float(values[i] / costs[i])))
    text = render([entries[i] for i in chosen])
    kept = set(chosen)
    return Context(
        question=result.question,
        text=text,
        tokens=count(text),
        budget=budget,
        tokenizer=tokenizer,
        sources=tuple(result.hits[i].id for i in chosen),
        omitted=tuple(hit.id for i, hit in enumerate(result.hits) if i not in kept),
        confidence=result.confidence,
        known=result.known,
    )
