"""Memory as a server of the Model Context Protocol: `MemoryServer("notes.mem").run()`.

Needs the package `mcp`, 2.x. Loads neither torch nor an encoder before it has listed its tools.
"""

from __future__ import annotations

import inspect
import os
import socket
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Self

from graphmem_torch.errors import GraphMemError, InputError, first_line, unknown
from graphmem_torch.integrations.framework import check_options, expect_no_options, importing
from graphmem_torch.integrations.graph_tools import GraphTools
from graphmem_torch.integrations.memory_tools import ARGUMENTS, MemoryTools
from graphmem_torch.integrations.served_memory import ServedMemory
from graphmem_torch.version import __version__

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory

with importing("mcp", "mcp", ">=2.3,<3", "mcp"):
    from mcp.server.mcpserver import MCPServer
    from mcp.server.mcpserver.exceptions import ToolError, UnexpectedToolError
    from mcp_types import ToolAnnotations
    from pydantic import ValidationError

__all__ = ["MemoryServer"]

_AFTER_LISTING = 0.05  # seconds until loading begins, so that the list of tools has left
_GRAPH_URI = "memory://knowledge-graph"

_INSTRUCTIONS = """Long-term memory. Call `recall` before you answer anything that may depend on \
earlier conversations, and `remember` what will matter later: facts about people, preferences, \
decisions, dates. When a fact changes, `update` the memory that holds it. `context` writes the \
memories for a question as one text within a number of tokens. The tools of the knowledge graph \
(`create_entities` and so on) keep entities, observations and relations in the same memory."""

# Titles and hints of the tools: whether each only reads, destroys, and may be repeated.

_READS = (True, False, True)
_ADDS = (False, False, False)
_CHANGES = (False, False, True)
_ERASES = (False, True, True)

_OWN = {
    "recall": ("Recall Memories", _READS),
    "remember": ("Remember", _ADDS),
    "update": ("Update Memory", _CHANGES),
    "forget": ("Forget Memories", _ERASES),
    "explain": ("Explain Memory", _READS),
    "as_of": ("Recall As Of", _READS),
    "context": ("Compile Context", _READS),
    "list": ("List Memories", _READS),
}
_GRAPH = {
    "create_entities": ("Create Entities", _ADDS),
    "create_relations": ("Create Relations", _ADDS),
    "add_observations": ("Add Observations", _ADDS),
    "delete_entities": ("Delete Entities", _ERASES),
    "delete_observations": ("Delete Observations", _ERASES),
    "delete_relations": ("Delete Relations", _ERASES),
    "read_graph": ("Read Graph", _READS),
    "search_nodes": ("Search Nodes", _READS),
    "open_nodes": ("Open Nodes", _READS),
}


class MemoryServer(MCPServer):  # type: ignore[misc, unused-ignore]
    """Server of the tools of a memory, over standard input and output or HTTP.

    The tools are those of `MemoryTools`, and those of the reference memory server, which it
    replaces (`GraphTools`). A failed call is a tool error of one line. Several clients may call at
    once.

    It is a context manager, and closes what it opened.
    """

    def __init__(
        self,
        memory: Memory | str | os.PathLike[str] | Callable[[], Memory],
        *,
        namespace: str | None = None,
        readonly: bool = False,
        **opening: Any,
    ) -> None:
        """Register the tools; opens nothing.

        Args:
            memory: Folder of a store, which is made if there is none; an open memory, which stays
                open; or a function that opens one.
            namespace: Name of the only namespace that is served; one that is missing is made. None
                serves all: calls name theirs.
            readonly: Whether to offer only the tools that read.
            opening: Further arguments of `Memory.open` for a folder: `embedder`, `preset`, ...

        Raises:
            InputError: An unknown option, or options without a folder.
        """
        super().__init__(
            "graphmem",
            title="graphmem_torch memory",
            instructions=_INSTRUCTIONS,
            version=__version__,
            log_level="WARNING",
        )
        if isinstance(memory, str | os.PathLike):
            check_options(opening)
        else:
            expect_no_options(opening)
        self._served = ServedMemory(memory, namespace=namespace, readonly=readonly, opening=opening)
        self._ahead: threading.Timer | None = None
        graph = GraphTools(self._served)
        for tools, named in ((MemoryTools(self._served), _OWN), (graph, _GRAPH)):
            for name, (title, hints) in named.items():
                if not readonly or hints is _READS:
                    self._register(getattr(tools, name), title, hints)
        self.resource(
            _GRAPH_URI,
            name="knowledge-graph",
            title="Knowledge Graph",
            description="The full knowledge graph with all entities and relations",
            mime_type="application/json",
        )(graph.resource)

    def _register(
        self, run: Callable[..., Any], title: str, hints: tuple[bool, bool, bool]
    ) -> None:
        reads, erases, repeats = hints
        self.add_tool(
            run,
            title=title,
            description=" ".join((inspect.getdoc(run) or "").split()),
            annotations=ToolAnnotations(
                read_only_hint=reads,
                destructive_hint=erases,
                idempotent_hint=repeats,
                open_world_hint=False,
            ),
            structured_output=True,
        )

    def close(self) -> None:
        """Close the memory if the server opened it; waits until it is loaded."""
        if self._ahead is not None:
            self._ahead.cancel()
            self._ahead.join()
        self._served.close()

    def __enter__(self) -> Self:
        """Return the server."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the memory if the server opened it."""
        self.close()

    # Protocol.

    def run(self, transport: Any = "stdio", **options: Any) -> None:
        """Serve until the client hangs up, or an interrupt.

        Args:
            transport: `stdio`, or another of `MCPServer.run`.
            options: Options of the transport.
        """
        try:
            super().run(transport, **options)
        except BaseExceptionGroup as errors:
            if errors.split(BrokenPipeError)[1] is not None:
                raise
            # The client has hung up in the middle of an answer, which is no error.

    async def list_tools(self) -> list[Any]:
        """List the tools, and begin to load what they need."""
        tools: list[Any] = await super().list_tools()
        if self._ahead is None:
            self._ahead = threading.Timer(_AFTER_LISTING, self._served.load)
            self._ahead.start()
        return tools

    async def call_tool(self, name: str, arguments: dict[str, Any], context: Any = None) -> Any:
        """Call a tool.

        Raises:
            ToolError: One line: what was expected, what came, what to do.
        """
        try:
            await self._expect_tool(name, arguments)
            return await super().call_tool(name, arguments, context)
        except InputError as error:
            raise ToolError(_one_line(error)) from error
        except ToolError as error:
            cause, crashed = error.__cause__, isinstance(error, UnexpectedToolError)
            if isinstance(cause, ValidationError) and not crashed:
                raise ToolError(_wrong_argument(name, cause)) from cause
            if isinstance(cause, GraphMemError | OSError):
                argument, colon, rest = _one_line(cause).partition(":")
                named = ARGUMENTS.get(name, {}).get(argument, argument)
                raise ToolError(f"{named}{colon}{rest}") from cause
            if crashed:
                raise UnexpectedToolError(
                    f"{name}: expected an answer, got {type(cause).__name__}; the log of the "
                    "server has the details, please report them"
                ) from cause
            raise

    async def _expect_tool(self, name: str, arguments: dict[str, Any]) -> None:
        """Check the name of a tool and those of its arguments.

        Raises:
            InputError: No such tool, or an argument that it does not have.
        """
        tools = {tool.name: tool.input_schema for tool in await super().list_tools()}
        if name not in tools:
            if name in _OWN | _GRAPH:
                raise InputError(
                    f"{name}: expected a tool that reads, as the server is read-only, got one that "
                    "writes; start the server without --read-only"
                )
            raise InputError(unknown("tool", name, tools))
        known = tools[name].get("properties", {})
        for given in arguments:
            if given in known:
                continue
            if name in _OWN:
                told = unknown(f"argument of {name}", given, known)
                if meant := ARGUMENTS.get(name, {}).get(given):
                    told = f"{told.rpartition('; ')[0]}; did you mean {meant!r}?"
                raise InputError(told)
            # As in the reference server others are ignored: some clients fill in one for none.
            if given == "namespace":
                raise InputError(
                    f"namespace: expected none for {name}, got {arguments[given]!r:.80}; start a "
                    "server for it, with --namespace"
                )

    def run_http(self, host: str = "127.0.0.1", port: int = 8765) -> None:
        """Serve streamable HTTP at `http://HOST:PORT/mcp` until interrupted.

        There is no authentication. On a local address requests must name a local host, so that no
        web page can reach the server.

        Args:
            host: Address to listen on.
            port: Port; 0 chooses a free one, which standard error names.

        Raises:
            InputError: The address cannot be used.
        """
        import uvicorn

        try:
            listening = socket.create_server((host, port), family=_family(host), backlog=128)
        except (OSError, OverflowError) as error:
            raise InputError(
                f"http: expected an address that is free, got {host}:{port}: {first_line(error)}; "
                "choose another"
            ) from error
        with listening:
            shown = f"[{host}]" if ":" in host else host
            url = f"http://{shown}:{listening.getsockname()[1]}/mcp"
            print(f"graphmem: serving {url}", file=sys.stderr, flush=True)
            app = self.streamable_http_app(host=host)
            config = uvicorn.Config(app, log_level="warning", timeout_graceful_shutdown=5)
            uvicorn.Server(config).run(sockets=[listening])


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _wrong_argument(tool: str, error: ValidationError) -> str:
    """Return one line about the first wrong argument of a call."""
    first: Any = error.errors(include_url=False, include_context=False)[0]
    name = ".".join(str(part) for part in first["loc"]) or tool
    if first["type"] == "missing":
        return f"{name}: expected a value, got none; see the input schema of {tool}"
    wanted = " ".join(str(first["msg"]).split())
    if wanted.startswith("Input should be "):
        wanted = wanted.removeprefix("Input should be ")
        wanted = f"a number {wanted}" if wanted.startswith(("greater", "less")) else wanted
    else:
        wanted = f"another value ({wanted})"
    return f"{name}: expected {wanted}, got {first['input']!r:.80}; see the input schema of {tool}"


def _family(host: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in host else socket.AF_INET
