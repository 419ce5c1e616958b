"""A folder with an odd file: what says nothing is passed over, what is broken stops no other."""

from __future__ import annotations

import io
import json
import os
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.cli.main import main
from graphmem_torch.memory import Memory
from tests.cli.conftest import FAST

Make = Callable[[Path], Any]
GOOD = {"Nora lives in Lisbon.", "Theo bakes bread."}


def _of(content: bytes) -> Make:
    return lambda path: path.write_bytes(content)


NOTHING: dict[str, Make] = {
    "bom_only.md": _of(b"\xef\xbb\xbf"),
    "two_marks.md": _of(b"\xef\xbb\xbf\xef\xbb\xbf\r\n"),
    "blank.md": _of(b" \n\t\n"),
    "none.txt": _of(b""),
    "unseen.txt": _of("\u00a0\u200b\u2060\n".encode()),
    "utf16_mark.md": _of(b"\xff\xfe"),
    "lines.jsonl": _of(b"\xef\xbb\xbf\n\n"),
    "folder.md": lambda path: path.mkdir(),
    "broken_link.md": lambda path: path.symlink_to("nothing-is-here"),
    "loop.md": lambda path: path.symlink_to(path.name),
    "pipe.txt": os.mkfifo,
    "number.json": _of(b"7"),
}
BROKEN: dict[str, Make] = {
    "latin.md": _of("Gruß".encode("latin-1")),
    "utf16.md": _of("Theo".encode("utf-16")),
    "nul.txt": _of(b"a\0b"),
    "list.jsonl": _of(b"[1, 2]\n"),
    "cut.jsonl": _of(b'{"text": "fine"}\n{"text": "x'),
    "deep.jsonl": _of(b'{"a":' * 10_000),
    "twice.jsonl": _of(b'{"id": "a", "text": "One."}\n{"id": "a", "text": "Two."}\n'),
}


def _index(folder: Path, *options: str) -> int:
    return main(["index", str(folder / "notes"), "--store", str(folder / "s"), *FAST, *options])


def _folder(folder: Path, name: str, make: Make) -> Path:
    notes = folder / "notes"
    notes.mkdir()
    for place, text in zip(("a.md", "zz.md"), sorted(GOOD), strict=True):
        (notes / place).write_text(text)
    make(notes / name)
    return folder


def _texts(folder: Path) -> set[str]:
    with Memory.open(folder / "s", mode="r") as memory:
        assert memory.check() == []
        return {atom.text for atom in memory}


@pytest.mark.parametrize("name", NOTHING)
def test_what_says_nothing_is_passed_over(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = _folder(tmp_path, name, NOTHING[name])
    assert _index(folder) == 0
    assert _texts(folder) == GOOD
    assert name == "folder.md" or f"{name}: left out" in caplog.text
    assert _index(folder, "--skip-bad") == 0  # nothing that could be used was left out


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_broken_stops_no_other_and_is_an_error(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, name, BROKEN[name])
    assert _index(folder) == 2
    error = capsys.readouterr().err
    assert name in error and error.count("graphmem: error:") == 1 and "--skip-bad" in error
    assert _texts(folder) >= GOOD
    assert _index(folder, "--skip-bad", "--json") == 3
    (reason,) = json.loads(capsys.readouterr().out)["skipped"]
    assert name in reason
    (folder / "notes" / name).write_bytes(b"")
    assert _index(folder) == 0 and _index(folder, "--skip-bad") == 0


def test_a_file_that_is_named_must_say_something(tmp_path: Path, fails: Callable[..., str]) -> None:
    mark = tmp_path / "bom_only.md"
    mark.write_bytes(b"\xef\xbb\xbf")
    assert "got an empty file" in fails("index", mark, "--store", tmp_path / "s")


def test_a_line_of_a_megabyte_is_one_memory(tmp_path: Path) -> None:
    text = "Nora met Theo in Lisbon, and they spoke of bread. " * 21_000
    folder = _folder(tmp_path, "long.jsonl", _of(json.dumps({"text": text}).encode() + b"\n"))
    assert (
        main(["index", str(folder / "notes"), "--store", str(folder / "s"), FAST[0], FAST[1]]) == 0
    )
    assert text in _texts(folder)


def test_a_new_store_and_a_new_namespace_are_told_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = _folder(tmp_path, "c.md", _of(b"A note."))
    assert _index(folder) == 0
    assert f"graphmem: {folder / 's'} is a new store\n" in capsys.readouterr().err
    assert _index(folder) == 0
    assert "is a new" not in capsys.readouterr().err
    for told in (1, 0):
        assert _index(folder, "--namespace", "nora") == 0
        assert capsys.readouterr().err.count("'nora' of") == told


def test_a_store_that_is_not_there_is_told_with_the_nearest(
    store: Path, tmp_path: Path, fails: Callable[..., str]
) -> None:
    for wrong in ("stor", "storee", "Store"):
        for command in (
            ["query", "Who?"],
            ["context", "Who?", "--budget", "9"],
            ["store", "stats"],
        ):
            message = fails(*command, "--store", tmp_path / wrong)
            assert f"{tmp_path / wrong}: expected a store" in message
            assert message.endswith(f"did you mean {store}?")
        assert not (tmp_path / wrong).exists()
    (tmp_path / "around").mkdir()
    store.rename(tmp_path / "around" / "mem")
    assert f"did you mean {tmp_path / 'around' / 'mem'}?" in fails(
        "query", "Who?", "--store", tmp_path / "around"
    )
    assert "index something first" in fails("query", "Who?", "--store", tmp_path / "else")


@pytest.mark.parametrize(
    ("there", "given", "slip"),
    [
        ("friends.mem", "freinds.mem", True),
        ("friends.mem", "friend.mem", True),
        ("friends.mem", "friends.men", True),
        ("notes", "Notes", True),
        ("diary", "diarry", True),
        ("user1.mem", "user2.mem", False),
        ("2023", "2024", False),
        ("memory", "memory2", False),
        ("notes.mem", "notes-old.mem", False),
        ("a.mem", "b.mem", False),
        ("alice.mem", "bob.mem", False),
    ],
)
def test_a_new_store_beside_one_of_nearly_its_name(
    there: str, given: str, slip: bool, store: Path, tmp_path: Path, fast: list[str]
) -> None:
    """A slip would make a second store, and the first one would seem to have lost its memories."""
    place = tmp_path / "place"
    place.mkdir()
    store.rename(place / there)
    (tmp_path / "a.txt").write_text("A canoe.")
    words = ["index", str(tmp_path / "a.txt"), "--store", str(place / given), *fast]
    assert main(words) == (2 if slip else 0)
    assert (place / given).exists() != slip
    if slip:
        assert main([*words, "--new"]) == 0 and (place / given).exists()


def test_an_export_to_standard_output(
    store: Path, tmp_path: Path, fast: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    named = ["--store", str(store), *fast]
    assert main(["atoms", "update", "D1:1", "--text", "Grüße, 😀 und Öfen.", *named]) == 0
    assert main(["store", "export", str(tmp_path / "x.jsonl"), *named]) == 0
    capsys.readouterr()
    assert main(["store", "export", "-", *named]) == 0
    out, err = capsys.readouterr()
    assert out.encode() == (tmp_path / "x.jsonl").read_bytes() and err == ""
    assert not Path("-").exists()
    assert main(["store", "export", "-", "--json", *named]) == 2
    assert "which has the output for itself" in capsys.readouterr().err


@pytest.mark.parametrize("way", ["standard input", "named pipe"])
def test_an_import_through_a_pipe(
    way: str,
    store: Path,
    tmp_path: Path,
    reply: Callable[..., Any],
    fails: Callable[..., str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kept = tmp_path / "x.jsonl"
    reply("store", "export", kept, "--store", store)
    lines = kept.read_bytes().splitlines(keepends=True)
    for stop in (len(lines), -1):
        content = b"".join(lines[:stop])
        given, pipe = "-", tmp_path / "pipe"
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(content)))
        if way == "named pipe":
            given = str(pipe)
            os.mkfifo(pipe)
            threading.Thread(target=pipe.write_bytes, args=(content,)).start()
        if stop > 0:
            assert reply("store", "import", given, "--store", tmp_path / "o")["new"] == 4
            with Memory.open(store, mode="r") as one, Memory.open(tmp_path / "o", mode="r") as two:
                assert [*one] == [*two]
        else:
            message = fails("store", "import", given, "--store", tmp_path / "p")
            name = "standard input" if given == "-" else "pipe"
            assert message.startswith(f"graphmem: error: {name}:{len(lines) - 1}: expected the")
            assert not (tmp_path / "p").exists()
        pipe.unlink(missing_ok=True)
