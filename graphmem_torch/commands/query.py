"""`graphmem query`: questions in, ranked memories out."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Annotated

from tyro.conf import Positional, UseAppendAction, arg

from graphmem_torch.commands.layout import result_lines
from graphmem_torch.commands.options import MemoryCommand, print_json, read_lines
from graphmem_torch.errors import InputError
from graphmem_torch.text.times import parse_time

__all__ = ["Query"]


@dataclass(frozen=True, kw_only=True)
class Query(MemoryCommand):
    """Ask a store; each memory comes with the reasons why it was found.

    Attributes:
        questions: The questions; `-` reads them from standard input, one a line.
        questions_file: A file with one question a line.
        k: How many memories for each question; the preset's number by default.
        kind: Only memories of this kind (`turn`, `chunk`, `observation`, ...); repeatable.
        between: Only memories of this span of time, ends included. Times are dates (their first
            instant), dates with a time, or seconds since the epoch.
        as_of: Only what had been said by this time; forms as above.
    """

    questions: Annotated[Positional[tuple[str, ...]], arg(metavar="QUESTION ...")] = ()
    questions_file: Annotated[str | None, arg(name="questions", metavar="FILE")] = None
    k: Annotated[int | None, arg(metavar="N")] = None
    kind: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KIND")] = ()
    between: Annotated[tuple[str, str] | None, arg(metavar="START END")] = None
    as_of: Annotated[str | None, arg(metavar="TIME")] = None

    def run(self) -> int:
        """Answers all the questions in one batch."""
        questions = self._questions()
        between = None
        if self.between is not None:
            between = (_time(self.between[0]), _time(self.between[1]))
        as_of = None if self.as_of is None else _time(self.as_of)
        with self.open_memory("r") as memory:
            results = memory.retrieve(
                questions,
                k=self.k,
                kinds=self.kind or None,
                between=between,
                as_of=as_of,
            )
        if self.json:
            print_json({"results": [result.as_dict() for result in results]})
        else:
            blocks = ["\n".join(result_lines(result)) for result in results]
            print("\n\n\n".join(blocks))
        return 0

    def _questions(self) -> list[str]:
        questions = []
        for question in self.questions:
            questions += read_lines("-") if question == "-" else [question]
        if self.questions_file is not None:
            questions += read_lines(self.questions_file)
        if not questions and not self.questions and not sys.stdin.isatty():
            questions = read_lines("-")
        if not questions:
            raise InputError(
                "expected a question, got none; write it as an argument in quotes, "
                "or give a file of questions with --questions FILE, one a line"
            )
        return questions


def _time(text: str) -> float:
    """A time of the command line, where seconds since the epoch are digits; eight are a date."""
    text = text.strip()
    seconds = text.isascii() and text.isdigit() and len(text) != len("20240204")
    return parse_time(float(text) if seconds else text)
