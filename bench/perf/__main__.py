"""Run the speed benchmarks and print the table of all times and accuracies.

`python -m bench.perf [--json OUT] [--markdown OUT] [--smoke] [--contenders NAMES] [--device cuda]
[pytest arguments]`
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import pytest

from bench.perf.table import table

_HERE = Path(__file__).parent


def main(arguments: list[str]) -> int:
    """Run pytest on this folder, or on the named files of it, and print the table."""
    parser = argparse.ArgumentParser(
        prog="python -m bench.perf",
        description="All other arguments go to pytest, e.g. -k propagate, --contenders ours,scipy.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", type=Path, help="the report of pytest-benchmark")
    parser.add_argument("--markdown", type=Path, help="the printed table")
    chosen, rest = parser.parse_known_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        report = chosen.json or Path(folder) / "bench.json"
        report.unlink(missing_ok=True)
        files = [argument for argument in rest if argument.split("::")[0].endswith(".py")]
        status = pytest.main(
            [
                *([] if files else [str(_HERE)]),
                "--benchmark-only",
                "--benchmark-quiet",
                "--benchmark-disable-gc",
                f"--benchmark-json={report}",
                "-q",
                *rest,
            ]
        )
        if report.is_file() and report.stat().st_size:
            text = table(json.loads(report.read_text(encoding="utf-8")))
            print(text)
            if chosen.markdown:
                chosen.markdown.write_text(text + "\n", encoding="utf-8")
    return int(status)


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
