"""`MemorySearch` by itself, and as `mteb` runs it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import pytest

from graphmem_torch.errors import InputError, MissingPackageError
from graphmem_torch.integrations.mteb import MemorySearch
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import WORDS, config_of, ids, opened

CORPUS = [
    {"id": f"d{i}", "title": "" if i % 3 else f"On {word}", "text": f"The {word} of {i} is here"}
    for i, word in enumerate(2 * WORDS)
]
QUERIES = [{"id": f"q{i}", "text": f"Where is the {word}?"} for i, word in enumerate(WORDS)]
RELEVANT = {f"q{i}": {f"d{i}": 1, f"d{i + 5}": 1} for i in range(8)}
CANDIDATES = {f"q{i}": [f"d{j}" for j in range(16) if j % 2 == i % 2] for i in range(4)}


def searching() -> MemorySearch:
    return MemorySearch(config=config_of(), embedder=HashingEmbedder(32))


def test_search_gives_the_hits_of_the_memory() -> None:
    model = searching()
    with pytest.raises(InputError, match="call `index` first"):
        model.search(QUERIES, top_k=3)
    model.index([*CORPUS, {"id": "empty", "text": " "}], task_metadata=None, num_proc=None)
    found = model.search(QUERIES, top_k=5, hf_split="test")
    with opened() as memory:
        memory.add(
            {"id": row["id"], "kind": "passage", "text": f"{row['title']}\n{row['text']}".strip()}
            for row in CORPUS
        )
        for query in QUERIES:
            result = memory.retrieve(query["text"], k=5)
            assert list(found[query["id"]]) == ids(result)
            scores = [hit.raw for hit in result.hits]
            assert [*found[query["id"]].values()] == pytest.approx(scores, abs=1e-5)
    first = model.memory
    model.index(iter(CORPUS))
    assert model.memory is first  # of another subset of the task
    model.index(CORPUS[:3])
    assert model.memory is not first
    assert {*model.search(QUERIES[:1], top_k=9)["q0"]} == {"d0", "d1", "d2"}
    assert model.search(QUERIES[:1], top_k=9, top_ranked={"q0": []}) == {"q0": {}}
    model.index([])
    assert model.search(QUERIES[:1], top_k=9) == {"q0": {}}


def test_search_among_candidates() -> None:
    model = searching()
    model.index(CORPUS)
    free = model.search(QUERIES, top_k=16)
    found = model.search(QUERIES, top_k=16, top_ranked=CANDIDATES)
    for name, scores in found.items():
        wanted = {n: s for n, s in free[name].items() if n in CANDIDATES.get(name, free[name])}
        assert scores == pytest.approx(wanted, abs=1e-5)


def test_search_says_what_is_wrong() -> None:
    model = searching()
    with pytest.raises(InputError, match="text: expected a text, got list in row 'd0'"):
        model.index([{"id": "d0", "text": ["two", "turns"]}])
    with pytest.raises(InputError, match="d0"):
        model.index([{"id": "d0", "text": "one"}, {"id": "d0", "text": "another"}])
    model.index(CORPUS)
    with pytest.raises(InputError, match="in row 'q'"):
        model.search([{"id": "q", "text": None}], top_k=3)


def test_instructions_are_asked_with_the_query() -> None:
    model = searching()
    model.index(CORPUS)
    whole = [{"id": "q", "text": "Where is it? Look for the comet"}]
    parts = [{"id": "q", "text": "Where is it?", "instruction": "Look for the comet"}]
    assert model.search(parts, top_k=9) == model.search(whole, top_k=9)


def test_results_need_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "mteb", None)
    with pytest.raises(MissingPackageError, match=r"graphmem-torch\[mteb\]"):
        _ = searching().mteb_model_meta


def ndcg(scores: Mapping[str, float], relevant: Mapping[str, int], k: int = 10) -> float:
    """By its definition."""
    order = sorted(scores, key=lambda name: -scores[name])[:k]
    gain = sum(relevant.get(name, 0) / math.log2(place + 2) for place, name in enumerate(order))
    return gain / sum(1 / math.log2(place + 2) for place in range(min(k, len(relevant))))


def test_mteb_evaluates_a_memory() -> None:
    mteb = pytest.importorskip("mteb")
    from datasets import Dataset
    from mteb.abstasks.retrieval import AbsTaskRetrieval
    from mteb.abstasks.task_metadata import TaskMetadata

    class Local(AbsTaskRetrieval):
        metadata = TaskMetadata(
            name="LocalMemories",
            description="A task of a test.",
            dataset={"path": "local", "revision": "1"},
            type="Retrieval",
            eval_splits=["test"],
            eval_langs=["eng-Latn"],
            main_score="ndcg_at_10",
        )

        def load_data(self, **_: Any) -> None:
            split = {
                "corpus": Dataset.from_list(CORPUS),
                "queries": Dataset.from_list(QUERIES),
                "relevant_docs": RELEVANT,
                "top_ranked": CANDIDATES,
            }
            self.dataset, self.data_loaded = {"default": {"test": split}}, True

    model = searching()
    assert isinstance(model, mteb.SearchProtocol)
    done = mteb.evaluate(model, Local(), cache=None, co2_tracker=False, show_progress_bar=False)
    assert done.model_name == "graphmem-torch/default-hashing-32"
    (scores,) = done.task_results[0].scores["test"]
    found = model.search(QUERIES, top_k=16, top_ranked=CANDIDATES)
    wanted = sum(ndcg(found[name], RELEVANT[name]) for name in found) / len(found)
    assert scores["main_score"] == pytest.approx(wanted, abs=1e-4) and 0 < wanted < 1


def test_an_unknown_argument_is_told_in_one_line() -> None:
    with pytest.raises(InputError, match="got 'embeder'; did you mean 'embedder'"):
        MemorySearch(embeder="hashing")
