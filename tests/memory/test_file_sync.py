"""Files that a memory follows: what it holds is what an index of them, made at once, would hold."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Memory
from graphmem_torch.results import Indexed
from tests.memories import WORDS, Counting, config_of, interrupted_after, opened, stored

Draw = random.Random

BAD_LINES = [
    b'{"text": ',
    b'{"text": "\xff\xfe"}',
    b'{"text": "a\0b"}',
    b"[1]",
    b'{"page": 1}',
    b'{"text": 3}',
    b'{"text": "x", "time": "soon"}',
    b'{"text": "x", "edges": [{"target": 5.5}]}',
    b'{"text": "x", "embedding": [0.5, 1.5]}',
    b'{"text": "x", "kind": "concept"}',
    b'{"text": "x", "meta": ' + b"[" * 2000 + b"]" * 2000 + b"}",
    b'{"turns": [{"text": 5}]}',
]
"""Lines of a file that cannot be used, each for a reason of its own."""


def follows(path: Path | None = None, **change: Any) -> Memory:
    return opened(path, **{"config": config_of(**{"embedder.max_tokens": 20}), **change})


def content(memory: Memory) -> tuple[list[str], list[str]]:
    """Return the stored atoms and their order, without ids and node numbers."""
    columns = memory.store.columns()
    nodes = columns.node[~columns.is_concept].tolist()
    atoms = dict(zip(nodes, memory.store.atoms(nodes), strict=True))
    edges = memory.store.edges()
    edges = edges.take(edges.type == int(EdgeType.TEMPORAL))
    said = {node: str((a.session, dict(a.meta), a.text)) for node, a in atoms.items()}
    ends = zip(edges.source.tolist(), edges.target.tolist(), strict=True)
    return sorted(said.values()), sorted(f"{said[one]} > {said[other]}" for one, other in ends)


def counts(done: Indexed) -> tuple[int, int, int, int]:
    return done.new, done.known, done.replaced, done.deleted


def paragraph(draw: Draw) -> str:
    return " ".join(f"{draw.choice(WORDS)}{draw.randrange(50)}" for _ in range(17)) + ".\n\n"


def written(path: Path, *paragraphs: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text("".join(paragraphs))
    return path


@pytest.fixture
def notes(tmp_path: Path) -> Path:
    """A folder of two documents, of four chunks each."""
    draw, folder = Draw(0), tmp_path / "notes"
    for name in ("a.txt", "b.txt"):
        written(folder / name, *(paragraph(draw) for _ in range(4)))
    return folder


def edited(folder: Path, draw: Draw) -> None:
    """One random change of a folder: a file written, gone, moved, or a paragraph of one."""
    files = sorted(folder.iterdir())
    path = draw.choice(files) if files else folder / "0.txt"
    what = draw.randrange(8) if files else 0
    if what == 0:
        parts = [paragraph(draw) for _ in range(draw.randrange(1, 8))]
        written(folder / f"{draw.randrange(4)}.txt", *parts)
    elif what == 1:
        path.unlink()
    elif what == 2:
        path.rename(folder / f"{draw.randrange(6)}{path.suffix}")
    elif what == 3:
        session = str(draw.random())
        lines = [
            {"text": paragraph(draw).strip(), "session": draw.choice([None, session])}
            for _ in range(draw.randrange(1, 5))
        ]
        written(folder / "c.jsonl", *(f"{json.dumps(line)}\n" for line in lines))
    else:
        parts = path.read_text().splitlines(keepends=True)
        at = draw.randrange(len(parts) + 1)
        more = parts[:1] if path.suffix == ".jsonl" else [paragraph(draw)]
        parts[at : at + draw.randrange(2)] = more * draw.randrange(2)
        written(path, *parts)


@pytest.mark.parametrize("way", ["forget", "delete"])
def test_what_went_from_a_file_comes_again_with_other_content_alone(notes: Path, way: str) -> None:
    with follows() as memory:
        memory.add_files(notes)
        gone = next(name for name in memory.store.ids() if name.endswith("a.txt#1"))
        text = memory.get(gone).text
        getattr(memory, way)(gone)
        (notes / "a.txt").rename(notes / "moved.txt")
        done = memory.add_files(notes)
        assert len(done.moved) == 1 and done.new == 0
        assert text not in {memory.get(name).text for name in memory.store.ids() if "#" in name}
        written(notes / "moved.txt", (notes / "moved.txt").read_text(), paragraph(Draw(5)))
        assert memory.add_files(notes).new == 2, "with other content all of it is read"


def test_a_folder_that_became_empty_is_pruned(notes: Path) -> None:
    with follows() as memory:
        memory.add_files(notes)
        for file in notes.iterdir():
            file.unlink()
        assert len(memory.add_files(notes).gone) == 2 and len(memory) == 8
        assert len(memory.add_files(notes, prune=True, dry_run=True).pruned) == 2
        assert len(memory.add_files(notes, prune=True).pruned) == 2 and len(memory) == 0
        with pytest.raises(InputError, match="without any; name another"):
            memory.add_files(notes)


@pytest.mark.parametrize("seed", range(2))
def test_what_it_holds_is_what_the_files_say(tmp_path: Path, seed: int) -> None:
    draw, folder = Draw(seed), tmp_path / "notes"
    folder.mkdir()
    with follows(tmp_path / "store") as memory:
        for _ in range(4):
            for _ in range(draw.randrange(1, 4)):
                edited(folder, draw)
            if not any(path.read_text().strip() for path in folder.iterdir()):
                continue
            before = len(memory)
            planned = memory.add_files(folder, prune=True, dry_run=True)
            assert len(memory) == before
            done = memory.add_files(folder, prune=True)
            names = ("replaced", "unchanged", "added", "changed", "moved", "pruned")
            assert all(getattr(planned, name) == getattr(done, name) for name in names)
            assert len(memory) == before + done.new - done.deleted
            with follows() as fresh:
                fresh.add_files(folder)
                assert content(memory) == content(fresh)
            assert counts(memory.add_files(folder)) == (0, len(memory), 0, 0)
        assert memory.check() == []


def test_what_did_not_change_is_neither_read_nor_encoded(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = time.time_ns() + 10**10  # the files were not written just now
    monkeypatch.setattr(time, "time_ns", lambda: later)
    encoder = Counting()
    with follows(embedder=encoder) as memory:
        assert memory.add_files(notes).added == ("notes/a.txt", "notes/b.txt")
        ids = [atom.id for atom in memory.get([f"notes/b.txt#{i}" for i in range(4)])]
        encoder.seen.clear()
        text = (notes / "b.txt").read_text()
        written(notes / "b.txt", text.replace(".", " twice.", 1))
        read: list[str] = []
        taken = Path.open

        def opening(path: Path, *arguments: Any, **options: Any) -> Any:
            read.append(path.name)
            return taken(path, *arguments, **options)

        monkeypatch.setattr(Path, "open", opening)
        done = memory.add_files(notes)
        assert set(read) == {"b.txt"}
        assert done.changed == ("notes/b.txt",) and done.unchanged == 1
        old = [t for t in encoder.seen if t in text and " " in t]  # concepts are single words
        assert not old and done.replaced == 1
        assert [atom.id for atom in memory.get(ids)] == ids
        assert "twice" in memory.get("notes/b.txt#0").text


def test_a_chunk_that_changes_has_a_version_more(notes: Path) -> None:
    with follows() as memory:
        memory.add_files(notes)
        ids = [f"notes/a.txt#{i}" for i in range(4)]
        before, known = memory.get(ids), memory.store.known(ids)
        memory.pin(ids[1])
        text = (notes / "a.txt").read_text()
        words = before[1].text.split(" ")
        # Of the same length: the chunks behind it stay where they are.
        changed = " ".join([words[1], words[0], *words[2:]])
        other = " ".join([words[0], words[2], words[1], *words[3:]])
        (notes / "a.txt").write_text(text.replace(before[1].text, changed))
        assert counts(memory.add_files(notes)) == (0, 7, 1, 0)
        assert [version.atom.text for version in memory.facts.versions(ids[1])] == [
            before[1].text,
            changed,
        ]
        assert memory.pinned() == [ids[1]]
        now = memory.store.known(ids)
        assert [now[name] == known[name] for name in ids] == [True, False, True, True]
        # Its node is newer than those behind it: it is still known where it stands.
        (notes / "a.txt").write_text(text.replace(before[1].text, other))
        assert counts(memory.add_files(notes)) == (0, 7, 1, 0)
        with follows() as fresh:
            fresh.add_files(notes)
            assert content(memory) == content(fresh)


def test_what_is_said_of_a_chunk_stays_with_it(notes: Path) -> None:
    with follows() as memory:
        memory.add_files(notes)
        kept = memory.get("notes/a.txt#2")
        memory.pin(kept.id)
        node = memory.store.known([kept.id])[kept.id][0]
        memory.store.life.set_found_types({node: ("procedural", None)}, "oracle")
        memory.graph.connect(kept.id, "notes/b.txt#0", "supports")
        written(notes / "a.txt", "Something new.\n\n", (notes / "a.txt").read_text())
        memory.add_files(notes)
        moved = memory.get(kept.id)
        assert moved.text == kept.text and moved.meta["start"] == kept.meta["start"] + 16
        assert kept.id in memory.pinned() and memory.upkeep.types(kept.id)[kept.id] == "procedural"
        assert memory.graph.disconnect(kept.id, "notes/b.txt#0", "supports") == 1


def test_a_file_that_moves_keeps_its_ids_and_is_not_encoded(notes: Path) -> None:
    encoder = Counting()
    with follows(embedder=encoder) as memory:
        memory.add_files(notes)
        encoder.seen.clear()
        (notes / "a.txt").rename(notes / "first.txt")
        done = memory.add_files(notes)
        assert done.moved == (("notes/a.txt", "notes/first.txt"),)
        assert (done.new, done.replaced, done.deleted) == (0, 4, 0)
        assert all(text.startswith("first\n") for text in encoder.seen), "its name is its title"
        assert memory.get("notes/a.txt#0").session == "notes/first.txt"
        encoder.seen.clear()
        (notes / "sub").mkdir(exist_ok=True)
        (notes / "first.txt").rename(notes / "sub" / "first.txt")
        assert memory.add_files(notes).replaced == 0 and not encoder.seen
        (notes / "sub" / "first.txt").rename(notes / "first.txt")
        assert memory.add_files(notes).replaced == 0 and not encoder.seen
        written(notes / "a.txt", "Another document.")
        assert memory.add_files(notes).new == 1
        assert memory.get("notes/a.txt#4").text == "Another document."
        for name in ("a.txt", "first.txt"):  # both give numbers of one label
            written(notes / name, (notes / name).read_text(), paragraph(Draw(1)))
        memory.add_files(notes)
        with follows() as fresh:
            fresh.add_files(notes)
            assert content(memory) == content(fresh)


def test_a_copy_is_a_file_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "n"
    written(folder / "b.txt", "The canoe is red.")
    with follows() as memory:
        for space in (memory, memory.namespaces.create("u")):
            space.add_files(folder)
        shutil.copy(folder / "b.txt", folder / "c.txt")
        written(folder / "b.txt", "The violin is old.")
        for space in (memory, memory.namespaces["u"]):
            done = space.add_files(folder, prune=True)
            assert (done.moved, done.added, done.changed) == ((), ("n/c.txt",), ("n/b.txt",))
            assert space.get("n/b.txt#0").text == "The violin is old."
            assert space.get("n/c.txt#0").text == "The canoe is red."
        (folder / "c.txt").unlink()  # what was copied goes, and another copy comes
        written(folder / "sub" / "c.txt", "The canoe is red.")
        assert memory.add_files(folder).moved == (("n/c.txt", "n/sub/c.txt"),)
        assert memory.get("n/c.txt#0").session == "n/sub/c.txt"


def test_an_empty_file_keeps_its_ids(tmp_path: Path) -> None:
    folder = tmp_path / "n"
    written(folder / "a.txt", "The canoe is red.")
    with follows() as memory:
        memory.add_files(folder)
        shutil.copy(folder / "a.txt", folder / "b.txt")
        written(folder / "a.txt")
        memory.add_files(folder)
        written(folder / "a.txt", "The violin is old.")
        memory.add_files(folder)
        assert memory.get("n/a.txt#0").text == "The violin is old."
        assert memory.get("n/b.txt#0").text == "The canoe is red."


@pytest.mark.parametrize("seed", range(3))
def test_ids_never_move_between_files(tmp_path: Path, seed: int) -> None:
    """Against a model: a new file takes the ids of one that is gone and said the same, or none."""
    draw, folder = Draw(seed), tmp_path / "n"
    folder.mkdir()
    labels: dict[str, str] = {}  # what the ids of each file begin with
    said: dict[str, str] = {}
    names = [f"{part}{name}" for part in ("", "s/") for name in ("a.txt", "b.txt", "c.txt")]
    with follows() as memory:
        for _ in range(16):
            for _ in range(draw.randrange(1, 4)):
                one, other = draw.sample(names, 2)
                if not (folder / one).exists() or draw.random() < 0.3:
                    written(folder / one, f"The {draw.choice(WORDS)} number {draw.randrange(3)}.")
                elif draw.random() < 0.3:
                    (folder / one).unlink()
                else:
                    written(folder / other, (folder / one).read_text())
            there = {n: (folder / n).read_text() for n in names if (folder / n).exists()}
            if not there:
                continue
            done = memory.add_files(folder, prune=True)
            taken = [(old.removeprefix("n/"), new.removeprefix("n/")) for old, new in done.moved]
            assert len(dict(taken)) == len(taken)
            for old, new in taken:
                assert old in labels and old not in there and new not in labels
                assert said[old] == there[new]
            now = {new: labels[old] for old, new in taken}
            labels = {name: labels.get(name, now.get(name, f"n/{name}")) for name in there}
            said = there
            stored = [memory.get(id) for id in memory.store.ids() if "#" in id]
            assert sorted((a.id.rpartition("#")[0], a.session, a.text) for a in stored) == sorted(
                (labels[name], f"n/{name}", text.strip()) for name, text in there.items()
            )


def test_one_file_is_one_source_from_anywhere(
    tmp_path: Path, notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "link.txt").symlink_to(notes / "a.txt")
    (tmp_path / "linked").symlink_to(notes)
    monkeypatch.chdir(notes)
    with follows(tmp_path / "store") as memory:
        memory.add_files(notes)
        stored = len(memory)
        for paths in (
            ["a.txt", "../notes/a.txt", tmp_path / "link.txt"],
            ["."],
            [tmp_path / "linked"],
            [tmp_path / "linked" / "b.txt", notes],
        ):
            done = memory.add_files(paths)
            assert (done.new, len(memory)) == (0, stored) and not done.added + done.gone


def test_what_is_gone_is_listed_and_kept_until_it_is_pruned(notes: Path) -> None:
    with follows() as memory:
        memory.add([Atom("own", "what a caller added", session="notes/a.txt")])
        memory.add_files(notes)
        (notes / "a.txt").unlink()
        written(notes / "b.txt", "  \n")
        written(notes / "c.txt", "The third.")
        for again in (False, True):
            done = memory.add_files(notes)
            assert done.gone == ("notes/a.txt", "notes/b.txt") and done.deleted == 0
            assert done.new == (0 if again else 1)
        assert memory.add_files(notes / "c.txt", prune=True).deleted == 0
        done = memory.add_files(notes, prune=True)
        assert done.pruned == ("notes/a.txt", "notes/b.txt") and done.deleted == 8
        assert "own" in memory and len(memory) == 2
        (notes / "c.txt").unlink()
        (notes / "b.txt").unlink()
        notes.rmdir()
        with pytest.raises(InputError, match="no such file or folder"):
            memory.add_files(notes)
        assert memory.add_files(notes, prune=True).pruned == ("notes/c.txt",)
        assert len(memory) == 1 and memory.check() == []


def test_what_cannot_be_seen_is_not_gone(notes: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    written(notes / "shut" / "c.txt", "Behind a door.")
    with follows() as memory:
        memory.add_files(notes)
        listing, looking = os.scandir, Path.stat

        def refused(path: Any, real: Any, **options: Any) -> Any:
            if "shut" in str(path):  # permissions do not stop an administrator
                raise PermissionError(13, "Permission denied", str(path))
            return real(path, **options)

        monkeypatch.setattr(os, "scandir", lambda path: refused(path, listing))
        monkeypatch.setattr(Path, "stat", lambda path, **o: refused(path, looking, **o))
        done = memory.add_files(notes, prune=True)
        assert (done.gone, done.pruned, len(memory)) == ((), (), 9)


def test_lines_of_two_files_belong_to_both(tmp_path: Path) -> None:
    def lines(name: str, **said: str) -> Path:
        rows = [{"id": key, "text": text} for key, text in said.items()]
        return written(tmp_path / name, *(f"{json.dumps(row)}\n" for row in rows))

    with follows() as memory:
        memory.add({"id": "own", "text": "of a caller"})
        files = [lines("a.jsonl", x="one", y="two", own="of a caller"), lines("b.jsonl", x="one")]
        assert counts(memory.add_files(files)) == (2, 2, 0, 0)
        lines("a.jsonl", y="two, corrected", z="three")
        assert counts(memory.add_files(files)) == (1, 1, 1, 0)
        assert memory.get("y").text == "two, corrected" and "x" in memory and "own" in memory
        lines("a.jsonl", x="another", y="two, corrected")
        with pytest.raises(InputError, match=r"a.jsonl:1: atom 'x' is stored already with other"):
            memory.add_files(files)
        assert memory.get("x").text == "one" and "z" not in memory
        # From one file to another, and changed on the way.
        lines("a.jsonl", y="two, corrected")
        lines("b.jsonl", y="two, corrected", w="four")
        lines("c.jsonl", x="one, at last")
        assert counts(memory.add_files([*files, tmp_path / "c.jsonl"])) == (1, 2, 1, 0)
        assert {"own", "w", "x", "y"} == set(
            memory.get(["own", "w", "x", "y"]) and memory.store.ids()
        )


def test_a_run_that_was_cut_short_is_ended_by_the_next(
    notes: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with follows() as memory:
        memory.add_files(notes)
        text = (notes / "a.txt").read_text()
        cut = 0
        for name in ("append", "sources.release", "sources.hold", "sources.put", "sources.held"):
            for after in (0, 2):
                written(notes / "a.txt", f"Paragraph {cut}.\n\n", text[20 * after :])
                (notes / "b.txt").rename(notes / "moved.txt")
                part, _, method = name.rpartition(".")
                owner = getattr(memory.store, part) if part else memory.store
                left, real = after, getattr(owner, method)

                def failing(*arguments: Any, _real: Any = real, **options: Any) -> Any:
                    nonlocal left
                    left -= 1
                    if left < 0:
                        raise StoreError("killed")
                    return _real(*arguments, **options)

                with monkeypatch.context() as patch:
                    patch.setattr(owner, method, failing)
                    try:
                        memory.add_files(notes, prune=True)
                    except StoreError:
                        cut += 1
                memory.add_files(notes, prune=True)
                (notes / "moved.txt").rename(notes / "b.txt")
                memory.add_files(notes, prune=True)
                with follows() as fresh:
                    fresh.add_files(notes)
                    assert content(memory) == content(fresh)
        assert cut >= 4 and memory.check() == []


def test_ids_of_callers_may_look_like_those_of_chunks(notes: Path) -> None:
    """Whatever number they have, also one that neither Python nor SQLite reads as one."""
    odd = [f"notes/a.txt#{number}" for number in ("7", "9" * 24, "9" * 5000, "x", "")]
    with follows() as memory:
        memory.add([Atom(name, f"A canoe of my own, {i}.") for i, name in enumerate(odd)])
        assert memory.add_files(notes).new == 8
        written(notes / "a.txt", paragraph(Draw(5)), (notes / "a.txt").read_text())
        done = memory.add_files(notes)
        assert done.new and not done.deleted
        assert [memory.get(name).text[-2] for name in odd] == list("01234")
        assert memory.check() == []


def test_a_move_that_is_cut_short_loses_nothing_of_what_is_said_of_chunks(notes: Path) -> None:
    with follows() as memory:
        memory.add_files(notes)
        memory.add(Atom("own", "The canoe is red.", time=1.7e9))
        ids = [f"notes/a.txt#{i}" for i in range(4)]
        memory.pin(ids[0])
        memory.touch([ids[0], ids[1], ids[1]], when=1.75e9)
        memory.graph.connect("own", ids[2], "supports", 0.9)
        memory.facts.supersede(ids[3], "own")
        memory.feedback("Which canoe?", used=[ids[0]], not_used=[ids[1]])
        names = ["a.txt", "first.txt"]

        def told() -> list[Any]:
            nodes = {name: node for name, (node, _) in memory.store.known(ids).items()}
            used = dict(zip(*(each.tolist() for each in memory.store.uses.counts()), strict=True))
            return [
                {name: used.get(node, 0) for name, node in nodes.items()},
                memory.pinned(),
                memory.facts.validity(ids),
                memory.stats()["feedback"],
                [edge for edge, _ in stored(memory.store) if edge[2] == EdgeType.SUPPORTS],
            ]

        whole = told()
        assert list(whole[0]) == ids and sum(whole[0].values()) == 2
        for writes in range(12):
            (notes / names[0]).rename(notes / names[1])
            with interrupted_after(writes):
                memory.add_files(notes)
            memory.add_files(notes)
            assert told() == whole and memory.get(ids[0]).session == f"notes/{names[1]}"
            names.reverse()
        assert memory.check() == []


def test_two_runs_at_once_are_one_after_the_other(tmp_path: Path, notes: Path) -> None:
    with follows(tmp_path / "store") as one, follows(tmp_path / "store") as other:
        with ThreadPoolExecutor(4) as pool:
            runs = [pool.submit(memory.add_files, notes) for memory in (one, other, one, other)]
            done = [run.result() for run in runs]
        assert sorted(each.new for each in done) == [0, 0, 0, 8]
        assert one.check() == [] and len(one) == len(other) == 8


@pytest.mark.parametrize("line", BAD_LINES, ids=range(len(BAD_LINES)))
@pytest.mark.parametrize("way", ["file", "pipe", "pipe of a named format"])
def test_a_bad_line_drops_no_other(
    line: bytes, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is an error or left out, wherever it stands, and in whichever batch."""
    good = [json.dumps({"id": f"m{i}", "text": f"Story {i}."}).encode() for i in range(30)]
    path = tmp_path / "c.jsonl"
    for place in (0, 5, 30):
        path.write_bytes(b"\n".join([*good[:place], line, *good[place:]]) + b"\n")
        for skip in (False, True):
            pipe = io.TextIOWrapper(io.BytesIO(path.read_bytes()))
            monkeypatch.setattr(sys, "stdin", pipe)
            given = path if way == "file" else "-"
            kind = "jsonl" if way == "pipe of a named format" else None
            with follows() as memory:
                if skip:
                    (why,) = memory.add_files(given, format=kind, skip_bad=True).skipped
                else:
                    with pytest.raises(InputError) as caught:
                        memory.add_files(given, format=kind)
                    why = str(caught.value)
                assert f":{place + 1}" in why and "more that" not in why
                assert [atom.id for atom in memory] == [f"m{i}" for i in range(30)]


def test_ids_that_were_given_before_drop_no_other_line(tmp_path: Path) -> None:
    lines = [{"id": f"m{i % 9}", "text": f"Story {i}."} for i in range(12)]
    path = written(tmp_path / "c.jsonl", *(json.dumps(line) + "\n" for line in lines))
    with follows() as memory:
        with pytest.raises(InputError, match=r"c\.jsonl:10: .*'m0' .*and 2 more that cannot be"):
            memory.add_files(path)
        assert [(atom.id, atom.text) for atom in memory] == [
            (f"m{i}", f"Story {i}.") for i in range(9)
        ]


def test_a_line_that_breaks_keeps_what_it_said_until_it_is_mended(tmp_path: Path) -> None:
    lines = [json.dumps({"id": f"m{i}", "text": f"Story {i}."}) for i in range(6)]
    path = written(tmp_path / "c.jsonl", "\n".join(lines))
    with follows() as memory:
        memory.add_files(path)
        written(
            path, "\n".join([*lines[:2], lines[2][:-3], *lines[4:], '{"id": "n", "text": "New."}'])
        )
        for given in (path, tmp_path):
            with pytest.raises(InputError, match=r"c\.jsonl:3"):
                memory.add_files(given)
            assert {atom.id for atom in memory} == {*(f"m{i}" for i in range(6)), "n"}
        assert memory.add_files(path, skip_bad=True).deleted == 2
        written(path, "\n".join(lines))
        memory.add_files(path)
        assert {atom.id for atom in memory} == {f"m{i}" for i in range(6)}
