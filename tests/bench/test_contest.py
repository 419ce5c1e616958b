"""The contest itself, with contenders whose time and accuracy are made up."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from bench.perf.contest import Race, Size, peer, sizes
from bench.perf.table import table


class Clock:
    """Time that only passes when a contender says so."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.now

    def contender(self, name: str, seconds: float, result: Any = 1.0) -> Callable[[], Any]:
        def call() -> Any:
            self.calls.append(name)
            self.now += seconds
            if isinstance(result, BaseException):
                raise result
            return result

        return call


class Benchmark:
    """Part of the fixture of pytest-benchmark that `Race` uses."""

    def __init__(self) -> None:
        self.extra_info: dict[str, Any] = {}
        self.rounds = 0

    def pedantic(
        self, target: Callable[[], Any], setup: Callable[[], Any], rounds: int, iterations: int
    ) -> None:
        assert iterations == 1
        self.rounds = rounds
        for _ in range(rounds):
            assert setup() is None
            target()


def _race(clock: Clock, **change: Any) -> Race:
    chosen = change.pop("chosen", None)
    size = Size("fake", "small", change.pop("parameters", {"n": 1_000}), rounds=5, **change)
    return Race(Benchmark(), size, 1, "Fake work.", chosen, clock)


def _run(race: Race, clock: Clock, **change: Any) -> dict[str, Any]:
    options: dict[str, Any] = {"accuracy": float, "measure": "recall", "at_least": 0.9} | change
    race(options.pop("ours", clock.contender("ours", 2.0)), **options)
    return race.benchmark.extra_info


def test_race_wrong_fast_contender_is_shown_but_not_compared() -> None:
    clock = Clock()
    peers = {
        "wrong": clock.contender("wrong", 0.1, 0.5),
        "right": clock.contender("right", 4.0, 0.95),
        "slow": clock.contender("slow", 8.0),
    }
    info = _run(_race(clock), clock, peers=peers, target=0.6)
    assert info["contenders"]["wrong"]["fit"] is False
    assert info["contenders"]["wrong"]["median_ms"] == pytest.approx(100.0)
    (verdict,) = info["verdicts"]
    assert verdict == {"against": "right", "ratio": 0.5, "target": 0.6, "met": True}


def test_race_error_is_wrong_when_large_and_nan_is_always_wrong() -> None:
    clock = Clock()
    peers = {
        "large": clock.contender("large", 1.0, 0.2),
        "nan": clock.contender("nan", 1.0, math.nan),
        "small": clock.contender("small", 1.0, 0.05),
    }
    ours = clock.contender("ours", 2.0, 0.0)
    info = _run(_race(clock), clock, ours=ours, peers=peers, at_least=None, at_most=0.1)
    fit = {name: one["fit"] for name, one in info["contenders"].items()}
    assert fit == {"ours": True, "large": False, "nan": False, "small": True}
    assert info["verdicts"][0]["ratio"] == 2.0
    assert info["verdicts"][0]["met"] is None


def test_against_a_floor_and_several_targets() -> None:
    clock = Clock()
    options = {
        "peers": {
            "igraph": clock.contender("igraph", 20.0),
            "torch": clock.contender("torch", 1.0),
        },
        "floors": {"product alone": clock.contender("product alone", 1.0, "no number")},
    }
    info = _run(_race(clock), clock, **options, target=1.15, against="product alone")
    assert info["verdicts"][0]["ratio"] == 2.0 and info["verdicts"][0]["met"] is False
    assert info["contenders"]["product alone"]["accuracy"] is None
    info = _run(_race(clock), clock, **options, target={"igraph": 1 / 8, "torch": 1.0})
    assert [one["met"] for one in info["verdicts"]] == [True, False]


def test_limits_stop_a_peer_before_it_is_called() -> None:
    clock = Clock()
    size = {"parameters": {"n": 20_000}, "limits": {"networkx": {"n": 10_000}}}
    peers = {"networkx": clock.contender("networkx", 1.0), "faiss": "not installed"}
    info = _run(_race(clock, **size), clock, peers=peers, target=1.0)
    absent = {name: one.get("absent") for name, one in info["contenders"].items()}
    assert absent["networkx"] == "over 8 GB or 10 minutes beyond n = 10,000"
    assert absent["faiss"] == "not installed"
    assert "networkx" not in clock.calls
    assert info["verdicts"][0]["ratio"] is None and info["verdicts"][0]["met"] is None
    allowed = _race(clock, parameters={"n": 10_000}, limits=size["limits"]).size
    assert allowed.beyond("networkx") is None
    reason = Size("fake", "x", {"n": 2}, limits={"a": {"n": 1, "why": "20 times slower"}})
    assert reason.beyond("a") == "20 times slower beyond n = 1"


@pytest.mark.parametrize("error", [MemoryError(), RuntimeError("no such index\nat line 3")])
def test_race_failing_peer_is_absent_with_the_reason(error: Exception) -> None:
    clock = Clock()
    peers = {"bad": clock.contender("bad", 1.0, error), "good": clock.contender("good", 1.0)}
    info = _run(_race(clock), clock, peers=peers)
    said = {MemoryError: "MemoryError: no message", RuntimeError: "RuntimeError: no such index"}
    assert info["contenders"]["bad"] == {"kind": "peer", "absent": said[type(error)]}
    assert info["verdicts"][0]["against"] == "good"
    with pytest.raises(type(error)):  # at the smoke size it is a fault of the benchmark
        _run(_race(clock, smoke=True), clock, peers=peers)


def test_race_peer_over_ten_minutes_is_absent_and_a_slow_one_runs_once() -> None:
    clock = Clock()
    peers = {
        "endless": clock.contender("endless", 601.0),
        "slow": clock.contender("slow", 70.0),
        "long": clock.contender("long", 20.0),
    }
    info = _run(_race(clock), clock, peers=peers)
    assert info["contenders"]["endless"]["absent"] == "over 10 minutes (601 s)"
    assert clock.calls.count("slow") == 1
    assert info["contenders"]["slow"]["median_ms"] == 70_000.0
    assert info["contenders"]["long"]["rounds"] == 3


def test_ours_fails_loudly() -> None:
    clock = Clock()
    with pytest.raises(MemoryError):
        _run(_race(clock), clock, ours=clock.contender("ours", 1.0, MemoryError()))
    race = _race(clock)
    with pytest.raises(AssertionError, match=r"recall is 0\.5, expected >= 0\.9"):
        _run(race, clock, ours=clock.contender("ours", 1.0, 0.5))
    assert race.benchmark.rounds == 0 and not race.benchmark.extra_info


def test_rounds_are_interleaved_and_fit_the_time_of_a_call() -> None:
    clock = Clock()
    race = _race(clock)
    _run(race, clock, peers={name: clock.contender(name, 0.1) for name in "ab"})
    assert race.benchmark.rounds == 5
    rounds = [clock.calls[at : at + 3] for at in range(3, len(clock.calls), 3)]
    assert len(rounds) == 5 and all(sorted(one) == ["a", "b", "ours"] for one in rounds)
    assert {one[0] for one in rounds} == {"a", "b"}
    quick, slow = _race(clock), _race(clock)
    _run(quick, clock, ours=clock.contender("ours", 1e-4))
    assert quick.benchmark.rounds == 101
    _run(slow, clock, ours=clock.contender("ours", 100.0))
    assert slow.benchmark.rounds == 3


def test_race_only_the_chosen_run() -> None:
    clock = Clock()
    peers = {name: clock.contender(name, 1.0) for name in ("igraph prpack", "scipy CSR")}
    options = {"peers": peers, "target": 1.0, "against": "scipy CSR"}
    info = _run(_race(clock, chosen=frozenset({"ours", "igraph"})), clock, **options)
    assert list(info["contenders"]) == ["ours", "igraph prpack"]
    assert info["verdicts"][0]["met"] is None


def test_race_must_be_well_put() -> None:
    clock = Clock()
    with pytest.raises(ValueError, match="one of at_least and at_most"):
        _run(_race(clock), clock, at_most=1.0)
    with pytest.raises(ValueError, match="got 'faiss'"):
        _run(_race(clock), clock, peers={"torch": "absent"}, target=1.0, against="faiss")


def test_everybody_computes_with_the_given_threads() -> None:
    before = torch.get_num_threads()
    seen = []

    def look() -> float:
        seen.append(torch.get_num_threads())
        return 1.0

    _run(Race(Benchmark(), Size("fake", "x", {}), 2), Clock(), ours=look, peers={"peer": look})
    assert set(seen) == {2}
    assert torch.get_num_threads() == before


def test_table() -> None:
    clock = Clock()
    peers = {
        "right": clock.contender("right", 4.0),
        "wrong": clock.contender("wrong", 0.1, 0.5),
        "away": "not installed",
    }
    floors = {"copy": clock.contender("copy", 0.25)}
    info = _run(_race(clock), clock, peers=peers, floors=floors, target={"right": 0.6, "copy": 1.0})
    described = {"cpu": "Fast", "cores": 2, "memory_gb": 8, "python": "3", "torch": "2"}
    machine = {"described": described | {"device": None, "versions": {"faiss-cpu": "1.9"}}}
    report = {"benchmarks": [{"extra_info": info}], "machine_info": machine}
    header, _, first, second, blank, footer, _ = table(report).split("\n")
    assert header.startswith("| operation | size | threads | ours ms | accuracy |")
    assert [cell.strip() for cell in first.strip("|").split("|")] == [
        "`fake` Fake work",
        "small: n 1,000",
        "1",
        "2,000",
        "1 (recall >= 0.9)",
        "right 4,000 (1); wrong 100 (0.5 !); away: not installed; copy 250 (floor)",
        "0.5 right",
        "<= 0.6 right",
        "yes",
    ]
    assert second.split("|")[-4:-1] == [" 8 copy ", " <= 1 copy ", " no "]
    assert blank == "" and footer == "Fast, 2 cores, 8 GB; Python 3, torch 2; faiss-cpu 1.9."


def test_bandwidth_beside_a_copy() -> None:
    values = torch.ones(2**20)
    race = Race(Benchmark(), Size("fake", "x", {}, rounds=3))
    _run(race, Clock(), ours=lambda: values.sum() > 0, bytes_moved=2**22)
    moved = race.benchmark.extra_info["bandwidth"]
    assert moved["gb_s"] > 0 and moved["share"] == pytest.approx(moved["gb_s"] / moved["copy_gb_s"])
    report = {"benchmarks": [{"extra_info": race.benchmark.extra_info}], "machine_info": {}}
    assert "of a copy's" in table(report)


@pytest.mark.cuda
def test_race_on_a_device() -> None:
    values = torch.ones(2**24, device="cuda")
    race = Race(Benchmark(), Size("fake", "x", {}, rounds=3, device="cuda"))
    _run(race, Clock(), ours=lambda: values * 1.0, accuracy=len, bytes_moved=2**27)
    assert 0.2 < race.benchmark.extra_info["bandwidth"]["share"] < 1.5


def test_race_peer_that_is_not_installed_is_none() -> None:
    assert peer("no_such_module_anywhere") is None
    assert peer("math") is math


def _write(folder: Path, text: str) -> Path:
    (folder / "fake.yaml").write_text(text)
    return folder


def test_sizes_are_read(tmp_path: Path) -> None:
    text = """
    threads: [1, 2]
    rounds: 4
    sizes:
      small: {n: 10}
      large: {n: 1_000, rounds: 3}
    cuda:
      huge: {n: 5}
    limits: {networkx: {n: 100}}
    smoke: {n: 2}
    """
    small, large, huge, smoke = sizes("fake", _write(tmp_path, text))
    assert dict(small) == {"n": 10} and str(small) == "small"
    assert (small.rounds, large.rounds, small.threads) == (4, 3, (1, 2))
    assert (huge.device, huge.threads) == ("cuda", (1,))
    assert smoke.smoke and not small.smoke and smoke.threads == (1,)
    assert large.beyond("networkx") and not small.beyond("networkx")
    with pytest.raises(KeyError, match=r"'m': size small of configs/bench/fake\.yaml has n"):
        small["m"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sizes: {a: {n: 1}}", "expected sizes, smoke"),
        ("sizes: {a: {n: 1}}\nsmoke: {n: 1}\nlimit: {}", "limit"),
        ("sizes: {a: {n: 1}}\nsmoke: {n: 1}\nlimits: {x: {m: 1}}", r"limits name \['m'\]"),
    ],
)
def test_wrong_sizes_are_refused(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        sizes("fake", _write(tmp_path, text))
