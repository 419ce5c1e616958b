"""The knowledge graph of a memory: its memories are found, exported, forgotten and shared."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.errors import InputError, StoreError
from graphmem_torch.integrations.knowledge_graph import KnowledgeGraph
from graphmem_torch.memory import Memory
from tests.memories import ids, opened

ALICE = {"name": "Alice", "entityType": "person", "observations": ["likes tea", "speaks Greek"]}
ACME = {"name": "Acme", "entityType": "org", "observations": ["makes anvils"]}
WORKS = {"from": "Alice", "to": "Acme", "relationType": "works_at"}


def filled(memory: Memory) -> KnowledgeGraph:
    graph = KnowledgeGraph(memory)
    graph.create_entities([ALICE, ACME])
    graph.create_relations([WORKS])
    return graph


def test_questions_find_observations_and_relations() -> None:
    with opened() as memory:
        filled(memory)
        first = memory.retrieve("Does Alice speak Greek?", k=1).hits[0]
        assert (first.text, first.kind) == ("Alice\nspeaks Greek", "observation")
        assert "Alice works at Acme" in memory.retrieve("Who works at Acme?", k=3).text


def test_an_export_holds_the_graph(tmp_path: Path) -> None:
    with opened() as memory, opened() as other:
        graph = filled(memory)
        memory.export(tmp_path / "export.jsonl")
        other.import_(tmp_path / "export.jsonl")
        copy = KnowledgeGraph(other)
        assert copy.read() == graph.read()
        assert copy.create_entities([ALICE]) == []
        other.forget([atom.id for atom in other if atom.text == "Acme (org)"])
        assert copy.read() == {"entities": [ALICE], "relations": []}


def test_forgetting_an_entity_erases_what_is_derived_from_it() -> None:
    with opened() as memory:
        graph = filled(memory)
        memory.add({"id": "own", "text": "Alice is kind", "kind": "observation"})
        entity = next(atom for atom in memory if atom.text == "Alice (person)")
        texts = {atom.text for atom in memory.forget(entity.id, dry_run=True)}
        assert texts == {"Alice (person)", "likes tea", "speaks Greek", "Alice works at Acme"}
        memory.forget(entity.id)
        assert graph.read() == {"entities": [ACME], "relations": []}
        assert "own" in memory and memory.check() == []


def test_changed_and_deleted_memories_change_the_graph() -> None:
    with opened() as memory:
        graph = filled(memory)
        tea = next(atom for atom in memory if atom.text == "likes tea")
        memory.update(tea.id, text="likes coffee")
        assert graph.open(["Alice"])["entities"][0]["observations"] == [
            "likes coffee",
            "speaks Greek",
        ]
        assert graph.add_observations([{"entityName": "Alice", "contents": ["likes tea"]}]) == [
            {"entityName": "Alice", "addedObservations": ["likes tea"]}
        ]
        entity = next(atom for atom in memory if atom.text == "Alice (person)")
        memory.delete(entity.id)  # its observations stay, as memories without an entity
        assert graph.read()["entities"] == [ACME]
        assert ids(memory.retrieve("coffee", k=1)) == [tea.id]


def test_other_memories_of_these_kinds_are_no_part_of_it() -> None:
    with opened() as memory:
        memory.add(
            [
                {"text": "Ada", "kind": "entity"},
                {"text": "Ada", "kind": "entity", "meta": {"name": "Ada", "entityType": 3}},
                {"text": "knows", "kind": "relation", "meta": {"from": "a", "to": "b"}},
                {"id": "turn", "text": "I own a canoe."},
                {"text": "A canoe", "kind": "observation", "edges": [["turn", "derived_from"]]},
            ]
        )
        assert KnowledgeGraph(memory).read() == {"entities": [], "relations": []}


def test_unknown_entities_and_read_only_stores(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as memory:
        graph = filled(memory)
        before = graph.read()
        unknown: list[dict[str, Any]] = [
            {"entityName": "Alice", "contents": ["new"]},
            {"entityName": "Nobody", "contents": ["x"]},
        ]
        with pytest.raises(InputError, match=r"entityName: expected .* got 'Nobody'.*create_ent"):
            graph.add_observations(unknown)
        assert graph.read() == before
    with opened(tmp_path / "store", mode="r") as memory:
        graph = KnowledgeGraph(memory)
        assert graph.read() == before
        with pytest.raises(StoreError, match="open for reading only"):
            graph.delete_entities(["Alice"])


def test_two_servers_on_one_store_lose_nothing(tmp_path: Path) -> None:
    with opened(tmp_path / "store") as one, opened(tmp_path / "store") as other:
        graphs = [KnowledgeGraph(one), KnowledgeGraph(other)]
        created: list[list[Any]] = [[], []]

        def work(place: int) -> None:
            graph = graphs[place]
            for i in range(6):
                created[place] += graph.create_entities([{**ACME, "name": f"shared {i}"}])
                said = [{"entityName": f"shared {i}", "contents": [f"by {place}", "by both"]}]
                graph.add_observations(said)

        threads = [threading.Thread(target=work, args=(place,)) for place in (0, 1)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        entities = graphs[0].read()["entities"]
        assert graphs[1].read()["entities"] == entities
        assert len(entities) == 6 == sum(map(len, created))  # each was created by one of them
        for entity in entities:
            assert sorted(entity["observations"]) == ["by 0", "by 1", "by both", "makes anvils"]
        assert one.check() == []
