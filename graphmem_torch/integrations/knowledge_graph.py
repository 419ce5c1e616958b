"""Knowledge graph of a memory, with the operations of the MCP reference memory server.

Entities, observations and relations are ordinary memories (`readers.entities`): questions
find them, exports hold them, and forgetting an entity erases what is derived from it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from graphmem_torch.errors import InputError
from graphmem_torch.readers.entities import (
    ENTITY,
    OBSERVATION,
    RELATION,
    entity_atom,
    entity_of,
    observation_atom,
    observed,
    relation_atom,
    relation_of,
)

if TYPE_CHECKING:
    from graphmem_torch.atoms import Atom
    from graphmem_torch.memory import Memory

__all__ = ["KnowledgeGraph"]

Given = Mapping[str, Any]
"""An entity (`name`, `entityType`, `observations`), a relation (`from`, `to`, `relationType`), or
the observations of an entity (`entityName`, with `contents` or `observations`)."""

Json = dict[str, Any]
"""An entity, a relation or a graph (`entities`, `relations`), as JSON has it."""


@dataclass
class _Entity:
    """Entity with the ids and contents of its observations, in the order of adding."""

    id: str
    name: str
    type: str
    observations: list[tuple[str, str]] = field(default_factory=list)

    @property
    def contents(self) -> list[str]:
        return [content for _, content in self.observations]

    def as_json(self) -> Json:
        return {"name": self.name, "entityType": self.type, "observations": self.contents}


@dataclass
class _Graph:
    """Graph as stored: entities, and relations with their ids, in the order of adding."""

    entities: list[_Entity]
    relations: list[tuple[str, dict[str, str]]]

    def named(self, name: str) -> _Entity | None:
        """Return the first entity of a name; several may have one name."""
        return next((entity for entity in self.entities if entity.name == name), None)

    def part(self, entities: Sequence[_Entity]) -> Json:
        """Return entities with the relations that have one of them at an end."""
        names = {entity.name for entity in entities}
        relations = [own for _, own in self.relations if names & {own["from"], own["to"]}]
        return {"entities": [entity.as_json() for entity in entities], "relations": relations}


class KnowledgeGraph:
    """Entities, observations and relations in a memory.

    A change reads the graph and writes in one turn of the store, so that several servers on one
    store lose nothing. Results and arguments are those of the reference server: two equal
    observations or relations in one call are two, but what is stored already is passed over.
    """

    def __init__(self, memory: Memory) -> None:
        """Read nothing yet.

        Args:
            memory: Memory, or a namespace of one.
        """
        self._memory = memory

    def create_entities(self, entities: Iterable[Given]) -> list[Json]:
        """Store the entities whose names are new, with their observations, and return them."""
        with self._memory.store.turn():
            known = {entity.name for entity in self._stored().entities}
            fresh = [dict(given) for given in entities if given["name"] not in known]
            now, seen = time.time(), Counter[str]()
            atoms: list[Atom] = []
            for given in fresh:
                atom = entity_atom(given["name"], given["entityType"], seen)
                atoms.append(atom)
                atoms += [
                    observation_atom(atom.id, given["name"], content, time=now)
                    for content in given["observations"]
                ]
            self._add(atoms)
        return fresh

    def create_relations(self, relations: Iterable[Given]) -> list[dict[str, str]]:
        """Store the relations that are new, and return them; entities need not exist."""
        with self._memory.store.turn():
            graph, now = self._stored(), time.time()
            known = [own for _, own in graph.relations]
            fresh = [dict(given) for given in relations if given not in known]
            atoms = []
            for given in fresh:
                ends = [graph.named(given[end]) for end in ("from", "to")]
                ids = [end.id for end in ends if end is not None]
                atoms.append(relation_atom(given, ids, time=now))
            self._add(atoms)
        return fresh

    def add_observations(self, observations: Iterable[Given]) -> list[Json]:
        """Add what is new to entities, all or nothing, and return it for each.

        Raises:
            InputError: No entity of a name.
        """
        with self._memory.store.turn():
            graph, now = self._stored(), time.time()
            atoms: list[Atom] = []
            added: list[Json] = []
            for given in observations:
                entity = graph.named(given["entityName"])
                if entity is None:
                    raise InputError(
                        f"entityName: expected the name of an entity, got "
                        f"{given['entityName']!r:.80}, which is not found; create it with "
                        "create_entities"
                    )
                known = {*entity.contents}
                fresh = [content for content in given["contents"] if content not in known]
                entity.observations += [("", content) for content in fresh]
                atoms += [
                    observation_atom(entity.id, entity.name, content, time=now) for content in fresh
                ]
                added.append({"entityName": entity.name, "addedObservations": fresh})
            self._add(atoms)
        return added

    def delete_entities(self, names: Iterable[str]) -> None:
        """Delete entities with their observations and relations; passes over unknown names."""
        gone = {*names}
        with self._memory.store.turn():
            graph = self._stored()
            entities = [entity for entity in graph.entities if entity.name in gone]
            ids = [entity.id for entity in entities]
            ids += [id for entity in entities for id, _ in entity.observations]
            ids += [id for id, own in graph.relations if gone & {own["from"], own["to"]}]
            self._memory.delete(ids)

    def delete_observations(self, deletions: Iterable[Given]) -> None:
        """Delete observations of entities; passes over unknown ones."""
        with self._memory.store.turn():
            graph, ids = self._stored(), list[str]()
            for given in deletions:
                entity, gone = graph.named(given["entityName"]), {*given["observations"]}
                if entity is not None:
                    ids += [id for id, content in entity.observations if content in gone]
            self._memory.delete(ids)

    def delete_relations(self, relations: Iterable[Given]) -> None:
        """Delete relations; passes over unknown ones."""
        gone = [dict(given) for given in relations]
        with self._memory.store.turn():
            self._memory.delete([id for id, own in self._stored().relations if own in gone])

    def read(self) -> Json:
        """Return all entities and relations."""
        graph = self._stored()
        return {
            "entities": [entity.as_json() for entity in graph.entities],
            "relations": [own for _, own in graph.relations],
        }

    def search(self, query: str) -> Json:
        """Return entities whose name, type or observations contain a text, ignoring case.

        With the relations at their ends. `Memory.retrieve` searches by meaning.
        """
        graph, wanted = self._stored(), query.lower()
        return graph.part(
            [
                entity
                for entity in graph.entities
                if any(
                    wanted in text.lower() for text in (entity.name, entity.type, *entity.contents)
                )
            ]
        )

    def open(self, names: Iterable[str]) -> Json:
        """Return the entities of some names, with the relations at their ends."""
        graph, wanted = self._stored(), {*names}
        return graph.part([entity for entity in graph.entities if entity.name in wanted])

    def _add(self, atoms: Sequence[Atom]) -> None:
        if atoms:
            self._memory.add(atoms)

    def _stored(self) -> _Graph:
        """Read the graph; observations of an entity that is gone are not part of it."""
        kinds = [ENTITY, OBSERVATION, RELATION]
        entities: dict[str, _Entity] = {}
        observations: list[tuple[str, str, str]] = []
        relations: list[tuple[str, dict[str, str]]] = []
        for atom in self._memory.list(where={"kind": {"$in": kinds}}):
            if (named := entity_of(atom)) is not None:
                entities[atom.id] = _Entity(atom.id, *named)
            elif (own := observed(atom)) is not None:
                observations.append((own[0], atom.id, own[1]))
            elif (relation := relation_of(atom)) is not None:
                relations.append((atom.id, relation))
        for entity, id, content in observations:
            if entity in entities:
                entities[entity].observations.append((id, content))
        return _Graph([*entities.values()], relations)
