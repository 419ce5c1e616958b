"""Commands that ask a store: `graphmem query`, `context`, `explain` and `answer`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from graphmem_torch.cli.options import (
    Target,
    base_url_option,
    expect_archive,
    read_lines,
    served_oracle,
    store_options,
)
from graphmem_torch.cli.syntax import COUNT, JSON, TIME, Leaf, choice, option, time_of
from graphmem_torch.cli.terminal import Reply, context_note, json_text, result_lines, when
from graphmem_torch.errors import InputError, OracleError
from graphmem_torch.results import PRESENT, Result
from graphmem_torch.text.times import parse_span

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory

__all__ = ["answer", "context", "explain", "query"]

SHOWN = 5
"""Hits of a question that `query` prints, unless `-k` says how many."""

_FILTERS = "Filters"
_NAMED = ("k", "kinds", "between", "as_of", "valid_at", "asked", "where", "exclude", "seeds")


def _filtered(*, instants: bool = False) -> Callable[[Callable[..., Reply]], Callable[..., int]]:
    """Add the filters of a question and the options of a store.

    Args:
        instants: Whether the questions may be asked for several times.
    """
    added = (
        option("-k", type=COUNT, help="Find at most N memories.", section=_FILTERS),
        option(
            "--kind",
            "kinds",
            multiple=True,
            metavar="KIND",
            section=_FILTERS,
            help="Find only this kind (turn, chunk, aggregate, ...). Repeatable.",
        ),
        option(
            "--between",
            nargs=2,
            metavar="START END",
            section=_FILTERS,
            help="Find only memories of this span of time, ends included. A time is a date, a "
            "date with a time, or seconds since the epoch.",
        ),
        option(
            "--as-of",
            type=TIME,
            multiple=instants,
            once=not instants,  # elsewhere it is repeatable
            section=_FILTERS,
            help="Ask for what was known at this time.",
        ),
        option(
            "--valid-at",
            type=TIME,
            section=_FILTERS,
            help="Ask for what was true at this time.",
        ),
        option(
            "--asked",
            type=TIME,
            section=_FILTERS,
            help='Count "last week" in the question from this time.',
        ),
        option(
            "--where",
            type=JSON,
            section=_FILTERS,
            help="Find only memories whose fields fit, such as "
            '\'{"speaker": "Nora", "meta.page": {"$gte": 3}}\', with $eq $ne $gt $gte $lt $lte '
            "$in $nin $not $exists $contains $containsAny $containsAll $and $or.",
        ),
        option(
            "--exclude",
            multiple=True,
            metavar="ID",
            section=_FILTERS,
            help="Hide this memory; it still leads to others. Repeatable.",
        ),
        option(
            "--seed-entity",
            "seeds",
            multiple=True,
            metavar="NAME",
            section=_FILTERS,
            help="Start from this concept, too. Repeatable.",
        ),
    )

    def decorate(run: Callable[..., Reply]) -> Callable[..., int]:
        @wraps(run)
        def asked(target: Target, **own: Any) -> Reply:
            filters = {name: own.pop(name) for name in _NAMED}
            if (span := filters["between"]) is not None:
                ends = [time_of(each, "--between") for each in span]
                filters["between"] = parse_span(ends, "--between", said=" ".join(span))
            return run(target, filters=filters, **own)

        command = store_options(asked)
        for each in reversed(added):
            command = each(command)
        return command

    return decorate


def _viewed(memory: Memory, filters: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the view of a memory at the given times, and the other conditions."""
    from graphmem_torch.memory import Scope

    given = dict(filters)
    moments = {name: given.pop(name) for name in ("as_of", "valid_at")}
    conditions = {name: given.pop(name) for name in ("k", "where", "between")}
    scope = {name: value for name, value in given.items() if value not in (None, ())}
    return memory.at(**moments), {**conditions, "scope": Scope(**scope)}


@click.command("query", cls=Leaf)
@click.argument("questions", nargs=-1, metavar="QUESTION ...")
@option(
    "--questions",
    "questions_file",
    metavar="FILE",
    help="Ask the questions in this file, too, one a line; - is standard input.",
)
@option("--full", is_flag=True, help="Print whole texts in place of three lines a hit.")
@option("--archived", is_flag=True, help="Ask the archive instead.")
@option(
    "--plan",
    is_flag=True,
    help="Narrow the search by dates and concepts in the question, and show the steps.",
)
@option(
    "--present",
    is_flag=True,
    help="Ask how things are now: a later memory comes before earlier ones that are like it and "
    "fit about as well. Not beside --plan.",
)
@option(
    "--verify",
    metavar="MODEL",
    help="Ask this language model whether the hits mention an answer; if not, the store has no "
    "record of it.",
)
@base_url_option
@option("--trace", is_flag=True, help="Say how long each stage took and what it looked at.")
@_filtered(instants=True)
def query(
    target: Target,
    filters: dict[str, Any],
    questions: tuple[str, ...],
    questions_file: str | None,
    full: bool,
    archived: bool,
    plan: bool,
    present: bool,
    verify: str | None,
    base_url: str | None,
    trace: bool,
) -> Reply:
    """Find the memories that answer questions, with reasons.

    Prints the best five for each question, three lines each; -k N prints N, --json everything.
    Several questions, and several --as-of, are answered in one batch. QUESTION may be - to read
    standard input.
    """
    if plan and present:
        raise InputError("--present: expected no --plan beside it, got both; leave one of them out")
    asked = _questions(questions, questions_file)
    instants = filters["as_of"]
    filters["as_of"] = [*instants] if len(instants) > 1 else next(iter(instants), None)
    filters["plan"] = PRESENT if present else plan or None
    with served_oracle(verify, base_url) as oracle, target.open("r") as memory:
        view, conditions = _viewed(
            expect_archive(memory.upkeep.archived()) if archived else memory, filters
        )
        found = view.retrieve(asked, oracle=oracle, trace=trace, **conditions)
    rows: list[tuple[Result, dict[str, float]]]
    if len(instants) > 1:
        rows = [
            (result, {"as_of": moment})
            for results in found
            for moment, result in zip(instants, results, strict=True)
        ]
    else:
        rows = [(result, {}) for result in found]
    shown = SHOWN if filters["k"] is None else filters["k"]
    blocks = [
        "\n".join(
            [
                *(f"as of {when(moment)}" for moment in said.values()),
                *result_lines(result, shown=shown, full=full),
            ]
        )
        for result, said in rows
    ]
    more = max(len(result.hits) for result, _ in rows) - shown
    return Reply(
        data=lambda: {"results": [result.as_dict() | said for result, said in rows]},
        text="\n\n\n".join(blocks),
        note=f"graphmem: {more} more with -k {shown + more}" if more > 0 else "",
    )


def _questions(words: tuple[str, ...], file: str | None) -> list[str]:
    """Collect the questions of arguments, of a file and of standard input."""
    questions = []
    for word in words:
        questions += read_lines("-") if word == "-" else [word]
    if file is not None:
        questions += read_lines(file)
    if not questions and not words and not sys.stdin.isatty():
        questions = read_lines("-")
    if not questions:
        raise InputError(
            "QUESTION: expected a question, got none; write it as an argument in quotes, "
            "or give a file of questions with --questions FILE, one a line"
        )
    return questions


@click.command("context", cls=Leaf)
@click.argument("question")
@option(
    "--budget",
    type=COUNT,
    required=True,
    metavar="TOKENS",
    help="Use at most so many tokens for the whole prompt.",
)
@option(
    "--tokenizer",
    metavar="NAME",
    help="Count tokens by this encoding, such as o200k_base, or Hugging Face tokenizer.",
)
@option(
    "--order",
    type=choice("relevance", "time", "topological"),
    help="Order the memories so.  [default: the preset's]",
)
@option(
    "--format",
    type=choice("text", "markdown", "openai", "anthropic", "json"),
    help="Write the prompt in this format.  [default: text]",
)
@option("--template", help="Write the prompt by this text with {context} and {question}.")
@_filtered()
def context(
    target: Target, filters: dict[str, Any], question: str, budget: int, **layout: Any
) -> Reply:
    """Compile the memories a question needs into a prompt.

    The prompt never exceeds the budget. It goes to standard output, messages of a chat as JSON;
    a line about it goes to standard error.
    """
    from graphmem_torch.memory import Layout

    with target.open("r") as memory:
        view, conditions = _viewed(memory, filters)
        made = view.compile(question, budget=budget, layout=Layout(**layout), **conditions)
    text = made.text
    if made.messages:
        system = {} if made.system is None else {"system": made.system}
        text = json_text({**system, "messages": made.messages})
    return Reply(data=made.as_dict(), text=text, note=f"graphmem: {context_note(made)}")


@click.command("explain", cls=Leaf)
@click.argument("question")
@option("--id", metavar="ID", help="Explain the score of this memory.  [default: the best hit]")
@option(
    "--most",
    type=COUNT,
    default=20,
    help="List at most N edges, and as many gradients.  [default: 20]",
)
@_filtered()
def explain(
    target: Target, filters: dict[str, Any], question: str, id: str | None, most: int
) -> Reply:
    """Explain why a memory has its score for a question.

    Shows signals, the strongest paths, gradients in anchors and edges, and the score without each
    other memory.
    """
    with target.open("r") as memory:
        view, conditions = _viewed(memory, filters)
        found = view.explain(question, id, limit=most, **conditions)
    return Reply(data=found.as_dict(), text=str(found))


@click.command("answer", cls=Leaf)
@click.argument("question")
@option(
    "--model",
    required=True,
    metavar="NAME",
    help="Ask this language model; the name is the server's.",
)
@base_url_option
@option(
    "--budget",
    type=COUNT,
    default=2048,
    metavar="TOKENS",
    help="Use at most so many tokens for the prompt.  [default: 2048]",
)
@option(
    "--longest",
    type=COUNT,
    default=512,
    metavar="TOKENS",
    help="Accept at most so many tokens as an answer.  [default: 512]",
)
@option(
    "--verify",
    is_flag=True,
    help="Ask the model first whether the prompt mentions an answer; refuse if it does not.",
)
@_filtered()
def answer(
    target: Target,
    filters: dict[str, Any],
    question: str,
    model: str,
    base_url: str | None,
    budget: int,
    longest: int,
    verify: bool,
) -> Reply:
    """Answer a question by a language model and the memories.

    The answer goes to standard output; the memories that it cites, and a line about the prompt,
    go to standard error. The key is in OPENAI_API_KEY.
    """
    from graphmem_torch.oracle import OpenAIClient, OpenAIOracle

    with (
        OpenAIClient(model, base_url=base_url, max_tokens=longest) as client,
        target.open("r") as memory,
        _quiet("graphmem_torch.memory.contexts"),
    ):
        oracle = OpenAIOracle(client) if verify else None
        view, conditions = _viewed(memory, filters)
        found = view.answer(question, llm=client, budget=budget, oracle=oracle, **conditions)
    if found.text is None:
        raise OracleError(f"no answer: {found.error}")
    cited = [f"graphmem: cites {', '.join(found.cited)}"] if found.cited else []
    return Reply(
        data=found.as_dict(),
        text=found.text,
        note="\n".join([*cited, f"graphmem: {context_note(found.context)}"]),
    )


@contextmanager
def _quiet(name: str) -> Iterator[None]:
    """Silence the warning of a lost answer: the error of the command reports it."""
    log = logging.getLogger(name)
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before
