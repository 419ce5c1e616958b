"""What is archived is found by no question, can be searched and restored, and is forgotten too."""

from __future__ import annotations

import contextlib
import random
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, EdgeType, Link
from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.archive import carry_insights
from graphmem_torch.results import Receipt
from graphmem_torch.store import MemoryStore
from graphmem_torch.store.database import Database
from graphmem_torch.store.receipts import find_traces
from tests.memories import config_of, interrupted_after, opened, stored

PLACES = ("Vienna", "Porto", "Oslo")


def stories() -> list[Atom]:
    """Turns of one session, and a summary that is derived from two of them."""
    turns = [
        Atom(
            f"t{i}",
            f"Story {i} about {PLACES[i % 3]} and number {i * 7}.",
            session="s",
            speaker="Nora" if i % 2 else "Ben",
            time=1.7e9 + 60.0 * i,
        )
        for i in range(12)
    ]
    links = tuple(Link(name, EdgeType.DERIVED_FROM) for name in ("t3", "t4"))
    return [*turns, Atom("sum", "What stories 3 and 4 say.", kind="aggregate", edges=links)]


@pytest.fixture(params=["process", "disk"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with opened(tmp_path / "m" if request.param == "disk" else None) as memory:
        memory.add(stories())
        yield memory


def said(memory: Memory) -> list[tuple[str, str, int]]:
    """Its edges that linking does not make."""
    kinds = (EdgeType.SUPPORTS, EdgeType.CAUSES, EdgeType.DERIVED_FROM)
    return sorted(edge for edge, _ in stored(memory.store) if edge[2] in kinds)


def test_archive_is_a_memory_that_never_held_them(memory: Memory) -> None:
    assert memory.upkeep.archived() is None
    assert memory.upkeep.archive(["t5", "t7", "t5"]) == 2
    assert "t5" not in memory and len(memory) == 11 and memory.stats()["archived"] == 2
    with opened() as other:
        other.add([atom for atom in stories() if atom.id not in ("t5", "t7")])
        assert {edge for edge, _ in stored(memory.store)} == {e for e, _ in stored(other.store)}
        found, expected = (m.retrieve("Porto, number 35", k=20).hits for m in (memory, other))
        assert [hit.id for hit in found] == [hit.id for hit in expected]
        scores = [hit.score for hit in expected]
        assert [hit.score for hit in found] == pytest.approx(scores, abs=1e-4)
    away = memory.upkeep.archived()
    assert away is not None and {hit.id for hit in away.retrieve("Story").hits} == {"t5", "t7"}
    assert list(memory.namespaces) == [] and memory.check() == []


def test_restore_brings_back_everything_that_was_said(memory: Memory) -> None:
    memory.graph.connect("t1", "t3", "supports", 0.9)
    memory.graph.connect("t3", "t5", "causes")
    memory.update("t3", text="Story 3 about Lisbon.", meta={"page": 3})
    memory.pin("t3")
    whole, edges = memory.get("t3"), said(memory)
    versions = [version.atom for version in memory.facts.versions("t3")]
    memory.upkeep.archive(["t3", "t5"])
    assert len(said(memory)) == len(edges) - 3
    away = memory.upkeep.archived()
    assert away is not None
    assert away.get("t3") == whole and away.pinned() == ["t3"]
    assert memory.upkeep.restore("t3") == 1
    assert len(said(memory)) == len(edges) - 1  # the other end is still away
    assert memory.upkeep.restore("t5") == 1
    assert said(memory) == edges
    assert memory.get("t3") == whole and memory.pinned() == ["t3"] and len(away) == 0
    assert [version.atom for version in memory.facts.versions("t3")] == versions
    assert memory.check() == []


def test_what_is_superseded_stays_so(memory: Memory) -> None:
    memory.facts.supersede("t1", "t3")
    memory.facts.supersede("t3", "t5")
    stated = memory.facts.validity(["t1", "t3", "t5"])
    assert memory.upkeep.archive("t3") == 2  # t1 would be true again
    away = memory.upkeep.archived()
    assert away is not None and sorted(away.store.known(["t1", "t3"])) == ["t1", "t3"]
    assert memory.upkeep.restore("t1") == 2
    assert memory.facts.validity(["t1", "t3", "t5"]) == stated
    memory.upkeep.archive("t3")
    memory.forget("t5")
    memory.upkeep.restore("t1")
    assert memory.facts.validity("t3")["t3"].stop is None  # nothing of what was forgotten
    assert memory.facts.validity("t1")["t1"] == stated["t1"] and memory.check() == []


def test_forget_erases_what_is_archived(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add(stories())
        memory.graph.connect("t1", "t9", "supports")
        memory.upkeep.archive(["t3", "t9", "t10"])
        receipt = memory.forget("t3")  # and the summary that was made of it
        assert receipt.atoms == 2 and "sum" not in memory
        assert memory.upkeep.check_receipt(receipt) == []
        with pytest.raises(InputError, match="forgotten cannot come back"):
            memory.upkeep.restore("t3")
        receipt = memory.forget(speaker="Nora", where={"id": {"$in": ["t1", "t9"]}})
        assert receipt.atoms == 2 and memory.upkeep.check_receipt(receipt) == []
        away = memory.upkeep.archived()
        assert away is not None and away.store.ids()[0] == "t10"
        memory.upkeep.restore("t10")
        memory.add(Atom("other", "Story 9 about Vienna and number 63."))
        assert memory.upkeep.check_receipt(receipt) != []
        memory.forget("other")
    assert find_traces(tmp_path / "m", ["number 63", "Story 3 about", "number 21"]) == []


def test_forget_of_a_question_leaves_no_edge_of_it_in_the_archive(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add([*stories(), Atom("a-telling-id", "The quince harvest was poor.")])
        memory.graph.connect("a-telling-id", "t9", "supports")
        memory.upkeep.archive("t9")
        assert memory.forget(question="quince harvest", k=1).atoms == 1
    assert find_traces(tmp_path / "m", ["a-telling-id"]) == []


def test_forget_erases_what_is_in_the_memory_and_in_its_archive(tmp_path: Path) -> None:
    """As an interrupt leaves it, or one who adds again what was archived."""
    folder = tmp_path / "m"
    same = [Atom(name, "The quince harvest was poor.") for name in ("one", "two", "n1", "n2")]

    def told(receipt: Receipt) -> list[str]:
        """What a third party finds of it, with nothing but the folder."""
        left = []
        for path in folder.rglob("memory.sqlite"):
            with contextlib.closing(sqlite3.connect(path)) as database:
                for kind in ("id", "text"):
                    for (value,) in database.execute(f"SELECT {kind} FROM atom"):
                        left += [value] * (receipt.hash_of(kind, value) in receipt.erased)
        return left

    with opened(folder) as memory:
        memory.add([*stories(), *same])
        memory.upkeep.archive(["t1", "t5", "t7", "two", "n2"])
        memory.add(stories()[:8])
        memory.update("t7", text="Another story 7.", speaker="Ada")
        for gone in ({"ids": "t1"}, {"question": "Story 5, number 35", "k": 1}, {"speaker": "Ada"}):
            receipt = memory.forget(**gone)  # type: ignore[arg-type]
            assert memory.upkeep.check_receipt(receipt) == [] == told(receipt)
        away = memory.upkeep.archived()
        assert away is not None and set(away.store.ids()) & {"t1", "t5", "t7"} == set()
        # Others say it still, in the memory or in its archive.
        for name in ("one", "n2"):
            receipt = memory.forget(name)
            assert memory.upkeep.check_receipt(receipt) == [] == told(receipt)
        assert "n1" in memory and "two" in away
        assert memory.check() == []
    assert find_traces(folder, ["number 7.", "number 35", "number 49", "Another story"]) == []


def test_what_was_restored_is_forgotten_in_the_archive_as_well(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add([*stories(), Atom("a-telling-id", "The quince harvest was poor.")])
        memory.graph.connect("a-telling-id", "t9", "supports")
        memory.upkeep.archive(["a-telling-id", "t9"])
        memory.upkeep.restore("a-telling-id")
        receipt = memory.forget("a-telling-id")
        assert memory.upkeep.check_receipt(receipt) == [] == memory.check()
        assert find_traces(tmp_path / "m", ["The quince harvest", "a-telling-id"]) == []
        memory.add(Atom("another-id", "The plum harvest was good."))
        memory.facts.supersede("another-id", "t1")
        memory.upkeep.archive("another-id")
        away = memory.upkeep.archived()
        assert away is not None
        away.forget("another-id")
    assert find_traces(tmp_path / "m", ["The plum harvest", "another-id"]) == []


def test_what_is_deleted_ties_nothing_that_has_its_id_later(memory: Memory, tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("The canoe is red.")
    memory.add_files(file)
    (chunk,) = (name for name in memory.store.ids() if name.endswith("#0"))
    for other in ("t5", chunk):
        memory.graph.connect("t1", other, "supports", 0.9)
        memory.facts.supersede("t3", other)
    whole = said(memory)
    memory.upkeep.archive(["t1", "t3"])
    memory.delete("t5")
    memory.add(Atom("t5", "Somebody else's story."))
    file.unlink()
    memory.add_files(file, prune=True)
    memory.add(Atom(chunk, "The violin is old."))
    memory.upkeep.restore(["t1", "t3"])
    supports = [edge for edge in whole if edge[2] == EdgeType.SUPPORTS]
    assert len(supports) == 2 and not set(supports) & set(said(memory))
    assert memory.facts.validity("t3")["t3"].stop is None


@pytest.mark.parametrize("failing", ["wipe of the memory", "archive", "wipe of the archive"])
def test_a_disk_that_fills_behind_the_first_commit_leaves_nothing_half_forgotten(
    tmp_path: Path, failing: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """What was erased in the memory is told by its receipt; the rest is done once there is room."""
    folder = tmp_path / "m"
    method = "erase" if failing == "archive" else "finish_erasing"
    plain = getattr(MemoryStore, method)

    def full(store: MemoryStore, *given: Any, **named: Any) -> Any:
        away = store.path is not None and store.path.parent.name == "namespaces"
        if away != (failing != "wipe of the memory"):
            return plain(store, *given, **named)
        with monkeypatch.context() as patch:
            patch.setattr(Database, "wipe", refuse)
            patch.setattr(Database, "write", refuse)
            return plain(store, *given, **named)

    def refuse(*_: Any, **__: Any) -> None:
        raise StoreError("the disk refused")

    with opened(folder) as memory:
        memory.add(stories())
        memory.graph.connect("t1", "t9", "supports")
        memory.facts.supersede("t2", "t1")
        memory.upkeep.archive(["t2", "t9"])
    with opened(folder) as memory:
        with monkeypatch.context() as patch:
            patch.setattr(MemoryStore, method, full)
            receipt = memory.forget(["t1", "t9"])
            assert memory.upkeep.check_receipt(receipt) != []
        assert receipt.atoms == 2 and "t1" not in memory and "disk refused" in caplog.text
    with opened(folder) as memory:  # there is room again
        away = memory.upkeep.archived()
        assert away is not None and "t9" not in away and "t2" in away
        assert memory.upkeep.check_receipt(receipt) == [] == memory.check()
        assert memory.upkeep.restore("t2") == 1
    assert find_traces(folder, ["Story 1 about", "Story 9 about", '"t1"', '"t9"']) == []


def test_one_id_for_two_things_is_refused_until_one_of_them_goes(memory: Memory) -> None:
    memory.update("t2", text="Story 2, told again.")
    memory.upkeep.archive(["t1", "t2", "t3"])
    away = memory.upkeep.archived()
    assert away is not None
    with pytest.raises(InputError, match=r"'t1', which is archived; `upkeep.restore`"):
        memory.get("t1")
    # As an interrupt leaves it; one of them was changed since.
    memory.add(
        [away.get("t3"), Atom("t1", "Not a story at all."), away.facts.versions("t2")[0].atom]
    )
    memory.update("t3", text="Story 3, told again.")
    for change in (memory.upkeep.archive, memory.upkeep.restore):
        with pytest.raises(InputError, match=r"'t1', which says something else in each; delete"):
            change(["t0", "t1", "t3"] if change == memory.upkeep.archive else ["t3", "t1"])
    assert "t0" in memory and memory.get("t3").text == "Story 3, told again."
    assert sorted(n for n in away.store.ids() if n[0] == "t") == ["t1", "t2", "t3"]
    # What is behind goes on, and what is ahead stays.
    assert memory.upkeep.archive(["t2", "t3"]) == 2 and "t3" not in memory
    told = [[version.atom.text for version in away.facts.versions(name)] for name in ("t2", "t3")]
    stories = [f"Story {i} about {PLACES[i % 3]} and number {i * 7}." for i in (2, 3)]
    assert told == [
        [text, f"Story {i}, told again."] for i, text in zip((2, 3), stories, strict=True)
    ]
    away.delete("t1")
    assert memory.upkeep.archive("t1") == 1 and memory.upkeep.restore(["t1", "t2", "t3"]) == 3
    assert len(away) == 0 and memory.check() == []


def test_consolidating_archives_but_for_what_it_cannot(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = config_of(**{"refine.max_memories": 1})
    with opened(tmp_path / "m", config=config) as memory:
        memory.add(stories()[:8])
        memory.upkeep.archive(["t0", "t1"])
        memory.add([Atom("t0", "Not a story at all."), Atom("t1", "Nor is this.")])
        done = memory.upkeep.consolidate()
        # One of the two should go as well, and neither can: of each it is told once at most.
        told = [line for line in caplog.text.splitlines() if "not archived: ids: expected" in line]
        assert 0 < len(told) == len({*told}) and done.archived == 6
        assert "t0" in memory and "t1" in memory and len(memory) == 2
        assert memory.upkeep.consolidate().archived == 0


def test_an_export_has_what_archives_keep(tmp_path: Path) -> None:
    file = tmp_path / "export.jsonl"
    with opened(tmp_path / "m", clock=lambda: 1.8e9) as memory:
        for each in (memory, memory.namespaces.create("alice")):
            each.add(stories())
            each.graph.connect("t1", "t9", "supports", 0.9)
            each.facts.supersede("t1", "t3")
            each.facts.set_validity("t3", start=float("-inf"))
            each.upkeep.archive("t1")
        whole = memory.facts.validity("t3"), said(memory)
        memory.export(file)
        memory.namespaces["alice"].export(tmp_path / "alice.jsonl")
        memory.upkeep.restore("t1")
        back = memory.facts.validity(["t1", "t3"]), said(memory)
    with opened() as other, opened() as others:
        other.import_(file)
        cleo = others.namespaces.create("cleo")
        cleo.import_(tmp_path / "alice.jsonl")
        assert others.upkeep.archived() is None
        for each in (other, other.namespaces["alice"], cleo):
            assert (each.facts.validity("t3"), said(each)) == whole
            assert each.upkeep.restore("t1") == 1
            assert (each.facts.validity(["t1", "t3"]), said(each)) == back


def test_archives_of_namespaces_stay_theirs(memory: Memory, tmp_path: Path) -> None:
    alice = memory.namespaces.create("alice")
    alice.add(Atom("t1", "Alice's own story."))
    alice.upkeep.archive("t1")
    memory.upkeep.archive("t2")
    away = memory.upkeep.archived(), alice.upkeep.archived()
    assert away[0] is not None and away[1] is not None
    assert "t2" in away[0] and "t1" not in away[0] and "t1" in away[1]
    file = tmp_path / "export.jsonl"
    assert memory.export(file) == 13 + 1
    with opened() as other:
        other.import_(file)
        again = other.upkeep.archived(), other.namespaces["alice"].upkeep.archived()
        assert again[0] is not None and again[0].get("t2") == away[0].get("t2")
        assert again[1] is not None and len(again[1]) == 1
        other.upkeep.restore("t2")
    memory.namespaces.drop("alice")
    memory.namespaces.create("alice")
    assert memory.namespaces["alice"].upkeep.archived() is None


def test_archive_refuses_what_it_cannot_do(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nothing is archived"):
        memory.upkeep.restore("t1")
    with pytest.raises(InputError, match="not in the store"):
        memory.upkeep.archive(["t1", "nobody"])
    assert "t1" in memory
    memory.upkeep.archive("t1")
    away = memory.upkeep.archived()
    assert away is not None
    with pytest.raises(InputError, match="got an archive"):
        away.upkeep.archive("t1")
    for name in ("(archive)", "(archive) alice"):
        with pytest.raises(InputError, match=r"`upkeep\.archived` gives"):
            memory.namespaces.create(name)
    with pytest.raises(InputError, match="in neither"):
        memory.forget(["t1", "nobody"])
    assert len(away) == 1


def test_archive_of_a_memory_that_is_only_read(tmp_path: Path) -> None:
    with opened(tmp_path / "m") as memory:
        memory.add(stories())
        memory.upkeep.archive("t1")
    with opened(tmp_path / "m", mode="r") as memory:
        away = memory.upkeep.archived()
        assert away is not None and "t1" in away
        for change in (memory.upkeep.archive, memory.upkeep.restore):
            with pytest.raises(StoreError, match="read"):
                change("t1")


def test_restoring_that_is_cut_short_is_ended_by_the_next() -> None:
    with opened() as memory:
        memory.add(stories())
        memory.graph.connect("t1", "t9", "supports", 0.9)
        memory.facts.supersede("t1", "t3")
        whole = said(memory), memory.facts.validity(["t1", "t3"])
        for writes in range(8):
            memory.upkeep.archive("t1")
            away = memory.upkeep.archived()
            assert away is not None
            with interrupted_after(writes):
                memory.upkeep.restore("t1")
            if "t1" in away:
                memory.upkeep.restore("t1")
            assert (said(memory), memory.facts.validity(["t1", "t3"])) == whole
            assert "t1" not in away and memory.check() == []


@pytest.mark.parametrize("writes", [0, 1])
def test_ended_in_between_loses_nothing(
    tmp_path: Path, writes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, plain, left = tmp_path / "m", MemoryStore.append, [writes]

    def append(*given: Any, **named: Any) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        plain(*given, **named)

    with opened(path) as memory:
        memory.add(stories())
        memory.update("t3", text="Story 3, told again.")
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt), opened(path) as memory:
        patch.setattr(MemoryStore, "append", append)
        memory.upkeep.archive(["t3", "t4"])
    with opened(path) as memory:
        assert memory.get("t3").text == "Story 3, told again." and len(memory) == 13
        assert memory.upkeep.archive(["t3", "t4"]) == 2
        away = memory.upkeep.archived()
        assert away is not None and len(away) == 2 and len(away.facts.versions("t3")) == 2
        memory.upkeep.restore(["t3", "t4"])
        assert len(memory) == 13 and memory.check() == []


def lived(clock: list[float], path: Path | None = None) -> Memory:
    """Stories that were used, some since the last consolidation; an oracle told of two of them."""
    memory = opened(path, clock=lambda: clock[0])
    memory.add(stories())
    memory.touch(["t1", "t1", "t3"], when=clock[0] - 50.0)
    memory.touch(["t3"], when=clock[0] - 20.0)
    memory.upkeep.consolidate()
    memory.touch(["t1", "t7"], when=clock[0] - 5.0)

    def extract(texts: list[str]) -> list[Any]:
        said = {"signifiers": ["plan"], "keys": ["a key of its own"], "importance": 0.75}
        return [said if "Story 3" in text or "Story 5" in text else None for text in texts]

    memory.upkeep.understand(extract)
    return memory


def known_of(memory: Memory, name: str) -> list[Any]:
    """What uses and an oracle have made of a memory."""
    (particle,) = memory.upkeep.particles([name])
    ((node, _),) = memory.store.known([name]).values()
    kept = [row[1:] for row in memory.store.insights.importance() if row.node == node]
    uses = memory.store.uses.of([node]).get(node)
    return [particle.signifiers, particle.keys, particle.importance, particle.accessed, uses, kept]


@pytest.mark.parametrize("names", [["t3"], ["t1", "t3", "t5", "t7", "t8"]])
def test_what_uses_and_an_oracle_made_of_it_comes_along(tmp_path: Path, names: list[str]) -> None:
    clock = [1.8e9]
    with lived(clock, tmp_path / "m") as memory:
        before = {name: known_of(memory, name) for name in names}
        memory.upkeep.archive(names)
        away = memory.upkeep.archived()
        assert away is not None
        # I_0 of what nobody used or spoke of is read of the words that are new where it is.
        told = [name for name in names if name != "t8"]
        assert {n: known_of(away, n)[:2] + known_of(away, n)[3:] for n in told} == {
            n: own[:2] + own[3:] for n, own in before.items() if n in told
        }
        clock[0] += 100.0
        memory.upkeep.restore(names)
        for name in told:
            signifiers, keys, _, accessed, uses, kept = known_of(memory, name)
            assert [signifiers, keys, kept] == [before[name][0], before[name][1], before[name][5]]
            count, times = before[name][4] or (0, [])
            assert accessed == clock[0] and uses == (count + 1, [clock[0], *times])
        assert memory.check() == []
    with opened(tmp_path / "m", mode="r") as memory:
        assert known_of(memory, "t3")[4] == (3, [1.8e9 + 100.0, 1.8e9 - 20.0, 1.8e9 - 50.0])


def test_nothing_is_counted_twice_where_archiving_was_interrupted(tmp_path: Path) -> None:
    with lived([1.8e9], tmp_path / "m") as memory:
        nodes = [node for node, _ in memory.store.known(["t1", "t3"]).values()]
        with opened(tmp_path / "other") as other:
            other.add(stories())
            for _ in range(3):
                carry_insights(memory.store, nodes, other.store)
            there = [node for node, _ in other.store.known(["t1", "t3"]).values()]
            found = [*other.store.uses.of(there).values()]
            assert found == [*memory.store.uses.of(nodes).values()]
            other.touch("t1", when=1.9e9)
            carry_insights(memory.store, nodes, other.store)
            assert [count for count, _ in other.store.uses.of(there).values()] == [3, 2]


def test_the_archive_knows_what_had_ended_against_a_list_of_intervals() -> None:
    """Of chains of values some are archived; both together are true as the list says."""
    dice = random.Random(5)
    with opened(clock=lambda: 1e6) as memory:
        spans: dict[str, tuple[float, float]] = {}
        for who in range(6):
            starts = sorted(dice.sample(range(0, 900), 4))
            for i, start in enumerate(starts):
                memory.add(Atom(f"p{who}v{i}", f"Person {who} lives in {i}", time=float(start)))
                if i:
                    memory.facts.supersede(f"p{who}v{i - 1}", f"p{who}v{i}", known=1000.0 + start)
            ends = [*map(float, starts[1:]), float("inf")]
            spans |= {f"p{who}v{i}": (float(starts[i]), ends[i]) for i in range(4)}
        for who in range(6):
            memory.upkeep.archive(f"p{who}v{dice.randrange(3)}")
        away = memory.upkeep.archived()
        assert away is not None and 6 <= len(away) < 24
        for _ in range(12):
            moment = dice.uniform(0, 1000)
            both = [
                {
                    hit.id
                    for hit in m.at(valid_at=moment)
                    .retrieve("Where does Person 1 live?", k=60)
                    .hits
                }
                for m in (memory, away)
            ]
            true = {name for name, (start, stop) in spans.items() if start <= moment < stop}
            assert both[0] | both[1] == true and not both[0] & both[1]
        # What was not known then had not ended.
        gone = next(iter(away.store.ids()))
        start, stop = spans[gone]
        seen = away.at(valid_at=stop + 1.0, as_of=1000.0).retrieve("Person", k=60).hits
        assert gone in {hit.id for hit in seen} and away.check() == []


def test_what_ended_by_something_forgotten_has_not_ended_in_the_archive() -> None:
    with opened(clock=lambda: 1e6) as memory:
        memory.add([Atom(f"v{i}", f"Nora lives in {PLACES[i]}", time=10.0 * i) for i in range(3)])
        memory.facts.supersede("v0", "v1")
        memory.facts.supersede("v1", "v2")
        memory.upkeep.archive("v1")
        away = memory.upkeep.archived()
        assert away is not None and away.facts.validity("v1")["v1"].stop == 20.0
        assert away.facts.validity("v0")["v0"].by == "v1"
        memory.forget("v2")
        assert away.facts.validity("v1")["v1"].stop is None
        assert away.facts.validity("v0")["v0"].stop == 10.0 and away.check() == []
