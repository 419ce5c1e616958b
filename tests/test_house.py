"""The house itself: floors, lean imports, packaging, public names."""

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
from collections.abc import Iterator
from pathlib import Path

import pytest

import graphmem_torch
from tests.bench.quality.made import locomo_file

PACKAGE = "graphmem_torch"
ROOT = Path(__file__).resolve().parents[1]

# From the ground up: what is imported lies on the same floor or on a lower one.
FLOORS = [
    "version",
    "kernels",
    "errors",
    "atoms",
    "results",
    "config",
    "coo",
    "edges",
    "graph",
    "checks",
    "ops",
    "linalg",
    "spectral",
    "modes",
    "oracle",
    "text",
    "readers",
    "rank",
    "index",
    "context",
    "store",
    "evaluation",
    "report",
    "memory",
    "quality",
    "cli",
    "__main__",
]

# Costly to import, or of no use to most callers: imported inside the functions that need them.
HEAVY = [
    "datasets",
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
    """Every module of the package by its dotted name, the top-level kernels under `kernels`."""
    found = {}
    for base, prefix in ((ROOT / PACKAGE, ()), (ROOT / "kernels", ("kernels",))):
        for path in sorted(base.rglob("*.py")):
            parts = [*prefix, *path.relative_to(base).with_suffix("").parts]
            if parts[-1] == "__init__":
                parts.pop()
            found[".".join(parts)] = path
    return found


MODULES = _modules()


def _package(path: Path) -> list[str]:
    """Dotted parts of the package a file is in; what one dot in an import means there."""
    if path.is_relative_to(ROOT / "kernels"):
        return [PACKAGE, *path.relative_to(ROOT).parent.parts]
    return list(path.relative_to(ROOT).parent.parts)


def _imports(path: Path) -> Iterator[str]:
    """Names of the package's modules that a file imports, relative to the package.

    Imports inside functions and those for a type checker count as well. `from graphmem_torch import
    Graph` counts as an import of the module that `Graph` lives in.
    """
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"), str(path))):
        if isinstance(node, ast.Import):
            targets = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = [*_package(path)[: -(node.level - 1) or None]] if node.level else []
            base += [node.module] if node.module else []
            targets = [".".join([*base, alias.name]) for alias in node.names]
        else:
            continue
        for target in targets:
            if target.split(".")[0] != PACKAGE:
                continue
            parts = target.split(".")[1:]
            if parts and parts[0] in graphmem_torch._MODULE:
                parts = graphmem_torch._MODULE[parts[0]].split(".")
            while parts and ".".join(parts) not in MODULES:
                parts.pop()
            if parts:
                yield ".".join(parts)


def _floor(module: str) -> int:
    return FLOORS.index(module.split(".")[0])


def test_every_module_stands_on_a_floor() -> None:
    homeless = {name.split(".")[0] for name in MODULES if name} - {*FLOORS}
    assert not homeless, f"give these a floor in {Path(__file__).name}: {sorted(homeless)}"


def test_imports_never_point_upwards() -> None:
    upward = [
        f"{name} (floor {_floor(name)}) imports {target} (floor {_floor(target)})"
        for name, path in MODULES.items()
        if name  # the facade names everything, lazily
        for target in _imports(path)
        if _floor(target) > _floor(name)
    ]
    assert not upward, "\n".join(upward)


def test_imports_have_no_circle() -> None:
    graph = {
        name: {target for target in _imports(path) if target != name}
        for name, path in MODULES.items()
        if name
    }
    graphlib.TopologicalSorter(graph).prepare()  # CycleError names the circle


def test_kernels_folder_is_no_regular_package() -> None:
    # transformers imports any regular package named `kernels` that it finds on the path.
    assert not (ROOT / "kernels" / "__init__.py").exists()


def _python(code: str, *, cwd: Path, path: Path | None = None) -> str:
    """Runs code in a fresh process and returns what it printed."""
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if path is not None:
        environment["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=cwd, env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_bare_import_is_lean() -> None:
    code = (
        "import sys, graphmem_torch, json;"
        "print(json.dumps([m for m in sys.modules if '.' not in m]))"
    )
    loaded = set(json.loads(_python(code, cwd=ROOT)))
    assert loaded.isdisjoint([*HEAVY, "torch", "numpy"])


# What `import torch` brings is torch's; the hashing encoder, a store and a question need no more.
LEAN = """
import json, sys
import torch
brought = set(sys.modules)
from graphmem_torch import Memory
imported = sorted({name.split(".")[0] for name in set(sys.modules) - brought})
from graphmem_torch import load_config
with Memory.open(None, config=load_config(overrides={"link.concepts": "pattern"}),
                 embedder="hashing") as memory:
    memory.add(["The canoe is red.", "Ada plays the violin."])
    assert memory.retrieve("canoe").hits and memory.compile("canoe", budget=50).sources
print(json.dumps({"imported": imported, "used": sorted(set(sys.modules) - brought)}))
"""


def test_memory_is_lean() -> None:
    found = json.loads(_python(LEAN, cwd=ROOT))
    foreign = set(found["imported"]) - sys.stdlib_module_names
    assert foreign == {PACKAGE}
    heavy = {*HEAVY, "torch._dynamo", "torch._inductor", "sympy", "pandas"}
    assert heavy.isdisjoint(found["used"])


def test_no_module_loads_what_it_does_not_need() -> None:
    names = [f"{PACKAGE}.{name}" for name in MODULES if name and not name.startswith("kernels.")]
    names = [name for name in names if not name.endswith("__main__")]
    code = (
        f"import importlib, json, sys\n"
        f"for name in {names!r}:\n"
        f"    importlib.import_module(name)\n"
        f"import torch\n"
        f"assert not torch.cuda.is_initialized()\n"
        f"print(json.dumps([m for m in {HEAVY!r} if m in sys.modules]))"
    )
    assert json.loads(_python(code, cwd=ROOT)) == []


@pytest.mark.parametrize("folder", ["linalg", "modes", "spectral"])
def test_no_function_hides_a_module_of_its_name(folder: str) -> None:
    package = importlib.import_module(f"{PACKAGE}.{folder}")
    inside = [name for name in MODULES if name.startswith(f"{folder}.")]
    for name in inside:
        module = importlib.import_module(f"{PACKAGE}.{name}")
        assert getattr(package, name.partition(".")[2]) is module


def test_every_public_name_resolves() -> None:
    assert sorted(graphmem_torch.__all__) == sorted(
        {*graphmem_torch._MODULE, "linalg", "modes", "ops", "rank", "spectral"}
    )
    for name in graphmem_torch.__all__:
        assert getattr(graphmem_torch, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'Grahp'"):
        _ = graphmem_torch.Grahp


# What must work wherever the package was imported from: kernels, judges and presets are found.
WHERE = """
import json, pkgutil
from importlib.resources import files
from importlib.util import find_spec
import graphmem_torch
from graphmem_torch.config import load_config
import graphmem_torch.kernels as kernels
load_config("default")
assert (files("graphmem_torch.report") / "page" / "page.js").is_file()
names = [m.name for m in pkgutil.iter_modules(kernels.__path__)]
for name in names if find_spec("triton") else ():
    __import__(f"graphmem_torch.kernels.{name}")
from graphmem_torch.quality.request import JUDGES
for name in JUDGES:
    __import__(f"graphmem_torch.quality.{name}.judge")
print(json.dumps({"file": graphmem_torch.__file__, "kernels": sorted(names)}))
"""
KERNELS = sorted(path.stem for path in (ROOT / "kernels").glob("*.py"))


def _build(tmp_path: Path, version: str) -> Path:
    """Builds the wheel (`standard`) or the editable wheel (`editable`) and unpacks it."""
    code = (
        "import sys; from hatchling.builders.wheel import WheelBuilder\n"
        "builder = WheelBuilder(sys.argv[1])\n"
        "print(*builder.build(directory=sys.argv[2], versions=[sys.argv[3]]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(tmp_path / "dist"), version],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    unpacked = tmp_path / "unpacked"
    with zipfile.ZipFile(done.stdout.strip().splitlines()[-1]) as wheel:
        wheel.extractall(unpacked)
    return unpacked


def test_kernels_from_the_bare_repository_root() -> None:
    found = json.loads(_python(WHERE, cwd=ROOT))
    assert Path(found["file"]).is_relative_to(ROOT / PACKAGE)
    assert KERNELS and found["kernels"] == KERNELS


def test_kernels_from_a_wheel(tmp_path: Path) -> None:
    unpacked = _build(tmp_path, "standard")
    found = json.loads(_python(WHERE, cwd=tmp_path, path=unpacked))
    assert Path(found["file"]).is_relative_to(unpacked)
    assert found["kernels"] == KERNELS
    assert not (unpacked / "kernels").exists()
    assert not list(unpacked.rglob("__pycache__"))
    _judge_from(unpacked, tmp_path)


def _judge_from(installed: Path, folder: Path) -> None:
    """Runs `graphmem eval` on a small file, far from the checkout."""
    out = folder / "report.json"
    command = ["eval", "locomo", "--data", str(locomo_file(folder)), "--json", str(out)]
    command += ["--embedder", "hashing", "--config.link.concepts", "pattern"]
    table = _python(
        f"from graphmem_torch.cli.main import main; raise SystemExit(main({command!r}))",
        cwd=folder,
        path=installed,
    )
    report = json.loads(out.read_text("utf-8"))
    assert report["n"]["all"] == 10
    assert all(name in table for name in report["systems"])


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
        f"{WHERE}"
    )
    found = json.loads(_python(code, cwd=tmp_path))
    assert Path(found["file"]).is_relative_to(ROOT / PACKAGE)
    assert found["kernels"] == KERNELS


def test_example_of_the_readme_runs(tmp_path: Path) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text("utf-8"), re.DOTALL)
    out = _python(code, cwd=tmp_path, path=ROOT)
    assert "Theo: Bertrand grew up there!" in out
    assert (tmp_path / "friends.mem").is_dir()
