"""The commands but `demo`: what goes into a store, what is asked of it, and evaluation."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import Positional, UseAppendAction, arg

from graphmem_torch.cli.layout import atom_lines, context_note, result_lines
from graphmem_torch.cli.options import Command, MemoryCommand, print_json, print_text, read_lines
from graphmem_torch.errors import EmbedderError, InputError, OracleError, StoreDamagedError
from graphmem_torch.quality.request import JUDGES, Request, judge
from graphmem_torch.results import Added
from graphmem_torch.text.times import parse_time

if TYPE_CHECKING:
    from graphmem_torch.atoms import Atom
    from graphmem_torch.memory import Memory

_BASE = "sources.base"  # where a store keeps the folder that its sources are named from

__all__ = [
    "AnswerQuestion",
    "Check",
    "CompileContext",
    "Evaluate",
    "Export",
    "Get",
    "Import",
    "Index",
    "Query",
    "Stats",
    "WriteReport",
]


@dataclass(frozen=True, kw_only=True)
class Index(MemoryCommand):
    """Read files into a store; what it already holds is skipped, so a re-run resumes.

    Attributes:
        files: Text, Markdown, JSON lines, LoCoMo JSON, proof libraries (statements as JSON lines,
            a table of edges beside them), blueprints, folders of these, or `-` for standard input.
        format: How to read the files, where the name does not say it.
        input: Of LoCoMo files: the turns only, or also the facts that ship with them.
        skip_bad: Leave out files and lines that cannot be used, and list them at the end.
    """

    after_interrupt: ClassVar[str] = (
        "what was acknowledged is safe, and running the same command again resumes"
    )

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE ...")] = ()
    format: Literal["text", "jsonl", "locomo"] | None = None
    input: Literal["raw", "observations"] = "raw"
    skip_bad: bool = False

    def run(self) -> int:
        """Indexes the files and says how much was new."""
        if not self.files:
            raise InputError("expected at least one file or folder to index, got none")
        from graphmem_torch.memory.writer import batched
        from graphmem_torch.readers.read import check_paths, read_atoms

        if not self.skip_bad:
            check_paths(self.files, self.format)  # before a store is made for nothing
        origins: dict[str, str] = {}
        skipped: list[str] | None = [] if self.skip_bad else None
        start = time.perf_counter()
        with self.open_memory(self.store, "w") as memory:
            before = len(memory)
            atoms = read_atoms(
                self.files,
                tokenizer=memory.chunker,
                max_tokens=memory.config.embedder.max_tokens,
                format=self.format,
                locomo_input=self.input,
                origins=origins,
                base=_base(memory, self.files),
                known=memory,
                skipped=skipped,
            )
            try:
                if skipped is None:
                    added = memory.add(atoms, progress=True, origins=origins)
                else:
                    added = Added(0, 0)
                    for batch in batched(atoms, memory.config.link.batch):
                        added += _add_sound(memory, batch, origins, skipped)
            except InputError as error:
                stored = len(memory) - before
                raise InputError(
                    f"{error}. Before it {stored:,} memories were stored, and the next run passes "
                    "them over; --skip-bad leaves out what cannot be used"
                ) from error
        _tell_added(self, added, time.perf_counter() - start, skipped)
        return 0


def _base(memory: Memory, files: Sequence[str]) -> Path:
    """The folder that sources of a store are named from, whatever the current one is."""
    from graphmem_torch.readers.read import common_base

    kept = memory.store.meta_get(_BASE)
    if kept is not None and Path(kept).is_dir():
        return Path(kept)
    # Older releases named them from the current folder.
    base = Path.cwd() if kept is None and len(memory) else common_base(files)
    memory.store.meta_set(_BASE, str(base))
    return base


def _add_sound(
    memory: Memory, atoms: list[Atom], origins: Mapping[str, str], skipped: list[str]
) -> Added:
    """Adds a batch without what cannot be stored, such as an id that has other content."""
    try:
        return memory.add(atoms, origins=origins)
    except (InputError, EmbedderError) as error:
        if len(atoms) == 1:
            skipped.append(str(error))
            return Added(0, 0)
        half = len(atoms) // 2
        done = _add_sound(memory, atoms[:half], origins, skipped)
        return done + _add_sound(memory, atoms[half:], origins, skipped)


def _tell_added(
    command: MemoryCommand, added: Added, seconds: float, skipped: list[str] | None = None
) -> None:
    """Says how much was new in a store, and what was left out."""
    if command.json:
        said: dict[str, Any] = {
            "store": str(command.store),
            "new": added.new,
            "known": added.known,
            "seconds": round(seconds, 3),
        }
        print_json(said if skipped is None else said | {"skipped": skipped})
    else:
        known = f", {added.known:,} were there already" if added.known else ""
        noun = "memory" if added.new == 1 else "memories"
        left = f", {len(skipped):,} left out" if skipped else ""
        print(f"{added.new:,} {noun} added to {command.store} in {seconds:.1f} s{known}{left}")
        for reason in skipped or ():
            print_text(f"graphmem: left out: {' '.join(reason.split())}", to_reader=True)


@dataclass(frozen=True, kw_only=True)
class AskingCommand(MemoryCommand):
    """A command that asks a store.

    Attributes:
        k: How many memories for each question, or to choose from; the preset's number, or as many
            as could fit, by default.
        kind: Only memories of this kind (`turn`, `chunk`, `observation`, ...); repeatable.
        between: Only memories of this span of time, ends included. Times are dates (their first
            instant), dates with a time, or seconds since the epoch.
        as_of: Only what had been said by this time; forms as above.
        where: Only memories that fit, such as '{"speaker": "Nora", "meta.page": {"$gte": 3}}', with
            $eq $ne $gt $gte $lt $lte $in $nin $not $and $or.
    """

    k: Annotated[int | None, arg(metavar="N")] = None
    kind: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="KIND")] = ()
    between: Annotated[tuple[str, str] | None, arg(metavar="START END")] = None
    as_of: Annotated[str | None, arg(metavar="TIME")] = None
    where: Annotated[str | None, arg(metavar="JSON")] = None

    def filters(self) -> dict[str, Any]:
        """The arguments of `Memory.retrieve` and its like."""
        from graphmem_torch.readers.source import parse_json

        return {
            "k": self.k,
            "kinds": self.kind or None,
            "between": None if self.between is None else tuple(map(_time, self.between)),
            "as_of": None if self.as_of is None else _time(self.as_of),
            "where": None if self.where is None else parse_json(self.where, "--where"),
        }


@dataclass(frozen=True, kw_only=True)
class Query(AskingCommand):
    """Ask a store; each memory comes with the reasons why it was found.

    Attributes:
        questions: The questions; `-` reads them from standard input, one a line.
        questions_file: A file with one question a line.
    """

    questions: Annotated[Positional[tuple[str, ...]], arg(metavar="QUESTION ...")] = ()
    questions_file: Annotated[str | None, arg(name="questions", metavar="FILE")] = None

    def run(self) -> int:
        """Answers all the questions in one batch."""
        questions, filters = self._questions(), self.filters()
        with self.open_memory(self.store, "r") as memory:
            results = memory.retrieve(questions, **filters)
        if self.json:
            print_json({"results": [result.as_dict() for result in results]})
        else:
            blocks = ["\n".join(result_lines(result)) for result in results]
            print_text("\n\n\n".join(blocks))
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
    order: Literal["relevance", "time", "topological"] | None = None
    format: Literal["text", "markdown", "openai", "anthropic", "json"] | None = None
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
    """

    question: Annotated[Positional[str], arg(metavar="QUESTION")]
    model: Annotated[str, arg(metavar="NAME")]
    base_url: Annotated[str | None, arg(metavar="URL")] = None
    budget: Annotated[int, arg(metavar="TOKENS")] = 2048
    longest: Annotated[int, arg(metavar="TOKENS")] = 512

    def run(self) -> int:
        """Prints the answer."""
        from graphmem_torch.oracle import OpenAIClient

        filters = self.filters()
        with (
            OpenAIClient(self.model, base_url=self.base_url, max_tokens=self.longest) as client,
            self.open_memory(self.store, "r") as memory,
        ):
            answer = memory.answer(self.question, llm=client, budget=self.budget, **filters)
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


@dataclass(frozen=True, kw_only=True)
class Get(MemoryCommand):
    """Show memories by their ids.

    Attributes:
        ids: The ids.
    """

    ids: Annotated[Positional[tuple[str, ...]], arg(metavar="ID ...")] = ()

    def run(self) -> int:
        """Prints the memories, in the order asked for."""
        if not self.ids:
            raise InputError("expected at least one id, got none; `graphmem query` shows ids")
        from graphmem_torch.readers.jsonl import atom_to_record

        with self.open_memory(self.store, "r") as memory:
            atoms = memory.get(self.ids)
        if self.json:
            print_json({"atoms": [atom_to_record(atom) for atom in atoms]})
        else:
            print_text("\n\n".join("\n".join(atom_lines(atom)) for atom in atoms))
        return 0


@dataclass(frozen=True, kw_only=True)
class Export(MemoryCommand):
    """Write the memories of a store as JSON lines, with pins, found types and edges between them.

    Attributes:
        file: The file to write.
        vectors: Also write the vectors, so that a store of the same encoder need not encode again.
    """

    file: Annotated[Positional[Path], arg(metavar="FILE")]
    vectors: bool = False

    def run(self) -> int:
        """Writes the file and says how much is in it."""
        with self.open_memory(self.store, "r") as memory:
            count = memory.export(self.file, vectors=self.vectors)
        if self.json:
            print_json({"file": str(self.file), "atoms": count})
        else:
            noun = "memory" if count == 1 else "memories"
            print(f"{self.file}: {count:,} {noun}, {self.file.stat().st_size / 1e6:.1f} MB")
        return 0


@dataclass(frozen=True, kw_only=True)
class Import(MemoryCommand):
    """Read what `graphmem export` wrote into a store; what it already holds is skipped.

    Attributes:
        file: The file to read.
    """

    after_interrupt: ClassVar[str] = Index.after_interrupt

    file: Annotated[Positional[Path], arg(metavar="FILE")]

    def run(self) -> int:
        """Imports the file and says how much was new."""
        from graphmem_torch.memory.exchange import check_export

        check_export(self.file)  # before a store is made for nothing
        start = time.perf_counter()
        with self.open_memory(self.store, "w") as memory:
            added = memory.import_(self.file, progress=True)
        _tell_added(self, added, time.perf_counter() - start)
        return 0


@dataclass(frozen=True, kw_only=True)
class Stats(MemoryCommand):
    """Count what a store holds."""

    def run(self) -> int:
        """Prints the counts."""
        with self.open_memory(self.store, "r") as memory:
            stats = memory.stats()
        if self.json:
            print_json(stats)
        else:
            print_text("\n".join(_rows(stats)))
        return 0


@dataclass(frozen=True, kw_only=True)
class Check(MemoryCommand):
    """Check that a store is whole; the exit code is 1 where it is not."""

    def run(self) -> int:
        """Prints every problem found."""
        try:
            with self.open_memory(self.store, "r") as memory:
                problems = memory.check()
        except StoreDamagedError as error:
            # So damaged that it cannot be opened: that is what was asked.
            problems = [str(error)]
        if self.json:
            print_json({"ok": not problems, "problems": problems})
        elif problems:
            print_text("\n".join(problems))
        else:
            print(f"{self.store} is whole")
        return 1 if problems else 0


def _rows(values: Mapping[str, Any], indent: int = 0) -> list[str]:
    """A mapping as aligned lines, nested mappings below their name."""
    pad = " " * indent
    names = {key: str(key).replace("_", " ") for key in values}
    column = max(map(len, names.values()), default=0) + 2
    rows = []
    for key, value in values.items():
        if isinstance(value, Mapping):
            rows += [f"{pad}{names[key]}", *_rows(value, indent + 2)]
        else:
            shown = f"{value:,}" if isinstance(value, int | float) else str(value)
            rows.append(f"{pad}{names[key]:<{column}}{shown}")
    return rows


@dataclass(frozen=True, kw_only=True)
class WriteReport(MemoryCommand):
    """Write one HTML page, without a network: the graph, its communities, modes and drift.

    Attributes:
        out: The file to write.
        limit: Nodes that are drawn at most; of more, the best linked are, and the page says so.
    """

    out: Annotated[Path, arg(metavar="FILE")] = Path("report.html")
    limit: Annotated[int, arg(metavar="N")] = 50_000

    def run(self) -> int:
        """Writes the page and says where it is."""
        with self.open_memory(self.store, "r") as memory:
            report = memory.report(self.out, limit=self.limit)
        if self.json:
            print_json(report.as_dict())
        else:
            drawn = f"{report.drawn_nodes:,} of {report.nodes:,} nodes"
            print(
                f"{report.path}: {drawn}, {report.communities:,} communities, "
                f"{report.modes:,} modes, {report.bytes / 1e6:.1f} MB"
            )
        return 0


@dataclass(frozen=True, kw_only=True)
class Evaluate(Command):
    """Measure a preset beside its baselines; writes a JSON file and prints a table.

    Attributes:
        dataset: What to measure on; `custom` is data of your own.
        data: The data set's file, or the folder it is in; not for custom.
        atoms: For custom: a file or folder that `graphmem index` takes.
        questions: For custom: JSON lines with `question` and `evidence`, a list of ids of atoms.
        json: File to write the results to.
        evidence: For locomo and modes: file with repaired evidence ids, one JSON object a line.
        input: For locomo: the turns only, or also the facts that ship with the data set.
        cv: For locomo: refit whatever is fitted for each conversation on all the others.
        seed: Of the bootstrap and of whatever else is drawn.
    """

    dataset: Annotated[Positional[Literal[tuple(JUDGES)]], arg(metavar="|".join(JUDGES))]  # type: ignore[valid-type]
    data: Annotated[Path | None, arg(metavar="PATH")] = None
    atoms: Annotated[Path | None, arg(metavar="FILE")] = None
    questions: Annotated[Path | None, arg(metavar="FILE")] = None
    json: Annotated[Path, arg(metavar="OUT")]
    evidence: Annotated[Path | None, arg(metavar="FILE")] = None
    input: Literal["raw", "observations"] = "raw"
    cv: bool = False
    seed: int = 0

    def run(self) -> int:
        """Runs the evaluation, writes its report and prints the table."""
        # Told now, not after the work.
        if self.json.is_dir():
            raise InputError(
                f"--json: expected a file to write, got the folder {self.json}; name a file"
            )
        if not self.json.parent.is_dir():
            raise InputError(f"--json: expected a file in a folder that exists, got {self.json}")
        data = self._data()
        found = judge(
            self.dataset,
            Request(
                data=data,
                questions=self.questions,
                preset=self.preset,
                config=self.config,
                embedder=self.embedder,
                device=self.device,
                seed=self.seed,
                progress=True,
                evidence=self.evidence,
                input=self.input,
                cv=self.cv,
            ),
        )
        partial = self.json.with_name(self.json.name + ".partial")
        partial.write_text(json.dumps(found.report, indent=1) + "\n", encoding="utf-8")
        partial.replace(self.json)
        print(found.table)
        return 0

    def _data(self) -> Path:
        """What is read: `--atoms` of custom, `--data` of every other data set."""
        own = self.dataset == "custom"
        needed = {"atoms": self.atoms, "questions": self.questions} if own else {"data": self.data}
        for name, value in needed.items():
            if value is None:
                raise InputError(f"--{name}: expected a path, got none; {self.dataset} needs it")
        other = {"data": self.data} if own else {"atoms": self.atoms}
        for name, value in other.items():
            if value is not None:
                raise InputError(f"--{name}: expected nothing for {self.dataset}, got {value}")
        data = self.atoms if own else self.data
        assert data is not None
        return data
