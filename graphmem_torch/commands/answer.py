"""`graphmem answer`: a question in, what a language model says of the memories out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from graphmem_torch.commands.layout import context_note
from graphmem_torch.commands.options import MemoryCommand, print_json
from graphmem_torch.errors import OracleError

__all__ = ["AnswerQuestion"]


@dataclass(frozen=True, kw_only=True)
class AnswerQuestion(MemoryCommand):
    """Answer a question from the memories, by a language model on an OpenAI-compatible server.

    The answer goes to standard output; the memories that it cites, and a line about the prompt, to
    standard error.

    Attributes:
        question: The question.
        model: Name of the model, as the server knows it.
        base_url: Of the server, such as http://127.0.0.1:8080/v1; by default the variable
            OPENAI_BASE_URL, else OpenAI, with the key in OPENAI_API_KEY.
        budget: Tokens the prompt may have.
        k: How many memories to choose from; by default as many as could fit.
        longest: Tokens the answer may have.
    """

    question: Annotated[Positional[str], arg(metavar="QUESTION")]
    model: Annotated[str, arg(metavar="NAME")]
    base_url: Annotated[str | None, arg(metavar="URL")] = None
    budget: Annotated[int, arg(metavar="TOKENS")] = 2048
    k: Annotated[int | None, arg(metavar="N")] = None
    longest: Annotated[int, arg(metavar="TOKENS")] = 512

    def run(self) -> int:
        """Prints the answer."""
        from graphmem_torch.oracle import OpenAIClient

        with (
            OpenAIClient(self.model, base_url=self.base_url, max_tokens=self.longest) as client,
            self.open_memory("r") as memory,
        ):
            answer = memory.answer(self.question, llm=client, budget=self.budget, k=self.k)
        if answer.text is None:
            raise OracleError(f"no answer: {answer.error}")
        if self.json:
            print_json(answer.as_dict())
            return 0
        print(answer.text)
        if answer.cited:
            print(f"graphmem: cites {', '.join(answer.cited)}", file=sys.stderr)
        print(f"graphmem: {context_note(answer.context)}", file=sys.stderr)
        return 0
