"""Summaries by a sequence-to-sequence model of Hugging Face: BART, T5, Pegasus, ..."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from graphmem_torch.errors import InputError

__all__ = ["HuggingFaceSummariser"]


class HuggingFaceSummariser:
    """Summarises texts in batches with a model that writes one text from another.

    The question is not read: these models know none. What is longer than the model's window is cut.

    Args:
        model: Name or folder that transformers can load ("facebook/bart-large-cnn", "t5-base"), or
            a model that generates.
        tokenizer: Of a model that is given as an object.
        device: "auto" (CUDA where there is one), or a torch device; an object stays where it is.
        prefix: What goes before each text; None: what the model's own settings say ("summarize: "
            of T5).
        batch: Texts at once.
        beams: Beams of the search; 1 is greedy. Nothing is drawn at random.

    Raises:
        InputError: The model cannot be loaded, or is none that generates.
    """

    def __init__(
        self,
        model: Any = "facebook/bart-large-cnn",
        *,
        tokenizer: Any = None,
        device: str = "auto",
        prefix: str | None = None,
        batch: int = 8,
        beams: int = 1,
    ) -> None:
        if batch < 1 or beams < 1:
            raise InputError(f"batch and beams: expected at least 1, got {batch} and {beams}")
        if isinstance(model, str):
            model, tokenizer = _loaded(model)
            if device == "auto":
                device = "cuda" if torch.cuda.is_available() else "cpu"
            model = model.to(device)
        if tokenizer is None or not callable(getattr(model, "generate", None)):
            raise InputError(
                "model: expected the name of a sequence-to-sequence model, or one that generates "
                f"together with its tokenizer, got {type(model).__name__}"
            )
        self._model, self._tokenizer = model.eval(), tokenizer
        self._batch, self._beams = batch, beams
        self._prefix = _own_prefix(model) if prefix is None else prefix
        self._window = _window(model, tokenizer)

    def summarise(self, texts: Sequence[str], question: str, max_tokens: int) -> list[str]:
        """One summary a text, of at most `max_tokens` tokens of the model's own tokenizer."""
        found: list[str] = []
        for start in range(0, len(texts), self._batch):
            part = [self._prefix + text for text in texts[start : start + self._batch]]
            inputs = self._tokenizer(
                part,
                return_tensors="pt",
                padding=True,
                truncation=True,
                max_length=self._window,
                return_token_type_ids=False,
            ).to(self._model.device)
            with torch.inference_mode():
                written = self._model.generate(
                    **inputs,
                    max_new_tokens=max_tokens,
                    min_length=0,
                    num_beams=self._beams,
                    do_sample=False,
                )
            found += self._tokenizer.batch_decode(written, skip_special_tokens=True)
        return found


def _loaded(name: str) -> tuple[Any, Any]:
    try:
        from transformers import AutoModelForSeq2SeqLM, AutoTokenizer

        return AutoModelForSeq2SeqLM.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    except (OSError, ValueError, KeyError, ImportError) as error:
        reason = (str(error).strip() or type(error).__name__).splitlines()[0][:200]
        raise InputError(
            f"model: cannot load {name!r}: {reason}; expected the folder or hub name of a "
            "sequence-to-sequence model"
        ) from error


def _own_prefix(model: Any) -> str:
    tasks = getattr(getattr(model, "config", None), "task_specific_params", None) or {}
    return str((tasks.get("summarization") or {}).get("prefix") or "")


def _window(model: Any, tokenizer: Any) -> int:
    """Tokens that the model reads; a tokenizer without a limit says 10^30."""
    positions = getattr(getattr(model, "config", None), "max_position_embeddings", None)
    return int(min(positions or 1024, getattr(tokenizer, "model_max_length", None) or 1024))
