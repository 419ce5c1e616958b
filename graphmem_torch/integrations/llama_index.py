"""Memory as a retriever of LlamaIndex, and as a block of its chat memory."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from graphmem_torch.checks import check_count
from graphmem_torch.integrations.framework import MemoryOwner, given_memory, importing
from graphmem_torch.memory import Memory
from graphmem_torch.results import Context, Result

with importing("llama_index", "llama-index-core", ">=0.14,<0.15", "llama-index"):
    from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
    from llama_index.core.bridge.pydantic import Field, PrivateAttr
    from llama_index.core.memory import BaseMemoryBlock
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeWithScore, QueryBundle, TextNode

__all__ = ["GraphMemBlock", "GraphMemRetriever"]

_KEPT = 64  # contexts whose questions a block keeps, to write a shorter one


class GraphMemRetriever(MemoryOwner, BaseRetriever):
    """Retriever of a memory: `GraphMemRetriever("agent.mem").retrieve("Who restored the oven?")`.

    A node has the id, text and score of a hit. Its metadata are `meta` of the memory, and `kind`,
    `speaker`, `session`, `title` and `time` (ISO 8601) where they are known.

    Attributes:
        memory: Memory that is asked.
    """

    def __init__(
        self,
        memory: str | os.PathLike[str] | Memory | None = None,
        *,
        k: int = 8,
        where: Mapping[str, Any] | None = None,
        known_only: bool = False,
        **options: Any,
    ) -> None:
        """Open the memory.

        Args:
            memory: Folder of a store, or an open memory; None for a memory in the process.
            k: Maximum number of nodes.
            where: Conditions on fields of the memories, as in `Memory.retrieve`.
            known_only: Whether to return no node if the memory has no record of an answer.
            options: Arguments of `Memory.open`, if it is opened here.

        Raises:
            InputError: Options with an open memory or unknown ones, or neither a path nor a memory.
            ConfigError, EmbedderError, StoreError: See `Memory.open`.
        """
        check_count("k", k)
        super().__init__()
        self.memory, self._owned = given_memory(memory, options)
        self._k, self._where, self._known_only = k, where, known_only

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return self._nodes(
            self.memory.retrieve(query_bundle.query_str, k=self._k, where=self._where)
        )

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        question = query_bundle.query_str
        return self._nodes(await self.memory.aio.retrieve(question, k=self._k, where=self._where))

    def _nodes(self, result: Result) -> list[NodeWithScore]:
        if self._known_only and result.known is False:
            return []
        return [
            NodeWithScore(
                node=TextNode(id_=hit.id, text=hit.text, metadata=_metadata(hit)), score=hit.score
            )
            for hit in result.hits
        ]


class GraphMemBlock(MemoryOwner, BaseMemoryBlock[str]):
    """Block of LlamaIndex's chat memory: `memory_blocks=[GraphMemBlock("agent.mem")]`.

    Messages that leave the short-term memory are stored here. Before each answer, what is
    remembered about the last message of the user is put into the prompt, within a budget of tokens.

    Attributes:
        budget: Maximum number of tokens of the content.
        own_session: Whether only messages of the same session are recalled.
        memory: Memory of the block.
    """

    budget: int = Field(default=1024, ge=1, description="Maximum number of tokens of the content.")
    own_session: bool = Field(default=False, description="Whether to recall its session alone.")
    _memory: Memory = PrivateAttr()
    _owned: bool = PrivateAttr(default=False)
    _asked: dict[str, tuple[Context, dict[str, Any]]] = PrivateAttr(default_factory=dict)

    def __init__(
        self,
        memory: str | os.PathLike[str] | Memory | None = None,
        *,
        name: str = "long_term_memory",
        description: str | None = None,
        priority: int = 0,
        accept_short_term_memory: bool = True,
        budget: int = 1024,
        own_session: bool = False,
        **options: Any,
    ) -> None:
        """Open the memory.

        Args:
            memory: Folder of a store, or an open memory; None for a memory in the process.
            name: Name of the block, which the prompt shows.
            description: Description of the block.
            priority: Priority; the content of a block with 0 is never shortened.
            accept_short_term_memory: Whether to store messages that leave the short-term memory.
            budget: Maximum number of tokens of the content.
            own_session: Whether to recall only messages of the same session.
            options: Arguments of `Memory.open`, if it is opened here.

        Raises:
            InputError: Options with an open memory or unknown ones, or neither a path nor a memory.
            ConfigError, EmbedderError, StoreError: See `Memory.open`.
        """
        fields: dict[str, Any] = {"name": name, "description": description, "priority": priority}
        fields |= {"accept_short_term_memory": accept_short_term_memory}
        fields |= {"budget": budget, "own_session": own_session}
        super().__init__(**fields)
        self._memory, self._owned = given_memory(memory, options)

    @property
    def memory(self) -> Memory:
        """Memory of the block."""
        return self._memory

    async def _aget(self, messages: list[ChatMessage] | None = None, **block_kwargs: Any) -> str:
        """Return what is remembered about the last message of the user; "" for nothing."""
        said = [m.content for m in messages or () if m.role == "user" and m.content]
        if not said:
            return ""
        session = block_kwargs.get("session_id")
        limits = {"where": {"session": session}} if self.own_session else {}
        return await self._compiled(said[-1], self.budget, limits)

    async def _aput(self, messages: list[ChatMessage]) -> None:
        """Store messages, in the session of the chat memory that they come from."""
        now = datetime.now(UTC)
        for session, said in _by_session(messages):
            await self._memory.aio.add(
                [_message(each) | {"time": now} for each in said], session=session
            )

    async def atruncate(self, content: str, tokens_to_truncate: int) -> str | None:
        """Return a context of the best memories with fewer tokens; None for nothing.

        Saves an eighth more than asked: LlamaIndex counts with its own tokenizer, and removes a
        block that saves too little.

        Args:
            content: Content that the block returned.
            tokens_to_truncate: Number of tokens to save.
        """
        context, limits = self._asked.get(content, (None, {}))
        budget = 0 if context is None else context.tokens - tokens_to_truncate * 9 // 8
        if context is None or budget <= 0:
            return None
        return await self._compiled(context.question, budget, limits) or None

    async def _compiled(self, question: str, budget: int, limits: dict[str, Any]) -> str:
        context = await self._memory.aio.compile(question, budget=budget, **limits)
        if not context.sources:
            return ""
        while len(self._asked) >= _KEPT:
            self._asked.pop(next(iter(self._asked)), None)
        self._asked[context.text] = context, limits
        return context.text


def _metadata(hit: Any) -> dict[str, Any]:
    time = None if hit.time is None else datetime.fromtimestamp(hit.time, UTC).isoformat()
    names = ("kind", "speaker", "session", "title")
    own = {name: getattr(hit, name) for name in names} | {"time": time}
    return {**hit.meta, **{name: value for name, value in own.items() if value is not None}}


def _by_session(
    messages: Iterable[ChatMessage],
) -> list[tuple[str | None, list[ChatMessage]]]:
    """Return the messages of each session, in order."""
    found: dict[str | None, list[ChatMessage]] = {}
    for message in messages:
        session = message.additional_kwargs.get("session_id")
        found.setdefault(session, []).append(message)
    return list(found.items())


def _message(message: ChatMessage) -> dict[str, Any]:
    """Return a message in OpenAI's form, which `Memory.add` reads."""
    parts = [part for block in message.blocks for part in _parts(block)]
    more = message.additional_kwargs
    own = {"role": message.role.value, "content": parts, "name": more.get("name")}
    called = any(isinstance(block, ToolCallBlock) for block in message.blocks)
    return own if called else own | {"tool_calls": more.get("tool_calls")}


def _parts(block: Any) -> list[dict[str, Any]]:
    """Return the parts of OpenAI's form of a block, those of nested blocks in order."""
    if isinstance(block, ToolCallBlock):
        return [{"type": "tool_call", "name": block.tool_name, "arguments": block.tool_kwargs}]
    said = getattr(block, "text", None)
    inner = getattr(block, "content", None) or getattr(block, "cited_content", None)
    if isinstance(said, str) or isinstance(inner, str):
        return [{"type": "text", "text": said or inner or ""}]
    nested = inner if isinstance(inner, list) else [inner] if inner is not None else []
    return [part for each in nested for part in _parts(each)] or [{"type": block.block_type}]
