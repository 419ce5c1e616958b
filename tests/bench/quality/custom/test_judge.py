"""`graphmem eval custom`: a user's own atoms and questions."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from graphmem_torch.cli.main import main
from tests.bench.quality.made import REMARKS

FAST = ["--embedder", "hashing", "--config.link.concepts", "pattern"]
ASKED = [
    {"question": "Who repaired the rowing boat?", "evidence": ["r1"]},
    {"question": "What was sold to pay for the cello lessons?", "evidence": ["r10"]},
    {"question": "What did Vera see?", "evidence": ["r3", "r11"]},
    {"question": "Why is the sky green?", "evidence": []},
]


@pytest.fixture
def atoms(tmp_path: Path) -> Path:
    """Twelve remarks, ids r0 to r11."""
    return _lines(
        tmp_path / "atoms.jsonl",
        [{"id": f"r{i}", "text": text} for i, (_, text) in enumerate(REMARKS)],
    )


def _lines(path: Path, rows: list[dict[str, object]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def _eval(*arguments: str | Path) -> int:
    return main(["eval", "custom", *map(str, arguments), *FAST])


@pytest.mark.parametrize("preset", ["default", "synapse"])
def test_custom_measures_the_preset_and_its_ingredients(
    preset: str, atoms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, out = _lines(tmp_path / "questions.jsonl", ASKED), tmp_path / "out.json"
    chosen = ["--preset", preset, "--seed", "3", "--json", out]
    assert _eval("--atoms", atoms, "--questions", questions, *chosen) == 0
    report = json.loads(out.read_text())
    assert report["dataset"] == "custom" and report["preset"] == preset and report["seed"] == 3
    assert report["commit"] and report["config"]["link"]["concepts"] == "pattern"
    assert report["n"] == {"atoms": 12, "questions": 3, "without_evidence": 1}
    assert report["without_evidence"] == ["Why is the sky green?"]
    systems = report["systems"]
    ingredients = {"dense", "bm25", "rrf", "fusion", "interaction", "linear"}
    # Without sessions there are no neighbours.
    assert set(systems) == ingredients | {"ppr", "sgrm", "contextos", preset}
    assert set(report["difference"]) == set(systems) - {preset}
    for name, figures in systems.items():
        if name != "sgrm":  # it goes no further than two edges
            assert figures["recall"]["25"] == [1.0, 1.0, 1.0]  # there are but twelve atoms
        mean = report["difference"].get(name, figures)["recall"]["10"][0]
        own = systems[preset]["recall"]["10"][0]
        assert mean == pytest.approx(own if name == preset else own - figures["recall"]["10"][0])
    assert systems["bm25"]["recall"]["10"] == [1.0, 1.0, 1.0]
    table = capsys.readouterr().out
    assert all(name in table for name in systems) and "3 questions about 12 atoms" in table


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"question": "Who?"}, "expected the field 'evidence'"),
        ({"question": " ", "evidence": []}, "question: expected a text"),
        ({"question": "Who?", "evidence": "r1"}, "evidence: expected a list of ids, got 'r1'"),
        ({"question": "Who?", "evidence": ["r99"]}, "got 'r99', which none has"),
        ({"question": "Who?", "evidence": [], "id": ["x"]}, "id: expected a text or a number"),
    ],
)
def test_custom_names_the_line_of_a_bad_question(
    row: dict[str, object],
    message: str,
    atoms: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    questions = _lines(tmp_path / "questions.jsonl", [ASKED[0], row])
    out = tmp_path / "out.json"
    assert _eval("--atoms", atoms, "--questions", questions, "--json", out) == 2
    error = capsys.readouterr().err
    assert f"{questions}:2" in error and message in error
    assert not out.exists()


def test_custom_and_other_data_sets_take_their_own_options(
    atoms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    questions, out = _lines(tmp_path / "questions.jsonl", ASKED), tmp_path / "out.json"
    for arguments, message in (
        (["--atoms", atoms], "--questions: expected a path"),
        (["--questions", questions], "--atoms: expected a path"),
        (["--atoms", atoms, "--questions", questions, "--data", atoms], "--data: expected nothing"),
        (["--atoms", atoms, "--questions", questions, "--cv"], "--cv"),
    ):
        assert _eval(*arguments, "--json", out) == 2
        assert message in capsys.readouterr().err
    for arguments, message in (
        ([], "--data: expected a path"),
        (["--data", str(atoms), "--atoms", str(atoms)], "--atoms: expected nothing"),
        (
            ["--data", str(atoms), "--questions", str(questions)],
            "--questions: expected nothing",
        ),
    ):
        assert main(["eval", "locomo", *arguments, "--json", str(out), *FAST]) == 2
        assert message in capsys.readouterr().err


def test_custom_without_anything_to_ask(
    atoms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "out.json"
    empty = tmp_path / "empty.jsonl"
    empty.write_text("\n\n")
    assert _eval("--atoms", atoms, "--questions", empty, "--json", out) == 2
    assert "empty.jsonl: expected text, got an empty file" in capsys.readouterr().err
    none = _lines(tmp_path / "none.jsonl", ASKED[3:])
    assert _eval("--atoms", atoms, "--questions", none, "--json", out) == 2
    assert "evidence: expected ids for some question" in capsys.readouterr().err


def test_custom_keeps_the_ids_of_questions(
    atoms: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names: list[dict[str, object]] = [{"id": "boat"}, {"id": 7}, {"_id": "vera"}, {}]
    rows = [named | question for named, question in zip(names, ASKED, strict=True)]
    questions = _lines(tmp_path / "questions.jsonl", [*rows, ASKED[0], ASKED[0]])
    out, ranked = tmp_path / "out.json", tmp_path / "ranked.jsonl"
    options = ["--questions", questions, "--json", out, "--rankings", ranked]
    assert _eval("--atoms", atoms, *options) == 0
    text = str(ASKED[0]["question"])
    report = json.loads(out.read_text())
    assert report["by_question"]["ids"] == ["boat", "7", "vera", text, f"{text} (2)"]
    assert report["without_evidence"] == ["Why is the sky green?"]
    lines = [json.loads(line) for line in ranked.read_text().splitlines()]
    assert {line["id"] for line in lines} >= {"boat", "7", "vera"}
    _lines(questions, [{"id": "a", **ASKED[0]}, {"id": "a", **ASKED[1]}])
    assert _eval("--atoms", atoms, *options) == 2
    error = capsys.readouterr().err
    assert f"{questions}:2: id: expected another" in error and f"{questions}:1 has" in error
