"""`graphmem eval retrieval` and `compare`: files of BEIR, presets and parts of one's own."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.quality.common.baselines import BASELINES
from graphmem_torch.quality.comparison import compare
from graphmem_torch.quality.request import Request, judge
from graphmem_torch.quality.retrieval.judge import CUTOFFS, read_collection
from graphmem_torch.rank.registry import SIGNALS
from tests.bench.quality.made import REMARKS

FAST = ["--embedder", "hashing", "--config.link.concepts", "pattern"]
TEXTS = [text for _, text in REMARKS]
QUERIES = {
    "q1": "Who repaired the wooden rowing boat?",
    "q2": "Who sold the motorbike to pay for cello lessons?",
    "q3": "What did Vera see from the boat?",
    "q4": "Why is the sky green?",
    "q5": "Nobody looked for an answer to this one.",
}
QRELS = [("q1", "d1", 2), ("q1", "d7", 1), ("q2", "d10", 3), ("q3", "d11", 1), ("q4", "d0", 0)]
OWN = """
import torch
from graphmem_torch.quality.common.baselines import baseline
from graphmem_torch.rank.registry import signal

@signal("own_length")
def own_length(c):
    return c.pick(c.memory.log_words).expand(c.shape)

@baseline("last_first")
def last_first(task, questions):
    return torch.arange(len(task.ids)).float().expand(len(questions), -1)
"""


@dataclass(frozen=True)
class Collection:
    """Three files."""

    corpus: Path
    queries: Path
    qrels: Path

    def options(self) -> list[str]:
        """For the command line."""
        return [
            *("--corpus", str(self.corpus), "--queries", str(self.queries)),
            *("--qrels", str(self.qrels)),
        ]


def _collection(folder: Path) -> Collection:
    corpus, queries, qrels = (folder / name for name in ("corpus.jsonl", "q.jsonl", "qrels.tsv"))
    rows = [{"_id": f"d{i}", "title": f"Remark {i}", "text": text} for i, text in enumerate(TEXTS)]
    corpus.write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries.write_text(
        "".join(json.dumps({"_id": name, "text": text}) + "\n" for name, text in QUERIES.items())
    )
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in QRELS)]
    qrels.write_text("\n".join(lines) + "\n")
    return Collection(corpus, queries, qrels)


@dataclass(frozen=True)
class Run:
    """Output of one command: the folder, the report, the rankings."""

    folder: Path
    report: dict[str, Any]
    rankings: list[dict[str, Any]]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Run]:
    """Two presets, one of them partial with a signal of its own, and a baseline of one's own."""
    folder = tmp_path_factory.mktemp("retrieval")
    files = _collection(folder)
    (folder / "my_parts.py").write_text(OWN)
    mine = folder / "mine.yaml"
    mine.write_text("extends: default\nrank: {weights: {speaker: null, own_length: 0.5}}\n")
    arguments = ["eval", "retrieval", *files.options(), "--preset", f"default,{mine}"]
    arguments += ["--import", str(folder / "my_parts.py"), "--json", str(folder / "out.json")]
    for option in ("rankings", "csv", "latex"):
        arguments += [f"--{option}", str(folder / f"out.{option}")]
    known = set(SIGNALS), set(BASELINES)
    try:
        assert main([*arguments, *FAST]) == 0
        report = json.loads((folder / "out.json").read_text())
        lines = (folder / "out.rankings").read_text().splitlines()
        yield Run(folder, report, [json.loads(line) for line in lines])
    finally:
        for registry, before in zip((SIGNALS, BASELINES), known, strict=True):
            for name in set(registry) - before:
                del registry[name]


def test_presets_and_baselines_are_in_one_table(run: Run) -> None:
    report = run.report
    counts = {"atoms": 12, "questions": 3, "without_evidence": 1, "unjudged": 1}
    assert report["dataset"] == "retrieval" and report["n"] == counts
    assert report["without_evidence"] == ["q4"]
    shipped = {"bm25", "dense", "rrf", "fusion", "interaction", "linear", "ppr", "sgrm"}
    assert set(report["systems"]) == shipped | {"contextos", "last_first", "default", "mine"}
    for figures in report["systems"].values():
        assert set(figures) == {"recall", "any", "complete", "ndcg", "map", "mrr"}
        for table in figures.values():
            assert list(table) == [str(k) for k in CUTOFFS]
    assert set(report["differences"]) == {"default", "mine"}
    assert "mine" in report["difference"] and "default" in report["differences"]["mine"]


def test_the_report_has_the_configurations_as_they_were_resolved(run: Run) -> None:
    both = run.report["configs"]
    assert run.report["preset"] == "default" and run.report["config"] == both["default"]
    weights = both["default"]["rank"]["weights"]
    assert both["mine"]["rank"]["weights"] == {
        **{name: value for name, value in weights.items() if name != "speaker"},
        "own_length": 0.5,
    }
    made = run.report["made_with"]
    assert made["mine"] == made["default"] and made["mine"]["concepts"].startswith("pattern")
    assert "hashing" in made["mine"]["encoder"] and made["mine"]["device"]
    for config in both.values():
        assert config["embedder"]["name"] == "hashing" and config["link"]["concepts"] == "pattern"


def test_figures_are_those_of_the_rankings(run: Run) -> None:
    gold: dict[str, dict[str, int]] = {}
    for query, document, grade in QRELS:
        if grade:
            gold.setdefault(query, {})[document] = grade
    systems = run.report["systems"]
    assert len(run.rankings) == 4 * len(systems)
    first: dict[str, list[float]] = {}
    for row in run.rankings:
        assert row["question"] == QUERIES[row["id"]] and row["gold"] == gold.get(row["id"], {})
        assert row["preset"] == (row["system"] in ("default", "mine"))
        assert len(row["ids"]) == len(row["scores"]) == len(set(row["ids"]))
        assert row["scores"] == sorted(row["scores"], reverse=True)
        if row["gold"]:
            hit = [1 / place for place, name in enumerate(row["ids"], 1) if name in row["gold"]]
            first.setdefault(row["system"], []).append(hit[0] if hit else 0.0)
    for name, values in first.items():
        assert systems[name]["mrr"]["100"][0] == pytest.approx(sum(values) / 3)
    own = [row for row in run.rankings if row["system"] == "last_first"]
    assert all(row["ids"] == [f"d{i}" for i in reversed(range(12))] for row in own)


def test_the_table_is_written_for_programs_and_for_papers(run: Run) -> None:
    head, *rows = csv.reader((run.folder / "out.csv").read_text().splitlines())
    assert [row[0] for row in rows] == list(run.report["systems"])
    column = head.index("nDCG@10")
    for row in rows:
        mean, low, high = run.report["systems"][row[0]]["ndcg"]["10"]
        assert [float(value) for value in row[column : column + 3]] == [mean, low, high]
    latex = (run.folder / "out.latex").read_text()
    assert r"last\_first & " in latex and "3 questions about 12 atoms" in latex


@pytest.mark.parametrize("kind", ["out.json", "out.rankings"])
def test_runs_are_compared_question_by_question(
    kind: str, run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out, one = tmp_path / "compared.json", run.folder / kind
    tables = ["--csv", str(tmp_path / "c.csv"), "--json", str(out)]
    files = [str(one), str(run.folder / "out.rankings")]
    chosen = ["--systems", "default", "last_first"]
    assert main(["eval", "compare", *files, *chosen, *tables]) == 0
    report = json.loads(out.read_text())
    assert report["n"] == {"shared": 3, "first": 3, "second": 3}
    (pair,) = report["pairs"]
    assert (pair["first"], pair["second"]) == ("default", "last_first")
    found = pair["measures"]["ndcg@10"]
    means = [run.report["systems"][name]["ndcg"]["10"][0] for name in chosen[1:]]
    assert [found["first"], found["second"]] == pytest.approx(means, abs=1e-9)
    assert found["difference"][0] == pytest.approx(means[0] - means[1], abs=1e-9)
    assert found["n"] == 3 and found["p"] == 0.5  # four of the eight choices of signs
    assert "default" in capsys.readouterr().out and (tmp_path / "c.csv").is_file()
    # Without names: the presets, and every system that both have.
    assert main(["eval", "compare", *files, *tables]) == 0
    pairs = json.loads(out.read_text())["pairs"]
    assert (pairs[0]["first"], pairs[0]["second"]) == ("default", "default")
    assert {pair["first"] for pair in pairs} == set(run.report["systems"])
    # A run and itself, also where one file has its values rounded.
    found = [measure for pair in pairs for measure in pair["measures"].values()]
    assert all(measure["difference"][0] == 0.0 and measure["p"] == 1.0 for measure in found)


def _changed(rows: list[dict[str, Any]], path: Path, **change: Any) -> Path:
    """The first ranking, with other fields."""
    path.write_text(json.dumps(rows[0] | change) + "\n")
    return path


def test_what_cannot_be_compared_is_named(run: Run, tmp_path: Path) -> None:
    rankings, path = run.folder / "out.rankings", tmp_path / "other.jsonl"
    rows = run.rankings
    twice = tmp_path / "twice.jsonl"
    twice.write_text((json.dumps(rows[0]) + "\n") * 2)
    cut = tmp_path / "cut.jsonl"
    cut.write_text(json.dumps(rows[0]) + "\n" + json.dumps(rows[1])[:50])
    plain = tmp_path / "plain.json"
    plain.write_text(json.dumps({"dataset": "growth", "systems": {}}))
    for other, message in (
        (_changed(rows, path, id="q9"), "which share none"),
        (twice, "id: expected one ranking of a question by bm25, got 'q1'"),
        (cut, "cut.jsonl:2"),
        (plain, "expected a report with values of every question, .* got one of growth"),
        (tmp_path / "none", "none"),
    ):
        with pytest.raises(InputError, match=message):
            compare(rankings, other)
    report = run.folder / "out.json"
    for change in ({"question": "Who?"}, {"gold": {"d1": 1.0}}):
        other = _changed(rows, path, **change)
        for own in (rankings, report):
            with pytest.raises(InputError, match="one text and one gold of question 'q1'"):
                compare(own, other)
    asked = run.report["by_question"]["asked"]
    assert len(set(asked)) == len(run.report["by_question"]["ids"])
    others = run.report | {"by_question": run.report["by_question"] | {"asked": asked[::-1]}}
    path.write_text(json.dumps(others))
    with pytest.raises(InputError, match="one text and one gold of question"):
        compare(report, path)
    with pytest.raises(InputError, match=r"--systems: .*; did you mean 'default'"):
        compare(rankings, rankings, systems=["default", "defalt"])
    alone = _changed(rows, path, system="theirs")
    with pytest.raises(InputError, match=r"expected a system that both files have, got .*theirs"):
        compare(rankings, alone)


def test_reports_of_several_sets_are_compared_over_what_they_share(tmp_path: Path) -> None:
    def written(name: str, preset: str, **sets: tuple[list[str], list[float | None]]) -> Path:
        parts = {
            each: {"by_question": {"ids": ids, "systems": {preset: {"recall@5": values}}}}
            for each, (ids, values) in sets.items()
        }
        path = tmp_path / name
        path.write_text(json.dumps({"dataset": "all", "preset": preset, "sets": parts}))
        return path

    one = written("a", "default", x=(["x/0", "x/1"], [1.0, None]), y=(["y/0", "y/1"], [0.5, 1.0]))
    two = written("b", "mine", y=(["y/1", "y/0", "y/2"], [0.0, 0.5, 1.0]), x=(["x/0"], [0.0]))
    report = compare(one, two).report
    assert report["n"] == {"shared": 3, "first": 3, "second": 4}
    ((first, second, measures),) = [tuple(pair.values()) for pair in report["pairs"]]
    assert (first, second) == ("default", "mine")
    found = measures["recall@5"]
    assert (found["n"], found["first"], found["second"]) == (3, 2.5 / 3, 0.5 / 3)
    # Of two questions that differ the signs agree in half of the choices.
    assert found["difference"][0] == pytest.approx(2 / 3) and found["p"] == 0.5


@pytest.mark.parametrize(
    ("file", "content", "message"),
    [
        ("corpus", "", "corpus.jsonl: expected text, got an empty file"),
        ("corpus", '{"_id": "d1", "text": "x"}\n{"_id": "d2", "te', "corpus.jsonl:2"),
        ("corpus", '{"_id": "d1"}', "corpus.jsonl:1: expected the field 'text'"),
        ("corpus", '{"_id": "d1", "text": ["x"]}', "text: expected a text, got ..x"),
        ("corpus", '{"_id": "d1", "text": "x", "title": 7}', "title: expected a text, got 7"),
        ("corpus", '{"_id": 1, "text": "x"}\n{"_id": "1", "text": "y"}', "got '1', which .*:1 has"),
        ("queries", '{"_id": "q1", "text": 3}', "text: expected a text, got 3"),
        ("queries", '{"_id": ["q1"], "text": "x"}', "_id: expected a text or a number"),
        ("qrels", "", "qrels.tsv: expected text, got an empty file"),
        ("qrels", "query-id\tcorpus-id\tscore\n", "expected a grade above 0 for some query"),
        ("qrels", "q4\td0\t0\n", "expected a grade above 0 for some query"),
        ("corpus", '{"_id": "d1", "text": null}', "corpus.jsonl: expected lines, got none"),
        ("qrels", "q1\td99\t1\nq9\td1\t1\n", "for some query and document of these files"),
        ("qrels", "q1\td1\t1\nq1\td2", "qrels.tsv:2: expected query, document and grade"),
        ("qrels", "q1\td1\tx\n", "qrels.tsv:1: expected query, document and grade"),
        ("qrels", "q1\td1\t1\nq1\td2\tnan\n", "qrels.tsv:2: expected query, document"),
    ],
)
def test_files_that_are_not_a_collection_are_named(
    file: str, content: str, message: str, tmp_path: Path
) -> None:
    files = _collection(tmp_path)
    getattr(files, file).write_text(content)
    with pytest.raises(InputError, match=message):
        read_collection(files.corpus, files.queries, files.qrels)


def test_a_collection_may_be_packed(tmp_path: Path) -> None:
    """Corpus and queries are published as `.jsonl.gz`."""
    files = _collection(tmp_path)
    expected = read_collection(files.corpus, files.queries, files.qrels)
    packed = [path.with_name(path.name + ".gz") for path in vars(files).values()]
    for path, whole in zip(packed, vars(files).values(), strict=True):
        path.write_bytes(gzip.compress(whole.read_bytes()))
    found, counts = read_collection(*packed)
    assert (replace(found, name=files.corpus.name), counts) == expected
    for broken in (packed[0].read_bytes()[:-20], b"no gzip"):
        packed[0].write_bytes(broken)
        with pytest.raises(InputError, match=r"\.gz: expected a file that can be read, got"):
            read_collection(*packed)


def test_qrels_may_lack_the_head_and_have_the_columns_of_trec(tmp_path: Path) -> None:
    files = _collection(tmp_path)
    expected = read_collection(files.corpus, files.queries, files.qrels)
    files.qrels.write_text("".join(f"{q}\t{d}\t{grade}\n" for q, d, grade in QRELS))
    assert read_collection(files.corpus, files.queries, files.qrels) == expected
    files.qrels.write_text("".join(f"{q} 0 {d} {grade}\r\n" for q, d, grade in QRELS))
    assert read_collection(files.corpus, files.queries, files.qrels) == expected
    lines = ["", "query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in QRELS)]
    files.qrels.write_text("\n".join(lines) + "\n")
    assert read_collection(files.corpus, files.queries, files.qrels) == expected
    questions = expected[0].questions
    assert questions[0].grades == {"d1": 2.0, "d7": 1.0} and questions[3].gold == ()
    assert expected[0].atoms[1].text == f"Remark 1\n{TEXTS[1]}"


CORPUS = [
    {"_id": "d1", "title": "", "text": "Bertrand restores old ovens."},
    {"_id": "d2", "title": None, "text": "Nora flies to Lisbon in May."},
    {"_id": "d3", "text": "Theo grew up in Porto."},
    {"_id": "d4", "text": "Theo was a child in Porto."},
]
ASKED = [
    {"_id": "q1", "text": "Who restores ovens?"},
    {"_id": "d3", "text": "Theo grew up in Porto."},
]
WHOLE = "query-id\tcorpus-id\tscore\nq1\td1\t1\nd3\td4\t1\n"


def _published(folder: Path, qrels: str, corpus: list[Any] = CORPUS) -> Collection:
    files = Collection(*(folder / name for name in ("corpus.jsonl", "q.jsonl", "qrels.tsv")))
    files.corpus.write_text("".join(json.dumps(row) + "\n" for row in corpus))
    files.queries.write_text("".join(json.dumps(row) + "\n" for row in ASKED))
    files.qrels.write_text(qrels)
    return files


def _run(folder: Path, files: Collection) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    out = ["--json", str(folder / "o.json"), "--rankings", str(folder / "o.jsonl")]
    assert main(["eval", "retrieval", *files.options(), *out, *FAST]) == 0
    lines = (folder / "o.jsonl").read_text().splitlines()
    return json.loads((folder / "o.json").read_text()), [json.loads(line) for line in lines]


def test_a_query_that_is_a_document_does_not_rank_it(tmp_path: Path) -> None:
    report, rankings = _run(tmp_path, _published(tmp_path, WHOLE))
    assert report["n"]["own_documents"] == 1 and report["n"]["questions"] == 2
    own = [row for row in rankings if row["id"] == "d3"]
    assert own and all("d3" not in row["ids"] for row in own)
    assert all(len(row["ids"]) == len(row["scores"]) for row in rankings)
    (first,) = [row["ids"][0] for row in own if row["system"] == "default"]
    assert first == "d4"
    assert any("d3" in row["ids"] for row in rankings if row["id"] == "q1")
    for row in rankings:  # as pytrec_eval does after BEIR has taken the document out
        assert row["scores"] == sorted(row["scores"], reverse=True)


def test_qrels_of_what_is_not_there_are_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    files = _published(tmp_path, WHOLE + "q1\tgone\t1\nq7\td1\t1\nq8\td1\t1\nq1\tlost\t0\n")
    report, rankings = _run(tmp_path, files)
    counts = report["n"]
    assert counts["absent_documents"] == 1 and counts["absent_queries"] == 2
    assert counts["questions"] == 2 and "absent_documents" not in report["without_evidence"]
    told = caplog.text
    assert "lacks document 'gone'" in told and "lacks query 'q7'" in told and "'lost'" not in told
    # One of the two documents that are relevant for q1 is there.
    ids, figures = report["by_question"]["ids"], report["by_question"]["systems"]["default"]
    assert figures["recall@10"][ids.index("q1")] == 0.5
    assert {row["id"] for row in rankings} == {"q1", "d3"}
    assert all(row["gold"] == {"d1": 1.0, "gone": 1.0} for row in rankings if row["id"] == "q1")


def test_a_query_of_which_no_relevant_document_is_there_counts(tmp_path: Path) -> None:
    files = _published(tmp_path, "q1\tgone\t2\nd3\td4\t1\n")
    report, _ = _run(tmp_path, files)
    assert report["n"]["questions"] == 2
    at_10 = report["by_question"]["systems"]["default"]["recall@10"]
    assert at_10[report["by_question"]["ids"].index("q1")] == 0.0
    (recall, *_) = report["systems"]["default"]["recall"]["10"]
    assert recall == 0.5


def test_documents_and_grades_as_they_are_published(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    corpus = [*CORPUS, {"_id": "d5", "title": None, "text": None}, {"_id": 6, "title": "Six"}]
    corpus[-1]["text"] = ""
    files = _published(tmp_path, "q1 0 d1 1\nq1 0 d1 1\nd3 0 d4 1\nd3 0 d4 2\nq1 0 6 -1\n", corpus)
    collection, counts = read_collection(files.corpus, files.queries, files.qrels)
    assert [atom.id for atom in collection.atoms] == ["d1", "d2", "d3", "d4", "6"]
    assert [atom.text for atom in collection.atoms][1:2] == ["Nora flies to Lisbon in May."]
    assert [question.grades for question in collection.questions] == [{"d1": 1.0}, {"d4": 2.0}]
    assert counts == {"empty": 1, "own_documents": 1, "repeated": 1, "unjudged": 0}
    assert "document 'd5' has neither" in caplog.text and "another grade" in caplog.text


def test_options_that_do_not_fit_are_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files, out = _collection(tmp_path), ["--json", str(tmp_path / "out.json")]
    broken = tmp_path / "broken.py"
    broken.write_text("import no_such_thing")
    taken = tmp_path / "taken.py"
    taken.write_text(OWN.replace("own_length", "semantic"))
    again = tmp_path / ".." / tmp_path.name / "out.json"
    for arguments, message in (
        (["retrieval", *files.options()], "--json: expected a file"),
        (["compare", str(files.qrels)], "compare: expected two files, got 1"),
        (["compare", str(files.qrels), str(files.qrels), "--cv"], "--cv: expected nothing"),
        (["retrieval", *files.options()[:4], *out], "--qrels: expected a path, got none"),
        (["retrieval", *files.options(), *out, "--data", "x"], "--data: expected nothing"),
        (
            ["retrieval", *files.options(), *out, "--preset", "default", "--preset", "default"],
            "--preset: expected presets of different names, got 'default' twice",
        ),
        (["growth", str(tmp_path), "--data", str(tmp_path), *out], "it is for compare"),
        (
            ["retrieval", *files.options(), *out, "--rankings", str(tmp_path)],
            "--rankings: expected a file to write",
        ),
        (
            [
                "retrieval",
                *files.options(),
                *out,
                "--csv",
                str(again),
            ],
            "--csv: expected another file than that of --json",
        ),
        (["retrieval", *files.options(), *out, "--import", str(broken)], "no_such_thing"),
        (
            ["retrieval", *files.options(), *out, "--import", str(taken)],
            "signal: expected a new name, got 'semantic'",
        ),
        (
            ["retrieval", *files.options(), *out, "--config.rank.weights.own", "1"],
            "signal: expected one of",
        ),
    ):
        assert main(["eval", *arguments, *FAST]) == 2
        assert message in capsys.readouterr().err


def test_other_judges_take_one_preset_and_keep_no_rankings(tmp_path: Path) -> None:
    for option, message in (
        ({"others": (load_config("sgrm"),)}, "--preset: expected one preset for growth, got 2"),
        ({"rankings": True}, "--rankings: expected nothing for growth, got a file"),
    ):
        with pytest.raises(InputError, match=message):
            judge("growth", Request(data=tmp_path, **option))
