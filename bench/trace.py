"""Measure the surface and the structure of the package: members, sizes, calls, start-up, prose.

`python -m bench.trace [--rounds 5] [--json OUT]`

Finds everything by introspection from `graphmem_torch.Memory`, so that figures compare across
renamings. Traces calls with `sys.setprofile`, with the hashing encoder, concepts by pattern, and a
made-up memory of 40 turns, where every question scores all atoms. The calls run once before they
are traced, so that one-time loading does not count.
"""

from __future__ import annotations

import ast
import inspect
import os
import pydoc
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from statistics import median
from types import FrameType
from typing import Any

import graphmem_torch
from bench.command import command
from bench.quality.common.measure import code_version
from graphmem_torch import Memory, load_config

__all__ = [
    "Calls",
    "Fragment",
    "Trace",
    "fragments",
    "main",
    "members",
    "parts",
    "run",
    "settings",
    "sizes",
    "traced",
]

_FOLDER = Path(graphmem_torch.__file__).parent
_ROOT = _FOLDER.parent
_LONG = 600  # lines of a file, as the house rule says

_SPEAKERS = ("Ada", "Boris", "Clara")
_TEXTS = (
    "I moved to Lisbon in May and rent a flat near the river.",
    "My sister Clara plays the violin in the city orchestra.",
    "We repaired the red canoe before the summer trip to Lake Como.",
    "Boris works as a nurse at the hospital in Porto.",
)
_QUESTION = "Where does Ada live, and who plays the violin?"
_BUDGET = 200  # tokens of the compiled context

# A comprehension is a frame of its own before Python 3.12 only, and `<module>` is an import.
_NO_FUNCTION = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<module>"})

_GROUPS = ((), ("store",), ("atoms",))
"""Words before the name of a command; a command is looked for in this order."""

_FRAGMENT = re.compile(r"(?:Of|As|Likewise|What|Those|Whether|How|There (?:is|are))\b")
_BOOLEAN = re.compile(r"\b(?:bool|Tensor|TypeGuard|TypeIs)\b")
_SECTION = re.compile(r"(Args|Attributes):$")
_ENTRY = re.compile(r"([*\w][*\w, ]*?)(?: \([^)]*\))?: *(.*)$")


@dataclass(frozen=True)
class Trace:
    """Options of the measurement.

    Attributes:
        rounds: Runs of each command; the median CPU time is reported.
        json: File for the report; standard output by default.
    """

    rounds: int = 5
    json: Path | None = None


@dataclass
class Calls:
    """Functions of a package that a call enters; comprehensions do not count.

    Attributes:
        functions: Distinct functions, each by file, qualified name and line.
        pairs: Distinct pairs of a calling file and another called file. Frames of other packages in
            between are skipped.
        deepest: Largest number of the package's functions on the stack at once.
    """

    functions: set[tuple[str, str, int]] = field(default_factory=set)
    pairs: set[tuple[str, str]] = field(default_factory=set)
    deepest: int = 0

    def counts(self) -> dict[str, int]:
        """Return the four figures."""
        return {
            "functions": len(self.functions),
            "files": len({file for file, _, _ in self.functions}),
            "pairs": len(self.pairs),
            "deepest": self.deepest,
        }


def traced(call: Callable[[], object], folder: Path) -> Calls:
    """Record the functions that a call enters in this thread.

    Args:
        call: Call without arguments.
        folder: Folder of the package; functions elsewhere do not count.
    """
    found, inside = Calls(), f"{folder}{os.sep}"

    def entered(frame: FrameType, event: str, _: object) -> None:
        if event != "call" or not _counts(frame, inside):
            return
        code, above = frame.f_code, list(_above(frame, inside))
        found.functions.add((code.co_filename, code.co_qualname, code.co_firstlineno))
        if above and above[0] != code.co_filename:
            found.pairs.add((above[0], code.co_filename))
        found.deepest = max(found.deepest, len(above) + 1)

    before = sys.getprofile()
    sys.setprofile(entered)
    try:
        call()
    finally:
        sys.setprofile(before)
    return found


def _counts(frame: FrameType, inside: str) -> bool:
    code = frame.f_code
    return code.co_filename.startswith(inside) and code.co_name not in _NO_FUNCTION


def _above(frame: FrameType, inside: str) -> Iterator[str]:
    """Yield the files of the package's functions that called a frame, the nearest first."""
    above = frame.f_back
    while above is not None:
        if _counts(above, inside):
            yield above.f_code.co_filename
        above = above.f_back


def members(owner: object) -> list[str]:
    """Return the public attributes of an object or a class, inherited ones included."""
    return [name for name in dir(owner) if not name.startswith("_")]


def parts(owner: object) -> dict[str, type]:
    """Return the public attributes that are parts of an object, by name.

    A part is an instance of a public class defined in the folder of the object's class or below.

    Args:
        owner: Object of a class defined in a file of a package.
    """
    home = type(owner).__module__.rpartition(".")[0] + "."
    values = {name: getattr(owner, name) for name in members(owner)}
    kinds = {name: type(each) for name, each in values.items() if not inspect.isroutine(each)}
    return {
        name: kind
        for name, kind in kinds.items()
        if kind.__module__.startswith(home) and not kind.__name__.startswith("_")
    }


def settings(config: Any) -> int:
    """Count the leaf fields of nested dataclasses."""
    values = [getattr(config, each.name) for each in fields(config)]
    return sum(settings(value) if is_dataclass(value) else 1 for value in values)


def sizes(files: Sequence[Path]) -> dict[str, Any]:
    """Return the number of files, their lines, and those of more than 600 lines, the longest first.

    Args:
        files: Paths of text files.
    """
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in files}
    longest = sorted((path for path in files if lines[path] > _LONG), key=lambda p: -lines[p])
    return {
        "files": len(files),
        "lines": sum(lines.values()),
        "above_600": {f"{path.parent.name}/{path.name}": lines[path] for path in longest},
    }


@dataclass(frozen=True)
class Fragment:
    """Description in a docstring that begins like a clause, such as with Of, As, What or How.

    Attributes:
        line: Line of the source where the docstring begins.
        name: Name of the argument or attribute; empty for the first line of the docstring.
        word: First word.
        text: First line of the description.
    """

    line: int
    name: str
    word: str
    text: str


def fragments(source: str) -> list[Fragment]:
    """Find the fragments in first lines and descriptions of arguments and attributes.

    "Whether" is right for an argument, attribute or constant that is a boolean or a tensor of them;
    a function says "Return whether".

    Args:
        source: Python source.
    """
    found = []
    for owner, text, line in _docstrings(ast.parse(source)):
        types = _types(owner)
        function = isinstance(owner, ast.FunctionDef | ast.AsyncFunctionDef)
        for name, description in [("", text.partition("\n")[0]), *_entries(text)]:
            match = _FRAGMENT.match(description)
            boolean = _BOOLEAN.search(types.get(name, "")) and (name or not function)
            if match and not (match[0] == "Whether" and boolean):
                found.append(Fragment(line, name, match[0], description))
    return found


def _docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str, int]]:
    """Yield every docstring with its owner and line; of a constant, the owner is its assignment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield node, text, node.body[0].lineno
            for before, after in zip(node.body, node.body[1:], strict=False):
                if isinstance(before, ast.Assign | ast.AnnAssign) and _is_text(after):
                    yield before, inspect.cleandoc(after.value.value), after.lineno  # type: ignore[attr-defined]


def _is_text(node: ast.stmt) -> bool:
    return (
        isinstance(node, ast.Expr)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    )


def _entries(text: str) -> Iterator[tuple[str, str]]:
    """Yield the descriptions of arguments and attributes, each with the first name it is for."""
    inside = False
    for line in text.splitlines():
        if line and not line.startswith(" "):
            inside = bool(_SECTION.match(line))
        elif inside and (entry := _ENTRY.match(line.removeprefix("    "))):
            yield entry[1].lstrip("*").partition(",")[0], entry[2]


def _types(owner: ast.AST) -> dict[str, str]:
    """Return the annotations of arguments and attributes by name, that of the result by ""."""
    found: dict[str, str] = {}
    if isinstance(owner, ast.AnnAssign):
        found[""] = ast.unparse(owner.annotation)
    for node in ast.walk(owner) if isinstance(owner, ast.ClassDef) else [owner]:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            if node.returns is not None:
                found["" if node is owner else node.name] = ast.unparse(node.returns)
            for each in (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs):
                if each.annotation is not None:
                    found.setdefault(each.arg, ast.unparse(each.annotation))
        elif isinstance(node, ast.AnnAssign):
            target = node.target
            name = getattr(target, "id", getattr(target, "attr", ""))
            found[name] = ast.unparse(node.annotation)
        elif isinstance(node, ast.Assign) and isinstance(node.value, ast.Constant):
            kind = type(node.value.value).__name__
            found |= {t.attr: kind for t in node.targets if isinstance(t, ast.Attribute)}
    return found


def _tracked(folder: Path) -> list[Path]:
    """Return the Python files of a folder that git tracks."""
    listed = _said("git", "-C", str(_ROOT), "ls-files", "--", str(folder)).splitlines()
    paths = [_ROOT / name for name in listed if name.endswith(".py")]
    return [path for path in paths if path.exists()]


def _said(*words: str) -> str:
    """Return the standard output of a command that must succeed."""
    done = subprocess.run(words, cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout


def _turns() -> list[dict[str, str]]:
    """Return the turns of a made-up conversation, in four sessions."""
    return [
        {
            "id": f"t{i}",
            "text": f"{_TEXTS[i % len(_TEXTS)]} That was week {i}.",
            "speaker": _SPEAKERS[i % len(_SPEAKERS)],
            "session": f"s{i // 10}",
            "time": f"2024-03-{1 + i // 2:02d}T10:00:00Z",
        }
        for i in range(40)
    ]


def _traced_calls(memory: Memory) -> dict[str, dict[str, int]]:
    """Trace an add of one text, a first and a warm question, a context, and a forget of one."""

    def traces(number: int) -> dict[str, dict[str, int]]:
        text = {"id": f"new{number}", "text": f"Ada gave Clara the lantern number {number}."}
        steps: dict[str, Callable[[], object]] = {
            "add": lambda: memory.add(text),
            "first retrieve": lambda: memory.retrieve(_QUESTION),
            "warm retrieve": lambda: memory.retrieve(_QUESTION),
            "compile": lambda: memory.compile(_QUESTION, budget=_BUDGET),
            "forget": lambda: memory.forget(text["id"]),
        }
        return {name: traced(step, _FOLDER).counts() for name, step in steps.items()}

    traces(0)  # loads what is loaded once
    return traces(1)


def _surface(memory: Memory) -> dict[str, Any]:
    """Measure the public class and its parts."""
    own, kinds = set(members(Memory)), parts(memory)
    source = inspect.getsourcefile(Memory)
    assert source is not None
    return {
        "members": len(own - kinds.keys()),
        "members_of_parts": {name: len(members(kind)) for name, kind in kinds.items()},
        "instance_attributes": sorted(set(members(memory)) - own - kinds.keys()),
        "file": Path(source).relative_to(_ROOT).as_posix(),
        "lines_of_file": sizes([Path(source)])["lines"],
        "lines_of_help": len(pydoc.plain(pydoc.render_doc(Memory)).splitlines()),
    }


def _loaded() -> int:
    """Count the modules of the package that importing `Memory` loads in a fresh interpreter."""
    name = graphmem_torch.__name__
    code = f"import sys; from {name} import Memory; print(*sys.modules)"
    every = _said(sys.executable, "-c", code).split()
    return sum(each.split(".")[0] == name for each in every)


def _commands(folder: Path, bytecode: Path, rounds: int) -> dict[str, dict[str, Any]]:
    """Measure the CPU time of commands that only read a store, and of a mistyped option.

    Args:
        folder: Folder of the store.
        bytecode: Folder for compiled modules, which the first run writes, as in an installed
            package.
        rounds: Timed runs of each command.

    Raises:
        RuntimeError: A command is missing.
    """
    where = ["--store", str(folder)]
    asked = {"stats": where, "get": ["t1", *where], "list": where, "check": where}
    found = {}
    for name, options in asked.items():
        for group in _GROUPS:
            words = [*group, name, *options]
            if _ran(words, bytecode)[0] == 0:
                found[name] = _measured(words, bytecode, rounds)
                break
        else:
            raise RuntimeError(f"{name}: expected a command of that name, found none that works")
    found["usage error"] = _measured(["stats", "--stroe", str(folder)], bytecode, rounds)
    return found


def _measured(words: Sequence[str], bytecode: Path, rounds: int) -> dict[str, Any]:
    """Return the median CPU seconds of a command line, and whether it imports torch."""
    imported = _ran(words, bytecode, "-X", "importtime")[2].splitlines()
    seconds = [_ran(words, bytecode)[1] for _ in range(rounds)]
    # A module that `import_module` loads has no line, but its submodules have.
    torch = any(line.rpartition("|")[2].strip().startswith("torch.") for line in imported)
    return {"cpu_s": round(median(seconds), 3), "torch": torch}


def _ran(words: Sequence[str], bytecode: Path, *flags: str) -> tuple[int, float, str]:
    """Run a command line; return its status, its CPU seconds and its standard error."""
    call = [sys.executable, *flags, "-m", graphmem_torch.__name__, *words]
    own = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    own["PYTHONPYCACHEPREFIX"] = str(bytecode)
    with tempfile.TemporaryFile("w+") as errors:
        child = subprocess.Popen(call, cwd=_ROOT, env=own, stdout=subprocess.DEVNULL, stderr=errors)
        _, status, usage = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        errors.seek(0)
        return child.returncode, usage.ru_utime + usage.ru_stime, errors.read()


def run(options: Trace) -> dict[str, Any]:
    """Measure everything.

    Args:
        options: Options of the measurement.

    Returns:
        Report of plain JSON values.

    Raises:
        RuntimeError: A command of the command line is missing.
    """
    files = _tracked(_FOLDER)
    package = sizes(files)
    poor = [each for path in files for each in fragments(path.read_text("utf-8"))]
    config = load_config(overrides={"link.concepts": "pattern"})
    with tempfile.TemporaryDirectory() as made:
        folder, bytecode = Path(made) / "store", Path(made) / "bytecode"
        with Memory.open(folder, config=config, embedder="hashing", device="cpu") as memory:
            memory.add(_turns())
            surface, calls = _surface(memory), _traced_calls(memory)
        commands = _commands(folder, bytecode, options.rounds)
    return {
        "commit": code_version(),
        "memory": surface,
        "package": package,
        "calls": calls,
        "modules_loaded": _loaded(),
        "commands": commands,
        "settings": settings(load_config()),
        "readme_lines": sizes([_ROOT / "README.md"])["lines"],
        "fragments": {
            "descriptions": Counter(each.word for each in poor if each.name),
            "first_lines": Counter(each.word for each in poor if not each.name),
        },
    }


def main(arguments: Sequence[str] | None = None) -> Mapping[str, Any]:
    """Read the options, measure, and report."""
    return command(Trace, run, arguments, __doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
