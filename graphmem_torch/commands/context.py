"""`graphmem context`: a question in, a ready-to-send context within a token budget out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated, Literal

from tyro.conf import Positional, arg

from graphmem_torch.commands.layout import context_note
from graphmem_torch.commands.options import MemoryCommand, print_json

__all__ = ["CompileContext"]


@dataclass(frozen=True, kw_only=True)
class CompileContext(MemoryCommand):
    """Compile the memories that a question needs into one prompt, never over the budget.

    The prompt goes to standard output, that of a chat as JSON; a line about it to standard error.

    Attributes:
        question: The question.
        budget: Tokens the whole prompt may have.
        k: How many memories to choose from; by default as many as could fit.
        tokenizer: What counts: an encoding such as `o200k_base`, or the folder or owner/name of a
            Hugging Face tokenizer; the preset's by default.
        order: The order of the memories; the preset's by default.
        format: How they are written; the preset's by default.
        template: A prompt with the fields `{context}` and `{question}`.
    """

    question: Annotated[Positional[str], arg(metavar="QUESTION")]
    budget: Annotated[int, arg(metavar="TOKENS")]
    k: Annotated[int | None, arg(metavar="N")] = None
    tokenizer: Annotated[str | None, arg(metavar="NAME")] = None
    order: Literal["relevance", "time", "topological"] | None = None
    format: Literal["text", "markdown", "openai", "anthropic", "json"] | None = None
    template: Annotated[str | None, arg(metavar="TEXT")] = None

    def run(self) -> int:
        """Prints the context."""
        with self.open_memory("r") as memory:
            context = memory.compile(
                self.question,
                budget=self.budget,
                k=self.k,
                tokenizer=self.tokenizer,
                order=self.order,
                format=self.format,
                template=self.template,
            )
        if self.json:
            print_json(context.as_dict())
            return 0
        if context.messages:
            system = {} if context.system is None else {"system": context.system}
            print_json({**system, "messages": context.messages})
        else:
            print(context.text)
        print(f"graphmem: {context_note(context)}", file=sys.stderr)
        return 0
