"""The judge of regime switches: its scores against slow ones, and a run on small dialogues."""

from __future__ import annotations

import itertools
import json
import random
from pathlib import Path

import numpy as np
import pytest
import torch

from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.quality.regime.judge import judge
from graphmem_torch.quality.regime.segmentation import (
    NEAR,
    lags,
    matched,
    measures,
    nearness,
    segment_errors,
)
from graphmem_torch.quality.regime.streams import read_streams
from graphmem_torch.quality.regime.systems import CosineDrift, mean_cusum
from graphmem_torch.quality.request import Request
from graphmem_torch.text.embedder import HashingEmbedder
from tests.bench.quality.made import locomo_file

TOPICS = {
    "boats": "canoe harbour sail rudder anchor mast keel tide",
    "music": "violin cello bow concert score rehearsal tune string",
    "stars": "comet telescope orbit planet eclipse nebula dome lens",
    "bread": "oven flour dough bakery crust yeast loaf rye",
    "horses": "saddle stable gallop mane bridle hoof pasture foal",
}


def dialogues(count: int, seed: int) -> list[dict[str, object]]:
    g, found = random.Random(seed), []
    for number in range(count):
        texts: list[str] = []
        lengths = []
        for topic in g.sample(sorted(TOPICS), 3):
            lengths.append(g.choice([3, 4, 5]))
            words = TOPICS[topic].split()
            texts += [f"the {' '.join(g.sample(words, 4))}" for _ in range(lengths[-1])]
        found.append({"dial_id": number, "utterances": texts, "segments": lengths, "set": "test"})
    return found


SIZES = (("one", 6, 0), ("two", 4, 1))


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two files of dialogues: 3 streams and 2, with two dialogues a stream."""
    folder = tmp_path_factory.mktemp("topics")
    for name, count, seed in SIZES:
        text = json.dumps(dialogues(count, seed))
        (folder / f"{name}.json").write_text(text, encoding="utf-8")
    return folder


def random_marks(size: int, seed: int, share: float) -> torch.Tensor:
    return torch.rand(size, generator=torch.Generator().manual_seed(seed)) < share


def test_matched_is_the_largest_matching() -> None:
    networkx = pytest.importorskip("networkx")
    for seed, (a, b) in enumerate(itertools.product((0.1, 0.4, 0.8), repeat=2)):
        marks, switch = random_marks(40, seed, a), random_marks(40, 100 + seed, b)
        graph = networkx.Graph()
        mine = [("m", i) for i in marks.nonzero().flatten().tolist()]
        graph.add_nodes_from(mine)
        for _, i in mine:
            for s in switch.nonzero().flatten().tolist():
                if abs(i - s) <= 1:
                    graph.add_edge(("m", i), ("s", s))
        best = networkx.bipartite.maximum_matching(graph, top_nodes=mine) if mine else {}
        assert int(matched(marks[None], switch)) == len(best) // 2


def test_measures_by_hand() -> None:
    switch = torch.zeros(20, dtype=torch.bool)
    switch[[5, 10, 15]] = True
    marks = torch.zeros(3, 20, dtype=torch.bool)
    marks[0, [5, 10, 15]] = True
    marks[1, [4, 11, 13, 18]] = True
    f1, precision, recall, false, p_k, window = measures(marks, switch).T
    assert f1.tolist() == pytest.approx([1, 4 / 7, 0])
    assert precision.tolist() == pytest.approx([1, 0.5, 0])
    assert recall.tolist() == pytest.approx([1, 2 / 3, 0])
    assert false.tolist() == pytest.approx([0, 10, 0])
    assert float(p_k[0]) == float(window[0]) == 0 and float(p_k[2]) > 0.3


def test_segment_errors_against_their_definition() -> None:
    for seed in range(8):
        switch, marks = random_marks(60, seed, 0.2), random_marks(60, seed + 50, 0.2)
        k = max(1, round(60 / (2 * (int(switch.sum()) + 1))))
        p_k, window = segment_errors(marks[None], switch)
        apart, number = [], []
        for i in range(60 - k):
            true = int(switch[i + 1 : i + k + 1].sum())
            told = int(marks[i + 1 : i + k + 1].sum())
            apart.append((true > 0) != (told > 0))
            number.append(true != told)
        assert float(p_k) == pytest.approx(np.mean(apart))
        assert float(window) == pytest.approx(np.mean(number))


def test_segment_errors_of_a_stream_shorter_than_the_window() -> None:
    p_k, window = segment_errors(torch.ones(2, 1, dtype=torch.bool), torch.zeros(1).bool())
    assert p_k.tolist() == window.tolist() == [0, 0]


def test_lags() -> None:
    switch = torch.zeros(20, dtype=torch.bool)
    switch[[4, 8, 15]] = True
    alarm = torch.zeros(20, dtype=torch.bool)
    alarm[[3, 6, 7, 15]] = True
    lag, length = lags(alarm, switch)
    assert lag.tolist() == [2, torch.inf, 0] and length.tolist() == [4, 7, 5]


def test_nearness_against_every_pair() -> None:
    for seed in range(8):
        alarm, switch = random_marks(50, seed, 0.1), random_marks(50, seed + 50, 0.08)
        places = [each.nonzero().flatten().tolist() for each in (alarm, switch)]

        def near(own: list[int], others: list[int]) -> int:
            return sum(any(abs(one - other) <= NEAR for other in others) for one in own)

        expected = [
            len(places[0]),
            near(*places),
            near(*places[::-1]),
            near([*range(50)], places[1]),
        ]
        assert nearness(alarm, switch).tolist() == expected


def rows_of(regimes: int, length: int, noise: float = 0.6) -> torch.Tensor:  # [n, 12]
    """Unit rows around a centre of their own for each regime."""
    g = torch.Generator().manual_seed(0)
    centre = torch.randn(regimes, 12, generator=g).repeat_interleave(length, 0)
    rows = centre + noise * torch.randn(regimes * length, 12, generator=g)
    return torch.nn.functional.normalize(rows, dim=1)


@pytest.mark.parametrize("before", [1, 3])
@pytest.mark.parametrize("after", [1, 2])
def test_cosine_drift_against_a_loop(before: int, after: int) -> None:
    x = rows_of(5, 6).double().numpy()
    found = CosineDrift(12, before=before, after=after).update(torch.tensor(x))
    parted = CosineDrift(12, before=before, after=after)
    parts = [parted.update(part).statistic for part in torch.tensor(x).split([1, 0, 11, 18])]
    torch.testing.assert_close(torch.cat(parts), found.statistic, rtol=1e-4, atol=1e-5)
    for t in range(len(x)):
        cut = t + 1 - after
        if cut < 1:
            assert found.statistic[t] == -torch.inf
            continue
        a, b = x[max(0, cut - before) : cut].sum(0), x[cut : t + 1].sum(0)
        cosine = a @ b / np.linalg.norm(a) / np.linalg.norm(b)
        assert float(found.statistic[t]) == pytest.approx(1 - cosine, abs=1e-5)
        assert int(found.position[t]) == max(0, cut)


def test_mean_cusum_against_a_loop() -> None:
    x = rows_of(8, 12, noise=0.3).double().numpy()
    thresholds = [1.0, 2.0, 5.0]
    found = mean_cusum(torch.tensor(x), torch.tensor(thresholds).double(), slack=0.5)
    assert found.shape == (3, len(x)) and (found[:, 0] == -torch.inf).all()
    for one, threshold in zip(found, thresholds, strict=True):
        regime, level, seen = x[0].copy(), 0.0, []
        for t in range(1, len(x)):
            c = 1 - x[t] @ regime / np.linalg.norm(x[t]) / np.linalg.norm(regime)
            spread = float(np.std(seen)) if seen else 0.0
            if len(seen) >= 2 and spread > 1e-6:
                level = max(0.0, level + (c - np.mean(seen)) / spread - 0.5)
                assert float(one[t]) == pytest.approx(level, rel=1e-3, abs=1e-3)
                if level > threshold:
                    regime, level = np.zeros(12), 0.0
            seen.append(c)
            regime = regime + x[t]
        assert (one > threshold).any()


def test_mean_cusum_of_a_stream_that_stands_still_or_stops() -> None:
    grid = torch.tensor([0.5, 2.0]).double()
    assert not (mean_cusum(rows_of(1, 1).expand(300, -1), grid) > grid[:, None]).any()
    assert (mean_cusum(torch.zeros(60, 12), grid) == -torch.inf).all()


def test_read_streams_holds_every_utterance_and_both_kinds_of_borders(topics: Path) -> None:
    streams = read_streams(topics, HashingEmbedder(16), seed=3, dialogues=2)
    assert sorted(streams) == ["one", "two"]
    assert [len(streams["one"]), len(streams["two"])] == [3, 2]
    for name, count, seed in SIZES:
        made = dialogues(count, seed)
        assert sum(len(s.switch) for s in streams[name]) == sum(len(d["utterances"]) for d in made)
        borders = sum(int(s.switch.sum()) for s in streams[name])
        assert borders == 3 * count - len(streams[name])
        assert not any(bool(s.switch[0]) for s in streams[name])
        for stream in streams[name]:
            gaps = stream.switch.nonzero().flatten().diff()
            assert set(gaps.tolist()) <= {3, 4, 5}


def test_judge_holds_the_preset_against_every_baseline(topics: Path) -> None:
    request = Request(data=topics, embedder=HashingEmbedder(24), seed=1)
    found = judge(request, dialogues=2, resamples=50)
    report = found.report
    assert json.loads(json.dumps(report)) == report
    assert report["dataset"] == "regime" and report["preset"] == "default"
    assert report["n"]["one"]["streams"] == 3
    for name in ("one", "two"):
        systems = report["systems"][name]
        assert {
            "silence",
            "chance",
            "published",
            "cosine",
            "windows_ahead",
            "cusum",
            "cold",
            "foreign",
            "default",
        } <= systems.keys()
        assert systems["silence"]["f1"] == 0 and systems["silence"]["recall"] == 0
        assert systems["windows_ahead"]["look_ahead"] == 1
        assert systems["default"]["look_ahead"] == 0
        # Topics that share no word are found by anything that looks at the words.
        assert systems["cosine"]["f1"] > systems["chance"]["f1"]
        for figures in systems.values():
            low, high = figures["ci"]["f1"]
            assert low - 1e-9 <= figures["f1"] <= high + 1e-9
        assert systems["default"]["ci"]["difference"]["f1"] == [0, 0, 0]
    assert "default" in found.table and "windows_ahead" in found.table


def test_judge_is_the_same_for_the_same_seed(topics: Path) -> None:
    request = Request(data=topics / "two.json", embedder=HashingEmbedder(24), seed=1)
    one, other = (judge(request, dialogues=2, resamples=20).report for _ in range(2))
    assert one["systems"] == other["systems"]


def test_judge_takes_the_detector_of_the_preset(topics: Path) -> None:
    config = load_config("default", {"regime.detector": "published", "name": "mine"})
    request = Request(data=topics / "two.json", config=config, embedder=HashingEmbedder(16))
    systems = judge(request, dialogues=2).report["systems"]["two"]
    assert systems["mine"]["f1"] == systems["published"]["f1"]
    assert "cold" not in systems and "foreign" not in systems


@pytest.mark.parametrize(
    "text",
    [
        "{",
        "[1, 2]",
        '[{"utterances": ["a"]}]',
        '[{"utterances": ["a", "b"], "segments": [1]}]',
        '[{"utterances": ["a", " "], "segments": [2]}]',
        '[{"utterances": ["a"], "segments": [1]}]',
    ],
)
def test_read_streams_tells_unusable_files(tmp_path: Path, text: str) -> None:
    (tmp_path / "bad.json").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="expected"):
        read_streams(tmp_path, HashingEmbedder(16), seed=0)
    with pytest.raises(InputError, match="expected"):
        read_streams(tmp_path / "none.json", HashingEmbedder(16), seed=0)


def test_sessions_of_locomo_are_switches(tmp_path: Path, topics: Path) -> None:
    (tmp_path / "locomo").mkdir()
    file = locomo_file(tmp_path / "locomo")
    (tmp_path / "topics").symlink_to(topics)
    found = read_streams(tmp_path, HashingEmbedder(16), seed=0, dialogues=2)
    assert list(found) == ["one", "two", file.stem]
    samples = json.loads(file.read_text(encoding="utf-8"))
    assert len(found[file.stem]) == len(samples)
    for stream, sample in zip(found[file.stem], samples, strict=True):
        talk = sample["conversation"]
        sizes = [len(talk[f"session_{i}"]) for i in range(1, 9) if talk.get(f"session_{i}")]
        assert stream.switch.nonzero().flatten().tolist() == list(itertools.accumulate(sizes[:-1]))
        assert len(stream.rows) == len(stream.switch) == sum(sizes)
