"""Facts, edges and upkeep of a memory of shards, against those of one store."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory, create_shards
from graphmem_torch.store.shard_folder import shard_of
from tests.memories import config_of, turns
from tests.memory.test_shards import S, one_of


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Any]:
    create_shards(tmp_path / "m", S)
    with Memory.open(
        tmp_path / "m", config=config_of(), embedder="hashing", clock=lambda: 1.8e9
    ) as memory:
        memory.add(turns(60))
        yield memory


def pair(apart: bool) -> tuple[str, str]:
    """Two atoms of one shard, or of two."""
    first, *others = turns(60)
    same = (each for each in others if (shard_of(each, S) == shard_of(first, S)) is not apart)
    return first.id, next(same).id


def test_facts_are_stated_where_the_atoms_are(memory: Any) -> None:
    old, new = pair(apart=False)
    with one_of(turns(60)) as one:
        for each in (memory, one):
            each.facts.supersede(old, new, when=1.75e9)
            each.facts.set_validity(["a5", "a6", "a30"], stop=1.76e9)
        ids = [atom.id for atom in turns(60)]
        mine, theirs = (each.facts.validity(ids) for each in (memory, one))
        assert [*mine] == [*theirs] == ids
        for name in ids:
            assert (mine[name].start, mine[name].stop) == (theirs[name].start, theirs[name].stop)
        assert memory.facts.history(old).id == old
    memory.update("a9", text="A new text for nine")
    assert [each.atom.text for each in memory.facts.versions("a9")][-1] == "A new text for nine"
    changes = memory.facts.changes(0)
    assert [each.when for each in changes] == sorted(each.when for each in changes)
    assert {each.id for each in changes} >= {"a9", old}
    far = pair(apart=True)
    with pytest.raises(InputError, match=r"new: expected a memory of shard \d, .* of one session"):
        memory.facts.supersede(*far)
    with pytest.raises(InputError, match="b9"):
        memory.facts.set_validity(["a5", "b9"], stop=1.7e9)


def test_contradictions_are_found_inside_shards(memory: Any) -> None:
    memory.add(
        [
            Atom("c1", "My office is in Lisbon", speaker="Ada", session="s", time=1.7e9),
            Atom("c2", "My office moved to Oslo", speaker="Ada", session="s", time=1.71e9),
            Atom("d1", "The rowing club meets on Monday at nine", speaker="Ben", session="s2"),
            Atom("d2", "The rowing club meets on Monday at nine", speaker="Ben", session="s2"),
        ]
    )
    done = memory.facts.reconcile()
    parts = [shard.facts for shard in memory.shards]
    assert memory.facts.conflicts() == [each for part in parts for each in part.conflicts()]
    assert memory.facts.duplicates() == [each for part in parts for each in part.duplicates()]
    assert done.compared > 0 and memory.facts.reconcile().compared == 0


def test_names_are_split_where_they_are_known(memory: Any) -> None:
    memory.add(
        [Atom(f"n{i}", "We saw the Zanzibar Rowing Club again", session=f"q{i}") for i in range(9)]
    )
    memory.upkeep.consolidate()
    assert memory.facts.split_name("Zanzibar Rowing Club") is True
    assert memory.facts.split_name("Zanzibar Rowing Club") is False
    assert memory.facts.join_name("Zanzibar Rowing Club") is True
    with pytest.raises(InputError, match="name"):
        memory.facts.split_name("Nobody Says This")


def test_edges_connect_memories_of_one_shard(memory: Any) -> None:
    near, far = pair(apart=False), pair(apart=True)
    assert memory.graph.connect(*near, "causes").new == 1
    assert memory.graph.connect([(*near, "causes"), (*reversed(near), "supports")]).new == 1
    assert memory.graph.disconnect(*near, "causes") == 1
    for wrong in (lambda: memory.graph.connect(*far), lambda: memory.graph.disconnect(*far)):
        with pytest.raises(InputError, match=r"target: expected a memory of shard"):
            wrong()
    with pytest.raises(InputError, match="target: expected"):
        memory.graph.connect([(*near, "causes"), far])
    assert memory.graph.disconnect(*near, "causes") == 0, "nothing was stored"
    with pytest.raises(InputError, match="b9"):
        memory.graph.connect("a1", "b9")
    judged = memory.graph.judge(pairs=[near])
    assert judged.judged == 1
    with pytest.raises(InputError, match="pairs: expected a memory of shard"):
        memory.graph.judge(pairs=[far])
    for name in ("structure", "missing_links"):
        with pytest.raises(InputError, match=rf"^graph.{name}: expected a memory of one store"):
            getattr(memory.graph, name)()


def test_archived_memories_come_back(memory: Any) -> None:
    ids = ["a1", "a7", "a20", "a33"]
    assert memory.upkeep.archived() is None
    assert memory.upkeep.archive(ids) == 4 and len(memory) == 56
    away = memory.upkeep.archived()
    assert sorted(atom.id for atom in away) == sorted(ids)
    assert away.retrieve(memory.shards[0].store.path.name + " canoe?", k=4).hits
    for wrong in (["a1", "a2"], ["b1"]):
        with pytest.raises(InputError, match="archive"):
            memory.upkeep.restore(wrong)
    assert memory.upkeep.restore(ids) == 4 and len(memory) == 60
    assert sorted(atom.id for atom in memory) == sorted(atom.id for atom in turns(60))
    assert memory.check() == []


def test_types_strengths_and_particles_come_by_id(memory: Any) -> None:
    ids = ["a1", "a20", "a7", "a33"]
    for name in ("types", "strength", "importance"):
        found = getattr(memory.upkeep, name)(ids)
        assert [*found] == ids
        for shard in memory.shards:
            own = [each for each in ids if each in shard]
            if own:
                assert getattr(shard.upkeep, name)(own) == {each: found[each] for each in own}
    assert [each.id for each in memory.upkeep.particles(ids)] == ids
    done = memory.upkeep.classify()
    assert sum(done.types.values()) + done.failed >= 0
    known = memory.upkeep.types([atom.id for atom in memory])
    assert sum(done.types.values()) == sum(value is not None for value in known.values())
    with pytest.raises(InputError, match="in_background"):
        memory.upkeep.in_background()


def test_every_shard_is_refined(tmp_path: Path) -> None:
    now = [1.8e9]
    create_shards(tmp_path / "m", S)
    with Memory.open(
        tmp_path / "m", config=config_of(), embedder="hashing", clock=lambda: now[0]
    ) as opened:
        memory: Any = opened
        memory.add(turns(30))
        memory.add([Atom(f"t{i}", f"Gone soon {i}", session=f"q{i}") for i in range(9)], ttl=60)
        now[0] += 3600
        assert memory.upkeep.consolidate().expired == 9
        assert memory.upkeep.consolidate().expired == 0 and len(memory) == 30
        assert memory.upkeep.compact() >= 0
        (receipt, *_) = memory.forget(["a1", "a20"])
        assert memory.upkeep.check_receipt(receipt) == []
