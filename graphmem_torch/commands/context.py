"""`graphmem context`: a question in, a ready-to-send context within a token budget out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, arg

from graphmem_torch.commands.layout import context_note
from graphmem_torch.commands.options import MemoryCommand, print_json

__all__ = ["CompileContext"]


@dataclass(frozen=True, kw_only=True)
class CompileContext(MemoryCommand):
    """Compile the memories that a question needs into one text, never over the budget.

    The text goes to standard output, a line about it to standard error.

    Attributes:
        question: The question.
        budget: Tokens the text may have.
        k: How many memories to choose from; the preset's number by default.
    """

    question: Annotated[Positional[str], arg(metavar="QUESTION")]
    budget: Annotated[int, arg(metavar="TOKENS")]
    k: Annotated[int | None, arg(metavar="N")] = None

    def run(self) -> int:
        """Prints the context."""
        with self.open_memory("r") as memory:
            context = memory.compile(self.question, budget=self.budget, k=self.k)
        if self.json:
            print_json(context.as_dict())
        else:
            print(context.text)
            print(f"graphmem: {context_note(context)}", file=sys.stderr)
        return 0
