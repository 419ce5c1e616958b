"""Tools of a memory for models: eight functions whose docstrings are what a model reads."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

from graphmem_torch.errors import InputError
from graphmem_torch.integrations.framework import importing
from graphmem_torch.integrations.served_memory import ServedMemory
from graphmem_torch.text.times import parse_time

if TYPE_CHECKING:
    from graphmem_torch.atoms import Atom
    from graphmem_torch.results import Hit, Result

with importing("mcp", "mcp", ">=2.3,<3", "mcp"):
    from pydantic import Field

    from graphmem_torch.integrations.tool_schemas import (
        OPTIONAL,
        CompiledContext,
        Count,
        ExplainedScore,
        ForgottenMemories,
        FoundMemories,
        FoundRecord,
        ListedMemories,
        MemoryRecord,
        Moment,
        Namespace,
        Question,
        RememberedTexts,
        Where,
    )

__all__ = ["ARGUMENTS", "MemoryTools"]

ARGUMENTS = {
    "recall": {"question": "query", "between": "since, until"},
    "remember": {"text": "texts", "memories": "texts"},
    "update": {"ids": "id"},
    "explain": {"question": "query", "ids": "id"},
    "as_of": {"question": "query", "as_of": "time"},
    "context": {"question": "query"},
}
"""By tool, the arguments of a memory that have another name there, for messages."""


class MemoryTools:
    """Tools that ask and change a memory.

    An argument that is an empty text is left out.
    """

    def __init__(self, served: ServedMemory) -> None:
        """Open nothing.

        Args:
            served: Memory that the tools work on.
        """
        self._served = served

    def recall(
        self,
        query: Question,
        k: Count = 8,
        since: Moment = "",
        until: Moment = "",
        where: Where = None,
        namespace: Namespace = "",
    ) -> FoundMemories:
        """Find what is remembered about a question, best first.

        Call this before answering anything that may depend on earlier conversations. `known` is
        false if the memory has no record: then say so, and do not guess.
        """
        for name, moment in (("since", since), ("until", until)):
            if moment:
                parse_time(moment, name)  # raises an error that names it
        between = (since or None, until or None) if since or until else None
        result = self._served.within(namespace).retrieve(query, k=k, where=where, between=between)
        return _recalled(result)

    def remember(
        self,
        texts: Annotated[
            list[str],
            Field(
                min_length=1,
                description="One fact, preference, decision or event each, as a sentence that can "
                "be understood alone: names instead of pronouns, dates instead of 'tomorrow'.",
            ),
        ],
        speaker: Annotated[str, OPTIONAL, Field(description="Who said it.")] = "",
        session: Annotated[
            str, OPTIONAL, Field(description="Name of the conversation or document.")
        ] = "",
        time: Annotated[
            str, OPTIONAL, Field(description="When it was said, ISO 8601; empty for now.")
        ] = "",
        expires: Annotated[
            str,
            OPTIONAL,
            Field(description="Moment from which it is no longer remembered, ISO 8601; or empty."),
        ] = "",
        meta: Annotated[
            dict[str, Any] | None, Field(description="Further fields to keep and filter by.")
        ] = None,
        namespace: Namespace = "",
        create_namespace: Annotated[
            bool, Field(description="Whether to make the namespace if there is none.")
        ] = False,
    ) -> RememberedTexts:
        """Store facts for later conversations.

        They are on disk when the call returns. To change a fact that is stored, use `update`
        instead.
        """
        shared = {"speaker": speaker or None, "meta": meta, "time": time or datetime.now(UTC)}
        values = [{"text": text, **shared} for text in texts]
        if namespace and create_namespace and self._served.namespace is None:
            from graphmem_torch.memory.intake import Intake

            # Checked first, so that no namespace is made for nothing.
            list(Intake(session or None, expires=expires or None).atoms(values))
            self._served.root().namespaces.create(namespace)
        added = self._served.within(namespace).add(
            values, session=session or None, expires=expires or None
        )
        return RememberedTexts(ids=list(added.ids), new=added.new, known=added.known)

    def update(
        self,
        id: Annotated[str, Field(description="Id of the memory, from recall or list.")],
        text: Annotated[str, OPTIONAL, Field(description="New text; empty to keep it.")] = "",
        speaker: Annotated[str, OPTIONAL, Field(description="New speaker; empty to keep.")] = "",
        time: Annotated[
            str, OPTIONAL, Field(description="New time, ISO 8601; empty to keep it.")
        ] = "",
        meta: Annotated[
            dict[str, Any] | None, Field(description="New further fields; null to keep them.")
        ] = None,
        namespace: Namespace = "",
    ) -> MemoryRecord:
        """Correct or replace a memory, keeping its id.

        `as_of` still finds what it said before.
        """
        given = {"text": text, "speaker": speaker, "time": time}
        changes: dict[str, Any] = {name: value for name, value in given.items() if value}
        changes |= {} if meta is None else {"meta": meta}
        if not changes:
            raise InputError(
                "update: expected text, speaker, time or meta, got none of them; say what to change"
            )
        return _stored(self._served.within(namespace).update(id, changes))

    def forget(
        self,
        ids: Annotated[
            list[str] | None, Field(description="Ids of the memories, from recall or list.")
        ] = None,
        session: Annotated[
            str, OPTIONAL, Field(description="Only memories of this conversation or document.")
        ] = "",
        speaker: Annotated[str, OPTIONAL, Field(description="Only memories of this one.")] = "",
        before: Annotated[
            str, OPTIONAL, Field(description="Only memories from before this time, ISO 8601.")
        ] = "",
        dry_run: Annotated[
            bool, Field(description="Whether to erase nothing and show what would be erased.")
        ] = False,
        namespace: Namespace = "",
    ) -> ForgottenMemories:
        """Erase memories for good, to the last byte, with all that was derived from them.

        All conditions must hold. This cannot be undone: if the user did not name the memories
        exactly, call it with dry_run first and show them.
        """
        if not (ids or session or speaker or before):
            raise InputError(
                "forget: expected ids, session, speaker or before, got none of them; say what to "
                "erase"
            )
        memory = self._served.within(namespace)
        found = memory.forget(
            ids or None,
            session=session or None,
            speaker=speaker or None,
            before=before or None,
            dry_run=True,
        )
        erased = [atom.id for atom in found]
        receipt = None if dry_run else memory.forget(erased)
        return ForgottenMemories(
            erased=erased,
            dry_run=dry_run,
            receipt=None if receipt is None else json.loads(receipt.to_json()),
        )

    def explain(
        self,
        query: Question,
        id: Annotated[
            str, OPTIONAL, Field(description="Id of a memory; empty for the best one.")
        ] = "",
        namespace: Namespace = "",
    ) -> ExplainedScore:
        """Explain why a memory was found for a question, or was not.

        Shows the share of each signal, the paths through the graph that lead to it, and the
        memories that its score depends on.
        """
        found = self._served.within(namespace).explain(query, id or None)
        return ExplainedScore(
            id=found.id,
            text=found.text,
            score=found.score,
            rank=found.rank,
            why=list(found.why),
            signals=found.signals,
            influences=found.influences,
            summary=str(found),
        )

    def as_of(
        self,
        query: Question,
        time: Annotated[
            str, Field(description="Moment whose state is asked, ISO 8601: 2026-05-31T12:00.")
        ],
        k: Count = 8,
        namespace: Namespace = "",
    ) -> FoundMemories:
        """Find what was remembered about a question at a moment in the past.

        Memories have the text that they had then, and later ones are missing. Use it for "What did
        we believe in May?".
        """
        return _recalled(self._served.within(namespace).at(time).retrieve(query, k=k))

    def context(
        self,
        query: Question,
        budget: Annotated[
            int,
            Field(
                strict=True,
                ge=1,
                le=1_000_000,
                description="Maximum number of tokens of the context.",
            ),
        ] = 1024,
        namespace: Namespace = "",
    ) -> CompiledContext:
        """Write the most useful memories for a question as one text within a number of tokens.

        Use it instead of `recall` to read as much as possible about a topic. Cite a memory by its
        number in brackets.
        """
        made = self._served.within(namespace).compile(query, budget=budget)
        return CompiledContext(
            text=made.text,
            tokens=made.tokens,
            sources=list(made.sources),
            omitted=len(made.omitted),
            known=made.known,
            confidence=made.confidence,
        )

    def list(
        self,
        order: Annotated[
            str,
            Field(description="added, time, id or importance; -time and so on for the last first."),
        ] = "-added",
        limit: Count = 20,
        after: Annotated[
            str, OPTIONAL, Field(description="`next` of the page before; empty for the first.")
        ] = "",
        where: Where = None,
        namespace: Namespace = "",
    ) -> ListedMemories:
        """List memories page by page, the newest first unless another order is named.

        Use it to look through everything, or through what meets conditions. To find something, use
        `recall`.
        """
        page = self._served.within(namespace).list(
            where=where, order=order, limit=limit, after=after or None
        )
        return ListedMemories(memories=[_stored(atom) for atom in page], next=page.next)


def _shown(time: float | None) -> str | None:
    return None if time is None else datetime.fromtimestamp(time, UTC).isoformat()


def _fields(memory: Atom | Hit) -> dict[str, Any]:
    names = ("id", "text", "title", "kind", "speaker", "session")
    own = {name: getattr(memory, name) for name in names}
    return own | {"time": _shown(memory.time), "meta": dict(memory.meta)}


def _stored(atom: Atom) -> MemoryRecord:
    return MemoryRecord(**_fields(atom))


def _recalled(result: Result) -> FoundMemories:
    return FoundMemories(
        memories=[
            FoundRecord(**_fields(hit), score=hit.score, why=list(hit.why)) for hit in result.hits
        ],
        known=result.known,
        confidence=result.confidence,
    )
