"""Intake: what is said twice, keys of calls, ids in the order of the input, mappings of changes."""

from __future__ import annotations

import hashlib
import logging
import sqlite3
import unicodedata
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, text_hash
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Added, Memory, Scope
from graphmem_torch.results import PRESENT
from tests.memories import opened

TALK = [
    ("assistant", "Book the boat?"),
    ("user", "yes"),
    ("assistant", "And a hotel?"),
    ("user", "yes"),
]


@pytest.mark.parametrize(
    "made",
    [
        lambda role, text: [{"role": role, "content": text}],
        lambda role, text: [{"role": role, "content": text, "session": "s1"}],
        lambda role, text: {"speaker": role, "text": text},
        lambda role, text: text,
        lambda role, text: (each for each in [text]),
    ],
)
def test_who_says_the_same_twice_says_it_twice(made: Callable[[str, str], Any]) -> None:
    with opened() as memory:
        added = [memory.add(made(role, text)) for role, text in TALK]
        assert [each.new for each in added] == [1, 1, 1, 1] and len(memory) == 4
        assert [memory.get(each.ids[0]).text for each in added] == [text for _, text in TALK]


def test_what_has_an_id_or_a_time_is_known() -> None:
    dated = {"speaker": "Theo", "time": "2024-02-04", "text": "Bertrand restores old ovens."}
    with opened() as memory:
        first = memory.add([dated, {"id": "x", "text": "one"}, "two"])
        again = memory.add(["two", {"id": "x", "text": "one"}, dated])
        assert (first, again) == (Added(3, 0), Added(1, 2))
        assert again.ids[1:] == ("x", first.ids[0])
        assert memory.get(list(again.ids))[0].text == "two" and again.ids[0] != first.ids[2]
        assert memory.add([dated, dated]).ids[0] == first.ids[0], "the second is another one"
        assert len(memory) == 5


def test_what_was_archived_may_be_said_again(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        (first,) = memory.add("yes").ids
        memory.upkeep.archive(first)
        (second,) = memory.add("yes").ids
        memory.upkeep.restore(first)
        assert {atom.id for atom in memory} == {first, second}


def test_ids_are_in_the_order_of_the_input() -> None:
    with opened() as memory:
        texts = [f"text {i % 40}" for i in range(100)]
        with ThreadPoolExecutor(4) as pool:
            added = [*pool.map(memory.add, [texts[i : i + 25] for i in range(0, 100, 25)])]
        assert [a.text for each in added for a in memory.get(each.ids)] == texts
        assert memory.add(Atom("x", "one")).ids == memory.add(Atom("x", "one")).ids == ("x",)
        assert memory.add_document("A text. Another.", name="d").ids == ("d#0",)
        assert sum(added, Added(0, 0)).ids == tuple(name for each in added for name in each.ids)
        assert memory.graph.connect(added[0].ids[0], "x", "causes").ids == ()


def _add_with_key(path: str, texts: list[str], key: str) -> tuple[int, int, tuple[str, ...]]:
    with opened(Path(path)) as memory:
        added = memory.add(texts, key=key)
        return added.new, added.known, added.ids


def test_a_call_with_a_key_may_be_repeated(tmp_path: Path) -> None:
    with opened(tmp_path) as memory:
        first = memory.add(["yes", "no", "yes"], key="call 1")
        assert (first.new, len(memory)) == (3, 3)
    with get_context("spawn").Pool(1) as pool:  # another process
        again = pool.apply(_add_with_key, (str(tmp_path), ["yes", "no", "yes"], "call 1"))
    assert again == (0, 3, first.ids)
    with opened(tmp_path) as memory:
        assert memory.add(["yes", "no", "yes"], key="call 2").new == 3
        for other in (["yes", "no"], ["yes", "no", "yes", "yes"], ["no", "yes", "yes"], "yes"):
            with pytest.raises(InputError, match=r"key: expected the content .*'call 1'.*new key"):
                memory.add(other, key="call 1")
        assert len(memory) == 6
        dated = {"text": "yes", "time": "2024-01-01"}
        assert [memory.add(dated, key=key).new for key in "abab"] == [1, 1, 0, 0]
        for space in ("u", "v"):
            assert memory.namespaces.create(space).add("yes", key="call 1").new == 1
        for wrong in ("", "  ", 5, True, b"x"):
            with pytest.raises(InputError, match="key: expected a name"):
                memory.add("text", key=wrong)  # type: ignore[arg-type]


FORMS = ("NFC", "NFD")


@pytest.mark.parametrize("before", FORMS)
@pytest.mark.parametrize("after", FORMS)
def test_keys_and_contents_are_the_same_in_all_forms(before: str, after: str) -> None:
    def call(form: str) -> tuple[list[Any], str]:
        put = partial(unicodedata.normalize, form)
        named = {"id": put("ú 1"), "text": "x", "session": put("Ålesund")}
        said = {"text": put("Zoë naïve"), "speaker": put("Zoë"), "meta": {put("é"): put("ö")}}
        return [said, named, put("crêpe")], put("café 7")

    with opened() as memory:
        first, key = call(before)
        added = memory.add(first, key=key)
        second, key = call(after)
        again = memory.add(second, key=key)
        assert (again.new, again.known, again.ids) == (0, 3, added.ids) and len(memory) == 3
        assert memory.get(added.ids[2]).text == first[2], "stored as it was given"
        with pytest.raises(InputError, match="key: expected the content"):
            memory.add([*second[:2], "crepe"], key=key)


def test_none_takes_the_meta_away() -> None:
    with opened() as memory:
        memory.add({"id": "a", "text": "x", "meta": {"page": 3}})
        assert dict(memory.update("a", meta=None).meta) == {}
        memory.update("a", {"meta": {"page": 4}})
        assert dict(memory.update("a", {"meta": None}).meta) == {}


def test_ids_are_content_that_a_key_stands_for() -> None:
    with opened() as memory:
        memory.add({"id": "a", "text": "x"}, key="k")
        with pytest.raises(InputError, match="key: expected the content"):
            memory.add({"id": "b", "text": "x"}, key="k")


@pytest.mark.parametrize("form", FORMS)
def test_keys_of_an_older_release_are_known(form: str, tmp_path: Path) -> None:
    """It kept the SHA-256 of the key, and of that and the digests of the atoms, as given."""
    key, texts = (unicodedata.normalize(form, each) for each in ("café", "crêpe"))
    with opened(tmp_path) as memory:
        kept = f"chunk:{text_hash(key + chr(0) + '0')[:16]}"
        memory.add(Atom(kept, texts, kind="chunk"), key="another")
        parts = [key.encode(), memory.get(kept).digest.encode()]
    own, whole = (hashlib.sha256(b"".join(p + b"\0" for p in parts[:n])).digest() for n in (1, 2))
    with closing(sqlite3.connect(tmp_path / "memory.sqlite")) as database, database:
        database.execute("UPDATE keyed SET key = ?, digest = ?", (own, whole))
    with opened(tmp_path) as memory:
        for now in FORMS:
            same = [unicodedata.normalize(now, each) for each in (texts, key)]
            assert memory.add(same[0], key=same[1]).ids == (kept,) and len(memory) == 1
        with pytest.raises(InputError, match="key: expected the content"):
            memory.add("crepe", key=key)


def test_a_call_that_broke_off_goes_on(tmp_path: Path) -> None:
    def broken() -> Any:
        yield from (f"text {i}" for i in range(30))
        raise KeyboardInterrupt

    texts = [f"text {i}" for i in range(40)]
    with opened(tmp_path) as memory:
        with pytest.raises(InputError):
            memory.add([*texts[:30], " "], key="k")
        # As if it had broken off between batches: some of it is there, under the same ids.
        memory.add(texts[:12], key="other")
        assert memory.add(texts, key="k").new == 40
        assert memory.add(texts, key="k").new == 0
        with pytest.raises(KeyboardInterrupt):
            memory.add(broken())
        assert len(memory) == 12 + 40 + 24, "without a key whole batches are there"


def test_what_was_taken_away_does_not_come_back_with_its_key(tmp_path: Path) -> None:
    secret = "Zanzibar quokka"
    with opened(tmp_path) as memory:
        memory.add("something else", key="other")
        (gone,) = memory.add(secret, key="a").ids
        memory.delete(gone)
        (erased,) = memory.add(secret, key="b").ids
        memory.forget(erased)
        for key, name in (("a", gone), ("b", erased)):
            assert memory.add(secret, key=key) == Added(0, 1)
            assert memory.add(secret, key=key).ids == (name,) and name not in memory
        assert memory.add("something else", key="other").new == 0
        assert len(memory) == 1 and memory.check() == []
        rows = memory.store.keyed.used
        assert rows("a", [Atom("x", "any content")]), "its digest went with it"
    data = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"quokka" not in data


def test_update_takes_a_mapping() -> None:
    with opened() as memory:
        memory.add([{"id": f"i{n}", "speaker": "Nora", "text": f"text {n}"} for n in range(3)])
        assert memory.update("i0", {"text": "new", "speaker": None}).rendered == "new"
        assert memory.update({"id": "i1", "text": "new", "time": "2024-05-01"}).time == 1714521600.0
        changed = memory.update("i2", {"id": "i2", "text": "new"}, title="T", type="semantic")
        assert (changed.text, changed.title, changed.type) == ("new", "T", "semantic")
        said = memory.update("i0", {"role": "user", "content": [{"type": "text", "text": "yo"}]})
        assert said.rendered == "user: yo"
        assert memory.update("i1", {"content": "only the text"}).rendered == "Nora: only the text"
        assert (said.time, dict(said.meta)) == (None, {})
        for wrong, match in (
            (("i0", {"txet": "x"}), r"update: .*got 'txet'; did you mean 'text'"),
            (("i0", {"timestamp": 5}), r"update: .*got 'timestamp'; did you mean 'time'"),
            (("i0", {"id": "i1", "text": "x"}), "id: expected another field"),
            (("i0", "text"), "update: expected a mapping"),
            (({"text": "x"},), "update: expected an id"),
            (({"id": "i0", "text": "x"}, {"text": "y"}), "update: expected one mapping"),
            (("i0", {}), "update: expected fields"),
        ):
            with pytest.raises(InputError, match=match):
                memory.update(*wrong)
        with pytest.raises(InputError, match="text: expected one value, got two"):
            memory.update("i0", {"text": "x"}, text="y")


def test_update_takes_each_message_that_add_takes() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": '{"x": 1}'}}
    messages: list[dict[str, Any]] = [
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "user", "content": "yo", "created_at": "2024-05-01T00:00:00Z"},
        {"role": "user", "name": "Nora", "content": [{"type": "text", "text": "yo"}], "title": "T"},
        {"role": "model", "parts": [{"text": "a"}, {"functionCall": {"name": "f", "args": {}}}]},
        {"type": "function_call_output", "call_id": "c", "output": "sunny"},
        {"role": "user", "text": "as a text", "session": "s", "time": "2024-05-01"},
    ]
    with opened() as memory:
        for number, message in enumerate(messages):
            (new,) = memory.add(message).ids
            memory.add({"id": f"m{number}", "text": "before"})
            added, changed = memory.get(new), memory.update(f"m{number}", message)
            assert changed.rendered == added.rendered
            assert (changed.time, changed.session) == (added.time, added.session)
            assert {"role": added.meta["role"], **changed.meta} == added.meta
        with pytest.raises(InputError, match="content: expected text"):
            memory.update("m0", {"role": "user", "content": ""})


def test_a_plan_may_be_named() -> None:
    with opened() as memory:
        memory.add([{"text": f"Nora lives in {city}.", "time": n} for n, city in enumerate("ABC")])
        named = memory.retrieve("Where does Nora live?", scope=Scope(plan="present"))
        stated = memory.retrieve("Where does Nora live?", scope=Scope(plan=PRESENT))
        assert [hit.id for hit in named.hits] == [hit.id for hit in stated.hits]
        assert named.plan == stated.plan and named.plan is not None
        assert memory.compile("Where does Nora live?", budget=60, scope=Scope(plan="present")).text
        several = memory.retrieve(["a", "b"], scope=Scope(plan=["present", False]))
        assert [each.plan is None for each in several] == [False, True]
        with pytest.raises(InputError, match="'present', got 'presnt'"):
            memory.retrieve("a", scope=Scope(plan="presnt"))  # type: ignore[arg-type]


def test_a_key_that_looks_like_a_field_is_not_passed_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def told(record: dict[str, Any], memory: Memory) -> list[str]:
        caplog.clear()
        with caplog.at_level(logging.WARNING):
            memory.add([record, record])
        return [each.getMessage() for each in caplog.records]

    with opened() as memory:
        for key, field in (
            ("titel", "title"),
            ("Title", "title"),
            ("speakr", "speaker"),
            ("speeker", "speaker"),
            ("sesion", "session"),
            ("event-time", "event_time"),
            ("timestamp", "time"),
            ("metadata", "meta"),
            ("edge", "edges"),
            ("_id", "id"),
        ):
            (message,) = told({"text": "x", key: "2024"}, memory)
            assert message.startswith(f"{key}: kept as meta.{key}") and repr(field) in message
        (message,) = told({"text": "x", "turns": 12}, memory)
        assert "kept as meta.turns" in message
        for record in (
            {"text": "x", "page": 3, "url": "u", "author": "z", "lang": "en"},
            {"text": "x", "test": 1, "next": 2, "score": 0.5, "turn": 7, "message": "m"},
            {"text": "x", "title": "t", "titel": "a word of another language"},
            {"text": "x", "meta": {"titel": "t", "embedding": [0.5]}},
            {"text": "x", "embedding": "ada-002"},
        ):
            assert told(record, memory) == [], record
        for key in ("embeddings", "vector"):
            with pytest.raises(InputError, match=rf"{key}: expected no vector .*leave it out"):
                memory.add({"text": "x", key: [0.1, 0.2]})
        for key in ("txt", "txet", "Text"):
            with pytest.raises(InputError, match=f"text: expected .*write 'text' for '{key}'"):
                memory.add({key: "hello"})
        for record, got in (
            (
                {"choices": [{"message": {"role": "user", "content": "x"}}], "id": "c"},
                "choices, id",
            ),
            ({"conversations": []}, "a record of conversations; give the texts or messages in it"),
            ({"body": "hello"}, "a record of body; write 'text' for 'body'"),
            ({"text": ""}, "got ''; leave out what says nothing"),
        ):
            with pytest.raises(InputError, match=f"text: expected .*{got}"):
                memory.add(record)
