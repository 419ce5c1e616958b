"""Tools of the MCP reference memory server, with its names, arguments, results and descriptions."""

from __future__ import annotations

import json
from typing import Annotated, Any

from graphmem_torch.integrations.framework import importing
from graphmem_torch.integrations.knowledge_graph import KnowledgeGraph
from graphmem_torch.integrations.served_memory import ServedMemory

with importing("mcp", "mcp", ">=2.3,<3", "mcp"):
    from mcp_types import CallToolResult, TextContent
    from pydantic import Field

    from graphmem_torch.integrations.tool_schemas import (
        AddedToEntities,
        CreatedEntities,
        CreatedRelations,
        DeletionDone,
        GraphEntity,
        GraphRelation,
        NewObservations,
        ObservationDeletion,
        WholeGraph,
    )

__all__ = ["GraphTools"]


class GraphTools:
    """Tools of the knowledge graph of a memory.

    A result is structured content and its main part as text, as of the reference server.
    """

    def __init__(self, served: ServedMemory) -> None:
        """Open nothing.

        Args:
            served: Memory that the graph is in.
        """
        self._served = served

    @property
    def _knowledge(self) -> KnowledgeGraph:
        return KnowledgeGraph(self._served.within())

    def create_entities(
        self, entities: list[GraphEntity]
    ) -> Annotated[CallToolResult, CreatedEntities]:
        """Create multiple new entities in the knowledge graph."""
        made = self._knowledge.create_entities(entities)
        return _reply(made, entities=made)

    def create_relations(
        self, relations: list[GraphRelation]
    ) -> Annotated[CallToolResult, CreatedRelations]:
        """Create multiple new relations between entities in the knowledge graph.

        Relations should be in active voice.
        """
        made = self._knowledge.create_relations(relations)
        return _reply(made, relations=made)

    def add_observations(
        self, observations: list[NewObservations]
    ) -> Annotated[CallToolResult, AddedToEntities]:
        """Add new observations to existing entities in the knowledge graph."""
        added = self._knowledge.add_observations(observations)
        return _reply(added, results=added)

    def delete_entities(
        self,
        entityNames: Annotated[list[str], Field(description="An array of entity names to delete")],
    ) -> Annotated[CallToolResult, DeletionDone]:
        """Delete multiple entities and their associated relations from the knowledge graph."""
        self._knowledge.delete_entities(entityNames)
        return _done("Entities deleted successfully")

    def delete_observations(
        self, deletions: list[ObservationDeletion]
    ) -> Annotated[CallToolResult, DeletionDone]:
        """Delete specific observations from entities in the knowledge graph."""
        self._knowledge.delete_observations(deletions)
        return _done("Observations deleted successfully")

    def delete_relations(
        self,
        relations: Annotated[
            list[GraphRelation], Field(description="An array of relations to delete")
        ],
    ) -> Annotated[CallToolResult, DeletionDone]:
        """Delete multiple relations from the knowledge graph."""
        self._knowledge.delete_relations(relations)
        return _done("Relations deleted successfully")

    def read_graph(self) -> Annotated[CallToolResult, WholeGraph]:
        """Read the entire knowledge graph."""
        graph = self._knowledge.read()
        return _reply(graph, **graph)

    def search_nodes(
        self,
        query: Annotated[
            str,
            Field(
                description="The search query to match against entity names, types, and "
                "observation content"
            ),
        ],
    ) -> Annotated[CallToolResult, WholeGraph]:
        """Search for nodes in the knowledge graph based on a query."""
        graph = self._knowledge.search(query)
        return _reply(graph, **graph)

    def open_nodes(
        self,
        names: Annotated[list[str], Field(description="An array of entity names to retrieve")],
    ) -> Annotated[CallToolResult, WholeGraph]:
        """Open specific nodes in the knowledge graph by their names."""
        graph = self._knowledge.open(names)
        return _reply(graph, **graph)

    def resource(self) -> str:
        """Return the graph as JSON."""
        return _json(self._knowledge.read())


def _json(value: object) -> str:
    """Return JSON as `JSON.stringify(value, null, 2)` of the reference server writes it."""
    return json.dumps(value, indent=2, ensure_ascii=False)


def _reply(shown: object, **structured: Any) -> CallToolResult:
    """Return a result with a value as text, and as structured content."""
    return CallToolResult(
        content=[TextContent(type="text", text=_json(shown))], structured_content=structured
    )


def _done(message: str) -> CallToolResult:
    return CallToolResult(
        content=[TextContent(type="text", text=message)],
        structured_content={"success": True, "message": message},
    )
