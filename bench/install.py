"""Size of an installation: what the package, each extra and each requirement bring.

    python -m bench.install [EXTRA ...] [--python INTERPRETER] [--json OUT]

Makes a fresh virtual environment with torch first, then the package with the extras; `--python`
measures an environment that has them. Sizes are those of the installed files, as
`importlib.metadata` lists them, in MB of 10^6 bytes; pip does not count. A row is what the package
and one extra need, by the requirements of the installed distributions.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
TORCH = "torch==2.13.0"
"""Installed first, so that no later step chooses another build of it."""

# Runs in the measured environment: needs and bytes of every distribution, and the names of the
# given requirements that apply there.
MEASURE = """
import functools, importlib.metadata, json, os, sys
from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name

def applying(named, extras=("",)):
    return [each for each in named
            if each.marker is None or any(each.marker.evaluate({"extra": e}) for e in extras)]

@functools.cache
def requirements(name):
    return tuple(map(Requirement, known[name].requires or ()))

known = {canonicalize_name(each.name): each for each in importlib.metadata.distributions()}

def closure(roots):
    reached, left = {}, list(roots)
    while left:
        need = left.pop()
        name, extras = canonicalize_name(need.name), {"", *need.extras}
        if name in known and not extras <= reached.get(name, set()):
            reached[name] = reached.get(name, set()) | extras
            left += applying(requirements(name), reached[name])
    return sorted(reached)

def size(dist):
    paths = {str(file.locate()) for file in dist.files or ()}
    return sum(os.path.getsize(path) for path in paths if os.path.isfile(path))

given = json.load(sys.stdin)
needs = {name: applying(map(Requirement, lines)) for name, lines in given.items()}
installed = {extra: closure(needs[""] + needs[extra]) for extra in needs}
names = {"graphmem-torch", *(name for each in installed.values() for name in each)} & {*known}
print(json.dumps({
    "bytes": {name: size(known[name]) for name in sorted(names)},
    "versions": {name: known[name].version for name in sorted(names)},
    "installed": installed,
    "missing": {extra: [n.name for n in each if canonicalize_name(n.name) not in known]
                for extra, each in needs.items()},
    "parts": {str(each.name): [closure([each]),
                               closure([n for n in needs[""] if n.name != each.name])]
              for each in needs[""]},
}))
"""


def measured(python: str, needs: dict[str, list[str]]) -> dict[str, Any]:
    """Return what requirements bring in an environment; "" are those of the package alone."""
    command = [python, "-c", MEASURE]
    done = subprocess.run(command, input=json.dumps(needs), check=True, stdout=-1, text=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def made(folder: Path, extras: list[str]) -> str:
    """Make a fresh environment of the package with extras, and return its interpreter."""
    python = str(folder / "bin" / "python")
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    for wanted in (TORCH, f"{ROOT}[{','.join(extras)}]"):
        subprocess.run([python, "-m", "pip", "install", "--quiet", wanted], check=True)
    return python


def tables(name: str, found: dict[str, Any]) -> str:
    """Return both tables in Markdown: by extra, and by direct requirement."""
    size = {each: count / 1e6 for each, count in found["bytes"].items()}

    def total(names: list[str] | set[str]) -> float:
        return sum(size[each] for each in names)

    own = size.get(name, 0.0)  # the package itself is in no list of what it needs
    rows = ["| installed | distributions | MB | beyond the package alone |", "| --- " * 4 + "|"]
    base = found["installed"][""]
    for extra, names in found["installed"].items():
        what = f"{name}[{extra}]" if extra else name
        more = f"+{len(names) - len(base)}, +{total(names) - total(base):,.0f} MB" if extra else ""
        if lacking := found["missing"][extra]:
            more += f"; without {', '.join(lacking)}"
        rows.append(f"| `{what}` | {len(names) + 1} | {total(names) + own:,.0f} | {more} |")
    rows += ["", "| requirement | MB | with all it needs | no other requirement brings |"]
    rows.append("| --- " * 4 + "|")
    parts = {
        each: ({*brought}, {*brought} - {*others})
        for each, (brought, others) in found["parts"].items()
    }
    for each, (brought, only) in sorted(parts.items(), key=lambda part: -total(part[1][1])):
        alone = f"{total(only):,.1f} MB in {len(only)}"
        rows.append(f"| {each} | {size[each.lower()]:,.1f} | {total(brought):,.1f} | {alone} |")
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> None:
    """Measure, and print the tables."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    optional = project["optional-dependencies"]
    parser = argparse.ArgumentParser(prog="python -m bench.install", description=__doc__)
    parser.add_argument("extras", nargs="*", help=f"of {', '.join(optional)}; by default all")
    parser.add_argument("--python", help="interpreter of an environment that has the extras")
    parser.add_argument("--json", type=Path, help="file for everything that was measured")
    given = parser.parse_args(arguments)
    if strange := {*given.extras} - {*optional}:
        parser.error(f"extras: expected some of {', '.join(optional)}, got {', '.join(strange)}")
    extras = given.extras or [*optional]
    needs = {"": project["dependencies"]} | {extra: optional[extra] for extra in extras}
    with tempfile.TemporaryDirectory(prefix="install-") as folder:
        found = measured(given.python or made(Path(folder), extras), needs)
    print(tables(project["name"], found))
    if given.json:
        given.json.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
