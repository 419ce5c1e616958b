"""Memory as sessions of the OpenAI Agents SDK: `session=GraphMemSession("monday", "agent.mem")`.

An item of a session is an atom: its text is what the item says, and `meta` holds the item itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, TypeVar

from graphmem_torch.atoms import Atom
from graphmem_torch.checks import check_count
from graphmem_torch.errors import EmptyMessageError, GraphMemError, InputError
from graphmem_torch.integrations.agent_tools import PLACEHOLDER, AgentTools
from graphmem_torch.integrations.framework import MemoryOwner, given_memory, importing
from graphmem_torch.memory import Memory
from graphmem_torch.readers.messages import is_message, record_of_message
from graphmem_torch.text.surrogates import replace_surrogates

with importing("agents", "openai-agents", ">=0.24,<0.25", "openai-agents"):
    from agents import (
        FunctionTool,
        ModelBehaviorError,
        RunContextWrapper,
        SessionSettings,
        default_tool_error_function,
        function_tool,
    )

if TYPE_CHECKING:
    from agents import TResponseInputItem

__all__ = ["GraphMemSession", "memory_tools"]

_ITEM = "openai_item"  # key of the item in `meta`
_T = TypeVar("_T")


class GraphMemSession(MemoryOwner):
    """Conversation of the OpenAI Agents SDK, kept in a memory; implements `agents.Session`.

    Many sessions may share a memory, in one process or several. Items come back exactly and in
    order, whatever their type. Questions to the memory see all sessions.

    Attributes:
        session_id: Name of the session, also of its atoms.
        session_settings: Settings of the SDK; its `limit` is the default of `get_items`.
        memory: Memory of the session.
    """

    def __init__(
        self,
        session_id: str,
        memory: str | os.PathLike[str] | Memory | None = None,
        *,
        session_settings: SessionSettings | None = None,
        **options: Any,
    ) -> None:
        """Open the memory.

        Args:
            session_id: Name of the session.
            memory: Folder of a store, or an open memory; None for a memory in the process.
            session_settings: Settings of the SDK.
            options: Arguments of `Memory.open`, if it is opened here.

        Raises:
            InputError: No name, options with an open memory, or unknown ones.
            ConfigError, EmbedderError, StoreError: See `Memory.open`.
        """
        named = isinstance(session_id, str) and session_id.strip()
        if not named or replace_surrogates(session_id)[1]:
            raise InputError(
                f"session_id: expected a name, got {session_id!r:.80}; give one for each "
                "conversation"
            )
        self.session_id = session_id
        self.session_settings = session_settings or SessionSettings()
        self.memory, self._owned = given_memory(memory, options)

    async def get_items(self, limit: int | None = None) -> list[TResponseInputItem]:
        """Return the items in order.

        Args:
            limit: Maximum number of items, the latest ones; by default that of the settings, else
                all.

        Raises:
            InputError: `limit` is no number of at least 0.
        """
        if limit is None:
            limit = self.session_settings.limit
        if limit is not None:
            check_count("limit", limit, 0)
        atoms = await _finished(lambda: self._atoms(limit))
        return [json.loads(atom.meta[_ITEM]) for atom in atoms]

    async def add_items(self, items: Sequence[TResponseInputItem]) -> None:
        """Store items at the end, durably.

        Raises:
            InputError: An item that is no mapping of JSON values; nothing is stored.
            EmbedderError, StoreError: See `Memory.add`.
        """
        if isinstance(items, str | Mapping) or not isinstance(items, Iterable):
            raise InputError(
                f"items: expected a list of items, got {type(items).__name__}; put it in a list"
            )
        atoms = [self._atom(item) for item in items]
        if atoms:
            await _finished(lambda: self.memory.add(atoms))

    async def pop_item(self) -> TResponseInputItem | None:
        """Remove and return the last item; None if there is none."""

        def pop() -> Atom | None:
            while atoms := self._atoms(1):
                if self._deleted(atoms):
                    return atoms[0]
            return None

        last = await _finished(pop)
        return None if last is None else json.loads(last.meta[_ITEM])

    async def clear_session(self) -> None:
        """Remove all items; `memory.forget(session=...)` also wipes their bytes from the disk."""

        def clear() -> None:
            while atoms := self._atoms(None):
                self._deleted(atoms)

        await _finished(clear)

    def _atoms(self, limit: int | None) -> list[Atom]:
        """Return the last atoms of the session that hold an item, in order."""
        store = self.memory.store
        with store.reading():
            (session,) = store.forms.sessions([self.session_id])
            # An item that was updated keeps its place.
            nodes = [node for _, node, _ in store.turns([session])[session]]
            if limit is None:
                return [atom for atom in store.atoms(nodes) if _ITEM in atom.meta]
            found: list[Atom] = []
            while nodes and len(found) < limit:  # others may have stored facts in the session
                size = limit - len(found)
                part, nodes = nodes[-size:], nodes[:-size]
                found = [atom for atom in store.atoms(part) if _ITEM in atom.meta] + found
            return found

    def _deleted(self, atoms: Sequence[Atom]) -> bool:
        """Delete atoms; returns False, without a change, if another caller was quicker."""
        try:
            return bool(self.memory.delete([atom.id for atom in atoms]))
        except InputError:
            if all(atom.id in self.memory for atom in atoms):
                raise
            return False

    def _atom(self, item: TResponseInputItem) -> Atom:
        """Return the atom of an item."""
        if not isinstance(item, Mapping):
            raise InputError(
                f"items: expected a mapping as the SDK makes it, got {type(item).__name__}; give "
                'one, such as {"role": "user", "content": "..."}'
            )
        try:
            whole = json.dumps(item)
        except (TypeError, ValueError) as error:
            raise InputError(
                f"items: expected JSON values, got {item!r:.80} ({error}); convert it first"
            ) from error
        said: Mapping[str, Any] = {}
        if is_message(item):
            with suppress(EmptyMessageError):
                said = record_of_message(item, Counter(), None)
        named = item.get("type") or item.get("role") or "item"
        return Atom(
            id=uuid.uuid4().hex,
            text=said.get("text") or f"({named} without text)",
            kind="turn" if said else PLACEHOLDER,
            speaker=said.get("speaker"),
            session=self.session_id,
            time=time.time(),
            meta={_ITEM: whole},
        )


def memory_tools(memory: Memory | GraphMemSession) -> list[FunctionTool]:
    """Return the tools `recall`, `remember`, `update` and `forget` for an agent.

    They work on all sessions and everything else in the memory.

    Args:
        memory: Memory, or a session of it.
    """
    tools = AgentTools(memory.memory if isinstance(memory, GraphMemSession) else memory)
    return [function_tool(tool, failure_error_function=_said) for tool in tools.functions]


def _said(context: RunContextWrapper[Any], error: Exception) -> str:
    """Return what a model reads of an error; ours say what to do."""
    if isinstance(error, GraphMemError | ModelBehaviorError):
        return str(error)
    return default_tool_error_function(context, error)


async def _finished(work: Callable[[], _T]) -> _T:
    """Run work in a thread and wait for its end, also if the task is cancelled meanwhile."""
    task = asyncio.ensure_future(asyncio.to_thread(work))
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        raise
