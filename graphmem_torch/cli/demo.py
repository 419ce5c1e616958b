"""`graphmem demo`: graph memory beside a flat search, on a conversation written for it."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from importlib.resources import as_file, files
from typing import TYPE_CHECKING, Any

import click

from graphmem_torch.cli.options import (
    Settings,
    given_settings,
    json_option,
    preset_option,
    settings_options,
)
from graphmem_torch.cli.syntax import COUNT, Leaf, option
from graphmem_torch.cli.terminal import (
    Reply,
    clip,
    context_note,
    hit_lines,
    print_reply,
    side_by_side,
    width,
)
from graphmem_torch.errors import InputError
from graphmem_torch.results import Context, Result

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory

__all__ = ["demo"]
CONTEXT_QUESTION = "Where did Theo meet the young baker he hired?"
CONTEXT_BUDGET = 160


@dataclass(frozen=True)
class SideBySide:
    """One question, asked both ways.

    Attributes:
        question: The question.
        evidence: Ids of the turns that answer it, marked by hand; empty if none does.
        flat: Ids that the flat cosine search ranks first, best first.
        flat_texts: Texts of these turns.
        graph: Result of graph memory.
    """

    question: str
    evidence: tuple[str, ...]
    flat: tuple[str, ...]
    flat_texts: tuple[str, ...]
    graph: Result

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        return own | {"graph": self.graph.as_dict()}

    @property
    def flat_found(self) -> int:
        """Number of evidence turns that the flat search returned."""
        return len(set(self.evidence) & set(self.flat))

    @property
    def graph_found(self) -> int:
        """Number of evidence turns that graph memory returned."""
        return len(set(self.evidence) & {hit.id for hit in self.graph.hits})


@dataclass(frozen=True)
class Demonstration:
    """Content of the demo.

    Attributes:
        turns: Number of turns of the conversation.
        sessions: Number of its sessions.
        seconds: Seconds of indexing, with encoding.
        k: Maximum number of memories that each search returns.
        stats: Counts of `Memory.stats()` after indexing.
        comparisons: Comparisons, one for each question.
        context: Context within a budget for one of the questions.
    """

    turns: int
    sessions: int
    seconds: float
    k: int
    stats: dict[str, Any]
    comparisons: tuple[SideBySide, ...]
    context: Context

    def as_dict(self) -> dict[str, Any]:
        """Return plain JSON values."""
        own = {each.name: getattr(self, each.name) for each in fields(self)}
        compared = [each.as_dict() for each in self.comparisons]
        return own | {"comparisons": compared, "context": asdict(self.context)}


def _questions() -> list[tuple[str, tuple[str, ...]]]:
    lines = (files("graphmem_torch") / "demo_data" / "questions.jsonl").read_text("utf-8")
    rows = [json.loads(line) for line in lines.splitlines()]
    return [(row["question"], tuple(row["evidence"])) for row in rows]


def _flat_search(
    memory: Memory, questions: Sequence[str], turns: Sequence[str], k: int
) -> list[tuple[str, ...]]:
    """Return the ids of the k turns nearest to each question, as a vector store does."""
    from graphmem_torch.ops import topk_cosine

    known = memory.store.known(turns)
    vectors = memory.store.vectors([known[turn][0] for turn in turns]).embeddings
    _, rows = topk_cosine(memory.embedder.encode(questions).pooled, vectors, k)
    return [tuple(turns[row] for row in found) for found in rows.tolist()]


SHOWN = 3
"""Number of questions missed by the flat search that are shown side by side."""


@click.command("demo", cls=Leaf)
@option("-k", type=COUNT, default=5, help="Let each search return N memories.  [default: 5]")
@json_option
@preset_option
@settings_options
@click.pass_context
def demo(ctx: click.Context, k: int, as_json: bool, **own: Any) -> int:
    """Compare graph memory with flat vector search.

    Asks a small conversation both ways. Needs no network and takes less than a minute.
    """
    if not 1 <= k <= 50:
        raise InputError(f"-k: expected a number from 1 to 50, got {k}; write -k 5")
    shown = _shown(given_settings(ctx, own), k)
    return print_reply(Reply(data=shown.as_dict(), text="\n".join(_lines(shown))), as_json=as_json)


def _shown(settings: Settings, k: int) -> Demonstration:
    """Index the conversation in memory and ask every question both ways."""
    from graphmem_torch.readers.read import read_atoms

    start = time.perf_counter()
    with settings.open(None, "w") as memory:
        with as_file(files("graphmem_torch") / "demo_data" / "conversation.jsonl") as path:
            atoms = list(read_atoms([path], tokenizer=memory._state.chunker))
        memory.add(atoms)
        seconds = time.perf_counter() - start

        asked = _questions()
        questions = [question for question, _ in asked]
        flat = _flat_search(memory, questions, [atom.id for atom in atoms], k)
        text = {atom.id: atom.rendered for atom in atoms}
        comparisons = tuple(
            SideBySide(question, evidence, ids, tuple(text[i] for i in ids), result)
            for (question, evidence), ids, result in zip(
                asked, flat, memory.retrieve(questions, k=k), strict=True
            )
        )
        return Demonstration(
            turns=len(atoms),
            sessions=len({atom.session for atom in atoms}),
            seconds=seconds,
            k=k,
            stats=memory.stats(),
            comparisons=comparisons,
            context=memory.compile(CONTEXT_QUESTION, budget=CONTEXT_BUDGET),
        )


def _lines(shown: Demonstration) -> list[str]:
    answerable = [c for c in shown.comparisons if c.evidence]
    better = sorted(
        (c for c in answerable if c.graph_found > c.flat_found),
        key=lambda c: c.flat_found - c.graph_found,
    )
    lines = [
        f"{shown.turns} turns of three friends in {shown.sessions} sessions, read, embedded and "
        f"linked in {shown.seconds:.1f} s.",
        "",
        f"How many of the turns that answer a question are among the first {shown.k}?",
        *_table(answerable),
    ]
    for comparison in better[:SHOWN]:
        lines += ["", "", *_beside(comparison)]
    if better:
        lines += ["", "* answers the question (marked by hand before either search was run)"]
        won = [
            (rank, hit, comparison.question)
            for comparison in better
            for rank, hit in enumerate(comparison.graph.hits, start=1)
            if hit.id in comparison.evidence and hit.id not in comparison.flat
        ]
        # An anchor has no path; a memory that activation reached explains more.
        rank, hit, question = max(won, key=lambda found: len(found[1].path))
        lines += [
            "",
            "",
            f"Why graph memory found it: {question}",
            *hit_lines(rank, hit, full=True),
        ]
    for comparison in shown.comparisons:
        if not comparison.evidence:
            missed = "not refused, though nothing here answers it"
            said = missed if comparison.graph.known else "no record of this"
            lines += ["", "", f"A question without an answer: {comparison.question}"]
            lines += [f"confidence {comparison.graph.confidence:.2f}: {said}"]
    lines += ["", "", f"A context for a language model: {shown.context.question}"]
    lines += [f"{context_note(shown.context)}", ""]
    lines += ["  " + line for line in shown.context.text.splitlines()]
    return lines


def _table(comparisons: list[SideBySide]) -> list[str]:
    column = width() - 22
    rows = [f"{'':<{column}}  flat    graph memory"]
    for c in comparisons:
        of = len(c.evidence)
        question = f"{clip(c.question, column - 2):<{column - 2}}"
        rows.append(f"  {question}  {c.flat_found}/{of}     {c.graph_found}/{of}")
    flat = sum(c.flat_found for c in comparisons)
    graph = sum(c.graph_found for c in comparisons)
    of = sum(len(c.evidence) for c in comparisons)
    rows.append(f"  {'all':<{column - 2}}  {flat}/{of}   {graph}/{of}")
    return rows


def _beside(comparison: SideBySide) -> list[str]:
    def column(title: str, ids: tuple[str, ...], texts: tuple[str, ...]) -> list[str]:
        rows = zip(ids, texts, strict=True)
        return [title, *(f"{'*' if i in comparison.evidence else ' '} {t}" for i, t in rows)]

    hits = comparison.graph.hits
    return [
        comparison.question,
        *side_by_side(
            column("  flat cosine search", comparison.flat, comparison.flat_texts),
            column("  graph memory", tuple(h.id for h in hits), tuple(h.text for h in hits)),
        ),
    ]
