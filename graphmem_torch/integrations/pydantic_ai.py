"""Memory as tools of Pydantic AI: `Agent(model, toolsets=[GraphMemToolset("agent.mem")])`."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from graphmem_torch.errors import InputError
from graphmem_torch.integrations.agent_tools import AgentTools
from graphmem_torch.integrations.framework import MemoryOwner, given_memory, importing
from graphmem_torch.memory import Memory

with importing("pydantic_ai", "pydantic-ai-slim", ">=2.68,<3", "pydantic-ai"):
    from pydantic_ai import FunctionToolset, ModelRetry

__all__ = ["GraphMemToolset"]


class GraphMemToolset(MemoryOwner, FunctionToolset[Any]):
    """Tools `recall`, `remember`, `update` and `forget` of a memory for agents of Pydantic AI.

    A call that the memory refuses is a `ModelRetry`, so that the model reads why and tries again.
    `toolset.filtered(...)` and `toolset.prefixed(...)` of the framework choose and rename tools.

    Attributes:
        memory: Memory that the tools work on.
    """

    def __init__(
        self,
        memory: str | os.PathLike[str] | Memory | None = None,
        *,
        id: str | None = "graphmem",
        **options: Any,
    ) -> None:
        """Open the memory.

        Args:
            memory: Folder of a store, or an open memory; None for a memory in the process.
            id: Id of the toolset; two toolsets of an agent need two.
            options: Arguments of `Memory.open`, if it is opened here.

        Raises:
            InputError: Options with an open memory or unknown ones, or neither a path nor a memory.
            ConfigError, EmbedderError, StoreError: See `Memory.open`.
        """
        self.memory, self._owned = given_memory(memory, options)
        tools = AgentTools(self.memory)
        super().__init__([_retried(tool) for tool in tools.functions], id=id)


def _retried(tool: Callable[..., Any]) -> Callable[..., Any]:
    """Return a tool that tells the model what is wrong with its arguments."""

    @functools.wraps(tool)
    def run(*arguments: Any, **named: Any) -> Any:
        try:
            return tool(*arguments, **named)
        except InputError as error:
            raise ModelRetry(str(error)) from error

    return run
