"""LoCoMo in the form of LMEB: subsets by category, candidates of the question's conversation."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.lmeb import main, subsets
from graphmem_torch.readers.locomo import read_locomo
from tests.bench.quality.made import locomo_file


def test_subsets_are_the_categories_of_all_conversations(tmp_path: Path) -> None:
    data = locomo_file(tmp_path)
    samples = list(read_locomo(data))
    names = {sample.sample_id: len(sample.atoms) for sample in samples}
    asked = [entry for sample in samples for entry in sample.qa if entry["evidence"]]
    made = subsets(data)
    assert sum(len(own["queries"]) for own in made.values()) == len(asked)
    for own in made.values():
        ids = [row["id"] for row in own["corpus"]]
        assert len(ids) == len({*ids}) == sum(names.values())
        assert all("Vera" not in row["text"] or row["text"][0] == "[" for row in own["corpus"])
        for query in own["queries"]:
            name = query["id"].rpartition(" ")[0]
            assert len(own["top_ranked"][query["id"]]) == names[name]
            assert own["relevant_docs"][query["id"]].keys() <= {*own["top_ranked"][query["id"]]}
    texts = {query["text"] for query in made["multi_hop"]["queries"]}
    assert texts == {entry["question"] for entry in asked if entry["category"] == 1}


def test_the_task_of_mteb_measures_them(tmp_path: Path) -> None:
    pytest.importorskip("mteb")
    out = tmp_path / "out.json"
    data = ["--data", str(locomo_file(tmp_path))]
    assert main([*data, "--embedder", "hashing", "--json", str(out)]) == 0
    report = json.loads(out.read_text())
    assert 0 < report["ndcg_at_10"] < 1
    assert all(figures["n"] for figures in report["subsets"].values())
