"""Run the speed benchmarks and print our median, the peers' and the ratio to the best peer.

`python -m bench.perf [--json OUT] [pytest arguments]`
"""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest


def main(arguments: list[str]) -> int:
    """Run pytest on this folder and print the table of what it measured."""
    out: Path | None = None
    if "--json" in arguments:
        at = arguments.index("--json")
        if at + 1 == len(arguments):
            print("bench.perf: --json: expected a path after it, got nothing", file=sys.stderr)
            return 2
        out = Path(arguments[at + 1])
        arguments = arguments[:at] + arguments[at + 2 :]
    with tempfile.TemporaryDirectory() as folder:
        report = out or Path(folder) / "bench.json"
        status = pytest.main(
            [
                str(Path(__file__).parent),
                "--benchmark-only",
                "--benchmark-quiet",
                "--benchmark-disable-gc",
                f"--benchmark-json={report}",
                "-q",
                *arguments,
            ]
        )
        if report.is_file() and report.stat().st_size:
            print(_table(json.loads(report.read_text(encoding="utf-8"))))
    return int(status)


def _table(report: dict[str, Any]) -> str:
    lines = [f"{'operation':<44} {'ours ms':>9}  {'ours/best':>9}  peers ms"]
    for entry in report["benchmarks"]:
        ours = 1000 * entry["stats"]["median"]
        peers = entry["extra_info"].get("peers_ms", {})
        ratio = f"{ours / min(peers.values()):9.2f}" if peers else f"{'-':>9}"
        shown = "  ".join(f"{name} {value:.3f}" for name, value in peers.items())
        lines.append(f"{entry['name'].removeprefix('test_'):<44} {ours:9.3f}  {ratio}  {shown}")
    machine = report["machine_info"]
    lines.append(
        f"{machine['cpu'].get('brand_raw', 'unknown CPU')}, {machine['cpu'].get('count')} CPUs"
    )
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
