"""The stress of the kernels, on sizes that the interpreter can do."""

from __future__ import annotations

import json

import pytest
import torch

from bench.stress import Stress, main, run
from tests.kernels import lacking

if reason := lacking():
    pytest.skip(reason, allow_module_level=True)

SMALL = {"nodes": 12, "degree": 1, "questions": 2, "rounds": 1, "repeats": 1, "keys": 129}
SMALL |= {"epsilon": 0.05}
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


def test_stress_holds_and_is_written_down(tmp_path, capsys):
    out = tmp_path / "out.json"
    arguments = [text for name, value in SMALL.items() for text in (f"--{name}", str(value))]
    assert main([*arguments, "--device", DEVICE, "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(report["checks"]) == 15
    assert all(line.startswith("holds") for line in lines)
    checked = {one["check"].split(":")[0] for one in report["checks"]}
    assert checked == {"push", "spmm", "propagate", "inhibit", "maxsim", "bm25", "topk_cosine"}


def test_stress_says_what_is_broken(monkeypatch):
    """A search that leaves out the best."""
    from graphmem_torch.kernels import topk_cosine as kernel

    whole = kernel.launch_topk_cosine

    def second_best(queries, keys, k):
        values, indices = whole(queries, keys, k + 1)
        return values[:, 1:], indices[:, 1:]

    monkeypatch.setattr(kernel, "launch_topk_cosine", second_best)
    small = {"nodes": 5, "degree": 1, "questions": 1, "rounds": 0, "repeats": 0, "keys": 30}
    report = run(Stress(device=DEVICE, **small))
    broken = {one["check"] for one in report["checks"] if not one["holds"]}
    assert not report["holds"]
    assert {name.split(":")[0] for name in broken} == {"topk_cosine"}
    assert len(broken) == 5
