"""The judge of questions that were stored before."""

from pathlib import Path

from bench.quality.echo.judge import WAYS, judge
from bench.quality.request import Request


def test_echoes_are_no_first_hits(locomo: Path) -> None:
    found = judge(Request(data=locomo, embedder="hashing"), resamples=20)
    (systems,) = found.report["sets"].values()
    own, as_hits = systems["default"], systems["echoes as hits"]
    assert set(own) == set(WAYS)
    assert own["asked"]["echo first"][0] == 0.0 < as_hits["asked"]["echo first"][0]
    assert own["asked"]["recall"][0] == own["not stored"]["recall"][0]
    assert own["answered"]["reply"][0] == 1.0
    assert own["not stored"]["reply"] is None
    assert "echo first" in found.table
