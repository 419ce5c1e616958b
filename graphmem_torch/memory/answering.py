"""Answering: from a question through the best prompt that fits to what a language model says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, overload

from graphmem_torch.context.formats import load_format
from graphmem_torch.errors import InputError
from graphmem_torch.memory.compiling import CompilingMemory, FormatName
from graphmem_torch.results import Answer, Context

__all__ = ["AnsweringMemory"]

_log = logging.getLogger(__name__)

_CHATS = ("openai", "anthropic")
_PROMPT = (
    "Answer the question from the numbered memories.\n\n{context}\n\nQuestion: {question}\nAnswer:"
)


class AnsweringMemory(CompilingMemory):
    """What closes the loop of `docs/mathematics.md` 3: y = f_llm(P)."""

    @overload
    def answer(
        self,
        question: str,
        *,
        llm: Any,
        budget: int = 2048,
        format: FormatName | None = None,
        template: str | Mapping[str, str] | None = None,
        **options: Any,
    ) -> Answer: ...

    @overload
    def answer(
        self,
        question: Sequence[str],
        *,
        llm: Any,
        budget: int = 2048,
        format: FormatName | None = None,
        template: str | Mapping[str, str] | None = None,
        **options: Any,
    ) -> list[Answer]: ...

    def answer(
        self,
        question: str | Sequence[str],
        *,
        llm: Any,
        budget: int = 2048,
        format: FormatName | None = None,
        template: str | Mapping[str, str] | None = None,
        **options: Any,
    ) -> Answer | list[Answer]:
        """Compiles the memories for a question and asks a language model.

        A model that fails or answers something that is no text costs the answer and nothing else:
        `Answer.error` says why, with a warning, and the context is there all the same.

        Args:
            question: One question, or several.
            llm: A function from a prompt to a text, or a client with `complete` or `complete_all`,
                such as `oracle.OpenAIClient`. In the formats of chats it gets messages, for
                Anthropic with the system message first; in the others a text.
            budget: Tokens of the whole prompt; the answer comes on top.
            format: As in `compile`; by default `openai` for a client, else the settings', and the
                prompt of the text formats then asks the question.
            template: As in `compile`; it asks the question.
            options: Further arguments of `compile`: `k`, `tokenizer`, `order`, `kinds`, `between`,
                `as_of`, `shorten`.

        Raises:
            InputError: As `compile`; something that cannot be asked; a template without
                `{question}`.
        """
        complete = getattr(llm, "complete", llm)
        if not callable(complete):
            raise InputError(
                f"llm: expected a function from a prompt to a text, or a client, got {llm!r}; "
                'for a server, oracle.OpenAIClient("model", base_url=...)'
            )
        if format is None:
            format = "openai" if complete is not llm else self.config.context.format
        template = self.config.context.template or None if template is None else template
        if not template and format not in _CHATS:
            template = _PROMPT
        _check_asks(format, template)
        if not isinstance(budget, int):
            raise InputError(f"budget: expected one whole number of tokens, got {budget!r}")
        asked = [question] if isinstance(question, str) else list(question)
        contexts = self.compile(asked, budget=budget, format=format, template=template, **options)
        prompts = [_prompt(context) for context in contexts]
        every = getattr(llm, "attempt_all", None) or getattr(llm, "complete_all", None)
        said = _ask_all(every, prompts) if callable(every) else [_ask(complete, p) for p in prompts]
        answers = [
            Answer(context.question, text, context, error)
            for context, (text, error) in zip(contexts, said, strict=True)
        ]
        for lost in (each for each in answers if each.error is not None):
            _log.warning("No answer to %.80r: %s", lost.question, lost.error)
        return answers[0] if isinstance(question, str) else answers


_Said = tuple[str | None, str | None]  # text, error


def _prompt(context: Context) -> str | list[dict[str, str]]:
    """What is sent: a text, or the messages of a chat."""
    if not context.messages:
        return context.text
    system = [] if context.system is None else [{"role": "system", "content": context.system}]
    return [*system, *context.messages]


def _ask(complete: Callable[[Any], Any], prompt: Any) -> _Said:
    try:
        return _read(complete(prompt))
    except Exception as error:  # whatever a caller's function raises
        return None, f"{type(error).__name__}: {error}"


def _ask_all(every: Callable[[Any], Any], prompts: Sequence[Any]) -> list[_Said]:
    """Asks a client that takes many at once; one that is an error or None is lost."""
    if not prompts:
        return []
    try:
        answers = list(every(prompts))
    except Exception as error:
        return [(None, f"{type(error).__name__}: {error}")] * len(prompts)
    if len(answers) != len(prompts):
        return [(None, f"expected {len(prompts)} answers, got {len(answers)}")] * len(prompts)
    return [_read(answer) for answer in answers]


def _read(answer: object) -> _Said:
    if isinstance(answer, Exception):
        return None, f"{type(answer).__name__}: {answer}"
    if isinstance(answer, str) and answer.strip():
        return answer.strip(), None
    return None, f"expected a text, got {answer!r:.80}"


def _check_asks(format: FormatName, template: str | Mapping[str, str] | None) -> None:
    """Refuses a template that does not ask the question."""
    if not any(text.count("question") for text in load_format(format, template).templates.values()):
        raise InputError(
            "template: expected the field {question}, for a model is to answer it, got "
            f"{template!r:.80}"
        )
