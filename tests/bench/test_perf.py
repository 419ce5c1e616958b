"""Every speed benchmark runs, at its tiny size, with all peers that are installed."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.perf.sizes import FOLDER, sizes

FILES = sorted(path.name for path in (Path(__file__).parents[2] / "bench/perf").glob("test_*.py"))
# The presets of the quality benchmarks are there too.
CONFIGURED = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "linear")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, int]:
    """Report, output and status of one run of all of them."""
    out = tmp_path_factory.mktemp("bench") / "out.json"
    done = subprocess.run(
        [sys.executable, "-m", "bench.perf", "--smoke", "--json", str(out), "--tb=short"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=900,
    )
    report = json.loads(out.read_text()) if out.is_file() and out.stat().st_size else {}
    return report, done.stdout + done.stderr[-2000:], done.returncode


@pytest.mark.parametrize("name", FILES)
def test_benchmark_runs(smoke: tuple[dict[str, Any], str, int], name: str) -> None:
    report, output, _ = smoke
    infos = [
        entry["extra_info"]
        for entry in report.get("benchmarks", [])
        if f"/{name}::" in entry["fullname"]
    ]
    assert infos, output
    for info in infos:
        assert info["contenders"]["ours"]["median_ms"] > 0
        assert f"`{info['operation']}`" in output


def test_no_benchmark_fails(smoke: tuple[dict[str, Any], str, int]) -> None:
    _, output, status = smoke
    assert status == 0, output


def test_every_benchmark_has_sizes_and_every_size_a_benchmark() -> None:
    assert FILES and CONFIGURED
    folder = Path(__file__).parents[2] / "bench/perf"
    texts = "".join((folder / name).read_text(encoding="utf-8") for name in FILES)
    for name in CONFIGURED:
        assert f'sizes("{name}")' in texts
        assert sizes(name)[-1].smoke
