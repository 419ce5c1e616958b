"""Commands that ask: `graphmem query`, `context`, `answer`, and `eval` with labelled questions."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import Positional, UseAppendAction, arg

from graphmem_torch.cli.options import (
    Command,
    MemoryCommand,
    print_json,
    print_text,
    read_lines,
    served_oracle,
)
from graphmem_torch.cli.terminal import context_note, result_lines, when
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError, OracleError, output_file
from graphmem_torch.quality.request import COMPARING, JUDGES, Judged, Request, judge
from graphmem_torch.results import PRESENT
from graphmem_torch.text.times import parse_span, parse_time

__all__ = ["AnswerQuestion", "CompileContext", "Evaluate", "Explain", "Query", "time_of"]
_COMPARE = "compare"
_INPUTS = ("data", "atoms", "corpus", "questions", "queries", "qrels")


@dataclass(frozen=True, kw_only=True)
class AskingCommand(MemoryCommand):
    """A command that asks a store.

    Attributes:
        k: How many memories for each question, or to choose from; the preset's number, or as many
            as could fit, by default.
        kind: Only memories of this kind (`turn`, `chunk`, `observation`, ...); repeatable.
            Aggregates are listed only if it is `aggregate`.
        between: Only memories of this span of time, ends included. Times are dates (their first
            instant), dates with a time, or seconds since the epoch.
        as_of: Only what had been said by this time, and as it was known then; forms as above.
        valid_at: Only what was true at this time; forms as above.
        asked: When the questions are asked, from which "last week" in them is reckoned; forms as
            above.
        where: Only memories that fit, such as '{"speaker": "Nora", "meta.page": {"$gte": 3}}', with
            $eq $ne $gt $gte $lt $lte $in $nin $not $exists $contains $containsAny $containsAll
            $and $or.
        exclude: Id of a memory that may not be listed; it still leads to others. Repeatable.
        seed_entity: Name of a concept from which the questions set out too. Repeatable.
    """

    k: Annotated[int | None, arg(metavar="N")] = None
    kind: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KIND")] = ()
    between: Annotated[tuple[str, str] | None, arg(metavar="START END")] = None
    as_of: Annotated[str | None, arg(metavar="TIME")] = None
    valid_at: Annotated[str | None, arg(metavar="TIME")] = None
    asked: Annotated[str | None, arg(metavar="TIME")] = None
    where: Annotated[str | None, arg(metavar="JSON")] = None
    exclude: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="ID")] = ()
    seed_entity: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME")] = ()

    def filters(self) -> dict[str, Any]:
        """The arguments of `Memory.retrieve` and its like."""
        from graphmem_torch.readers.source import parse_json

        return {
            "k": self.k,
            "kinds": self.kind or None,
            "between": self.between
            and parse_span(
                [time_of(each, "--between") for each in self.between],
                "--between",
                said=" ".join(self.between),
            ),
            "as_of": self._instants(),
            "valid_at": None if self.valid_at is None else time_of(self.valid_at, "--valid-at"),
            "asked": None if self.asked is None else time_of(self.asked, "--asked"),
            "where": None if self.where is None else parse_json(self.where, "--where"),
            "exclude": self.exclude,
            "seed_entities": self.seed_entity,
        }

    def _instants(self) -> float | list[float] | None:
        """What is given as `--as-of`."""
        return None if self.as_of is None else time_of(self.as_of, "--as-of")


@dataclass(frozen=True, kw_only=True)
class Query(AskingCommand):
    """Ask a store; each memory comes with the reasons why it was found.

    Attributes:
        as_of: Only what had been said by this time, and as it was known then. Repeatable: the
            questions are answered for each time, in one batch.
        questions: The questions; `-` reads them from standard input, one a line.
        questions_file: A file with one question a line.
        trace: Whether to say how long each stage took, and what it looked at.
        plan: Whether dates and concepts in a question narrow it down, and to say so: a window of
            time, the best in it, what edges lead to from there, each with its number of memories.
        present: Whether it is asked how things are now: a memory gives way to later ones that are
            like it and fit about as well. Not beside a plan.
        archived: Ask what was archived instead.
        verify: Name of a model that is asked whether the memories found mention an answer; where
            they do not, the memory has no record of it.
        base_url: Of its server, as for `answer`.
    """

    questions: Annotated[Positional[tuple[str, ...]], arg(metavar="QUESTION ...")] = ()
    questions_file: Annotated[str | None, arg(name="questions", metavar="FILE")] = None
    trace: bool = False
    as_of: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="TIME")] = ()  # type: ignore[assignment]
    plan: bool = False
    present: bool = False
    archived: bool = False
    verify: Annotated[str | None, arg(metavar="MODEL")] = None
    base_url: Annotated[str | None, arg(metavar="URL")] = None

    def run(self) -> int:
        """Answers all the questions in one batch."""
        if self.plan and self.present:
            raise InputError("--present: expected no --plan beside it; leave one of them out")
        questions, filters = self._questions(), self.filters()
        filters["plan"] = PRESENT if self.present else self.plan or None
        with (
            served_oracle(self.verify, self.base_url) as oracle,
            self.open_memory(self.store, "r") as memory,
        ):
            asked = memory.archived() if self.archived else memory
            if asked is None:
                raise InputError("--archived: expected an archive, got none; leave it out")
            found = asked.retrieve(questions, oracle=oracle, trace=self.trace, **filters)
        instants = filters["as_of"]
        if not isinstance(instants, list):
            rows: list[tuple[Any, dict[str, float]]] = [(result, {}) for result in found]
        else:
            rows = [
                (result, {"as_of": moment})
                for results in found
                for moment, result in zip(instants, results, strict=True)
            ]
        if self.json:
            print_json({"results": [result.as_dict() | asked for result, asked in rows]})
        else:
            blocks = [
                "\n".join([*(f"as of {when(t)}" for t in asked.values()), *result_lines(result)])
                for result, asked in rows
            ]
            print_text("\n\n\n".join(blocks))
        return 0

    def _instants(self) -> float | list[float] | None:
        """One time, or a list of several."""
        times = [time_of(each, "--as-of") for each in self.as_of]
        return times if len(times) > 1 else times[0] if times else None

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


def time_of(text: str, name: str) -> float:
    """A time of the command line: digits are seconds since the epoch, but a year or a date."""
    text = text.strip()
    dated = len(text) in (len("2024"), len("20240204"))
    seconds = text.isascii() and text.isdigit() and not dated
    return parse_time(float(text) if seconds else text, name)


@dataclass(frozen=True, kw_only=True)
class CompileContext(AskingCommand):
    """Compile the memories that a question needs into one prompt, never over the budget.

    The prompt goes to standard output, that of a chat as JSON; a line about it to standard error.

    Attributes:
        question: The question.
        budget: Tokens the whole prompt may have.
        tokenizer: What counts: an encoding such as `o200k_base`, or the folder or owner/name of a
            Hugging Face tokenizer; the preset's by default.
        order: The order of the memories; the preset's by default.
        format: How they are written; the preset's by default.
        template: A prompt with the fields `{context}` and `{question}`.
    """

    question: Annotated[Positional[str], arg(metavar="QUESTION")]
    budget: Annotated[int, arg(metavar="TOKENS")]
    tokenizer: Annotated[str | None, arg(metavar="NAME")] = None
    order: Annotated[
        Literal["relevance", "time", "topological"] | None,
        arg(metavar="relevance|time|topological"),
    ] = None
    format: Annotated[
        Literal["text", "markdown", "openai", "anthropic", "json"] | None,
        arg(metavar="text|markdown|openai|anthropic|json"),
    ] = None
    template: Annotated[str | None, arg(metavar="TEXT")] = None

    def run(self) -> int:
        """Prints the context."""
        filters = self.filters()
        with self.open_memory(self.store, "r") as memory:
            context = memory.compile(
                self.question,
                budget=self.budget,
                tokenizer=self.tokenizer,
                order=self.order,
                format=self.format,
                template=self.template,
                **filters,
            )
        if self.json:
            print_json(context.as_dict())
            return 0
        if context.messages:
            system = {} if context.system is None else {"system": context.system}
            print_json({**system, "messages": context.messages})
        else:
            print_text(context.text)
        print_text(f"graphmem: {context_note(context)}", to_reader=True)
        return 0


@dataclass(frozen=True, kw_only=True)
class Explain(AskingCommand):
    """Say why a memory has its score for a question.

    Signals, the strongest paths, gradients in anchors and edges, and what the score would be
    without each other memory.

    Attributes:
        question: The question.
        id: Of the memory; the best hit by default.
        most: Edges, and gradients in what memories and concepts pass on, that are listed.
    """

    question: Annotated[Positional[str], arg(metavar="QUESTION")]
    id: Annotated[str | None, arg(metavar="ATOM")] = None
    most: Annotated[int, arg(metavar="N")] = 20

    def run(self) -> int:
        """Prints the explanation."""
        filters = self.filters()
        with self.open_memory(self.store, "r") as memory:
            found = memory.explain(self.question, self.id, most=self.most, **filters)
        if self.json:
            print_json(found.as_dict())
        else:
            print_text(str(found))
        return 0


@dataclass(frozen=True, kw_only=True)
class AnswerQuestion(AskingCommand):
    """Answer a question from the memories, by a language model on an OpenAI-compatible server.

    The answer goes to standard output; the memories that it cites, and a line about the prompt, to
    standard error.

    Attributes:
        question: The question.
        model: Name of the model, as the server knows it.
        base_url: Of the server, such as http://127.0.0.1:8080/v1; by default the variable
            OPENAI_BASE_URL, else OpenAI, with the key in OPENAI_API_KEY.
        budget: Tokens the prompt may have.
        longest: Tokens the answer may have.
        verify: Ask the model first whether the context mentions an answer, and refuse where it does
            not, or where the gate is closed.
    """

    question: Annotated[Positional[str], arg(metavar="QUESTION")]
    model: Annotated[str, arg(metavar="NAME")]
    base_url: Annotated[str | None, arg(metavar="URL")] = None
    budget: Annotated[int, arg(metavar="TOKENS")] = 2048
    longest: Annotated[int, arg(metavar="TOKENS")] = 512
    verify: bool = False

    def run(self) -> int:
        """Prints the answer."""
        from graphmem_torch.oracle import OpenAIClient, OpenAIOracle

        filters = self.filters()
        with (
            OpenAIClient(self.model, base_url=self.base_url, max_tokens=self.longest) as client,
            self.open_memory(self.store, "r") as memory,
        ):
            oracle = OpenAIOracle(client) if self.verify else None
            with _untold():
                answer = memory.answer(
                    self.question, llm=client, budget=self.budget, oracle=oracle, **filters
                )
        if answer.text is None:
            raise OracleError(f"no answer: {answer.error}")
        if self.json:
            print_json(answer.as_dict())
            return 0
        print_text(answer.text)
        if answer.cited:
            print_text(f"graphmem: cites {', '.join(answer.cited)}", to_reader=True)
        print_text(f"graphmem: {context_note(answer.context)}", to_reader=True)
        return 0


@contextmanager
def _untold() -> Iterator[None]:
    """Keeps the library from warning of a lost answer: the error of the command says it."""
    log = logging.getLogger("graphmem_torch.memory.contexts")
    before, log.disabled = log.disabled, True
    try:
        yield
    finally:
        log.disabled = before


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Measure presets beside their baselines, or compare two such runs.

    Writes a JSON file and prints a table.

    Attributes:
        dataset: What to measure on; `custom` and `retrieval` are data of your own; `compare` holds
            two runs against each other.
        files: For compare: two files, each a report or rankings.
        preset: Name of a preset, or the path of a YAML file; several, in a list with commas or one
            by one, are held against the same baselines (judges of retrieval).
        data: The data set's file, or the folder it is in; not for custom, retrieval and planning.
        atoms: For custom: a file or folder that `graphmem index` takes.
        questions: For custom: JSON lines with `question` and `evidence`, a list of ids of atoms.
        corpus: For retrieval: JSON lines with `_id`, `title` and `text`.
        queries: For retrieval: JSON lines with `_id` and `text`.
        qrels: For retrieval: lines of query, document and grade between tabs.
        json: File to write the results to.
        rankings: File to write the ranking of every question to, by every system; JSON lines.
        csv: File to write the tables to, for programs (judges of retrieval, and compare).
        latex: File to write the tables to, for papers (the same).
        systems: For compare: one system of each file, in place of all that both have.
        evidence: For locomo and modes: file with repaired evidence ids, one JSON object a line.
        input: For locomo: the turns only, or also the facts that ship with the data set.
        cv: For locomo: refit whatever is fitted for each conversation on all the others; for all:
            show such fits, and those on all other kinds of data, beside the weights as shipped; for
            abstention: also gates that were learned from the other sets.
        ablate: For locomo: the preset without one of its parts after the other, what its gate
            refuses, and the experiments of SYNAPSE's paper, in place of the baselines.
        cache: Folder that keeps encodings from run to run; by default the one that the variable
            GRAPHMEM_CACHE names, else one in the user's cache folder.
        sizes: For growth and forgetting: numbers of atoms at which it is measured; for refinement:
            of sessions.
        seed: Of the bootstrap and of whatever else is drawn.
    """

    dataset: Annotated[
        Positional[Literal[(*JUDGES, _COMPARE)]],  # type: ignore[valid-type]
        arg(metavar="|".join((*JUDGES, _COMPARE))),
    ]
    files: Annotated[Positional[tuple[Path, ...]], arg(metavar="FILE")] = ()
    preset: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="NAME")] = ()
    data: Annotated[Path | None, arg(metavar="PATH")] = None
    atoms: Annotated[Path | None, arg(metavar="FILE")] = None
    questions: Annotated[Path | None, arg(metavar="FILE")] = None
    corpus: Annotated[Path | None, arg(metavar="FILE")] = None
    queries: Annotated[Path | None, arg(metavar="FILE")] = None
    qrels: Annotated[Path | None, arg(metavar="FILE")] = None
    json: Annotated[Path | None, arg(metavar="OUT")] = None
    rankings: Annotated[Path | None, arg(metavar="OUT")] = None
    csv: Annotated[Path | None, arg(metavar="OUT")] = None
    latex: Annotated[Path | None, arg(metavar="OUT")] = None
    systems: Annotated[tuple[str, str] | None, arg(metavar="NAME NAME")] = None
    evidence: Annotated[Path | None, arg(metavar="FILE")] = None
    input: Literal["raw", "observations"] = "raw"
    cv: bool = False
    ablate: bool = False
    cache: Annotated[Path | None, arg(metavar="DIR")] = None
    sizes: Annotated[tuple[int, ...] | None, arg(metavar="N ...")] = None
    seed: int = 0

    def run(self) -> int:
        """Runs the evaluation, writes its report and prints the table."""
        # Told now, not after the work.
        files: dict[Path, str] = {}
        for name in ("json", "rankings", "csv", "latex"):
            if (path := getattr(self, name)) is None:
                continue
            output_file(path, f"--{name}")
            if (other := files.setdefault(path.resolve(), name)) != name:
                raise InputError(
                    f"--{name}: expected another file than that of --{other}, got {str(path)!r}; "
                    "name one for each"
                )
        found = self._compared() if self.dataset == _COMPARE else self._judged()
        if self.json is not None:
            _write(self.json, [json.dumps(found.report, indent=1), "\n"])
        if self.rankings is not None:
            _write(self.rankings, (json.dumps(row) + "\n" for row in found.rankings))
        if self.csv is not None or self.latex is not None:
            from graphmem_torch.quality.common.tables import tables_as_csv, tables_as_latex

            if self.csv is not None:
                _write(self.csv, [tables_as_csv(found.tables)])
            if self.latex is not None:
                _write(self.latex, [tables_as_latex(found.tables)])
        print(found.table)
        return 0

    def _judged(self) -> Judged:
        if self.json is None:
            raise InputError("--json: expected a file for the report, got none; name one")
        for name, given in (("compare's FILE", self.files), ("--systems", self.systems)):
            if given:
                raise InputError(
                    f"{name}: expected nothing for {self.dataset}, got {given}; it is for compare"
                )
        for name, path in (("csv", self.csv), ("latex", self.latex)):
            if path is not None and self.dataset not in COMPARING:
                raise InputError(
                    f"--{name}: expected nothing for {self.dataset}, got {path}; it is for "
                    f"{', '.join(sorted((*COMPARING, _COMPARE)))}"
                )
        first, *others = self._presets()
        return judge(
            self.dataset,
            Request(
                data=self._data(),
                questions=self.questions,
                queries=self.queries,
                qrels=self.qrels,
                preset=first.name,
                config=first,
                others=tuple(others),
                rankings=self.rankings is not None,
                embedder=self.embedder,
                device=self.device,
                seed=self.seed,
                progress=True,
                evidence=self.evidence,
                input=self.input,
                cv=self.cv,
                ablate=self.ablate,
                cache=self.cache,
                sizes=self.sizes,
            ),
        )

    def _presets(self) -> list[Config]:
        """The settings of every preset, each with the overrides of the command line."""
        named = [name.strip() for given in self.preset for name in given.split(",")]
        presets = [name for name in named if name] or ["default"]
        return [load_config(name, self.overrides) for name in presets]

    def _compared(self) -> Judged:
        """Two runs, held against each other."""
        from graphmem_torch.quality.comparison import compare

        if len(self.files) != 2:
            raise InputError(f"compare: expected two files, got {len(self.files)}; name both")
        plain = Evaluate(dataset=_COMPARE)
        for name in (*_INPUTS, "preset", "rankings", "evidence", "input", "cv", "ablate", "sizes"):
            given = getattr(self, name)
            if given != getattr(plain, name):
                raise InputError(f"--{name}: expected nothing for {_COMPARE}, got {given}")
        return compare(*self.files, systems=self.systems, seed=self.seed)

    def _data(self) -> Path:
        """What is read: `--atoms` of custom, `--corpus` of retrieval, else `--data`.

        Of planning, which reads nothing, the present folder.
        """
        own = {"custom": "atoms", "retrieval": "corpus", "planning": ""}.get(self.dataset, "data")
        needed = {"custom": ("questions",), "retrieval": ("queries", "qrels")}.get(self.dataset, ())
        for name in filter(None, (own, *needed)):
            if getattr(self, name) is None:
                raise InputError(f"--{name}: expected a path, got none; {self.dataset} needs it")
        for name in _INPUTS[:3]:
            value = getattr(self, name)
            if name != own and value is not None:
                raise InputError(f"--{name}: expected nothing for {self.dataset}, got {value}")
        data = getattr(self, own) if own else Path()
        assert isinstance(data, Path)
        return data


def _write(path: Path, parts: Iterable[str]) -> None:
    """Writes a file whole, or leaves what was there."""
    partial = path.with_name(path.name + ".partial")
    with partial.open("w", encoding="utf-8") as stream:
        stream.writelines(parts)
    partial.replace(path)
