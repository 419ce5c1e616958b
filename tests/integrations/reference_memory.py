"""Model of the MCP reference memory server 2026.8.31, written from its source, and random calls."""

from __future__ import annotations

import copy
import random
from typing import Any

__all__ = ["ReferenceMemory", "random_call"]

NAMES = ["Alice", "alice", "Bob", "Acme Corp", "Cafe\u0301", "Café", "", "  two  ", "名前", "a\nb"]
TYPES = ["person", "org", "", "Place_Of"]
CONTENTS = [
    *("likes tea", "Likes Tea", "", "   ", "(blank)", "speaks Greek", "one\ntwo", "tab\there"),
    *("é", "e\u0301", "日本語", "\u200b", "İ", "ß SS", 'quote " \\', "null", "[1,2]", "a\r\nb "),
]
VERBS = ["works_at", "knows", "", "is part of"]


class ReferenceMemory:
    """Entities and relations as lists; each tool changes them and returns its structured result."""

    def __init__(self) -> None:
        self.entities: list[dict[str, Any]] = []
        self.relations: list[dict[str, str]] = []

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """The result of a tool; `LookupError` where the server answers with an error."""
        return copy.deepcopy(getattr(self, tool)(**copy.deepcopy(arguments)))

    def create_entities(self, entities: list[dict[str, Any]]) -> Any:
        fresh = [e for e in entities if all(e["name"] != old["name"] for old in self.entities)]
        self.entities += fresh
        return {"entities": fresh}

    def create_relations(self, relations: list[dict[str, str]]) -> Any:
        fresh = [r for r in relations if all(r != old for old in self.relations)]
        self.relations += fresh
        return {"relations": fresh}

    def add_observations(self, observations: list[dict[str, Any]]) -> Any:
        entities, results = copy.deepcopy(self.entities), []
        for each in observations:
            entity = next((e for e in entities if e["name"] == each["entityName"]), None)
            if entity is None:
                raise LookupError(each["entityName"])
            fresh = [c for c in each["contents"] if c not in entity["observations"]]
            entity["observations"] += fresh
            results.append({"entityName": each["entityName"], "addedObservations": fresh})
        self.entities = entities
        return {"results": results}

    def delete_entities(self, entityNames: list[str]) -> Any:
        self.entities = [e for e in self.entities if e["name"] not in entityNames]
        self.relations = [
            r for r in self.relations if r["from"] not in entityNames and r["to"] not in entityNames
        ]
        return {"success": True, "message": "Entities deleted successfully"}

    def delete_observations(self, deletions: list[dict[str, Any]]) -> Any:
        for each in deletions:
            entity = next((e for e in self.entities if e["name"] == each["entityName"]), None)
            if entity is not None:
                entity["observations"] = [
                    c for c in entity["observations"] if c not in each["observations"]
                ]
        return {"success": True, "message": "Observations deleted successfully"}

    def delete_relations(self, relations: list[dict[str, str]]) -> Any:
        self.relations = [r for r in self.relations if r not in relations]
        return {"success": True, "message": "Relations deleted successfully"}

    def read_graph(self) -> Any:
        return {"entities": self.entities, "relations": self.relations}

    def search_nodes(self, query: str) -> Any:
        low = query.lower()
        return self._part(
            [
                e
                for e in self.entities
                if low in e["name"].lower()
                or low in e["entityType"].lower()
                or any(low in c.lower() for c in e["observations"])
            ]
        )

    def open_nodes(self, names: list[str]) -> Any:
        return self._part([e for e in self.entities if e["name"] in names])

    def _part(self, entities: list[dict[str, Any]]) -> Any:
        names = {e["name"] for e in entities}
        relations = [r for r in self.relations if r["from"] in names or r["to"] in names]
        return {"entities": entities, "relations": relations}


def random_call(source: random.Random) -> tuple[str, dict[str, Any]]:
    """A tool and its arguments."""

    def name() -> str:
        return source.choice(NAMES)

    def some(values: list[str], most: int = 3) -> list[str]:
        return [source.choice(values) for _ in range(source.randint(0, most))]

    def relations() -> list[dict[str, str]]:
        count = source.randint(0, 3)
        verb = source.choice(VERBS)
        return [{"from": name(), "to": name(), "relationType": verb} for _ in range(count)]

    def entities() -> list[dict[str, Any]]:
        return [
            {"name": each, "entityType": source.choice(TYPES), "observations": some(CONTENTS, 4)}
            for each in some(NAMES)
        ]

    made: list[tuple[int, str, Any]] = [
        (6, "create_entities", lambda: {"entities": entities()}),
        (4, "create_relations", lambda: {"relations": relations()}),
        (
            6,
            "add_observations",
            lambda: {
                "observations": [
                    {"entityName": each, "contents": some(CONTENTS)} for each in some(NAMES, 2)
                ]
            },
        ),
        (1, "delete_entities", lambda: {"entityNames": some(NAMES, 2)}),
        (
            3,
            "delete_observations",
            lambda: {
                "deletions": [
                    {"entityName": each, "observations": some(CONTENTS)} for each in some(NAMES, 2)
                ]
            },
        ),
        (2, "delete_relations", lambda: {"relations": relations()}),
        (1, "read_graph", dict),
        (3, "search_nodes", lambda: {"query": source.choice([*CONTENTS, *NAMES, "TEA", "e"])}),
        (2, "open_nodes", lambda: {"names": some(NAMES)}),
    ]
    (chosen,) = source.choices(made, [weight for weight, _, _ in made])
    return chosen[1], chosen[2]()
