"""The judge of mode retrieval, part by part against plain Python, and from file to report."""

from __future__ import annotations

import itertools
import json
import lzma
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.cli import main
from graphmem_torch.config import ModesConfig, load_config
from graphmem_torch.errors import InputError
from graphmem_torch.evaluation import modes_curve, modes_scale
from graphmem_torch.evaluation.modes_choice import cheapest, leave_one_out, pareto_front
from graphmem_torch.evaluation.modes_clock import race
from graphmem_torch.evaluation.modes_communities import CommunityIndex
from graphmem_torch.evaluation.modes_context import COLUMNS, answer_measures, compare
from graphmem_torch.evaluation.modes_curve import measure_curves
from graphmem_torch.evaluation.modes_grid import (
    ASSIGNMENTS,
    RULES,
    depths,
    index_bytes,
    partition,
)
from graphmem_torch.evaluation.modes_point import Field
from graphmem_torch.evaluation.modes_scale import measure_scale
from graphmem_torch.evaluation.modes_search import (
    agreement,
    by_lists,
    by_modes,
    by_typical,
    flat,
)
from graphmem_torch.evaluation.modes_source import Source, has_conversations, sentences
from graphmem_torch.evaluation.modes_tree import build_tree, first_mentions, summaries
from graphmem_torch.evaluation.request import Request, judge
from graphmem_torch.memory import Memory
from graphmem_torch.ops import IVF
from graphmem_torch.spectral import search_modes
from graphmem_torch.text.embed import load_embedder

FAST = ["--embedder", "hashing:32", "--config.link.concepts", "pattern", "--device", "cpu"]


@pytest.fixture(autouse=True)
def _few_timings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is timed is not tested: a few rounds will do."""
    monkeypatch.setattr(modes_scale, "_ONE", 2)
    monkeypatch.setattr(modes_scale, "_BATCHES", 1)
    monkeypatch.setattr(modes_curve, "_ROUNDS", 2)


def _unit(*shape: int, seed: int = 0) -> torch.Tensor:
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=-1)


def _clusters(groups: int, each: int, width: int = 16) -> torch.Tensor:
    rows = _unit(groups, width).repeat_interleave(each, 0) + 0.1 * _unit(groups * each, width)
    return torch.nn.functional.normalize(rows, dim=1)


# The choice of a setting.


def test_the_front_holds_what_nothing_beats() -> None:
    chance = random.Random(1)
    points = {i: (chance.randrange(6) / 6, chance.randrange(6) / 6) for i in range(40)}
    front = pareto_front(points)
    for name, (quality, cost) in points.items():
        beaten = any(
            q >= quality and c <= cost and (q, c) != (quality, cost) for q, c in points.values()
        )
        assert ((quality, cost) in {points[i] for i in front}) == (not beaten), name
    assert [points[i][1] for i in front] == sorted(points[i][1] for i in front)


def test_the_cheapest_of_those_that_lose_next_to_nothing() -> None:
    points = {"a": (0.50, 1.0), "b": (0.495, 0.4), "c": (0.48, 0.1), "d": (0.497, 0.4)}
    assert cheapest(points, 0.5) == "d"
    assert cheapest(points, 0.5, tolerance=0.03) == "c"
    assert cheapest(points, 0.9) == "a"  # none is good enough: the best


def test_a_group_is_judged_by_a_choice_that_did_not_see_it() -> None:
    group = torch.tensor([0, 0, 1, 1, 2])
    reference = torch.ones(5, dtype=torch.float64)
    cost = {"cheap": torch.full((5,), 0.1).double(), "dear": torch.full((5,), 0.9).double()}
    # Cheap fails only in group 0: the others, chosen with group 0 in view, must be dear.
    cheap = torch.tensor([0.0, 0.0, 1.0, 1.0, 1.0], dtype=torch.float64)
    found = leave_one_out({"cheap": cheap, "dear": reference}, cost, reference, group)
    assert found is not None
    assert found.chosen == ["cheap", "dear", "dear"]
    assert found.quality.tolist() == [0.0, 0.0, 1.0, 1.0, 1.0]
    assert torch.allclose(found.cost, torch.tensor([0.1, 0.1, 0.9, 0.9, 0.9]).double())
    alone = torch.zeros(5, dtype=torch.int64)
    assert leave_one_out({"cheap": cheap}, cost, reference, alone) is None


def test_every_call_of_a_race_is_made_equally_often() -> None:
    made: dict[str, list[int]] = {"a": [], "b": []}
    found = race({name: calls.append for name, calls in made.items()}, 3)
    assert made == {"a": [0, 0, 1, 2], "b": [0, 0, 1, 2]}
    assert found.keys() == made.keys() and all(value >= 0 for value in found.values())


# Searching.


@pytest.mark.parametrize("assign", ASSIGNMENTS)
def test_all_modes_together_are_the_exact_search(assign: str) -> None:
    x, queries = _clusters(5, 12), _unit(7, 16, seed=1)
    modes = partition(x, "6", assign)
    exact = flat(x, queries, 10)
    (found,) = by_modes(modes, x, queries, searched=len(modes), taken=[len(x)])
    assert torch.equal(found.ranking[:, :10], exact.ranking)
    assert found.read.tolist() == [len(modes) + 60.0] * 7
    assert exact.read.tolist() == [60.0] * 7
    assert agreement(found.ranking, exact.ranking).tolist() == [1.0] * 7


def test_what_is_read_are_the_centroids_and_the_atoms_of_the_modes_searched() -> None:
    x, queries = _clusters(5, 12), _unit(7, 16, seed=1)
    modes = partition(x, "5", "kmeans")
    few, found, some = by_modes(modes, x, queries, searched=2, taken=[1, 100, 4])
    for ranking, read in zip(found.ranking, found.read.tolist(), strict=True):
        touched = set(modes.label[ranking[ranking >= 0]].tolist())
        assert len(touched) == 2
        assert read == len(modes) + sum(int(modes.size[m]) for m in touched)
    assert torch.equal(few.read, found.read)
    for number, fewer in ((1, few), (4, some)):
        assert fewer.ranking.shape == (7, 2 * number)
        own = search_modes(modes, x, queries, modes_k=2, per_mode=number)
        assert torch.equal(fewer.ranking, own.rows)


def test_the_inverted_file_beside_it() -> None:
    x, queries = _clusters(5, 12), _unit(7, 16, seed=1)
    index = IVF.build(x, 6)
    found = by_lists(index, queries, probes=6, k=10)
    assert torch.equal(found.ranking, flat(x, queries, 10).ranking)
    assert found.read.tolist() == [66.0] * 7
    sizes = index.offsets.diff()
    best = (queries @ index.centroids.T).argmax(1)
    assert by_lists(index, queries, probes=1, k=10).read.tolist() == (6 + sizes[best]).tolist()


def test_without_atoms_only_the_typical_ones_are_found() -> None:
    x = _clusters(5, 12)
    modes = partition(x, "5", "kmeans")
    typical = set(modes.representative[modes.representative >= 0].tolist())
    near = modes.centroid[[2]]
    bare, kept = by_typical(modes, near), by_typical(modes, near, x)
    for ranking in (bare.ranking, kept.ranking):
        assert set(ranking[ranking >= 0].tolist()) == typical
    assert set(bare.ranking[0, :3].tolist()) == set(modes.representative[2].tolist())
    cosine = x @ near[0]
    assert kept.ranking[0].tolist() == sorted(typical, key=lambda i: -float(cosine[i]))
    assert bare.read.tolist() == [len(modes)] and kept.read.tolist() == [len(typical)]


def test_agreement_counts_the_exact_best() -> None:
    exact = torch.tensor([[1, 2, 3], [4, 5, -1]])
    ranking = torch.tensor([[3, 9, 1, 2], [5, 4, 8, 7]])
    assert agreement(ranking, exact).tolist() == [pytest.approx(2 / 3), 1.0]
    assert agreement(torch.tensor([[-1, -1], [4, -1]]), exact).tolist() == [0.0, 0.5]


def test_what_an_index_weighs() -> None:
    x = _clusters(4, 10)
    modes = partition(x, "4", "kmeans")
    size = index_bytes(modes, x)
    assert size["flat"] == 40 * 16 * 4
    assert size["centroids"] == len(modes) * 16 * 4
    assert size["statistics"] == len(modes) * (16 * 4 + 4 + 8 + 4 + 24)
    assert size["representatives"] == size["statistics"] + 3 * len(modes) * 16 * 4
    assert size["whole"] == size["statistics"] + 4 * (40 + len(modes) + 1) + size["flat"]


def test_rules_on_little_and_unknown_rules() -> None:
    x = _unit(4, 16)
    for rule in RULES:
        assert 1 <= len(partition(x, rule, "kmeans")) <= 4
    with pytest.raises(InputError, match="energy"):
        partition(x, "half", "kmeans")
    assert depths(6) == [1, 2, 4, 6] and depths(1) == [1]


# The rivals.


def test_first_mentions() -> None:
    chance = random.Random(2)
    for width in (1, 9):
        shown = [[chance.randrange(-1, 5) for _ in range(width)] for _ in range(4)]
        found = first_mentions(torch.tensor(shown), 5).tolist()
        for row, ranking in zip(shown, found, strict=True):
            once = [i for i in dict.fromkeys(row) if i >= 0]
            assert ranking == once + [-1] * (5 - len(once))


def test_summaries_quote_what_is_nearest_to_the_mean() -> None:
    x = _unit(20, 8)
    label = torch.tensor([0] * 2 + [1] * 7 + [2] * 11)
    found = summaries(x, label).tolist()
    for cluster in range(3):
        rows = (label == cluster).nonzero()[:, 0]
        mean = x[rows].mean(0)
        best = sorted(rows.tolist(), key=lambda i: -float(x[i] @ mean))[:3]
        assert [i for i in found[cluster] if i >= 0] == sorted(best)
    assert found[0].count(-1) == 1


def test_the_tree_ends_and_ranks_every_leaf() -> None:
    x = _clusters(8, 15)
    texts = [str(i) for i in range(len(x))]
    asked: list[int] = []

    def encode(given: list[str]) -> torch.Tensor:
        asked.append(len(given))
        rows = [x[[int(i) for i in text.split("\n")]].mean(0) for text in given]
        return torch.nn.functional.normalize(torch.stack(rows), dim=1)

    tree = build_tree(x, texts, encode)  # type: ignore[arg-type]
    assert asked == sorted(asked, reverse=True) and asked[0] <= 18 and len(asked) >= 2
    ranking = tree.search(x[:5])
    assert all(sorted(row) == list(range(120)) for row in ranking.tolist())
    # The leaf itself has cosine 1; no summary of others is nearer.
    assert ranking[:, 0].tolist() == list(range(5))
    small = build_tree(x[:7], texts[:7], encode)  # type: ignore[arg-type]
    assert len(small.vectors) == 7


def test_opened_communities_come_first() -> None:
    x = _clusters(12, 4)
    label = torch.arange(12).repeat_interleave(4)
    summary = torch.nn.functional.normalize(x.view(12, 4, 16).mean(1), dim=1)
    index = CommunityIndex(x, label, summary)
    queries = _unit(3, 16, seed=5)
    ranking = index.search(queries)
    for query, row in zip(queries, ranking.tolist(), strict=True):
        opened = set((summary @ query).topk(8).indices.tolist())
        assert {int(label[i]) for i in row[:32]} == opened
        for part in (row[:32], row[32:]):
            cosine = [float(x[i] @ query) for i in part]
            assert cosine == sorted(cosine, reverse=True)


# The retrieval experiment.


def test_measures_of_an_answer_against_counting() -> None:
    chance = random.Random(3)
    count = 30
    costs = [chance.randrange(20, 200) for _ in range(count)]
    rankings = [chance.sample(range(count), count) for _ in range(6)]
    rankings[1] = rankings[1][:4] + [-1] * (count - 4)
    golds = [sorted(chance.sample(range(count), 1 + i % 3)) for i in range(6)]
    gold = torch.tensor([g + [-1] * (3 - len(g)) for g in golds])
    measured, found, tokens = answer_measures(torch.tensor(rankings), gold, torch.tensor(costs))
    for row, (ranking, own) in enumerate(zip(rankings, golds, strict=True)):
        figures = dict(zip(COLUMNS, measured[row].tolist(), strict=True))
        listed = [i for i in ranking if i >= 0]
        ranks = [listed.index(g) + 1 for g in own if g in listed]
        assert figures["mrr"] == pytest.approx(1 / min(ranks) if ranks else 0.0)
        for k in (5, 10):
            hits = len(set(listed[:k]) & set(own))
            assert figures[f"p@{k}"] == pytest.approx(hits / k)
            assert figures[f"tokens@{k}"] == sum(costs[i] for i in listed[:k])
        assert figures["recall@10"] == pytest.approx(len(set(listed[:10]) & set(own)) / len(own))
        for budget in (512, 1024, 2048):
            spent = list(itertools.accumulate(costs[i] for i in listed))
            fits = [i for i, cost in zip(listed, spent, strict=True) if cost <= budget]
            hits = len(set(fits) & set(own))
            assert figures[f"p@{budget}t"] == pytest.approx(hits / max(1, len(fits)))
            assert figures[f"recall@{budget}t"] == pytest.approx(hits / len(own))
        for depth in (1, 10, 50):
            assert found[row, depth - 1] == len(set(listed[:depth]) & set(own))
            assert tokens[row, depth - 1] == sum(costs[i] for i in listed[:depth])


def test_equal_precision_is_as_much_gold_for_fewer_tokens() -> None:
    costs = torch.full((40,), 10)
    gold = torch.tensor([[0], [1]])
    late = torch.arange(40).roll(9).expand(2, -1)  # gold 0 at 10th place, gold 1 at 11th
    early = torch.arange(40).expand(2, -1)
    never = torch.arange(39, 4, -1).expand(2, -1)
    answers = {
        name: [answer_measures(ranking, gold, costs)]
        for name, ranking in (("late", late), ("early", early), ("never", never))
    }
    report = compare(answers, subject="early", reference="late", seed=0, resamples=20)
    assert report["late"]["equal_precision"] == {"hits": 10, "tokens": 100.0, "ratio": 1.0}
    # One of the two is found at once.
    assert report["early"]["equal_precision"] == {"hits": 1, "tokens": 10.0, "ratio": 10.0}
    assert report["never"]["equal_precision"]["tokens"] is None
    assert "difference" not in report["early"]
    assert report["late"]["difference"]["p@5"][0] == pytest.approx(0.2)
    assert report["never"]["difference"]["mrr"][0] == pytest.approx(0.75)


# Curves.


def test_curves_of_conversations(monkeypatch: pytest.MonkeyPatch) -> None:
    rules = {rule: RULES[rule] for rule in ("energy", "gap", "50")}
    monkeypatch.setattr(modes_curve, "RULES", rules)
    fields = []
    for number in range(2):
        x = _clusters(6, 8) if number else _unit(40, 16, seed=4)
        gold = torch.arange(12)[:, None]
        noise = 0.3 * _unit(12, 16, seed=number)
        queries = torch.nn.functional.normalize(x[:12] + noise, dim=1)
        fields.append(Field(x, queries, gold, torch.full((len(x),), 5)))
    own = ModesConfig(count=6, look=6, per_mode=50)
    report = measure_curves(fields, preset=own, resamples=20)
    assert report["preset"]["agreement"] == 1.0
    assert report["preset"]["difference"] == [0.0, 0.0, 0.0]
    # The exact search, by hand.
    tops = [(f.queries @ f.vectors.T).topk(10).indices for f in fields]
    hits = torch.cat([(t == torch.arange(12)[:, None]).any(1).double() for t in tops])
    assert report["reference"]["recall"]["10"] == pytest.approx(float(hits.mean()))
    assert report["reference"]["share"] == report["reference"]["agreement"] == 1.0
    assert set(report["curves"]) == {f"{r}/{a}" for r in rules for a in ASSIGNMENTS}
    for curve in report["curves"].values():
        everything = [p for p in curve["points"] if p["modes"] == 0 and p["atoms"] == 50]
        assert len(everything) == 1 and everything[0]["agreement"] == 1.0
        assert everything[0]["share"] > 1.0
        for atoms in (1, 50):
            reads = [p["read"] for p in curve["points"] if p["atoms"] == atoms and p["modes"]]
            assert reads == sorted(reads)
    front = report["front"]
    assert [p["share"] for p in front] == sorted(p["share"] for p in front)
    chosen = report["recommended"]
    assert chosen["recall"]["10"] >= report["reference"]["recall"]["10"] - 0.01 - 1e-9
    assert len(report["left_out"]["chosen"]) == 2
    json.dumps(report, allow_nan=False)
    assert measure_curves(fields[:1], resamples=20)["left_out"] is None


def _novel(count: int) -> list[str]:
    chance = random.Random(4)
    words = [f"word{i}" for i in range(300)]
    phrases = [[" ".join(chance.choices(words, k=7)) for _ in range(3)] for _ in range(count)]
    return [". ".join(part.capitalize() for part in three) + "." for three in phrases]


def test_curves_at_scale() -> None:
    texts = _novel(90)
    embedder = load_embedder("hashing:32", "cpu")
    source = Source(embedder.encode(texts).pooled.float(), texts, embedder)
    report = measure_scale(source, resamples=20)
    assert report["n"] == {"held_out": 9, "rows": [81]}
    (part,) = report["sizes"]
    assert part["rows"] == 81 and part["width"] == 32
    assert part["flat"]["agreement"] == [1.0, 1.0, 1.0]
    assert part["flat"]["read"] == 81
    assert {(m["asked"], m["assign"]) for m in part["modes"]} == {
        (9, "kmeans"),
        (9, "sign"),
        (9, "varimax"),
        (50, "kmeans"),
    }
    for index in (*part["modes"], *part["ivf"]):
        last = index["points"][-1]
        assert last["searched"] == index["count"]
        assert last["agreement"] == [1.0, 1.0, 1.0]
        assert last["known_item"] == part["flat"]["known_item"]
        assert last["read"] == index["count"] + 81
        assert all(p["ms_one"] > 0 and p["faster_batch"] > 0 for p in index["points"])
    # More modes than the vectors have dimensions are not to be had.
    assert [m["axes"] for m in part["modes"] if m["asked"] == 50] == [32]
    json.dumps(report, allow_nan=False)
    with pytest.raises(InputError, match="at least 20"):
        measure_scale(Source(source.vectors[:19], texts[:19], embedder))


def test_sentences_are_asked_for_with_the_text_they_are_from() -> None:
    texts = [
        "One. Two is not long enough. The third one is long enough to be asked for! Four.",
        "Only a single sentence, which is therefore passed over.",
        "First here. Second here. Third here.",
    ]
    found, origin = sentences(texts, torch.tensor([2, 0, 1]))
    assert found == ["Two is not long enough."] and origin.tolist() == [0]


# From file to report.


def test_the_judge_on_conversations(
    locomo: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "modes.json"
    arguments = ["eval", "modes", "--data", str(locomo), "--json", str(out), "--preset", "synapse"]
    assert main([*arguments, *FAST]) == 0
    report = json.loads(out.read_text())
    assert report["dataset"] == "modes" and report["preset"] == "synapse"
    assert report["n"] == {"questions": 6, "conversations": 2}
    assert set(report["systems"]) == {
        *("flat", "tree", "communities", "modes", "default", "synapse"),
    }
    for name, figures in report["systems"].items():
        assert all(figures[c] >= 0.0 for c in COLUMNS)
        assert ("difference" in figures) == (name != "synapse")
    table = capsys.readouterr().out
    assert all(name in table for name in (*report["systems"], "kmeans", "Recommended"))


@pytest.mark.parametrize("form", ["jsonl", "xz", "store"])
def test_the_judge_on_texts(form: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = "\n".join(json.dumps({"text": text}) for text in _novel(24))
    data = tmp_path / "novel.jsonl"
    data.write_text(lines, encoding="utf-8")
    if form == "xz":
        data = tmp_path / "novel.jsonl.xz"
        data.write_bytes(lzma.compress(lines.encode()))
    if form == "store":
        data = tmp_path / "store"
        config = load_config("default", {"link.concepts": "pattern"})
        with Memory.open(data, config=config, embedder="hashing:32", device="cpu") as memory:
            memory.add(_novel(24))
    out = tmp_path / "modes.json"
    assert main(["eval", "modes", "--data", str(data), "--json", str(out), *FAST]) == 0
    report = json.loads(out.read_text())
    assert report["n"] == {"held_out": 2, "rows": [22]}
    assert "22 vectors of 32 dimensions" in capsys.readouterr().out


def test_unusable_data(tmp_path: Path, locomo: Path) -> None:
    options: dict[str, Any] = {"embedder": "hashing:32", "device": "cpu"}
    short = tmp_path / "short.jsonl"
    short.write_text('{"text": "alone"}\n')
    with pytest.raises(InputError, match="at least 20"):
        judge("modes", Request(data=short, **options))
    broken = tmp_path / "broken.xz"
    broken.write_bytes(b"no archive")
    with pytest.raises(InputError, match="broken"):
        judge("modes", Request(data=broken, **options))
    samples = json.loads(locomo.read_text())
    for sample in samples:
        for question in sample["qa"]:
            question["evidence"] = []
    locomo.write_text(json.dumps(samples))
    with pytest.raises(InputError, match="evidence"):
        judge("modes", Request(data=locomo, **options))
    assert has_conversations(locomo.parent) and not has_conversations(tmp_path)
    with pytest.raises(InputError, match="--input"):
        judge("modes", Request(data=locomo, input="observations", **options))
