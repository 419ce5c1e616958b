"""Effects and output of the commands."""

from __future__ import annotations

import io
import json
import math
import re
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.cli.terminal import hit_lines
from graphmem_torch.config import load_config
from graphmem_torch.memory import Memory
from graphmem_torch.rank.registry import SIGNALS
from graphmem_torch.results import Hit
from graphmem_torch.text.times import parse_time
from tests.cli.conftest import TURNS


def test_index_says_what_was_new_and_a_rerun_adds_nothing(
    tmp_path: Path, conversation: Path, reply: Callable[..., Any]
) -> None:
    arguments = ["index", conversation, "--store", tmp_path / "new"]
    first = reply(*arguments)
    again = reply(*arguments)
    assert (first["new"], first["known"]) == (4, 0)
    assert (again["new"], again["known"]) == (0, 4)


def test_query_prints_hits_with_reasons(
    store: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["query", "Who restores deck ovens?", "--store", str(store), *fast]) == 0
    out = capsys.readouterr().out
    assert "Who restores deck ovens?" in out
    assert "Theo: Bertrand restores old deck ovens." in out
    assert "D1:1" in out and "2024-02-04 10:00" in out and "confidence" in out


def test_query_prints_five_hits_of_three_lines(
    tmp_path: Path,
    fast: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    ids = [f"notes/{'long ' * 20}{i}.md" if i == 3 else f"n{i}" for i in range(12)]
    records = [
        {"id": id, "title": "Ovens", "text": f"{i} ovens were restored by Bertrand. " * 9}
        for i, id in enumerate(ids)
    ]
    file = tmp_path / "many.jsonl"
    file.write_text("\n".join(map(json.dumps, records)))
    store = ["--store", str(tmp_path / "new"), *fast]
    assert main(["index", str(file), *store]) == 0
    for options, shown in (([], 5), (["-k", "7"], 7), (["-k", "12"], 12)):
        capsys.readouterr()
        assert main(["query", "Who restored ovens?", *options, *store]) == 0
        out, err = capsys.readouterr()
        hits = [block.splitlines() for block in out.split("\n\n")[1:]]
        assert len(hits) == shown and all(len(lines) == 3 for lines in hits)
        assert [int(lines[0].split()[0]) for lines in hits] == [*range(1, shown + 1)]
        named = [lines[1].split("from ")[1].split(" · ")[0] for lines in hits]
        assert {*named} <= {*ids} and len({*named}) == shown
        assert all(len(line) <= 80 for line in out.splitlines() if ids[3] not in line)
        assert ("7 more with -k 12" in err) == (not options)
    assert main(["query", "Who restored ovens?", "--full", "-k", "1", *store]) == 0
    whole = " ".join(capsys.readouterr().out.split())
    assert any(record["text"].strip() in whole for record in records)


def test_query_as_json_has_the_whole_result(store: Path, reply: Callable[..., Any]) -> None:
    answer = reply("query", "Who restores deck ovens?", "--store", store, "-k", "2")
    (result,) = answer["results"]
    assert result["question"] == "Who restores deck ovens?"
    assert isinstance(result["known"], bool) and 0 <= result["confidence"] <= 1
    assert len(result["hits"]) == 2
    hit = result["hits"][0]
    assert (hit["id"], hit["meta"]) == ("D1:1", {"page": 1})
    assert 0 <= hit["score"] <= 1 and hit["why"]
    assert hit["raw"] == pytest.approx(sum(hit["signals"].values()), abs=1e-4)


@pytest.mark.parametrize("how", ["arguments", "file", "dash", "pipe"])
def test_query_takes_questions_from_anywhere(
    how: str,
    store: Path,
    tmp_path: Path,
    reply: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    questions = ["Who restores ovens?", "Where is the conference?"]
    text = "\n".join([questions[0], "", questions[1], ""])
    (tmp_path / "questions.txt").write_text(text)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    given = {
        "arguments": questions,
        "file": ["--questions", str(tmp_path / "questions.txt")],
        "dash": ["-"],
        "pipe": [],
    }[how]
    answer = reply("query", *given, "--store", store)
    assert [result["question"] for result in answer["results"]] == questions


def test_query_can_be_narrowed(store: Path, reply: Callable[..., Any]) -> None:
    answer = reply(
        "query",
        "Bertrand",
        "--store",
        store,
        "--as-of",
        "2024-02-28",
        "--kind",
        "turn",
    )
    assert {hit["id"] for hit in answer["results"][0]["hits"]} == {"D1:1", "D1:2"}
    where = ["--store", store, "--where", '{"speaker": "Theo", "meta.page": {"$gt": 1}}']
    answer = reply("query", "Bertrand", *where)
    assert [hit["id"] for hit in answer["results"][0]["hits"]] == ["D2:2"]
    context = reply("context", "Bertrand", "--budget", "100", *where, "--between", "0", "100000")
    assert context["sources"] == []
    context = reply("context", "Bertrand", "--budget", "100", *where, "--between", "2023", "2024")
    assert context["sources"] == []
    context = reply("context", "Bertrand", "--budget", "100", *where, "--between", "2024", "2025")
    assert context["sources"] == ["D2:2"]
    context = reply("context", "Bertrand", "--budget", "100", *where)
    assert context["sources"] == ["D2:2"]


def test_explain_as_text_and_as_json(
    store: Path, reply: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("explain", "Who restores ovens?", "--store", store)
    found = reply(*asked, "--id", "D2:1", "--most", "3")
    assert found["id"] == "D2:1"
    assert sum(found["signals"].values()) == pytest.approx(found["raw"], abs=1e-4)
    assert reply(*asked)["rank"] == 1
    assert main([*map(str, asked)]) == 0
    assert capsys.readouterr().out.startswith("'D1:1' for 'Who restores ovens?'")


def test_commands_say_what_they_did(
    store: Path, tmp_path: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    def said(*arguments: str | Path) -> str:
        assert main([*map(str, arguments), "--store", str(store), *fast]) == 0
        return capsys.readouterr().out

    assert said("store", "feedback", "Where is Lisbon?", "--used", "D2:1").startswith(
        "feedback on 1 question "
    )
    assert "nothing was learned" in said("store", "learned", "--learn")
    preset = tmp_path / "mine.yaml"
    assert f"written to {preset}" in said("store", "learned", "--preset-file", preset)
    assert "dropped: 1\n" in said("store", "learned", "--reset", "feedback")
    assert re.search(r"^switches +none$", said("store", "stats", "--switches"), re.MULTILINE)
    nothing = said("query", "Who restores ovens?", "--as-of", "1999")
    assert nothing.endswith("the memory has no record of this\n\nno memory fits\n")
    receipt, texts = tmp_path / "receipt", tmp_path / "texts"
    assert said("atoms", "forget", "D2:1", "--receipt", receipt).startswith("1 memory erased")
    texts.write_text("The conference is in Lisbon.\n")
    found = said("store", "check", "--receipt", receipt, "--forgotten", texts)
    assert f"what {receipt} names is erased" in found and f"what {texts} lists is left" in found


def test_numbers_of_files_and_options_keep_their_digits(
    store: Path, reply: Callable[..., Any], fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    numerals = ["1876543210987654321", "1876543210987654322", "9.00000000000000000001", "1e400"]
    lines = [
        f'{{"id": "n{i}", "text": "row", "meta": {{"n": {n}}}}}' for i, n in enumerate(numerals)
    ]
    file = store.parent / "numbers.jsonl"
    file.write_text("\n".join(lines))
    reply("index", file, "--store", store)
    for i, numeral in enumerate(numerals):
        where = ("--where", f'{{"meta.n": {numeral}}}', "--store", store)
        (found,) = reply("query", "row", *where)["results"]
        assert [hit["id"] for hit in found["hits"]] == [f"n{i}"]
        assert [atom["id"] for atom in reply("atoms", "forget", "--dry-run", *where)["atoms"]] == [
            f"n{i}"
        ]
        meta = ("--meta", f'{{"n": {numeral}, "again": true}}', "--store", str(store))
        assert main(["atoms", "update", f"n{i}", *meta, *fast, "--json"]) == 0
        told = json.loads(capsys.readouterr().out, parse_float=Decimal)
        assert told["atom"]["meta"]["n"] == Decimal(numeral)


def test_query_with_a_plan(
    store: Path, reply: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("query", "Who restored ovens in February 2024?", "--store", store, "--plan")
    (result,) = reply(*asked)["results"]
    steps = result["plan"]["steps"]
    assert [step["name"] for step in steps][:2] == ["time", "semantic"]
    assert steps[0]["before"] == 4
    assert len(result["hits"]) == steps[-1]["after"]
    assert main([*map(str, asked)]) == 0
    out = capsys.readouterr().out
    assert "2024-02-01 00:00 to" in out and "best by cosine" in out
    assert "plan" not in reply(*asked[:-1])["results"][0]
    (last,) = reply(*asked, "--as-of", "9999-12-31")["results"]
    assert last["plan"] == result["plan"]


def test_query_at_a_moment_that_is_said(store: Path, reply: Callable[..., Any]) -> None:
    asked = ("query", "Who restored ovens last month?", "--store", store, "--plan", "--asked")
    for moment, month in (("2024-03-05", "2024-02-01"), ("2023-06-30", "2023-05-01")):
        (result,) = reply(*asked, moment)["results"]
        assert result["plan"]["between"][0] == parse_time(month)


def test_query_for_the_present(
    store: Path, reply: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("query", "Where is the conference?", "--store", store, "--present")
    (result,) = reply(*asked)["results"]
    assert result["plan"]["order"] == "present" and not result["plan"]["steps"]
    (plain,) = reply(*asked[:-1])["results"]
    assert {hit["id"] for hit in result["hits"]} == {hit["id"] for hit in plain["hits"]}
    assert main([*map(str, asked)]) == 0
    assert "what holds now first" in capsys.readouterr().out
    assert main([*map(str, asked), "--plan"]) == 2
    assert "leave one of them out" in capsys.readouterr().err


def test_query_with_a_trace(
    store: Path, reply: Callable[..., Any], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ("query", "Who restores ovens?", "--store", store, "--trace")
    (result,) = reply(*asked)["results"]
    assert result["trace"]["candidates"] == 4
    assert main([*map(str, asked)]) == 0
    out = capsys.readouterr().out
    assert "took encode" in out
    assert "4 of 4 memories" in out


def test_query_for_agents_that_hop(store: Path, reply: Callable[..., Any]) -> None:
    asked = ("query", "Who restores ovens?", "Where is the conference?", "--store", store)
    plain = reply(*asked)["results"]
    for result in reply(*asked, "--exclude", "D1:1", "--exclude", "D2:1")["results"]:
        assert {hit["id"] for hit in result["hits"]} == {"D1:2", "D2:2"}
    seeded = reply(*asked, "--seed-entity", "Lisbon", "--config.spread.min_nodes", "0")["results"]
    assert [r["hits"][0]["raw"] for r in seeded] != [r["hits"][0]["raw"] for r in plain]


@pytest.mark.parametrize("end", ["2024-02-28", "20240228", "1709078400", "0001709078400"])
def test_query_times_are_dates_or_seconds(end: str, store: Path, reply: Callable[..., Any]) -> None:
    for narrowed in (["--as-of", end], ["--between", "0", end]):
        (result,) = reply("query", "Bertrand", "--store", store, "--kind", "turn", *narrowed)[
            "results"
        ]
        assert {hit["id"] for hit in result["hits"]} == {"D1:1", "D1:2"}


def test_context_of_a_budget_beyond_every_number_takes_all_that_is_found(
    store: Path, reply: Callable[..., Any]
) -> None:
    question = ["context", "Where did Bertrand grow up?", "--store", store, "--budget"]
    large, huge = reply(*question, "100000"), reply(*question, str(10**30))
    assert huge["sources"] == large["sources"] != []
    assert huge["text"] == large["text"]


def test_hit_lines_tell_the_reasons() -> None:
    hit = Hit(id="x", text="Ovens.", score=0.2, kind="turn", signals={"a": -0.9})
    assert [line.strip() for line in hit_lines(1, hit)] == [
        "1    0.20  Ovens.",
        "from x · turn",
        "why nothing speaks for it",
    ]


def test_query_says_why(store: Path, fast: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    question = "Where did Bertrand grow up?"
    assert main(["query", question, "--store", str(store), *fast]) == 0
    out = capsys.readouterr().out
    assert "same word: Bertrand" in out and "rough estimates" in out


def test_context_goes_to_stdout_and_stays_in_budget(
    store: Path, reply: Callable[..., Any], fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["context", "Where did Bertrand grow up?", "--store", store, "--budget", "60"]
    context = reply(*arguments)
    assert 0 < context["tokens"] <= context["budget"] == 60
    assert set(context["sources"]) <= {"D1:1", "D1:2", "D2:1", "D2:2"}
    assert main([*map(str, arguments), *fast]) == 0
    out, err = capsys.readouterr()
    assert out.rstrip("\n") == context["text"].rstrip("\n")
    assert f"{context['tokens']} of 60 tokens" in err


def test_get_shows_memories_by_id(
    store: Path, reply: Callable[..., Any], fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    found = reply("atoms", "get", "D2:1", "D1:1", "--store", store)["atoms"]
    assert [atom["id"] for atom in found] == ["D2:1", "D1:1"]
    assert (found[1]["speaker"], found[1]["meta"]) == ("Theo", {"page": 1})
    assert main(["atoms", "get", "D1:1", "--store", str(store), *fast]) == 0
    out = capsys.readouterr().out
    assert "Theo: Bertrand restores old deck ovens." in out
    assert "D1:1 · turn · s1 · 2024-02-04 10:00" in out and '{"page": 1}' in out


def test_update_and_delete(
    store: Path, reply: Callable[..., Any], fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    change = [
        "atoms",
        "update",
        "D2:1",
        "--store",
        store,
        "--text",
        "It is in Porto.",
        "--speaker",
        "",
    ]
    atom = reply(*change, "--meta", '{"page": 9}')["atom"]
    assert (atom["text"], atom["meta"], "speaker" in atom) == (
        "It is in Porto.",
        {"page": 9},
        False,
    )
    question = ["query", "The conference", "--store", store, "--as-of"]
    texts = [str(reply(*question, moment)) for moment in ("2024-06-01", "2124-06-01")]
    assert ["Lisbon" in text for text in texts] == [True, False]
    assert ["Porto" in text for text in texts] == [False, True]
    assert reply("atoms", "delete", "D2:1", "D2:2", "--store", store)["deleted"] == 2
    assert main(["atoms", "delete", "D1:1", "--store", str(store), *fast]) == 0
    assert "1 memory deleted" in capsys.readouterr().out
    assert reply("store", "stats", "--store", store)["kinds"]["turn"] == 1
    for wrong in (["atoms", "delete"], ["atoms", "delete", "D2:1"], ["atoms", "update", "D1:2"]):
        assert main([*wrong, "--store", str(store), *fast]) == 2
    assert main(["atoms", "update", "D1:2", "--meta", "{", "--store", str(store), *fast]) == 2
    assert "--meta" in capsys.readouterr().err


def test_validity_history_and_changes(
    store: Path,
    reply: Callable[..., Any],
    fails: Callable[..., str],
    fast: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    old, new = reply("atoms", "get", "D1:1", "D2:1", "--store", store)["atoms"]
    found = reply("facts", "supersede", "D1:1", "D2:1", "--store", store)["validity"]
    assert (found["start"], found["stop"], found["by"]) == (old["time"], new["time"], "D2:1")
    ask = ["query", "Who restores deck ovens?", "--store", store]
    for moment, there in ((old["time"], True), (new["time"], False)):
        (result,) = reply(*ask, "--valid-at", f"{moment:.0f}")["results"]
        assert ("D1:1" in {hit["id"] for hit in result["hits"]}) == there
    times = [old["time"], new["time"] + 60.0]
    several = [part for moment in times for part in ("--as-of", f"{moment:.0f}")]
    results = reply(*ask, *several)["results"]
    assert [each["as_of"] for each in results] == times
    alone = [reply(*ask, "--as-of", f"{moment:.0f}")["results"][0] for moment in times]
    scores = [
        {hit["id"]: pytest.approx(hit["score"], abs=1e-4) for hit in each["hits"]} for each in alone
    ]
    assert [{hit["id"]: hit["score"] for hit in each["hits"]} for each in results] == scores
    assert main([*map(str, (*ask, *several)), *fast]) == 0
    assert capsys.readouterr().out.count("as of 2024-") == 2
    chain = reply("facts", "history", "D2:1", "--store", store)["chain"]
    assert [each["id"] for each in chain] == ["D1:1", "D2:1"]
    changes = reply("facts", "changes", "--since", "2020-01-01", "--store", store)["changes"]
    assert [c["what"] for c in changes] == ["added"] * 4 + ["superseded"]
    assert main(["facts", "history", "D1:1", "--store", str(store), *fast]) == 0
    assert main(["facts", "changes", "--since", "2020-01-01", "--store", str(store), *fast]) == 0
    out = capsys.readouterr().out
    assert "superseded by D2:1" in out and "D1:1 by D2:1" in out
    assert "swap the two" in fails("facts", "supersede", "D2:1", "D1:1", "--store", store)
    assert "since: expected" in fails("facts", "changes", "--since", "then", "--store", store)


def test_forget_and_its_receipt(
    store: Path,
    tmp_path: Path,
    reply: Callable[..., Any],
    capsys: pytest.CaptureFixture[str],
    fast: list[str],
) -> None:
    receipt, texts = tmp_path / "erased.json", tmp_path / "texts.txt"
    texts.write_text("The conference is in Lisbon.\nDoes he deliver them as well?\n")
    check = ["store", "check", "--store", str(store), "--forgotten", str(texts), *fast]
    assert main(check) == 1
    assert "text 1: memory.sqlite holds" in capsys.readouterr().out
    told = reply("atoms", "forget", "--store", store, "--speaker", "Nora", "--dry-run")["atoms"]
    assert {atom["speaker"] for atom in told} == {"Nora"} and len(told) == 2
    shown = [
        "atoms",
        "forget",
        "--question",
        "conference",
        "-k",
        "1",
        "--dry-run",
        "--store",
        str(store),
    ]
    assert main([*shown, *fast]) == 0
    out = capsys.readouterr().out
    assert "The conference is in Lisbon." in out and "1 memory would be erased" in out
    assert main([*shown, "--receipt", str(receipt), *fast]) == 2 and not receipt.exists()
    assert "--dry-run" in capsys.readouterr().err
    assert (
        reply("atoms", "forget", "--store", store, "--speaker", "Nora", "--receipt", receipt)[
            "atoms"
        ]
        == 2
    )
    assert main([*check, "--receipt", str(receipt)]) == 0
    capsys.readouterr()
    assert reply("store", "compact", "--store", store)["freed"] >= 0
    assert main(["store", "compact", "--store", str(store), *fast]) == 0
    assert "MB smaller" in capsys.readouterr().out
    assert main([*check, "--receipt", str(receipt)]) == 0
    assert (
        main(["atoms", "forget", "D1:1", "--store", str(store), "--receipt", str(receipt), *fast])
        == 2
    )
    assert main(["atoms", "forget", "--store", str(store), *fast]) == 2
    receipt.write_text(receipt.read_text().replace('"atoms": 2', '"atoms": 1'))
    assert main([*check, "--receipt", str(receipt)]) == 1
    assert "it was changed" in capsys.readouterr().out


def test_export_and_import(
    store: Path, tmp_path: Path, reply: Callable[..., Any], fast: list[str]
) -> None:
    file, again = tmp_path / "all.jsonl", tmp_path / "again.jsonl"
    assert reply("store", "export", file, "--store", store, "--vectors")["atoms"] == 4
    copy = tmp_path / "copy"
    first = reply("store", "import", file, "--store", copy)
    assert (first["new"], first["known"]) == (4, 0)
    assert reply("store", "import", file, "--store", copy)["known"] == 4
    assert main(["store", "export", str(again), "--store", str(copy), "--vectors", *fast]) == 0
    assert again.read_bytes() == file.read_bytes()


def test_stats_and_check(
    store: Path, reply: Callable[..., Any], fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    stats = reply("store", "stats", "--store", store)
    assert stats["kinds"]["turn"] == 4
    assert main(["store", "stats", "--store", str(store), *fast]) == 0
    assert "turn" in capsys.readouterr().out
    assert reply("store", "check", "--store", store) == {"ok": True, "problems": []}


def test_feedback_and_what_was_learned(
    store: Path,
    reply: Callable[..., Any],
    fast: list[str],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    hits = reply("query", "ovens", "--store", store)["results"][0]["hits"]
    used, left = hits[0]["id"], hits[1]["id"]
    given = reply(
        "store", "feedback", "ovens", "--used", used, "--not-used", left, "--store", store
    )
    assert given["feedback"] == {"questions": 1, "used": 1, "not_used": 1}
    with Memory.open(store, embedder="hashing") as memory:
        memory.learning.calibrate(["ovens", "canoes"], max_refusal_rate=0.4)
        threshold = memory.config.gate.threshold
    preset = tmp_path / "mine.yaml"
    shown = reply("store", "learned", "--store", store, "--learn", "--preset-file", preset)
    (gate,) = shown["learned"]
    assert (gate["kind"], gate["value"], gate["applied"]) == ("threshold", threshold, True)
    assert load_config(str(preset)).gate.threshold == threshold
    assert main(["store", "learned", "--store", str(store), *fast]) == 0
    assert "from 2 questions" in capsys.readouterr().out
    assert (
        reply(
            "store",
            "learned",
            "--store",
            store,
            "--reset",
            "threshold",
            "--reset",
            "feedback",
        )["dropped"]
        == 2
    )
    assert reply("store", "stats", "--store", store)["learned"] == {}


def test_config_fields_can_all_be_overridden(store: Path, reply: Callable[..., Any]) -> None:
    answer = reply("query", "--config.rank.k", "1", "ovens", "--store", store)
    assert len(answer["results"][0]["hits"]) == 1
    answer = reply("query", "ovens", "--config.rank.k=2", "--store", store)
    assert len(answer["results"][0]["hits"]) == 2


def test_help_lists_the_configuration(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["query", "--help-config", "--preset", "synapse"]) == 0
    assert "--config.spread.rounds" in capsys.readouterr().out


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == "graphmem 0.1.0\n"


def test_print_json_is_ascii_where_the_output_is_not_utf8(
    tmp_path: Path, fast: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, written = tmp_path / "missing-ü", io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="latin-1"))
    assert main(["store", "stats", "--json", "--store", str(path), *fast]) == 2
    sys.stdout.flush()
    assert str(path) in json.loads(written.getvalue().decode("ascii"))["error"]


def test_a_namespace_is_worked_on_alone(
    store: Path, conversation: Path, reply: Callable[..., Any], fails: Callable[..., str]
) -> None:
    options = ["--store", store, "--namespace", "Ada L."]
    assert "got 'Ada L.'" in fails("query", "Who restores ovens?", *options)
    before = reply("store", "stats", "--store", store)
    assert reply("index", conversation, *options)["new"] == 4
    assert reply("store", "namespaces", "--store", store) == {"namespaces": {"Ada L.": 4}}
    assert reply("query", "Who restores ovens?", *options)["results"][0]["hits"]
    assert reply("store", "stats", *options)["nodes"] == before["nodes"]
    after = reply("store", "stats", "--store", store)
    assert after.pop("namespaces")["number"] == 1
    assert before.pop("namespaces")["number"] == 0 and after == before
    assert "did you mean 'Ada L.'?" in fails(
        "store", "stats", "--store", store, "--namespace", "ada l"
    )
    assert reply("store", "check", "--store", store) == {"ok": True, "problems": []}
    assert reply("store", "namespaces", "--store", store, "--drop", "Ada L.") == {
        "dropped": "Ada L."
    }
    assert reply("store", "namespaces", "--store", store) == {"namespaces": {}}


def test_signals_of_ones_own_are_imported_by_every_command(
    tmp_path: Path,
    store: Path,
    fast: list[str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / "my_signals.py").write_text(
        "from graphmem_torch.rank.registry import signal\n"
        "@signal('own_words')\n"
        "def words(candidates):\n"
        "    return candidates.pick(candidates.memory.log_words).expand(candidates.shape)\n"
    )
    preset = tmp_path / "mine.yaml"
    preset.write_text("extends: default\nrank: {scale: raw, weights: {own_words: 100}}\n")
    asked = ["query", "Bertrand?", "--store", str(store), "--preset", str(preset), *fast, "--json"]
    assert main(asked) == 2
    assert "own_words" in json.loads(capsys.readouterr().out)["error"]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    try:
        assert main([*asked, "--import", "my_signals"]) == 0
    finally:
        SIGNALS.pop("own_words", None)
        sys.modules.pop("my_signals", None)
    hits = json.loads(capsys.readouterr().out)["results"][0]["hits"]
    words = [len(turn[-1].split()) + 1 for turn in TURNS]  # and the speaker
    assert [hit["signals"]["own_words"] for hit in hits] == pytest.approx(
        sorted((100 * math.log1p(count) for count in words), reverse=True), rel=1e-3
    )


def test_stats_list_switches(
    store: Path, reply: Callable[..., Any], fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert reply("store", "stats", "--store", store, "--switches")["switches"] == []
    assert "switches" not in reply("store", "stats", "--store", store)
    assert main(["store", "stats", "--store", str(store), "--switches", *fast]) == 0
    assert "switches" in capsys.readouterr().out


def test_split_name(
    store: Path,
    tmp_path: Path,
    reply: Callable[..., Any],
    fails: Callable[..., str],
    fast: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    more = tmp_path / "more.jsonl"
    texts = ["1: We met Theodora.", "2: We met Theodora (Theo) and Theo again."]
    more.write_text("".join(json.dumps({"id": t[:4], "text": t}) + "\n" for t in texts))
    assert main(["index", str(more), "--store", str(store), *fast]) == 0
    capsys.readouterr()
    said = {"name": "Theo", "split": True, "changed": True}
    assert reply("facts", "split-name", "Theo", "--store", store) == said
    assert reply("facts", "split-name", "theo", "--store", store)["changed"] is False
    for undo, expected in (([], "as before"), (["--undo"], "joins"), (["--undo"], "as before")):
        assert main(["facts", "split-name", "theo", *undo, "--store", str(store), *fast]) == 0
        assert expected in capsys.readouterr().out
    assert main(["store", "check", "--store", str(store)]) == 0 and capsys.readouterr()
    assert "did you mean" in fails("facts", "split-name", "Theodor", "--store", store)


@pytest.mark.parametrize(
    ("where", "found", "said"),
    [
        ('{"meta.page": {"$gte": 3}, "speaker": {"$exists": true}}', ["D2:1", "D2:2"], None),
        ('{"meta.pgae": 1}', [], "did you mean 'meta.page'?"),
        ('{"meta.page": "1"}', [], "expected what the field holds, numbers, got '1'"),
        ('{"meta.page": true}', [], "numbers, got True"),
    ],
)
def test_where_of_the_command_line(
    where: str,
    found: list[str],
    said: str | None,
    store: Path,
    reply: Callable[..., Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    asked = reply("query", "Who restores ovens?", "--store", store, "--where", where)
    assert sorted(hit["id"] for hit in asked["results"][0]["hits"]) == found
    messages = [record.getMessage() for record in caplog.records]
    assert [said in message for message in messages if said] == [True] * bool(said)
    assert messages == [] or said
    erased = reply("atoms", "forget", "--where", where, "--store", store, "--dry-run")
    assert sorted(each["id"] for each in erased["atoms"]) == found


def test_list_shows_memories_page_by_page(
    store: Path, reply: Callable[..., Any], fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    whole = reply("atoms", "list", "--store", store, "--limit", "0")
    ids = [atom["id"] for atom in whole["atoms"]]
    assert whole["next"] is None and len(ids) == len(set(ids)) >= 4
    assert (
        reply("atoms", "update", ids[0], "--title", "Ovens", "--store", store)["atom"]["title"]
        == "Ovens"
    )
    found, after = [], []
    while True:
        page = reply("atoms", "list", "--store", store, "--limit", "3", *after)
        found += [atom["id"] for atom in page["atoms"]]
        if page["next"] is None:
            break
        after = ["--after", page["next"]]
    assert found == ids
    newest = reply(
        "atoms", "list", "--store", store, "--order=-id", "--where", '{"speaker": "Theo"}'
    )
    named = [atom["id"] for atom in newest["atoms"]]
    assert named == sorted(named, reverse=True) and named
    assert main(["atoms", "list", "--store", str(store), "--limit", "1", *fast]) == 0
    out, err = capsys.readouterr()
    assert "Ovens" in out and f"{ids[0]} · " in out and "more with --after" in err
    for wrong in (["--order", "tme"], ["--after", "nothing"], ["--limit", "-1"], ["--archived"]):
        assert main(["atoms", "list", "--store", str(store), *wrong, *fast]) == 2


def test_query_says_where_nobody_can_tell(
    store: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["query", "谁修好了锅炉？", "--store", str(store), *fast]
    assert main(asked) == 0
    assert "cannot tell, as the encoder does not read this language" in capsys.readouterr().out
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["results"][0]["known"] is None
    budget = ["--budget", "200", "--store", str(store), *fast]
    assert main(["context", "谁修好了锅炉？", *budget]) == 0
    assert "cannot tell whether there is a record" in capsys.readouterr().err
