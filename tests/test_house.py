"""The house itself: floors, circles, sizes, lean imports, packaging, public names."""

from __future__ import annotations

import ast
import graphlib
import importlib
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import graphmem_torch
from tests.bench.quality.made import passage_files
from tests.processes import Program, begun_ahead

PACKAGE = "graphmem_torch"
ROOT = Path(__file__).resolve().parents[1]

# From the ground up. A folder, or a file that lies in none, imports from lower floors and from its
# own files; the facade, "", is the roof: it names what is public, and nothing imports from it.
FLOORS = [
    "version",
    "lazy",
    "kernels",
    "errors",
    "exact",
    "plain",
    "progress",
    "atoms",
    "results",
    "config",
    "checks",
    "coo",
    "edges",
    "graph",
    "ops",
    "linalg",
    "spectral",
    "modes",
    "oracle",
    "text",
    "judge",
    "readers",
    "rank",
    "index",
    "context",
    "store",
    "evaluation",
    "report",
    "memory",
    "integrations",
    "quality",
    "cli",
    "distributed",
    "__main__",
    "",
]

# What makes or writes tensors; nothing else of `store` loads torch, itself or by an import, nor
# does what the command line needs of a memory as it lies on the disk.
TENSORS = [
    "store.adjacency",
    "store.atom_columns",
    "store.batches",
    "store.blocks",
    "store.changes",
    "store.erasure",
    "store.node_facts",
    "store.replacement",
    "store.snapshot",
    "store.store",
    "store.tensor_reader",
]
WITHOUT_TORCH = [
    "atoms",
    "checks",
    "config",
    "errors",
    "exact",
    "plain",
    "progress",
    "results",
    "version",
    "lazy",
    "memory.archive",
    "memory.exporting",
    "memory.history",
    "memory.listing",
    "memory.lookup",
    "memory.namespace_folders",
    "memory.split_names",
    "memory.stored",
    "memory.validity",
    # Worker processes of indexing.
    "text.findings",
    "text.worker_pool",
]

SMALL, TOGETHER = 120, 400
"""Lines: a file below the first with one importer lies in it, unless both pass the second."""

LONGEST = 600
"""Lines of a file."""

# Costly to import, or of no use to most callers: imported inside the functions that need them.
HEAVY = [
    "datasets",
    "mteb",
    "networkx",
    "openai",
    "scipy",
    "sentence_transformers",
    "sklearn",
    "spacy",
    "torch_geometric",
    "transformers",
    "triton",
]


def _modules() -> dict[str, Path]:
    """Every module of the package by its dotted name; kernels and judges as in a wheel."""
    found = {}
    folders = {(): PACKAGE, ("kernels",): "kernels", ("quality",): "bench/quality"}
    for prefix, folder in folders.items():
        base = ROOT / folder
        for path in sorted(base.rglob("*.py")):
            parts = [*prefix, *path.relative_to(base).with_suffix("").parts]
            if parts[-1] == "__init__":
                parts.pop()
            found.setdefault(".".join(parts), path)
    return found


MODULES = _modules()
FACES = {name for name, path in MODULES.items() if path.name == "__init__.py"}


@cache
def _tree(name: str) -> ast.Module:
    return ast.parse(MODULES[name].read_text(encoding="utf-8"), str(MODULES[name]))


def _called(node: ast.Call) -> str:
    """The name that is called, or the attribute."""
    return str(getattr(node.func, "id", getattr(node.func, "attr", "")))


@cache
def _taken(name: str) -> list[tuple[str, str]]:
    """Every module that a file names in an import, and what it takes from it ("": the module).

    Imports inside functions and under `TYPE_CHECKING` count, so do literals of `import_module`.
    """
    here = name.split(".") if name in FACES else name.split(".")[:-1]
    every = []
    for node in ast.walk(_tree(name)):
        if isinstance(node, ast.Import):
            found = [(alias.name, "") for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            above = [PACKAGE, *here][: len(here) + 2 - node.level] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found = [(base, alias.name) for alias in node.names]
        elif isinstance(node, ast.Call) and _called(node).endswith("import_module"):
            literal = node.args[0] if node.args else None
            found = [(literal.value, "")] if isinstance(literal, ast.Constant) else []
        else:
            continue
        for module, taken in found:
            if module == PACKAGE or module.startswith(f"{PACKAGE}."):
                every.append((module[len(PACKAGE) + 1 :], taken))
    return every


def _behind(module: str, taken: str) -> str:
    """The module that a name comes from, packages seen through."""
    inner = f"{module}.{taken}".lstrip(".")
    handed = {}
    if module in FACES and taken:
        handed = {what: base for base, what in _taken(module) if what}
    if taken in handed and handed[taken] != module:
        return _behind(handed[taken], taken)
    return inner if inner in MODULES else module


def _imports(name: str) -> set[str]:
    """The files that a file imports from."""
    return {_behind(module, taken) for module, taken in _taken(name)} - {name}


IMPORTS = {name: _imports(name) for name in MODULES}
FILES = {name: found for name, found in IMPORTS.items() if name not in FACES}


def _floor(module: str) -> int:
    return FLOORS.index(module.split(".")[0])


def test_every_module_stands_on_a_floor_of_its_own() -> None:
    homeless = {name.split(".")[0] for name in MODULES} - {*FLOORS}
    assert not homeless, f"give these a floor in {Path(__file__).name}: {sorted(homeless)}"
    assert len({*FLOORS}) == len(FLOORS)


def test_imports_never_point_upwards() -> None:
    upward = [
        f"{name} imports {target}, which lies above it"
        for name, targets in IMPORTS.items()
        for target in sorted(targets)
        if _floor(target) > _floor(name)
    ]
    assert not upward, "\n".join(upward)


def test_files_import_each_other_in_no_circle() -> None:
    graphlib.TopologicalSorter(FILES).prepare()  # CycleError names the circle


def test_readers_of_a_store_load_no_torch() -> None:
    stores = [name for name in MODULES if name.partition(".")[0] == "store"]
    assert {*TENSORS} <= {*stores}
    names = [*WITHOUT_TORCH, *(name for name in stores if name not in TENSORS)]
    code = (
        "import importlib, json, sys\n"
        "found = []\n"
        f"for name in {names!r}:\n"
        f"    importlib.import_module('{PACKAGE}.' + name)\n"
        "    if 'torch' in sys.modules:\n"
        "        found.append(name)\n"
        "        break\n"
        "print(json.dumps(found))\n"
    )
    assert json.loads(_python(code, cwd=ROOT)) == []


def test_no_file_of_the_store_is_long() -> None:
    lines = {
        name: len(path.read_text("utf-8").splitlines())
        for name, path in MODULES.items()
        if name.partition(".")[0] == "store"
    }
    assert max(lines.values()) <= LONGEST, lines


def test_a_private_file_is_imported_inside_its_folder_only() -> None:
    doors = [
        f"{name} imports {target}"
        for name, targets in IMPORTS.items()
        for target in sorted(targets)
        if any(
            part.startswith("_")
            and not part.startswith("__")
            and not name.startswith(".".join(target.split(".")[:place]))
            for place, part in enumerate(target.split("."))
        )
    ]
    assert not doors, "\n".join(doors)


def test_a_small_file_with_one_importer_lies_in_it() -> None:
    importers = defaultdict(set)
    for name, targets in FILES.items():
        for target in targets:
            importers[target].add(name)
    public = {target for face in FACES for target in IMPORTS[face]}
    lines = {name: len(MODULES[name].read_text("utf-8").splitlines()) for name in FILES}
    lonely = [
        f"{name} ({lines[name]} lines) belongs to {importer} ({lines[importer]})"
        for name in sorted(FILES)
        if name not in public and lines[name] < SMALL and len(importers[name]) == 1
        if not name.endswith("_commands")  # the command line has one file a noun
        for importer in importers[name]
        if lines[name] + lines[importer] <= TOGETHER
    ]
    assert not lonely, "\n".join(lonely)


# Files that still write `f(*(a, b))`, which hides arguments from readers; the list only shrinks.
STARRED = {"memory.writer"}


def test_calls_do_not_unpack_a_tuple_that_they_write_out() -> None:
    found = {
        name
        for name in MODULES
        for call in ast.walk(_tree(name))
        if isinstance(call, ast.Call)
        and any(isinstance(a, ast.Starred) and isinstance(a.value, ast.Tuple) for a in call.args)
    }
    assert found <= STARRED


# Lists of today's exceptions. They may only shrink: whoever makes one needless removes it here.

LONGEST, MOST_PUBLIC = 600, 40
"""Lines of a file, and public members of a class, its bases in the package included."""

LONG_FILES = {
    "index.module": 631,
    "memory.file_sync": 883,
    "memory.memory": 627,
    "memory.writer": 758,
}
"""Files that are longer, with their lines."""

WIDE_CLASSES = {
    "MemoryStore": 96,
    "StoreReader": 57,
    "TensorReader": 74,
    "_Past": 74,
}
"""Classes that have more public members, with their number."""

SHARED_FILES: set[str] = set()
SHARED_CLASSES: set[str] = set()
"""Names that several files, and several classes, have."""

HANDED_METHODS = {"AtomFields.where: _Evaluation", "Writer._made_anew: Linker"}
"""Parts of a memory that are given a method of what holds them."""

PACKAGE_FILES = {name: path for name, path in MODULES.items() if not name.startswith("quality.")}


def _classes() -> dict[str, list[tuple[str, ast.ClassDef]]]:
    """The classes of the package at the top of a file, by name."""
    found = defaultdict(list)
    for name in PACKAGE_FILES:
        for node in _tree(name).body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append((name, node))
    return found


def _functions(node: ast.ClassDef) -> list[ast.FunctionDef | ast.AsyncFunctionDef]:
    return [n for n in node.body if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef)]


def _public(node: ast.ClassDef, classes: dict[str, list[tuple[str, ast.ClassDef]]]) -> set[str]:
    """The public methods and properties of a class and of its bases in the package."""
    found = {each.name for each in _functions(node) if not each.name.startswith("_")}
    for base in node.bases:
        named = base.value if isinstance(base, ast.Subscript) else base
        # An attribute is a class of another library, such as `click.Group`.
        for _, above in classes.get(named.id, []) if isinstance(named, ast.Name) else ():
            found |= _public(above, classes)
    return found


def test_files_are_short() -> None:
    lines = {n: len(path.read_text("utf-8").splitlines()) for n, path in PACKAGE_FILES.items()}
    long = {name: count for name, count in lines.items() if count > LONGEST}
    grown = {n: count for n, count in long.items() if count > LONG_FILES.get(n, LONGEST)}
    assert not grown, f"split these: {grown}"
    assert not LONG_FILES.keys() - long.keys(), "take these from the list"


def test_classes_have_few_members() -> None:
    classes = _classes()
    counts = {
        name: len(_public(node, classes)) for name, same in classes.items() for _, node in same
    }
    wide = {name: count for name, count in counts.items() if count > MOST_PUBLIC}
    grown = {n: count for n, count in wide.items() if count > WIDE_CLASSES.get(n, MOST_PUBLIC)}
    assert not grown, f"split these: {grown}"
    assert not WIDE_CLASSES.keys() - wide.keys(), "take these from the list"


def test_methods_of_a_memory_have_few_arguments() -> None:
    many = {
        f"{name}.{method.name}": len(given)
        for name, same in _classes().items()
        for module, node in same
        for method in _functions(node)
        if module.startswith("memory.")
        and not method.name.startswith("_")
        and len(given := [*method.args.posonlyargs, *method.args.args, *method.args.kwonlyargs])
        > 11
    }
    assert not many, "ten beside `self`"


def test_a_name_means_one_file_and_one_class() -> None:
    files = defaultdict(list)
    for name, path in PACKAGE_FILES.items():
        if name not in FACES and not name.startswith("kernels."):  # named like their operations
            files[path.name].append(name)
    shared = {name for name, same in files.items() if len(same) > 1}
    assert shared == SHARED_FILES
    # Adapters of two frameworks may have a name that both of them expect.
    places = {name: [module for module, _ in same] for name, same in _classes().items()}
    own = {
        name
        for name, modules in places.items()
        if len(modules) > 1 and not all(each.startswith("integrations.") for each in modules)
    }
    assert own == SHARED_CLASSES


def _holds(given: ast.AST, plain: set[str], holding: dict[str, ast.AST]) -> bool:
    """Whether an argument is a method of its owner, or a function that uses the owner."""
    for n in ast.walk(given):
        if isinstance(n, ast.Attribute) and n.attr in plain and ast.unparse(n.value) == "self":
            return True
        body = n if isinstance(n, ast.Lambda) else None
        if isinstance(n, ast.Name):
            body = holding.get(n.id)
        if body and any(isinstance(x, ast.Name) and x.id == "self" for x in ast.walk(body)):
            return True
    return False


def _handed(node: ast.ClassDef, parts: set[str]) -> list[str]:
    """Constructors of parts in a class that are given its methods, or functions that hold it."""
    plain = {n.name for n in _functions(node) if not n.decorator_list}
    found = []
    for method in _functions(node):
        holding: dict[str, ast.AST] = {
            n.name: n for n in ast.walk(method) if isinstance(n, ast.FunctionDef) and n != method
        }
        for call in ast.walk(method):
            if not isinstance(call, ast.Call) or _called(call) not in parts:
                continue
            for each in [*call.args, *(keyword.value for keyword in call.keywords)]:
                given = each.value if isinstance(each, ast.Starred) else each
                # A call of a method gives its result, which is a value.
                value = isinstance(given, ast.Call) and _called(given) != "partial"
                if not value and _holds(given, plain, holding):
                    found.append(f"{node.name}.{method.name}: {_called(call)}")
    return found


def test_no_part_of_a_memory_is_given_a_method_of_its_owner() -> None:
    inside = {name for name in PACKAGE_FILES if name.startswith("memory.")}
    classes = [(name, node) for same in _classes().values() for name, node in same]
    parts = {node.name for name, node in classes if name in inside}
    found = {each for name, node in classes if name in inside for each in _handed(node, parts)}
    assert found == HANDED_METHODS
    wrong = "class Owner:\n def m(self): pass\n def make(self):\n  def f(): self.m()\n  "
    for given in ("self.m", "lambda: self.m()", "f", "partial(self.m, 1)", "k=self.m"):
        (owner,) = ast.parse(f"{wrong}Part({given})").body
        assert isinstance(owner, ast.ClassDef) and _handed(owner, {"Part"}), given
    for given in ("self.m()", "self.x", "lambda: 1"):
        (owner,) = ast.parse(f"{wrong}Part({given})").body
        assert isinstance(owner, ast.ClassDef) and not _handed(owner, {"Part"}), given


def test_kernels_folder_is_no_regular_package() -> None:
    # transformers imports any regular package named `kernels` that it finds on the path.
    assert not (ROOT / "kernels" / "__init__.py").exists()


def _python(code: str, *, cwd: Path) -> str:
    """Runs code in a fresh process and returns what it printed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


# What must work wherever the package was imported from: kernels, judges and presets are found.
FOUND = """
import json, pkgutil
from importlib.resources import files
from importlib.util import find_spec
import graphmem_torch
from graphmem_torch.config import load_config
import graphmem_torch.kernels as kernels
load_config("default")
assert (files("graphmem_torch") / "report" / "page" / "page.js").is_file()
names = [m.name for m in pkgutil.iter_modules(kernels.__path__)]
from graphmem_torch.quality.request import JUDGES
modules = [f"graphmem_torch.kernels.{name}" for name in names]
modules += [f"graphmem_torch.quality.{name}.judge" for name in JUDGES]
assert all(map(find_spec, modules))
print(json.dumps({"file": graphmem_torch.__file__, "kernels": sorted(names)}))
"""
KERNELS = sorted(path.stem for path in (ROOT / "kernels").glob("*.py"))

# One process, from the bare import on: what is loaded after each step, a line of JSON each. What
# `import torch` brings is torch's; the hashing encoder, a store and a question need no more. Last
# the kernels and judges that are found are loaded, too.
STEPS = f"""
import importlib, json, sys
import graphmem_torch
print(json.dumps([m for m in sys.modules if "." not in m]))
import torch
brought = set(sys.modules)
from graphmem_torch import Memory
imported = sorted({{name.split(".")[0] for name in set(sys.modules) - brought}})
from graphmem_torch import load_config
from graphmem_torch.errors import MissingPackageError
with Memory.open(None, config=load_config(overrides={{"link.concepts": "pattern"}}),
                 embedder="hashing") as memory:
    memory.add(["The canoe is red.", "Ada plays the violin."])
    assert memory.retrieve("canoe").hits and memory.compile("canoe", budget=50).sources
print(json.dumps({{"imported": imported, "used": sorted(set(sys.modules) - brought)}}))
for name in {[f"{PACKAGE}.{name}" for name in MODULES if name]!r}:
    if not name.startswith("{PACKAGE}.kernels.") and not name.endswith("__main__"):
        try:
            importlib.import_module(name)
        except MissingPackageError:  # an adapter of a framework that is not installed
            assert name.startswith("{PACKAGE}.integrations.")
assert not torch.cuda.is_initialized()
print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))
{FOUND}
for name in modules:
    if find_spec("triton") or ".kernels." not in name:
        __import__(name)
"""


_CHANGE = re.compile(
    r'(?:set|del)attr\(\s*(?:"(?P<path>[\w.]+)"|(?P<owner>[\w.]+),\s*"(?P<name>\w+)")'
    r"|^ +(?!self\.)(?P<object>[\w.]+)\.(?P<private>_\w+) = ",
    re.MULTILINE,
)
_KEPT = re.compile(r"\.(_[a-z]\w*|__\w*defaults__|[A-Z][A-Z0-9_]+)$")
FOREIGN = ("torch", "os", "sys")
"""Values of another processor or system can only be replaced."""


def _changed(source: str) -> list[str]:
    """The constants of modules, and what is private to an object, that a test would change."""
    found = [".".join(filter(None, match.groups())) for match in _CHANGE.finditer(source)]
    return [each for each in found if _KEPT.search(each) and each.split(".")[0] not in FOREIGN]


def test_tests_change_no_constant_and_nothing_private() -> None:
    """Other needs of a test are parameters (`CONTRIBUTING.md`)."""
    sources = {path: path.read_text("utf-8") for path in (ROOT / "tests").rglob("*.py")}
    changed = {str(path): found for path, text in sources.items() if (found := _changed(text))}
    assert changed == {}
    for source in ("m.setattr(a, 'KEPT', 9)", "m.setattr('a.b._most', 9)", "  a._read = None"):
        assert _changed(source.replace("'", '"')), source


@dataclass(frozen=True)
class Wheel:
    """Output of a process far from the checkout, with the wheel alone on its path.

    Attributes:
        unpacked: The wheel.
        steps: Output of `STEPS`.
        table, report: What `graphmem eval` printed and wrote about a few passages.
    """

    unpacked: Path
    steps: list[Any]
    table: str
    report: dict[str, Any]


@begun_ahead
def wheel_at_work(folder: Path) -> dict[str, Any]:
    """The wheel, looked at before anything runs in it."""
    unpacked = _build(folder, "standard")
    assert not list(unpacked.rglob("__pycache__"))
    passage_files(folder / "sets")
    command = ["eval", "multihop", "--data", str(folder / "sets")]
    command += ["--json", str(folder / "report.json")]
    command += ["--embedder", "hashing", "--config.link.concepts", "pattern"]
    code = f"{STEPS}\nfrom graphmem_torch.cli.main import main\nstatus = main({command!r})\n"
    # Nobody waits for the cycles of so large a heap to be searched, while it grows or at its end.
    code = f"import gc; gc.disable()\n{code}gc.freeze()\nraise SystemExit(status)"
    return {"code": code, "cwd": folder, "env": {**os.environ, "PYTHONPATH": str(unpacked)}}


@pytest.fixture(scope="module")
def wheel(wheel_at_work: Program) -> Wheel:
    *said, table = wheel_at_work.said().split("\n", 4)
    folder = wheel_at_work.out.parent
    measured = json.loads((folder / "report.json").read_text("utf-8"))
    return Wheel(folder / "unpacked", [json.loads(line) for line in said], table, measured)


def test_bare_import_is_lean(wheel: Wheel) -> None:
    assert PACKAGE in wheel.steps[0]
    assert set(wheel.steps[0]).isdisjoint([*HEAVY, "torch", "numpy"])


def test_memory_is_lean(wheel: Wheel) -> None:
    found = wheel.steps[1]
    foreign = set(found["imported"]) - sys.stdlib_module_names
    assert foreign == {PACKAGE}
    heavy = {*HEAVY, "torch._dynamo", "torch._inductor", "sympy", "pandas"}
    assert heavy.isdisjoint(found["used"])


def test_no_module_loads_what_it_does_not_need(wheel: Wheel) -> None:
    assert wheel.steps[2] == []


def test_kernels_from_a_wheel(wheel: Wheel) -> None:
    """Far from the checkout; there `graphmem eval` measures a few passages, too."""
    assert Path(wheel.steps[3]["file"]).is_relative_to(wheel.unpacked)
    assert KERNELS and wheel.steps[3]["kernels"] == KERNELS
    assert not (wheel.unpacked / "kernels").exists()
    assert wheel.report["n"] == {"small": 2}
    assert all(name in wheel.table for name in wheel.report["sets"]["small"]["systems"])


def test_kernels_from_the_bare_repository_root() -> None:
    found = json.loads(_python(FOUND, cwd=ROOT))
    assert Path(found["file"]).is_relative_to(ROOT / PACKAGE)
    assert found["kernels"] == KERNELS


@pytest.mark.parametrize("folder", ["linalg", "modes", "spectral"])
def test_no_function_hides_a_module_of_its_name(folder: str) -> None:
    package = importlib.import_module(f"{PACKAGE}.{folder}")
    inside = [name for name in MODULES if name.startswith(f"{folder}.")]
    for name in inside:
        module = importlib.import_module(f"{PACKAGE}.{name}")
        assert getattr(package, name.partition(".")[2]) is module


def test_every_public_name_resolves() -> None:
    assert sorted(graphmem_torch.__all__) == sorted(
        {*graphmem_torch._IN_MODULES, "linalg", "modes", "ops", "rank", "spectral"}
    )
    for name in graphmem_torch.__all__:
        assert getattr(graphmem_torch, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Grahp'"):
        _ = graphmem_torch.Grahp


def _build(tmp_path: Path, version: str) -> Path:
    """Builds the wheel (`standard`) or the editable wheel (`editable`) and unpacks it."""
    wheels = pytest.importorskip("hatchling.builders.wheel")
    (built,) = wheels.WheelBuilder(str(ROOT)).build(
        directory=str(tmp_path / "dist"), versions=[version]
    )
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(built) as wheel:
        wheel.extractall(unpacked)
    return unpacked


def test_kernels_from_an_editable_install(tmp_path: Path) -> None:
    unpacked = _build(tmp_path, "editable")
    # A .pth file counts only in a site directory; this makes the unpacked wheel one.
    (pth,) = unpacked.glob("*.pth")
    assert pth.read_text().split() == [str(ROOT)]
    # It comes first: the environment may hold an editable install of another checkout.
    code = (
        "import site, sys\n"
        "known = set(sys.path)\n"
        f"site.addsitedir({str(unpacked)!r})\n"
        "sys.path.sort(key=known.__contains__)\n"
        f"{FOUND}"
    )
    found = json.loads(_python(code, cwd=tmp_path))
    assert Path(found["file"]).is_relative_to(ROOT / PACKAGE)
    assert found["kernels"] == KERNELS


def test_example_of_the_readme_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    exec(code, {"__name__": "__main__"})
    assert "Theo: Bertrand grew up there!" in capsys.readouterr().out
    assert (tmp_path / "friends.mem").is_dir()
