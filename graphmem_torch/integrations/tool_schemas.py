"""Schemas of the tools of a memory: arguments and results, with what models read of them.

Needs the package `mcp`, 2.x.
"""

from __future__ import annotations

from typing import Annotated, Any

from graphmem_torch.integrations.framework import importing

with importing("mcp", "mcp", ">=2.3,<3", "mcp"):
    from pydantic import BaseModel, BeforeValidator, Field
    from typing_extensions import TypedDict

__all__ = [
    "OPTIONAL",
    "AddedToEntities",
    "AddedToEntity",
    "CompiledContext",
    "Count",
    "CreatedEntities",
    "CreatedRelations",
    "DeletionDone",
    "ExplainedScore",
    "ForgottenMemories",
    "FoundMemories",
    "FoundRecord",
    "GraphEntity",
    "GraphRelation",
    "ListedMemories",
    "MemoryRecord",
    "Moment",
    "Namespace",
    "NewObservations",
    "ObservationDeletion",
    "Question",
    "RememberedTexts",
    "Where",
    "WholeGraph",
]


def _as_text(value: object) -> object:
    return "" if value is None else value


OPTIONAL = BeforeValidator(_as_text)  # some clients send null for what is left out
Question = Annotated[str, Field(description="The question, in plain words.")]
Namespace = Annotated[
    str,
    OPTIONAL,
    Field(description="User or project whose own memories are meant; empty for the shared ones."),
]
Moment = Annotated[
    str, OPTIONAL, Field(description="A date or date and time in ISO 8601, such as 2026-05-31.")
]
Count = Annotated[int, Field(strict=True, ge=1, le=1000, description="Maximum number of memories.")]
Where = Annotated[
    dict[str, Any] | None,
    Field(
        description='Conditions on fields, such as {"speaker": "Alice"} or {"meta.page": '
        '{"$gte": 3}}, with the operators of MongoDB.'
    ),
]


# Results.


class MemoryRecord(BaseModel):
    """One memory."""

    id: str = Field(description="Id, for update, forget and explain.")
    text: str = Field(description="What is remembered.")
    title: str | None = Field(description="Title, such as the entity it is about.")
    kind: str = Field(description="turn, chunk, observation, entity, relation, ...")
    speaker: str | None = Field(description="Who said it.")
    session: str | None = Field(description="Conversation or document it is from.")
    time: str | None = Field(description="When it was said, ISO 8601 in UTC.")
    meta: dict[str, Any] = Field(description="Further fields.")


class FoundRecord(MemoryRecord):
    """One memory that was found for a question."""

    score: float = Field(description="Probability that it is relevant, 0 to 1.")
    why: list[str] = Field(description="Reasons in words, strongest first.")


class FoundMemories(BaseModel):
    """Memories for a question, best first."""

    memories: list[FoundRecord]
    known: bool | None = Field(
        description="Whether the memory holds an answer; false: it has no record; null: unclear."
    )
    confidence: float = Field(description="Confidence that the memory holds an answer, 0 to 1.")


class ListedMemories(BaseModel):
    """One page of memories."""

    memories: list[MemoryRecord]
    next: str | None = Field(description="Value of `after` for the next page; null on the last.")


class RememberedTexts(BaseModel):
    """Outcome of `remember`."""

    ids: list[str] = Field(description="Ids of the memories, in the order given.")
    new: int = Field(description="Number stored.")
    known: int = Field(description="Number that was stored already.")


class ForgottenMemories(BaseModel):
    """Outcome of `forget`."""

    erased: list[str] = Field(description="Ids that are, or with dry_run would be, erased.")
    dry_run: bool = Field(description="Whether nothing was erased.")
    receipt: dict[str, Any] | None = Field(
        description="Receipt for `graphmem store check --receipt`; null with dry_run."
    )


class ExplainedScore(BaseModel):
    """Explanation of the score of one memory."""

    id: str = Field(description="Id of the memory.")
    text: str = Field(description="Its text.")
    score: float = Field(description="Probability that it is relevant, 0 to 1.")
    rank: int = Field(description="Place among the memories found, from 1; 0 if it is none.")
    why: list[str] = Field(description="Reasons in words, strongest first.")
    signals: dict[str, float] = Field(description="Share of each signal in the score.")
    influences: dict[str, float] = Field(description="Part of the score due to other memories.")
    summary: str = Field(description="The whole explanation as text.")


class CompiledContext(BaseModel):
    """Context for a question, ready to read."""

    text: str = Field(description="The context; a number in brackets cites a memory of `sources`.")
    tokens: int = Field(description="Its tokens.")
    sources: list[str] = Field(description="Ids of its memories; the first is cited as [1].")
    omitted: int = Field(description="Number of memories found that did not fit.")
    known: bool | None = Field(description="Whether the memory holds an answer.")
    confidence: float = Field(description="Confidence that the memory holds an answer, 0 to 1.")


# The reference memory server: arguments and results.


class GraphEntity(TypedDict):
    """Entity of the knowledge graph."""

    name: Annotated[str, Field(description="The name of the entity")]
    entityType: Annotated[str, Field(description="The type of the entity")]
    observations: Annotated[
        list[str],
        Field(description="An array of observation contents associated with the entity"),
    ]


GraphRelation = TypedDict(
    "GraphRelation",
    {
        "from": Annotated[
            str, Field(description="The name of the entity where the relation starts")
        ],
        "to": Annotated[str, Field(description="The name of the entity where the relation ends")],
        "relationType": Annotated[str, Field(description="The type of the relation")],
    },
)


class NewObservations(TypedDict):
    """Observations to add to an entity."""

    entityName: Annotated[
        str, Field(description="The name of the entity to add the observations to")
    ]
    contents: Annotated[list[str], Field(description="An array of observation contents to add")]


class ObservationDeletion(TypedDict):
    """Observations to delete from an entity."""

    entityName: Annotated[
        str, Field(description="The name of the entity containing the observations")
    ]
    observations: Annotated[list[str], Field(description="An array of observations to delete")]


class AddedToEntity(TypedDict):
    """Observations that were added to an entity."""

    entityName: str
    addedObservations: list[str]


class CreatedEntities(TypedDict):
    """Entities that were created."""

    entities: list[GraphEntity]


class CreatedRelations(TypedDict):
    """Relations that were created."""

    relations: list[GraphRelation]


class AddedToEntities(TypedDict):
    """Observations that were added, for each entity named."""

    results: list[AddedToEntity]


class WholeGraph(TypedDict):
    """Entities and relations."""

    entities: list[GraphEntity]
    relations: list[GraphRelation]


class DeletionDone(TypedDict):
    """Outcome of a deletion."""

    success: bool
    message: str
