"""Measure the evidence left in the compiled prompt, by summariser and budget."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.context.summarise import Shorten, Summaries
from graphmem_torch.memory import Layout
from graphmem_torch.results import Context

from ..common.texts import split_at_marks
from .chunked import TOKENS, Chunked, holds_answer, told_answers
from .documents import Asked, Document

__all__ = ["SUMMARIES", "judge_prompts", "lead", "summaries_of"]
SUMMARIES: Mapping[str, tuple[str, float]] = {
    "whole": ("extract", 1.0),
    "extract 0.7": ("extract", 0.7),
    "extract 0.5": ("extract", 0.5),
    "extract 0.25": ("extract", 0.25),
    "lead 0.5": ("lead", 0.5),
    "lead 0.25": ("lead", 0.25),
}
"""Summarisers by name, each with the maximum share of its tokens that a chunk keeps."""


def lead(texts: Sequence[str], question: str, max_tokens: int) -> list[str]:
    """Return the first words of each text: the plain cut. Four tokens count as three words."""
    return [" ".join(text.split()[: max(1, max_tokens * 3 // 4)]) for text in texts]


def summaries_of(name: str) -> Shorten:
    """Return one of `SUMMARIES` as `shorten` of `Memory.compile`."""
    by, share = SUMMARIES[name]
    if share == 1.0:
        return lambda question, texts: list(texts)
    return Summaries(share, by=lead if by == "lead" else None)


def judge_prompts(cases: Sequence[Chunked]) -> dict[str, Any]:
    """Measure the prompts of the memory under test for each summariser.

    Returns:
        At each budget of the whole prompt:

        - `kept`: share of the sentences of all evidence that it holds word for word;
        - `answer`: whether it holds an accepted answer;
        - `chunks` and `tokens`: means of their numbers;
        - `over_budget`: number of prompts that were too long.
    """
    return {name: _judge(cases, summaries_of(name)) for name in SUMMARIES}


def _judge(cases: Sequence[Chunked], shorten: Shorten) -> dict[str, Any]:
    rows = []
    for case in cases:
        curves = case.memory.compile(
            case.questions, budget=list(TOKENS), layout=Layout(shorten=shorten)
        )
        for asked, curve in zip(case.document.questions, curves, strict=True):
            rows.append([_held(context, case.document, asked) for context in curve])
    values = torch.tensor(rows, dtype=torch.float64)  # [Q, W, 5]
    table: dict[str, Any] = {}
    for place, name in enumerate(("kept", "answer", "chunks", "tokens")):
        table[name] = _by_budget(values[..., place].nanmean(0))
    table["over_budget"] = int(values[..., 4].sum())
    return table


def _held(context: Context, document: Document, asked: Asked) -> list[float]:
    text = " ".join(context.text.split())
    wanted = [
        " ".join(sentence.split())
        for start, end in asked.gold
        for sentence in split_at_marks(document.text[start:end].strip())
    ]
    kept = sum(sentence in text for sentence in wanted) / max(1, len(wanted))
    return [
        kept if wanted else float("nan"),
        holds_answer(text, told_answers(asked)),
        float(len(context.sources)),
        float(context.tokens),
        float(context.tokens > context.budget),
    ]


def _by_budget(means: Tensor) -> dict[str, float | None]:  # [W]
    return {
        str(at): None if each != each else each
        for at, each in zip(TOKENS, means.tolist(), strict=True)
    }
