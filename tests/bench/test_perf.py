"""Every speed benchmark runs, at its tiny size, with all peers that are installed."""

from __future__ import annotations

import contextlib
import io
import json
from pathlib import Path
from typing import Any

import pytest

from bench.perf.__main__ import main
from bench.perf.sizes import FOLDER, sizes

FILES = sorted(path.name for path in (Path(__file__).parents[2] / "bench/perf").glob("test_*.py"))
# The presets of the quality benchmarks are there too.
CONFIGURED = sorted(path.stem for path in FOLDER.glob("*.yaml") if path.stem != "linear")


@pytest.fixture(scope="module")
def smoke(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], str, int]:
    """Report, output and status of one run of all of them."""
    out, said = tmp_path_factory.mktemp("bench") / "out.json", io.StringIO()
    # In this process, which has most of the peers loaded.
    with contextlib.redirect_stdout(said):
        status = main(["--smoke", "--json", str(out), "--tb=short"])
    report = json.loads(out.read_text()) if out.is_file() and out.stat().st_size else {}
    return report, said.getvalue(), status


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


def test_benchmarks_do_not_fail(smoke: tuple[dict[str, Any], str, int]) -> None:
    _, output, status = smoke
    assert status == 0, output


def test_sizes_and_benchmarks_belong_together() -> None:
    assert FILES and CONFIGURED
    folder = Path(__file__).parents[2] / "bench/perf"
    texts = "".join((folder / name).read_text(encoding="utf-8") for name in FILES)
    for name in CONFIGURED:
        assert f'sizes("{name}")' in texts
        assert sizes(name)[-1].smoke
