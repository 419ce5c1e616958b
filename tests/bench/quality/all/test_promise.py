"""A preset's gain over the best of its ingredients; collections and chats of a data root."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from graphmem_torch.errors import InputError
from graphmem_torch.quality.all.collections import read_chat_sets, read_collections
from graphmem_torch.quality.all.promise import INGREDIENTS, held_against, promise_table
from graphmem_torch.quality.common.sets import QuestionSet
from graphmem_torch.text.tokens import WordTokenizer
from tests.bench.quality.made import REMARKS, lines


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A collection of tables, one of another kind, a chat, and a folder that is neither."""
    for name in ("fetaqa_train", "recipes"):
        folder = tmp_path / "ir" / name
        folder.mkdir(parents=True)
        texts = [text for _, text in REMARKS]
        rows = [{"_id": f"d{i}", "title": f"T {i}", "text": t} for i, t in enumerate(texts)]
        lines(folder / "corpus.jsonl", rows)
        asked = [{"_id": f"q{i}", "text": f"What of {text}"} for i, text in enumerate(texts[:4])]
        lines(folder / "queries.jsonl", asked)
        grades = "".join(f"q{i}\td{i}\t{1 + i}\nq{i}\td{i + 4}\t1\n" for i in range(4))
        (folder / "qrels.tsv").write_text(f"query\tdocument\tgrade\n{grades}", encoding="utf-8")
    chat = tmp_path / "chats" / "talk"
    chat.mkdir(parents=True)
    atoms = [
        {"id": f"t{i}", "text": text, "speaker": who.strip("{}"), "session": "s"}
        for i, (who, text) in enumerate(REMARKS)
    ]
    lines(chat / "atoms.jsonl", atoms)
    lines(chat / "questions.jsonl", [{"question": "Who planted tulips?", "evidence": ["t0"]}])
    (tmp_path / "ir" / "empty").mkdir()
    return tmp_path


def test_collections_and_chats_are_sets_of_their_kind(root: Path) -> None:
    tables, recipes = read_collections(root / "ir")
    assert (tables.name, tables.data_kind, tables.measure) == ("fetaqa_train", "tables", "ndcg")
    assert recipes.data_kind == "recipes"
    (one,) = tables.conversations
    assert one.questions[3].grades == {"d3": 4.0, "d7": 1.0}
    assert one.atoms[0].text.startswith("T 0\n")
    (talk,) = read_chat_sets(root / "chats", WordTokenizer())
    assert (talk.name, talk.data_kind, talk.measure, talk.at) == ("talk", "chats", "recall", 10)
    assert [atom.speaker for atom in talk.conversations[0].atoms[:2]] == ["a", "b"]
    assert not read_collections(root / "chats") and not read_chat_sets(root, WordTokenizer())
    (root / "ir" / "recipes" / "qrels.tsv").write_text("q0\tnone\t1\n", encoding="utf-8")
    with pytest.raises(InputError, match="expected a grade above 0"):
        read_collections(root / "ir")


def test_a_cut_set_keeps_its_gold_and_whole_chats(root: Path) -> None:
    tables, _ = read_collections(root / "ir")
    (talk,) = read_chat_sets(root / "chats", WordTokenizer())
    assert talk.cut(3, 1) is talk
    (one,) = tables.cut(8, 2).conversations
    kept = {atom.id for atom in one.atoms}
    assert len(kept) == 8 and len(one.questions) == 2
    assert all(set(question.gold) <= kept for question in one.questions)
    (one,) = tables.cut(5, 4).conversations  # eight gold documents: they are thinned
    assert len(one.atoms) == 5
    assert 0 < sum(len(question.gold) for question in one.questions) <= 3
    assert json.dumps([atom.id for atom in one.atoms]) == json.dumps(
        [atom.id for atom in tables.cut(5, 4).conversations[0].atoms]
    )


def test_a_preset_is_held_against_the_best_of_its_ingredients() -> None:
    generator = torch.Generator().manual_seed(0)
    noise = torch.rand(80, generator=generator, dtype=torch.float64) * 0.1

    def of(level: float) -> torch.Tensor:
        return noise + level

    worse = {name: of(0.2) for name in INGREDIENTS} | {"bm25": of(0.6), "default": of(0.4)}
    better = {name: of(0.2) for name in INGREDIENTS} | {"default": of(0.5)}
    values = {"one": worse, "two": better, "three": better}
    groups = {"bad": ["one"], "good": ["two", "three"], "mixed": ["one", "two"]}
    found = held_against(groups, values, ["default"], seed=0)
    bad, good, mixed = found["default"]
    assert bad["best"] == "bm25" and bad["difference"] == pytest.approx([-0.2] * 3)
    assert good["n"] == 160 and good["difference"] == pytest.approx([0.3] * 3)
    # The best of a kind is the best on the mean of its sets.
    assert mixed["best"] == "bm25" and mixed["difference"][0] == pytest.approx((0.3 - 0.2) / 2)
    assert bad["holm"] >= bad["p"] and bad["holm"] < 0.01
    *_, note = str(promise_table("kind", found)).splitlines()
    assert note.startswith("default: below the best after correction: bad;")
    assert "2 of 3" in note


def test_sets_without_a_kind_are_no_part_of_the_promise() -> None:
    assert QuestionSet("x", ()).data_kind == ""
