"""The judge of contexts: a whole run on a small data root."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.context.formats import FORMATS, load_format
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Layout, Memory
from graphmem_torch.quality.common.baselines import BASELINES
from graphmem_torch.quality.common.rankings import rank_candidates
from graphmem_torch.quality.context.gold import (
    CURVE,
    PARTS,
    SYSTEMS,
    entry_costs,
    read_gold_sets,
)
from graphmem_torch.quality.context.greedy import kept_part, kept_whole, nearest_that_fit
from graphmem_torch.quality.context.judge import judge
from graphmem_torch.quality.context.noise import random_facts
from graphmem_torch.quality.request import Request
from graphmem_torch.quality.request import judge as judge_named
from graphmem_torch.text.sentence_transformer import load_embedder
from graphmem_torch.text.tokens import count_tokens
from tests.bench.quality.made import TITLES, passage_files


@pytest.fixture
def root(tmp_path: Path, locomo: Path) -> Path:
    """Two conversations, eight passages with two questions, two essays."""
    locomo.parent.rename(tmp_path / "locomo")
    text = tmp_path / "text"
    text.mkdir()
    passage_files(tmp_path / "multihop")
    for name in ("one", "two"):
        body = " ".join(f"The essay {name} says sentence number {i} of many." for i in range(40))
        (text / f"{name}.txt").write_text(body, encoding="utf-8")
    return tmp_path


def test_judge_on_a_small_root(root: Path) -> None:
    preset = "contextos"
    config = load_config(preset)
    config = replace(config, link=replace(config.link, concepts="pattern"))
    request = Request(data=root, preset=preset, config=config, embedder="hashing")
    found = judge(request, memories=1, noise_levels=(5, 10_000))
    report = found.report
    json.dumps(report, allow_nan=False)
    assert report["dataset"] == "context"
    assert report["preset"] == preset
    assert set(report["gold"]) == {"locomo", "small"}
    assert report["n"]["small"] == {"all": 2}
    for group in report["gold"]["small"]["groups"].values():
        assert set(group) == {preset, PARTS.format(preset), *SYSTEMS}
        for system in group.values():
            recall = [system["recall"][str(b)] for b in CURVE]
            # Eight passages of about 35 tokens are less than 4,096 tokens.
            assert recall[-1] == 1.0
            assert all(0 <= share <= 1 for share in recall)
    assert set(report["two_hop"]) == {"n", "stated", "found"}
    needles = report["needles"]
    assert needles["lengths"][-1] == sum(needles["lengths"])
    assert len(needles["kinds"]["literal"]["cells"]["200"][0]) == 11
    assert set(report["noise"]["noise"]) == {"5"}
    assert report["noise"]["noise"]["5"]["policy"] == 1.0
    assert report["decay"]["semantic"]["1"] == pytest.approx(0.9995**24, abs=1e-4)
    assert report["decay"]["episodic"]["1"] == pytest.approx(0.9**24, abs=1e-4)
    assert report["decay"]["procedural"]["7"] == 1.0
    for title in ("small, all", "locomo, 1-4", "needles in a context", "distractors", "day 7"):
        assert title in found.table


def test_entry_costs_are_those_of_the_prompt(root: Path) -> None:
    config = load_config("default", {"link.concepts": "pattern", "context.min_relevance": 0})
    sizes = {}
    for gold in read_gold_sets(root):
        for task in gold.tasks(config, load_embedder("hashing"), "cpu"):
            sizes[gold.name] = len(task.ids)
            ranking = rank_candidates(BASELINES["dense"](task, task.questions[:2]))
            costs = entry_costs(task, ranking)
            # With room for everything the compiler writes all of it.
            whole = task.memory.compile(task.questions[:2], budget=10**6, k=len(task.ids))
            for row, context in enumerate(whole):
                assert len(context.sources) == len(task.ids)
                assert abs(int(costs[row].sum()) - context.tokens) <= 2
                assert count_tokens([context.text], config.context.tokenizer) == [context.tokens]
    assert sizes == {"locomo": 12, "small": len(TITLES)}


def test_judge_wants_data(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="passages"):
        judge_named("context", Request(data=tmp_path, embedder="hashing"))


def test_judge_leaves_out_parts_without_data(root: Path) -> None:
    shutil.rmtree(root / "text")
    shutil.rmtree(root / "locomo")
    config = load_config("default", {"link.concepts": "none"})
    request = Request(data=root, config=config, embedder="hashing")
    found = judge(request, memories=1, noise_levels=(5,))
    json.dumps(found.report, allow_nan=False)
    assert found.report["needles"] is None and set(found.report["gold"]) == {"small"}
    assert "needles in a context" not in found.table and "distractors" in found.table


def test_read_gold_sets_leaves_out_conversations_without_gold(root: Path) -> None:
    (path,) = (root / "locomo").glob("*.json")
    samples = json.loads(path.read_text())
    for question in samples[0]["qa"]:
        question["evidence"] = []
    path.write_text(json.dumps(samples))
    names = [one.name for one in read_gold_sets(root)[0].conversations]
    assert names == [samples[1]["sample_id"]]
    for sample in samples[1:]:
        sample["qa"] = [dict(question, evidence=[]) for question in sample["qa"]]
    path.write_text(json.dumps(samples))
    assert [one.name for one in read_gold_sets(root)] == ["small"]


def test_read_gold_sets_tells_sets_of_one_name_apart(root: Path) -> None:
    shutil.copytree(root / "multihop", root / "more")
    names = [one.name for one in read_gold_sets(root)]
    assert names == ["locomo", "more/small", "multihop/small"]


@pytest.mark.parametrize("layout", FORMATS)
def test_kept_whole_is_what_stands_whole_in_the_prompt(layout: str) -> None:
    text = 'Two "lines",\nof which one is quoted.'
    atoms = [Atom("a", text, kind="fact", session="s"), Atom("b", "Another fact.", kind="fact")]
    config = load_config("default", {"link.concepts": "none", "context.min_relevance": 0})
    own = Layout(format=layout)
    short = replace(own, shorten=lambda _, texts: ["Two"] * 2)
    with Memory.open(None, config=config, embedder="hashing", device="cpu") as memory:
        memory.add(atoms)
        whole = memory.compile("Which lines?", budget=500, layout=own)
        cut = memory.compile("Which lines?", budget=500, layout=short)
    written = load_format(layout)
    assert kept_whole(whole, atoms, written) == {"a", "b"} == set(cut.sources)
    assert kept_whole(cut, atoms, written) == set()
    assert kept_whole(replace(whole, budget=whole.tokens - 1), atoms, written) == set()
    assert kept_whole(replace(whole, sources=("b",)), atoms, written) == {"b"}


def test_kept_part_is_the_share_of_words_of_an_extract() -> None:
    rain = [f"It rained for {day} hours that day." for day in range(2, 11)]
    sentences = ["The pump was mended.", *rain, "The spare key is in the barn."]
    text = " ".join(sentences)
    config = load_config("default", {"link.concepts": "none", "context.min_relevance": 0})
    with Memory.open(None, config=config, embedder="hashing", device="cpu") as memory:
        memory.add([Atom("a", text)])
        (atom,) = memory.get(["a"])
        part, whole = memory.compile("Where is the spare key?", budget=[30, 500])
    assert part.extract and sentences[-1] in part.text and not whole.extract
    held = sum(len(sentence.split()) for sentence in sentences if sentence in part.text)
    assert kept_part(part, atom) == pytest.approx(held / len(text.split()), abs=1e-9)
    assert kept_part(whole, atom) == 1.0 and kept_part(part, replace(atom, id="b")) == 0.0
    assert kept_part(replace(part, budget=part.tokens - 1), atom) == 0.0


def test_nearest_that_fit_is_a_prefix_of_the_cosines() -> None:
    atoms = [Atom(str(i), f"The boat number {i} is made of wood {i}.") for i in range(9)]
    config = load_config("default", {"link.concepts": "none"})
    with Memory.open(None, config=config, embedder="hashing", device="cpu") as memory:
        memory.add(atoms)
        (found,) = nearest_that_fit(memory, atoms, ["What is boat 4 made of?"], [0, 40, 10**6])
        vectors = memory.embedder.encode(["What is boat 4 made of?", *(a.text for a in atoms)])
    cosine = vectors.pooled[1:] @ vectors.pooled[0]
    order, left, expected = cosine.argsort(descending=True, stable=True).tolist(), 40, set()
    for i in order:
        left -= count_tokens([atoms[i].text + "\n"])[0]
        if left < 0:
            break
        expected.add(i)
    assert [set(row.nonzero().flatten().tolist()) for row in found] == [
        set(),
        expected,
        set(range(9)),
    ]


def test_random_facts_of_passages_without_titles(tmp_path: Path) -> None:
    rows = [{"id": i, "text": f"Fact {i} is told in six words. More."} for i in range(3)]
    lines = "".join(json.dumps(row) + "\n" for row in rows)
    (tmp_path / "x_corpus.jsonl").write_text(lines, encoding="utf-8")
    asked = json.dumps({"question": "Which?", "gold_ids": [1]})
    (tmp_path / "x_queries.jsonl").write_text(asked, encoding="utf-8")
    facts = random_facts(read_gold_sets(tmp_path), [])
    assert facts == [f"Fact {i} is told in six words." for i in range(3)]
