"""Namespaces: each against a store of its own that holds the same and nothing else."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import unicodedata
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import (
    EmbedderError,
    InputError,
    StoreDamagedError,
    StoreError,
)
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.memory.exporting import write_export
from graphmem_torch.results import Result
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from tests.memories import QUESTIONS, opened, turns


def of(owner: int) -> list[Atom]:
    """Turns of one user: all ids, sessions and names are those of others, and most texts."""
    chosen = [atom for i, atom in enumerate(turns(12)) if (i + owner) % 4]
    return [Atom(a.id, a.text, session=a.session, speaker=a.speaker, time=a.time) for a in chosen]


def seen(result: Result) -> list[Any]:
    """All that can be seen of an answer."""
    return [[(h.id, h.text, h.score, h.signals, h.path) for h in result.hits], result.confidence]


@pytest.fixture
def memory(tmp_path: Path) -> Any:
    # Some tests ask for the same bits, whatever else is asked: no GPU's products give these.
    with opened(tmp_path / "store", device="cpu") as memory:
        yield memory


def filled(memory: Memory, names: Sequence[str]) -> None:
    for owner, name in enumerate(names):
        memory.namespaces.create(name).add(of(owner))


def test_each_answers_as_a_store_of_its_own(memory: Memory) -> None:
    """Scores to the last bit: no id, count, idf or concept of others is in them."""
    names = ["ada", "ben", "cleo"]
    filled(memory, names)
    memory.add([Atom("a1", "The violin of everybody, says story 12")])
    asked = [question for question in QUESTIONS for _ in names]
    together = memory.retrieve(asked, scope=Scope(namespaces=names * len(QUESTIONS)))
    for owner, name in enumerate(names):
        with opened(device="cpu") as alone:
            alone.add(of(owner))
            right = [seen(each) for each in alone.retrieve(QUESTIONS)]
            assert [seen(each) for each in together[owner :: len(names)]] == right
            view = memory.namespaces[name]
            assert [seen(each) for each in view.retrieve(QUESTIONS)] == right
            texts = [each.text for each in alone.compile(QUESTIONS, budget=60)]
            compiled = memory.compile(
                QUESTIONS, budget=60, scope=Scope(namespaces=[name] * len(QUESTIONS))
            )
            assert [each.text for each in compiled] == texts
            counts = ("nodes", "kinds", "sessions", "edges", "concepts")
            assert [view.stats()[key] for key in counts] == [alone.stats()[key] for key in counts]
    assert len(memory) == 1 and list(memory.namespaces) == names
    assert memory.stats()["namespaces"]["number"] == 3


def test_questions_of_many_namespaces_are_encoded_in_one_go(memory: Memory) -> None:
    filled(memory, ["ada", "ben"])
    calls: list[list[str]] = []

    def encode(texts: Sequence[str], *, progress: bool = False) -> Encoded:
        calls.append(list(texts))
        return HashingEmbedder(32).encode(texts)

    memory.embedder.encode = encode  # type: ignore[method-assign]
    memory.retrieve(QUESTIONS, scope=Scope(namespaces=["ada", "ben", "ada"]))
    answers = memory.answer(
        QUESTIONS, llm=lambda _: "[1]", scope=Scope(namespaces=["ben", "ada", "ada"])
    )
    assert calls == [QUESTIONS, QUESTIONS]
    assert all(answer.cited for answer in answers)
    assert memory.stats()["uses"] == 0
    assert all(memory.namespaces[name].stats()["uses"] for name in ("ada", "ben"))


def test_a_namespace_that_does_not_exist_is_never_everybody(memory: Memory) -> None:
    filled(memory, ["ada lovelace"])
    with pytest.raises(InputError, match="did you mean 'ada lovelace'"):
        memory.namespaces["Ada Lovelac"]
    for wrong in ([None, "ada lovelace"], ["ada lovelace", "nobody"], ["ada lovelace"], "ab"):
        with pytest.raises(InputError, match="namespace"):
            memory.retrieve(QUESTIONS[:2], scope=Scope(namespaces=wrong))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="got 'nobody'"):
        memory.namespaces.drop("nobody")
    view = memory.namespaces["ada lovelace"]
    with pytest.raises(InputError, match="has no namespaces"):
        view.namespaces.create("inner")
    assert list(memory.namespaces) == ["ada lovelace"] and list(view.namespaces) == []


NAMES = [
    "Case",
    "case",
    "é",
    "..",
    "../../up",
    "a/b",
    "a\\b",
    "C:",
    "CON",
    "name.txt",
    "*",
    "名" * 200,
]


def test_no_name_leads_elsewhere_or_to_another(memory: Memory, tmp_path: Path) -> None:
    for name in NAMES:
        memory.namespaces.create(name).add(Atom("own", f"The text of {name}"))
    assert list(memory.namespaces) == sorted(NAMES)
    for name in NAMES:
        assert memory.namespaces[name].get("own").text == f"The text of {name}"
    assert [path.name for path in tmp_path.iterdir()] == ["store"]
    folders = [p.name for p in (tmp_path / "store" / "namespaces").iterdir() if p.is_dir()]
    assert len({name.casefold() for name in folders}) == len(NAMES)


def in_form(name: str, form: str) -> str:
    return unicodedata.normalize(form, name)


def as_older_releases(store: Path, name: str, stored: str) -> None:
    """Gives the folder of a namespace another name, as older releases stored it."""
    old, new = (hashlib.sha256(each.encode()).hexdigest() for each in (name, stored))
    folder = (store / "namespaces" / old).rename(store / "namespaces" / new)
    (folder / "name.txt").write_text(stored, encoding="utf-8")


# The last one is what keyboards of Vietnamese write: one accent composed, the other not.
@pytest.mark.parametrize("stored", ["NFC", "NFD", "e\u0302\u0301", "\u00ea\u0301"])
def test_a_name_is_one_in_all_forms_of_unicode(tmp_path: Path, stored: str) -> None:
    name = "ti\u1ebfn"
    stored = in_form(name, stored) if stored.startswith("NF") else f"ti{stored}n"
    with opened(tmp_path / "store") as memory:
        memory.namespaces.create(name).add(Atom("own", "a kite"))
        memory.namespaces[name].upkeep.archive("own")
    if stored != name:
        as_older_releases(tmp_path / "store", name, stored)
        as_older_releases(tmp_path / "store", f"(archive) {name}", f"(archive) {stored}")
    with opened(tmp_path / "store") as memory:
        for given in (name, in_form(name, "NFD"), "ti\u00ea\u0301n"):
            assert memory.namespaces[given] is memory.namespaces[stored]
            assert memory.namespaces.create(given).name == stored
            assert "own" in (memory.namespaces[given].upkeep.archived() or ())
            (found,) = memory.retrieve(["kite"], scope=Scope(namespaces=[given]))
            assert found.hits == ()
        assert list(memory.namespaces) == [stored] and memory.check() == []
        memory.namespaces.drop(in_form(name, "NFD"))
        assert list(memory.namespaces) == []
        assert memory.namespaces.create(in_form(name, "NFD")).name == name


def test_two_old_names_that_differ_in_form_stay_two(tmp_path: Path) -> None:
    composed, decomposed = in_form("Amélie", "NFC"), in_form("Amélie", "NFD")
    with opened(tmp_path / "store") as memory:
        memory.namespaces.create("Amélie").add(Atom("own", "decomposed"))
    as_older_releases(tmp_path / "store", composed, decomposed)
    with opened(tmp_path / "store") as memory:
        # Only an older release makes the second one.
        memory.namespaces.create("other").add(Atom("own", "composed"))
    as_older_releases(tmp_path / "store", "other", composed)
    with opened(tmp_path / "store") as memory:
        for name, text in ((composed, "composed"), (decomposed, "decomposed")):
            assert memory.namespaces[name].get("own").text == text
            memory.namespaces[name].upkeep.archive("own")
        memory.namespaces.drop(decomposed)
        assert list(memory.namespaces) == [composed]
        archive = memory.namespaces[composed].upkeep.archived()
        assert archive is not None and archive.get("own").text == "composed"
        assert memory.namespaces[decomposed].name == composed


@pytest.mark.parametrize("name", ["", " a", "a ", "a\nb", "a\0", "\u202ea", "\ud800", "x" * 201, 7])
def test_what_is_no_name_is_refused(memory: Memory, name: Any) -> None:
    with pytest.raises(InputError, match="expected a name of 1 to 200 printable"):
        memory.namespaces.create(name)
    assert list(memory.namespaces) == []


def files_open(folder: Path) -> int:
    """How many open files of this process lie in a folder."""
    found = 0
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            found += os.readlink(each).startswith(str(folder))
    return found


def test_few_files_are_open_whatever_is_held(tmp_path: Path) -> None:
    """What was put down goes on where it was: contents, weights, listeners."""
    folder = tmp_path / "store" / "namespaces"
    with opened(tmp_path / "store", namespaces_open=3) as memory:
        views = [memory.namespaces.create(f"user {i}") for i in range(6)]
        for i, view in enumerate(views):
            view.add(Atom(f"a{i}", f"The violin of user {i}"))
            assert files_open(folder) <= 3 * 3
        weights = {"lexical": 1.0}
        views[0].learning.use_weights(weights)
        del view
        held = views.pop()
        for turn in range(2):
            for i, view in enumerate(views):
                assert [hit.id for hit in view.retrieve("violin").hits] == [f"a{i}"], turn
                assert files_open(folder) <= 3 * 3
        views.clear()
        del view
        assert memory.namespaces["user 0"].config.rank.weights == weights
        assert memory.namespaces["user 1"].config.rank.weights != weights
        assert memory.namespaces["user 5"] is held
        questions = ["violin"] * 6
        answers = memory.retrieve(
            questions, scope=Scope(namespaces=[f"user {i}" for i in range(6)])
        )
        assert [[hit.id for hit in each.hits] for each in answers] == [[f"a{i}"] for i in range(6)]
        assert files_open(folder) <= 3 * 3
    assert files_open(folder) == 0


def test_threads_use_more_namespaces_than_may_be_open(tmp_path: Path) -> None:
    names = [f"user {i}" for i in range(5)]
    with opened(tmp_path / "store", namespaces_open=2) as memory:

        def work(worker: int) -> None:
            for turn in range(2):
                name = names[(worker + turn) % len(names)]
                view = memory.namespaces.create(name)
                view.add(Atom(f"w{worker}t{turn}", f"A violin of {name}", session="1"))
                (found,) = memory.retrieve(["Whose violin?"], scope=Scope(namespaces=[name]))
                assert all(hit.text == f"A violin of {name}" for hit in found.hits)
                assert f"w{worker}t{turn}" in view

        with ThreadPoolExecutor(4) as pool:
            list(pool.map(work, range(4)))
        assert sum(len(memory.namespaces[name]) for name in names) == 8
        assert memory.check() == []


def test_a_closed_view_can_be_used_again_until_the_memory_is_closed(memory: Memory) -> None:
    filled(memory, ["ada"])
    with memory.namespaces["ada"] as view:
        before = len(view)
    assert files_open(Path(str(memory.store.path)) / "namespaces") == 0
    assert len(view) == before and view.retrieve(QUESTIONS[0]).hits
    memory.close()
    for ask in (lambda: len(view), lambda: view.retrieve("violin"), lambda: view.add("more")):
        with pytest.raises(StoreError):
            ask()
    with pytest.raises(StoreError):
        memory.namespaces["ada"]


@pytest.mark.parametrize("resting", [False, True])
def test_dropped_is_gone_here_and_for_others(tmp_path: Path, resting: bool) -> None:
    """What another object has open ends, instead of taking memories that nobody would find."""
    with opened(tmp_path / "store") as memory, opened(tmp_path / "store") as other:
        filled(memory, ["ada", "ben"])
        views = [memory.namespaces["ada"], other.namespaces["ada"]]
        assert [len(view) for view in views] == [9, 9]
        if resting:
            views[1].close()
        memory.namespaces.drop("ada")
        memory.namespaces.create("ada").add("The new text.")
        for view in views:
            for ask in (view.retrieve, view.add, view.get, view.delete):
                with pytest.raises(StoreError, match="was dropped"):
                    ask("violin")
        assert [len(each.namespaces["ada"]) for each in (memory, other)] == [1, 1]
        assert (
            other.retrieve(["violin"], scope=Scope(namespaces=["ada"]))[0].hits[0].text
            == "The new text."
        )
        other.namespaces.drop("ben")
        assert list(memory.namespaces) == ["ada"] and memory.check() == []
        with pytest.raises(InputError, match="got 'ben'"):
            memory.retrieve(["violin"], scope=Scope(namespaces=["ben"]))
    with opened(tmp_path / "store", mode="r") as memory:
        assert memory.namespaces["ada"].get(memory.namespaces["ada"].store.ids()[0])
        for change in (
            lambda: memory.namespaces.create("new"),
            lambda: memory.namespaces.drop("ada"),
            lambda: memory.namespaces["ada"].add("x"),
        ):
            with pytest.raises(StoreError):
                change()


def test_in_the_process_alone() -> None:
    with opened() as memory:
        filled(memory, ["ada", "ben"])
        assert list(memory.namespaces) == ["ada", "ben"]
        memory.namespaces.drop("ada")
        with pytest.raises(InputError, match="got 'ada'"):
            memory.namespaces["ada"]
        assert memory.retrieve(QUESTIONS[:1], scope=Scope(namespaces=["ben"]))[0].hits
        assert memory.check() == []


def test_the_encoder_is_one_for_all_and_is_remembered(tmp_path: Path) -> None:
    """Also where the memory itself is empty."""
    with opened(tmp_path / "store", embedder="hashing") as memory:
        filled(memory, ["ada"])
        assert memory.namespaces["ada"].embedder is memory.embedder
    with pytest.raises(EmbedderError, match="filled this store"):
        opened(tmp_path / "store", embedder=HashingEmbedder(16))
    for mode in ("r", "w"):
        with opened(tmp_path / "store", embedder=None, mode=mode) as memory:
            assert memory.namespaces["ada"].retrieve(QUESTIONS[0]).hits
            assert memory.namespaces["ada"].embedder is memory.embedder
    (folder,) = (path for path in (tmp_path / "store" / "namespaces").iterdir() if path.is_dir())
    with opened(folder, embedder=None) as alone:
        assert len(alone) == 9


def test_a_file_in_the_place_of_their_folder_is_named(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "store" / "namespaces").write_text("mine")
    asks = [lambda: [*memory.namespaces], memory.check, lambda: memory.namespaces["ada"]]
    for ask in [*asks, lambda: memory.namespaces.create("ada")]:
        with pytest.raises(StoreError, match="namespaces: "):
            ask()


def test_damage_is_named_and_nothing_is_made_in_its_place(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as memory:
        filled(memory, ["ada", "ben"])
    folders = {p.parent for p in (tmp_path / "store" / "namespaces").glob("*/memory.sqlite")}
    first, second = sorted(folders)
    names = {path: (path / "name.txt").read_text() for path in folders}
    (first / "memory.sqlite").unlink()
    (second / "name.txt").write_text("another")
    with opened(tmp_path / "store") as memory:
        problems = "\n".join(memory.check())
        assert names[first] in problems and str(second) in problems
        with pytest.raises(StoreDamagedError, match=f"namespace '{names[first]}'"):
            memory.namespaces.create(names[first])
        assert list(memory.namespaces) == [names[first]]
        assert len(memory.namespaces[names[second]]) == 9  # by its name, which is written anew
        assert list(memory.namespaces) == ["ada", "ben"]
        memory.namespaces.drop(names[first])
        assert memory.check() == []


def test_an_export_leaves_out_what_is_dropped_meanwhile(memory: Memory, tmp_path: Path) -> None:
    filled(memory, ["ada", "ben", "cleo"])
    memory.add("The text of nobody.")

    @contextmanager
    def within(name: str) -> Iterator[list[MemoryStore]]:
        if name == "ben":
            memory.namespaces.drop(name)
        yield [memory.namespaces[name].store]

    def names() -> list[str]:
        return list(memory.namespaces)

    file = tmp_path / "all.jsonl"
    assert write_export(file, [memory.store], within, names, own=None) == 1 + 9 + 9
    with opened() as other:
        assert other.import_(file).new == 19
        assert list(other.namespaces) == ["ada", "cleo"]
    with pytest.raises(InputError, match="namespace: expected one"):  # still named, but gone
        write_export(file, [memory.store], within, lambda: ["ada", "ben"], own=None)
    with opened() as other:
        assert other.import_(file).new == 19  # the earlier file is unchanged


def test_an_export_has_them_all_and_a_cut_anywhere_is_refused(
    memory: Memory, tmp_path: Path
) -> None:
    filled(memory, ["ada", "ben"])
    memory.add("The text of nobody.")
    memory.namespaces["ben"].pin("a1")
    file = tmp_path / "all.jsonl"
    assert memory.export(file, vectors=True) == 1 + 9 + 9
    assert memory.export(tmp_path / "own.jsonl", namespaces=False) == 1
    assert memory.namespaces["ben"].export(tmp_path / "ben.jsonl") == 9
    with opened(device="cpu") as other:
        assert other.import_(file).new == 19 and other.import_(file).known == 19
        assert list(other.namespaces) == ["ada", "ben"]
        pairs = [[each.namespaces[name] for each in (memory, other)] for name in ("ada", "ben")]
        for mine, theirs in [(memory, other), *pairs]:
            assert theirs.get(theirs.store.ids()[:1]) == mine.get(mine.store.ids()[:1])
            assert theirs.pinned() == mine.pinned()
            right = [seen(each) for each in mine.retrieve(QUESTIONS)]
            assert [seen(each) for each in theirs.retrieve(QUESTIONS)] == right
        view = other.namespaces.create("cleo")
        assert view.import_(tmp_path / "ben.jsonl").new == 9
        with pytest.raises(InputError, match="has no namespaces"):
            view.import_(file)
        with pytest.raises(InputError, match="got others"):
            bad = file.read_text().replace('"namespace": "ben"', '"namespace": ""')
            other.import_(written(tmp_path / "bad.jsonl", bad))
    lines = file.read_text().splitlines(keepends=True)
    with opened() as other:
        ends = [i + 1 for i, line in enumerate(lines) if line.startswith('{"end"')]
        for cut in (*ends[:-1], ends[0] + 1, len(lines) - 1):
            with pytest.raises(InputError, match="got a cut"):
                other.import_(written(tmp_path / "cut.jsonl", "".join(lines[:cut])))
        with pytest.raises(InputError, match="got more"):
            other.import_(written(tmp_path / "cut.jsonl", "".join(lines + lines[-1:])))
        assert len(other) == 0 and list(other.namespaces) == []


def written(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def killed_at(step: int, path: Path) -> bool:
    """Makes one namespace and drops another in a process that dies at a step; whether it did."""
    child = os.fork()
    if child == 0:
        done = 0

        def dying(function: Any) -> Any:
            def counted(*args: Any, **named: Any) -> Any:
                nonlocal done
                done += 1
                if done > step:
                    os._exit(9)
                return function(*args, **named)

            return counted

        try:
            with opened(path) as memory:
                for name in ("rename", "replace", "fsync", "mkdir", "unlink", "rmdir"):
                    setattr(os, name, dying(getattr(os, name)))
                memory.namespaces.create("new")
                memory.namespaces.drop("old")
                os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, 9)
    return code == 9


def test_killed_anywhere_each_is_there_whole_or_not_at_all(tmp_path: Path) -> None:
    with opened(tmp_path / "first") as memory:
        filled(memory, ["old"])
    names = set()
    for step in range(0, 90, 5):
        path = tmp_path / f"store{step}"
        shutil.copytree(tmp_path / "first", path)
        killed = killed_at(step, path)
        with opened(path) as memory:
            found = list(memory.namespaces)
            names.add(tuple(found))
            assert all(len(memory.namespaces[name]) == (0, 9)[name == "old"] for name in found)
            rest = memory.check()
            assert all("is not deleted yet" in problem for problem in rest)
            memory.namespaces.create("new")
            if "old" in found or rest:
                memory.namespaces.drop("old")
            assert memory.check() == [] and list(memory.namespaces) == ["new"]
        assert len(list((path / "namespaces").iterdir())) == 2  # that one and the lock
        if not killed:
            break
    assert not killed and names == {("old",), ("new", "old"), ("new",)}


def test_a_name_that_cannot_be_is_in_no_memory() -> None:
    with opened() as memory:
        for name in ("\ud800", "", "a\nb", 5, None):
            assert name not in memory.namespaces
