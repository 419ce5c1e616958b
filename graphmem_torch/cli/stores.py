"""Commands of a store: what goes into it and out of it, and what it holds."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, Literal

from tyro.conf import Positional, UseAppendAction, arg

from graphmem_torch.cli.options import (
    MemoryCommand,
    PresetCommand,
    print_json,
    print_text,
    read_lines,
    served_oracle,
)
from graphmem_torch.cli.terminal import counted
from graphmem_torch.errors import InputError, StoreDamagedError
from graphmem_torch.results import Added, Indexed

__all__ = [
    "Check",
    "Classify",
    "Consolidate",
    "Import",
    "Index",
    "ListNamespaces",
    "Reembed",
    "ShowLearned",
    "Stats",
    "WriteReport",
]


@dataclass(frozen=True, kw_only=True)
class Index(MemoryCommand):
    """Bring a store to what files say: run it again when they were edited, moved or deleted.

    Files that have not changed are not read, and what stands in them unchanged is not encoded
    again.

    Attributes:
        files: Text, Markdown, JSON lines, exports of ChatGPT, Claude, Slack, WhatsApp, Telegram and
            Discord (as downloaded, or unpacked), LoCoMo JSON, proof libraries (statements as JSON
            lines, a table of edges beside them), blueprints, folders of these, or `-` for standard
            input.
        format: How to read the files, where the name does not say it; whatsapp-dmy or whatsapp-mdy
            where a chat does not show whether the day comes first.
        input: Of LoCoMo files: the turns only, or also the facts that ship with them.
        prune: Delete what is of files that are gone; otherwise they are listed, and kept.
        dry_run: Say what would be done, and change nothing.
        skip_bad: Leave out files and lines that cannot be used, list them at the end, and exit
            with 3 if there are any.
    """

    creates: ClassVar[bool] = True

    after_interrupt: ClassVar[str] = (
        "what was acknowledged is safe, and running the same command again resumes"
    )

    files: Annotated[Positional[tuple[str, ...]], arg(metavar="FILE ...")] = ()
    format: Annotated[
        Literal["text", "jsonl", "locomo", "whatsapp-dmy", "whatsapp-mdy"] | None,
        arg(metavar="text|jsonl|locomo|whatsapp-dmy|whatsapp-mdy"),
    ] = None
    input: Literal["raw", "observations"] = "raw"
    prune: bool = False
    dry_run: bool = False
    skip_bad: bool = False

    def run(self) -> int:
        """Follows the files and says what has changed; 3 where something was left out."""
        if not self.files:
            raise InputError("expected at least one file or folder to index, got none")
        from graphmem_torch.readers.read import check_paths
        from graphmem_torch.store.folder import DATABASE_NAME

        there = (self.store / DATABASE_NAME).exists()
        if not self.skip_bad and not there:
            check_paths(self.files, self.format)  # before a store is made for nothing
        start = time.perf_counter()
        store = self.store if there or not self.dry_run else None
        with self.open_memory(store, "r" if self.dry_run and there else "w") as memory:
            before = len(memory)
            try:
                done = memory.add_files(
                    self.files,
                    format=self.format,
                    input=self.input,
                    prune=self.prune,
                    dry_run=self.dry_run,
                    skip_bad=self.skip_bad,
                    progress=True,
                )
            except InputError as error:
                stored = counted(len(memory) - before, "memory", "memories")
                told = f" {stored} stored all the same, which the next run passes over;"
                raise InputError(
                    f"{error}.{told if len(memory) > before else ''} --skip-bad leaves out what "
                    "cannot be used"
                ) from error
        self._tell(done, time.perf_counter() - start)
        return 3 if done.skipped else 0

    def _tell(self, done: Indexed, seconds: float) -> None:
        """Says what was new, and which files have changed, moved or gone."""
        if self.json:
            said = {"store": str(self.store), "dry_run": self.dry_run, **asdict(done)}
            said["seconds"] = round(seconds, 3)
            if not self.skip_bad:
                del said["skipped"]
            print_json(said)
            return
        counts = {
            "replaced": done.replaced,
            "deleted": done.deleted,
            "left out": len(done.skipped),
        }
        told = [f"{count:,} {what}" for what, count in counts.items() if count]
        told += [_known(done.known)] if done.known else []
        new = counted(done.new, "memory", "memories")
        would = "would be " if self.dry_run else ""
        taken = "" if self.dry_run else f" in {seconds:.1f} s"
        first = f"{new} {would}added to {self.store}{taken}"
        print_text(", ".join([first, *told]))
        lines = [f"changed  {name}" for name in done.changed]
        lines += [f"moved    {before} -> {now}" for before, now in done.moved]
        lines += [f"deleted  {name}" for name in done.pruned]
        lines += [f"gone     {name} (kept; --prune deletes it)" for name in done.gone]
        lines += [f"not kept {count:,} x {kind}" for kind, count in done.losses.items()]
        if lines:
            print_text("\n".join(lines))
        for reason in done.skipped:
            print_text(f"graphmem: left out: {' '.join(reason.split())}", to_reader=True)


def _known(count: int) -> str:
    return f"{count:,} {'was' if count == 1 else 'were'} there already"


def _tell_added(command: MemoryCommand, added: Added, seconds: float) -> None:
    """Says how much was new in a store."""
    if command.json:
        print_json(
            {
                "store": str(command.store),
                "new": added.new,
                "known": added.known,
                "seconds": round(seconds, 3),
            }
        )
    else:
        known = f", {_known(added.known)}" if added.known else ""
        new = counted(added.new, "memory", "memories")
        print(f"{new} added to {command.store} in {seconds:.1f} s{known}")


@dataclass(frozen=True, kw_only=True)
class Import(MemoryCommand):
    """Read what `graphmem export` wrote into a store; what it already holds is skipped.

    Attributes:
        file: The file to read; `-` is standard input.
    """

    creates: ClassVar[bool] = True
    after_interrupt: ClassVar[str] = Index.after_interrupt

    file: Annotated[Positional[Path], arg(metavar="FILE")]

    def run(self) -> int:
        """Imports the file and says how much was new."""
        from graphmem_torch.memory.exchange import check_export

        start = time.perf_counter()
        with _kept(self.file) as file:
            check_export(file)  # before a store is made for nothing
            with self.open_memory(self.store, "w") as memory:
                added = memory.import_(file, progress=True)
        _tell_added(self, added, time.perf_counter() - start)
        return 0


@contextmanager
def _kept(file: Path) -> Iterator[Path]:
    """A file that can be read more than once: of what comes through a pipe a copy on the disk."""
    if str(file) != "-" and not file.is_fifo():
        yield file
        return
    with TemporaryDirectory() as folder, ExitStack() as stack:
        pipe = sys.stdin.buffer if str(file) == "-" else stack.enter_context(file.open("rb"))
        copy = Path(folder, "standard input" if str(file) == "-" else file.name)
        with copy.open("wb") as whole:
            shutil.copyfileobj(pipe, whole)
        try:
            yield copy
        except InputError as error:  # of the pipe: nobody knows the copy
            raise InputError(str(error).replace(f"{copy.parent}/", "")) from error


@dataclass(frozen=True, kw_only=True)
class Reembed(PresetCommand):
    """Give a store another encoder, `--embedder NAME`, and keep everything else in it.

    Attributes:
        store: Folder of the store; its namespaces come with it.
        json: Print one machine-readable JSON object on standard output.
    """

    after_interrupt: ClassVar[str] = (
        "the store is as it was, and running the same command again resumes"
    )

    store: Annotated[Path, arg(metavar="DIR")]
    json: bool = False

    def run(self) -> int:
        """Encodes all texts anew and says how many there were."""
        if self.embedder is None:
            raise InputError("embedder: expected the name of an encoder, got none; --embedder NAME")
        from graphmem_torch.memory import Memory

        start = time.perf_counter()
        count = Memory.reembed(
            self.store,
            self.embedder,
            preset=self.preset,
            config=self.config,
            device=self.device,
            progress=True,
        )
        seconds = time.perf_counter() - start
        if self.json:
            said = {"store": str(self.store), "encoded": count, "seconds": round(seconds, 3)}
            print_json(said | {"embedder": self.embedder})
        else:
            print_text(f"{self.store}: {count:,} texts encoded by {self.embedder}, {seconds:.1f} s")
        return 0


@dataclass(frozen=True, kw_only=True)
class Consolidate(MemoryCommand):
    """Refine a store: link what waits, reinforce what was used, archive what matters least.

    As the settings under link.every and refine say; by default nothing is archived. Feedback is
    learned from once there is enough that is new.
    """

    def run(self) -> int:
        """Prints what there was to do."""
        with self.open_memory(self.store, "w") as memory:
            done = memory.consolidate()
        if self.json:
            print_json({"store": str(self.store), **asdict(done)})
        else:
            print_text(f"{self.store}: {done}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Classify(MemoryCommand):
    """Find the memory types of memories that state none: by local rules, or by a language model.

    Types decide how fast a memory fades (`contextos`).

    Attributes:
        ids: Ids of memories; by default all without a type that they state or a model has found.
        model: Name of a model, as its server knows it; local rules decide without one, and where it
            gives no usable answer.
        base_url: Of its server, as for `answer`.
        extract: Keep what the model extracts, too: content that is not the text of a memory, as one
            that is derived from it.
    """

    after_interrupt: ClassVar[str] = "what was found before is kept"

    ids: Annotated[Positional[tuple[str, ...]], arg(metavar="ID ...")] = ()
    model: Annotated[str | None, arg(metavar="NAME")] = None
    base_url: Annotated[str | None, arg(metavar="URL")] = None
    extract: bool = False

    def run(self) -> int:
        """Prints how many memories are of each type."""
        if self.extract and self.model is None:
            raise InputError("--extract: expected a model that extracts, got none; add --model")
        with (
            served_oracle(self.model, self.base_url) as oracle,
            self.open_memory(self.store, "w") as memory,
        ):
            done = memory.classify(oracle, self.ids or None, extract=self.extract, progress=True)
        if self.json:
            print_json({"store": str(self.store), **asdict(done)})
            return 0
        found = ", ".join(f"{count:,} {type}" for type, count in done.types.items()) or "nothing"
        parts = [f"{found} found"]
        parts += [f"{done.failed:,} of them by rules, asked again next time"] * bool(done.failed)
        if self.extract:
            parts.append(f"{done.contents:,} memories extracted")
        print_text(f"{self.store}: {'; '.join(parts)}")
        return 0


@dataclass(frozen=True, kw_only=True)
class Stats(MemoryCommand):
    """Count what a store holds.

    Attributes:
        switches: List the regime switches, too: the memories that told of them, and how surely
            (the statistic of `regime.detector`).
    """

    switches: bool = False

    def run(self) -> int:
        """Prints the counts."""
        with self.open_memory(self.store, "r") as memory:
            stats = memory.stats()
            found = memory.switches() if self.switches else []
        if self.switches:
            stats["switches"] = {each.atom: f"{each.statistic:.1f}" for each in found}
        if self.json:
            print_json(stats | ({"switches": [asdict(s) for s in found]} if self.switches else {}))
        else:
            print_text("\n".join(_rows(stats)))
        return 0


@dataclass(frozen=True, kw_only=True)
class ShowLearned(MemoryCommand):
    """Show what a memory has learned from questions and feedback, export or reset it.

    Attributes:
        learn: Learn from the feedback that there is by now, what answers cite included.
        preset_file: Write the settings with it as a preset, for `--preset`.
        reset: Drop these: weights, correction, threshold, feedback.
    """

    learn: bool = False
    preset_file: Annotated[Path | None, arg(metavar="FILE.yaml")] = None
    reset: Annotated[tuple[str, ...], arg(metavar="KIND ...")] = ()

    def run(self) -> int:
        """Prints what was learned, or what became of it."""
        told = []
        with self.open_memory(self.store, "w" if self.reset or self.learn else "r") as memory:
            if self.learn and memory.learn_from_feedback() is None:
                told.append("nothing was learned: it takes 40 questions that tell hits apart")
            if self.preset_file is not None:
                memory.export_preset(self.preset_file)
                told.append(f"the settings are written to {self.preset_file}")
            dropped = memory.reset_learned(*self.reset) if self.reset else 0
            told += [f"dropped: {dropped:,}"] * bool(self.reset)
            learned, feedback = memory.learned(), memory.stats()["feedback"]
        if self.json:
            shown = {"learned": [each.as_dict() for each in learned], "feedback": feedback}
            print_json(shown | ({"dropped": dropped} if self.reset else {}))
        else:
            said = {each.kind: str(each) for each in learned} or {"learned": "nothing"}
            print_text("\n".join([*told, *_rows({**said, "feedback": feedback})]))
        return 0


@dataclass(frozen=True, kw_only=True)
class ListNamespaces(PresetCommand):
    """List the namespaces of a store.

    Attributes:
        store: Folder of the store.
        drop: Delete this namespace and all that is in it, for good, and list none.
        json: Print one machine-readable JSON object on standard output.
    """

    store: Annotated[Positional[Path], arg(metavar="STORE")]
    drop: Annotated[str | None, arg(metavar="NAME")] = None
    json: bool = False

    def run(self) -> int:
        """Prints the names with how many memories each has, or drops one."""
        with self.open_memory(self.store, "r" if self.drop is None else "w") as memory:
            if self.drop is not None:
                memory.drop_namespace(self.drop)
            names = memory.namespaces() if self.drop is None else []
            sizes = {name: len(memory.namespace(name)) for name in names}
        if self.json and self.drop is not None:
            print_json({"dropped": self.drop})
        elif self.json:
            print_json({"namespaces": sizes})
        elif self.drop is not None:
            print_text(f"{self.store}: namespace {self.drop!r} is deleted")
        else:
            print_text("\n".join(_rows(sizes)) or f"{self.store} has no namespaces")
        return 0


@dataclass(frozen=True, kw_only=True)
class Check(MemoryCommand):
    """Check that a store is whole, or holds nothing of what was erased; else the exit code is 1.

    Attributes:
        receipt: Also check that what this receipt of `graphmem forget` names is erased.
        forgotten: Also look in every byte of the folder for texts, one on each line of this file.
    """

    receipt: Annotated[Path | None, arg(metavar="FILE")] = None
    forgotten: Annotated[str | None, arg(metavar="FILE")] = None

    def run(self) -> int:
        """Prints every problem found."""
        try:
            with self.open_memory(self.store, "r") as memory:
                problems = memory.check()
                if self.receipt is not None:
                    problems += memory.check_receipt(self.receipt)
            if self.forgotten is not None:
                from graphmem_torch.store.receipts import find_traces

                problems += find_traces(self.store, read_lines(self.forgotten))
        except StoreDamagedError as error:
            # So damaged that it cannot be opened: that is what was asked.
            problems = [str(error)]
        if self.json:
            print_json({"ok": not problems, "problems": problems})
        elif problems:
            print_text("\n".join(problems))
        else:
            lines = [f"{self.store} is whole"]
            if self.receipt is not None:
                lines.append(f"what {self.receipt} names is erased")
            if self.forgotten is not None:
                lines.append(f"no byte of what {self.forgotten} lists is left")
            print_text("\n".join(lines))
        return 1 if problems else 0


def _rows(values: Mapping[str, Any], indent: int = 0) -> list[str]:
    """A mapping as aligned lines, nested mappings below their name."""
    pad = " " * indent
    names = {key: str(key).replace("_", " ") for key in values}
    column = max(map(len, names.values()), default=0) + 2
    rows = []
    for key, value in values.items():
        if isinstance(value, Mapping) and value:
            rows += [f"{pad}{names[key]}", *_rows(value, indent + 2)]
        else:
            number = isinstance(value, int | float)
            shown = f"{value:,}" if number else str(value or "none")
            rows.append(f"{pad}{names[key]:<{column}}{shown}")
    return rows


@dataclass(frozen=True, kw_only=True)
class WriteReport(MemoryCommand):
    """Write one HTML page, without a network: the graph, its communities, modes and drift.

    Attributes:
        out: The file to write.
        question: A question whose hits the page shows, with scores and reasons; repeatable.
        limit: Nodes that are drawn at most; of more, the best linked are, and the page says so.
    """

    out: Annotated[Path, arg(metavar="FILE")] = Path("report.html")
    question: Annotated[UseAppendAction[tuple[str, ...]], arg(metavar="QUESTION")] = ()
    limit: Annotated[int, arg(metavar="N")] = 50_000

    def run(self) -> int:
        """Writes the page and says where it is."""
        with self.open_memory(self.store, "r") as memory:
            report = memory.report(self.out, questions=self.question, limit=self.limit)
        if self.json:
            print_json(report.as_dict())
        else:
            drawn = f"{report.drawn_nodes:,} of {counted(report.nodes, 'node')}"
            found = counted(report.communities, "community", "communities")
            modes, size = counted(report.modes, "mode"), f"{report.bytes / 1e6:.1f} MB"
            print(f"{report.path}: {drawn}, {found}, {modes}, {size}")
        return 0
