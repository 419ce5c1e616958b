"""`graphmem mcp` with the client of the package: in the process, over pipes, and over HTTP."""

from __future__ import annotations

import asyncio
import fcntl
import json
import os
import random
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp.server.mcpserver")

import anyio
import jsonschema
from mcp import Client, StdioServerParameters
from mcp.client.stdio import stdio_client

from graphmem_torch.cli.main import main
from graphmem_torch.errors import InputError
from graphmem_torch.integrations.mcp import MemoryServer
from graphmem_torch.memory import Memory
from tests.integrations.reference_memory import ReferenceMemory, random_call
from tests.memories import opened
from tests.processes import interruptible

ROOT = Path(__file__).resolve().parents[2]
OWN = {"recall", "remember", "update", "forget", "explain", "as_of", "context", "list"}
READING = {"recall", "explain", "as_of", "context", "list"}
GRAPH = {
    *("create_entities", "create_relations", "add_observations", "delete_entities"),
    *("delete_observations", "delete_relations", "read_graph", "search_nodes", "open_nodes"),
}
GRAPH_READING = {"read_graph", "search_nodes", "open_nodes"}
FAST = ("--embedder", "hashing", "--config.link.concepts", "pattern")


@pytest.fixture
def memory() -> Iterator[Memory]:
    with opened() as made:
        yield made


async def ask(client: Client, tool: str, **arguments: Any) -> Any:
    """The structured result of a tool; it fits the schema that the server lists."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    (listed,) = [each for each in (await client.list_tools()).tools if each.name == tool]
    jsonschema.validate(result.structured_content, listed.output_schema)
    return result.structured_content


async def error_of(client: Client, tool: str, **arguments: Any) -> str:
    """The error of a tool, which is one line."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    (content,) = result.content
    assert "\n" not in content.text
    return str(content.text)


def started(store: Path, *options: str) -> StdioServerParameters:
    """A server in a process of its own."""
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "graphmem_torch", "mcp", "--store", str(store), *FAST, *options],
        env={"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"},
    )


@asynccontextmanager
async def process(store: Path, *options: str) -> AsyncIterator[subprocess.Popen[str]]:
    """The process itself, for what the client of the package hides."""
    given = started(store, *options)
    pipe = subprocess.PIPE
    command = [given.command, *given.args]
    env = {**os.environ, **(given.env or {})}
    shared: Any = {"stdin": pipe, "stdout": pipe, "stderr": pipe, "text": True, "env": env}
    with subprocess.Popen(command, preexec_fn=interruptible, **shared) as running:
        yield running
        running.kill()


# In the process.


def test_tools_have_titles_descriptions_schemas_and_hints(memory: Memory) -> None:
    async def run() -> None:
        async with Client(MemoryServer(memory)) as client:
            tools = {each.name: each for each in (await client.list_tools()).tools}
            assert {*tools} == OWN | GRAPH
            for name, tool in tools.items():
                assert tool.title and tool.description and tool.annotations
                assert tool.output_schema and tool.output_schema["type"] == "object"
                hints = tool.annotations
                assert hints.read_only_hint == (name in READING | GRAPH_READING)
                erases = name == "forget" or name.startswith("delete_")
                assert hints.destructive_hint == erases
                adds = name == "remember" or name.startswith(("create_", "add_"))
                assert hints.idempotent_hint != adds
                assert hints.open_world_hint is False
                described = tool.input_schema.get("properties", {}).values()
                assert all(each.get("description") for each in described) or name in GRAPH
            entity = tools["create_entities"].input_schema
            assert entity["required"] == ["entities"] and [*entity["properties"]] == ["entities"]
            said = tools["create_relations"].description
            assert said and said.endswith("knowledge graph. Relations should be in active voice.")
            assert client.instructions and "recall" in client.instructions

    anyio.run(run)


def test_a_memory_from_adding_to_forgetting(memory: Memory) -> None:
    async def run() -> None:
        async with Client(MemoryServer(memory)) as client:
            said = {"speaker": "Ada", "session": "s", "time": "2026-05-01", "meta": {"page": 3}}
            texts = ["The canoe is red.", "The violin is old."]
            added = await ask(client, "remember", texts=texts, **said)
            canoe, violin = added["ids"]
            assert (added["new"], added["known"]) == (2, 0)
            assert (await ask(client, "remember", texts=texts, **said))["known"] == 2
            await ask(client, "remember", texts=["The guest code is 4711."], expires="2020-01-01")
            assert "4711" not in str(await ask(client, "list"))
            found = await ask(client, "recall", query="Which colour has the canoe?", k=1)
            (hit,) = found["memories"]
            assert (hit["id"], hit["text"]) == (canoe, "Ada: The canoe is red.")
            assert hit["time"] == "2026-05-01T00:00:00+00:00" and hit["meta"] == {"page": 3}
            assert 0 <= hit["score"] <= 1 and found["known"] is not None
            changed = await ask(client, "update", id=canoe, text="The canoe is blue.")
            assert changed["text"] == "The canoe is blue." and changed["speaker"] == "Ada"
            then = await ask(client, "as_of", query="the canoe", time="2026-06-01")
            assert "red" in then["memories"][0]["text"]
            none = await ask(client, "recall", query="canoe", until="2026-04-01")
            assert none["memories"] == []
            paged = await ask(client, "list", limit=1, where={"speaker": "Ada"})
            rest = await ask(client, "list", after=paged["next"], where={"speaker": "Ada"})
            assert [each["id"] for each in paged["memories"] + rest["memories"]] == [violin, canoe]
            assert rest["next"] is None
            made = await ask(client, "context", query="canoe", budget=200)
            assert made["tokens"] <= 200 and made["sources"][0] == canoe
            why = await ask(client, "explain", query="canoe", id=violin)
            assert why["id"] == violin and why["signals"] and why["summary"]
            planned = await ask(client, "forget", session="s", dry_run=True)
            assert {*planned["erased"]} == {canoe, violin} and planned["receipt"] is None
            done = await ask(client, "forget", ids=[canoe])
            assert done["erased"] == [canoe] and done["receipt"]["atoms"] == 1
            assert memory.upkeep.check_receipt(json_receipt(done)) == []
            assert len(memory) == 1

    anyio.run(run)


def json_receipt(done: Any) -> Any:
    from graphmem_torch.results import Receipt

    return Receipt.from_json(json.dumps(done["receipt"]))


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [
        ("recall", {}, "query: expected a value, got none"),
        ("recall", {"query": 5}, "query: expected a valid string, got 5"),
        ("recall", {"query": " "}, "query: expected a question"),
        ("recall", {"query": None}, "query: expected a valid string, got None"),
        ("recall", {"query": "x", "k": 0}, "k: expected a number greater than or equal to 1"),
        ("recall", {"query": "x", "k": True}, "k: expected a valid integer, got True"),
        ("recall", {"query": "x", "k": "2"}, "k: expected a valid integer, got '2'"),
        ("recall", {"query": "x", "where": "speaker"}, "where: expected a valid dictionary"),
        ("recall", {"query": "x", "where": {"meta.page": {"$gtt": 1}}}, "did you mean '$gt'"),
        ("recall", {"query": "x", "since": "soon"}, "since: expected a time, got 'soon'"),
        ("recall", {"query": "x", "until": "soon"}, "until: expected a time, got 'soon'"),
        (
            "recall",
            {"query": "x", "since": "2024", "until": "2023"},
            "since, until: expected a start",
        ),
        ("recall", {"query": "x", "namespce": "bob"}, "did you mean 'namespace'"),
        ("recal", {"query": "x"}, "did you mean 'recall'"),
        ("remember", {"memories": ["x"]}, "did you mean 'texts'"),
        ("recall", {"question": "x"}, "did you mean 'query'"),
        ("remember", {"texts": "hello"}, "texts: expected a valid list, got 'hello'"),
        ("remember", {"texts": ["ok", 5]}, "texts.1: expected a valid string, got 5"),
        ("remember", {"texts": []}, "texts: expected another value"),
        ("remember", {"texts": ["ok", " "]}, "texts: expected a string with something in it"),
        ("remember", {"texts": ["ok"], "time": "soon"}, "time: expected a time, got 'soon'"),
        ("remember", {"texts": ["ok"], "expires": "soon"}, "expires: expected a time, got 'soon'"),
        ("update", {"id": "none"}, "update: expected text, speaker, time or meta, got none"),
        ("update", {"id": "none", "text": "x"}, "id: expected ids of memories, got 'none'"),
        ("forget", {}, "forget: expected ids, session, speaker or before, got none"),
        ("forget", {"ids": []}, "forget: expected ids, session, speaker"),
        ("forget", {"ids": ["none"]}, "expected ids of memories, got 'none'"),
        ("as_of", {"query": "", "time": "2024"}, "query: expected a question"),
        ("as_of", {"query": "x", "time": "soon"}, "time: expected a time, got 'soon'"),
        ("list", {"order": "size"}, "order: expected one of added, time"),
        ("list", {"after": "none"}, "after: expected `next` of the page before"),
        ("context", {"query": "x", "budget": -1}, "budget: expected a number greater"),
        ("explain", {"query": ""}, "query: expected a question"),
        ("context", {"query": " "}, "query: expected a question"),
        ("explain", {"query": "x", "id": "none"}, "id: expected ids of memories, got 'none'"),
        ("create_entities", {"entities": [{"name": "A"}]}, "entities.0.entityType: expected a va"),
        ("create_relations", {"relations": [{"from": "A"}]}, "relations.0.to: expected a value"),
        ("search_nodes", {"query": 3}, "query: expected a valid string, got 3"),
        ("read_graph", {"namespace": "bob"}, "namespace: expected none for read_graph"),
    ],
)
def test_wrong_arguments_are_errors_of_one_line(
    memory: Memory, tool: str, arguments: dict[str, Any], message: str
) -> None:
    async def run() -> None:
        async with Client(MemoryServer(memory)) as client:
            said = await error_of(client, tool, **arguments)
            assert message in said and ": expected" in said and ", got" in said
            assert (await ask(client, "list"))["memories"] == []  # nothing was stored

    anyio.run(run)


def test_arguments_that_some_clients_fill_in(memory: Memory) -> None:
    async def run() -> None:
        async with Client(MemoryServer(memory)) as client:
            await ask(client, "read_graph", random_string="dummy")
            await ask(client, "remember", texts='["as JSON in a string"]', speaker=None, time=None)
            assert memory.list()[0].text == "as JSON in a string"

    anyio.run(run)


def test_namespaces(tmp_path: Path) -> None:
    async def run() -> None:
        with MemoryServer(tmp_path / "store", embedder="hashing") as server:
            async with Client(server) as client:
                said = await error_of(client, "remember", texts=["x"], namespace="alice")
                assert "namespace: expected one that this memory has, got 'alice'" in said
                assert "create_namespace" in said
                given = {"texts": ["The canoe is red."], "namespace": "alice"}
                await ask(client, "remember", **given, create_namespace=True)
                said = await error_of(client, "recall", query="canoe", namespace="alise")
                assert "did you mean 'alice'" in said
                for odd in ("a\nb", " ", "n" * 300):
                    said = await error_of(client, "recall", query="canoe", namespace=odd)
                    assert said.startswith("namespace: expected")
                mine = await ask(client, "recall", query="canoe", namespace="alice")
                assert len(mine["memories"]) == 1
                assert (await ask(client, "list"))["memories"] == []
        with MemoryServer(tmp_path / "store", namespace="alice", embedder="hashing") as server:
            async with Client(server) as client:
                assert len((await ask(client, "list"))["memories"]) == 1
                said = await error_of(client, "list", namespace="bob")
                assert "expected 'alice', the only one that is served, got 'bob'" in said
                await ask(client, "create_entities", entities=[])
        with MemoryServer(tmp_path / "store", namespace="new", embedder="hashing") as server:
            async with Client(server) as client:
                assert (await ask(client, "list"))["memories"] == []

    anyio.run(run)


def test_no_namespace_is_made_for_nothing(memory: Memory) -> None:
    wrong: list[dict[str, Any]] = [
        {"texts": [""]},
        {"texts": ["ok", " "]},
        {"texts": []},
        {"texts": ["ok", 5]},
        {"texts": ["ok"], "time": "soon"},
        {"texts": ["ok"], "time": "2024-13-01"},
        {"texts": ["ok"], "expires": "soon"},
        {"texts": ["ok"], "session": " "},
        {"texts": ["ok"], "meta": "page 3"},
        {"texts": ["ok"], "speaker": 3},
        {"texts": ["ok"], "sesion": "s"},
    ]

    async def run() -> None:
        async with Client(MemoryServer(memory)) as client:
            for number, each in enumerate(wrong):
                given = {**each, "namespace": f"n{number}", "create_namespace": True}
                await error_of(client, "remember", **given)
                assert [*memory.namespaces] == [], each
            await ask(client, "remember", texts=["ok"], namespace="n", create_namespace=True)
            assert [*memory.namespaces] == ["n"]

    anyio.run(run)


def test_unknown_options_of_a_server(memory: Memory, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"option: expected one of .*did you mean 'embedder'"):
        MemoryServer(tmp_path / "store", embeder="hashing")
    with pytest.raises(InputError, match="embedder: expected no options with a memory"):
        MemoryServer(memory, embedder="hashing")
    assert not (tmp_path / "store").exists()


def test_a_read_only_server(tmp_path: Path) -> None:
    with opened(tmp_path / "store", embedder="hashing") as memory:
        memory.add("The canoe is red.")

    async def run() -> None:
        with MemoryServer(tmp_path / "store", readonly=True) as server:
            async with Client(server) as client:
                names = {each.name for each in (await client.list_tools()).tools}
                assert names == READING | GRAPH_READING
                assert len((await ask(client, "recall", query="canoe"))["memories"]) == 1
                assert (await ask(client, "read_graph"))["entities"] == []
                said = await error_of(client, "remember", texts=["x"])
                assert "expected a tool that reads" in said and "--read-only" in said
                said = await error_of(client, "recall", query="canoe", namespace="alice")
                assert "got 'alice'" in said

    anyio.run(run)


def test_the_graph_answers_as_the_reference_server(memory: Memory) -> None:
    source, model = random.Random(7), ReferenceMemory()

    async def run() -> None:
        errors = 0
        async with Client(MemoryServer(memory)) as client:
            for number in range(240):
                tool, arguments = random_call(source)
                result = await client.call_tool(tool, arguments)
                try:
                    expected = model.call(tool, arguments)
                except LookupError:
                    assert result.is_error, (number, tool, arguments)
                    errors += 1
                    continue
                assert result.structured_content == expected, (number, tool, arguments)
                shown = expected if len(expected) > 1 else next(iter(expected.values()))
                text = expected["message"] if "message" in expected else dumped(shown)
                assert result.content[0].text == text
            (resource,) = (await client.read_resource("memory://knowledge-graph")).contents
            assert resource.text == dumped(model.read_graph())
        assert errors and model.entities and model.relations

    anyio.run(run)


def dumped(value: Any) -> str:
    return json.dumps(value, indent=2, ensure_ascii=False)


def test_a_server_that_cannot_open_its_store_says_so_at_each_call(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no folder")

    async def run() -> None:
        with MemoryServer(tmp_path / "file", embedder="hashing") as server:
            async with Client(server) as client:
                for _ in range(2):
                    assert "file" in await error_of(client, "recall", query="x")

    anyio.run(run)


def test_an_error_that_nobody_foresaw_is_one_line() -> None:
    def broken() -> Memory:
        raise RuntimeError("secret")

    async def run() -> None:
        async with Client(MemoryServer(broken)) as client:
            said = await error_of(client, "list")
            assert "list: expected an answer, got RuntimeError" in said and "secret" not in said

    anyio.run(run)


# Processes.


def test_two_servers_on_one_store(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async def run() -> None:
        async with Client(stdio_client(started(store))) as other:
            async with Client(stdio_client(started(store)), mode="legacy") as client:
                assert client.server_info and client.server_info.name == "graphmem"
                assert {each.name for each in (await client.list_tools()).tools} == OWN | GRAPH
                await asyncio.gather(
                    *(
                        ask(each, "remember", texts=[f"The canoe of {name} {number}"])
                        for number in range(3)
                        for name, each in (("Ada", client), ("Ben", other))
                    )
                )
                assert len((await ask(client, "list"))["memories"]) == 6
                entity = {"name": "Ada", "entityType": "person", "observations": []}
                both = await asyncio.gather(
                    *(ask(each, "create_entities", entities=[entity]) for each in (client, other))
                )
                assert sorted(len(each["entities"]) for each in both) == [0, 1]
                assert (await error_of(client, "recall")).startswith("query: expected")

                # Another process holds the store: readers read, writers wait for their turn.
                with (store / "writer.lock").open("r+") as lock:
                    fcntl.flock(lock, fcntl.LOCK_EX)
                    waiting = asyncio.create_task(ask(client, "remember", texts=["A violin"]))
                    found = await ask(other, "recall", query="canoe")
                    assert found["memories"] and not waiting.done()
                    fcntl.flock(lock, fcntl.LOCK_UN)
                assert (await waiting)["new"] == 1
            # One client has hung up.
            assert len((await ask(other, "list"))["memories"]) == 8

    anyio.run(run)
    with opened(store, embedder="hashing") as memory:
        assert memory.check() == [] and len(memory) == 8


def test_a_killed_server_keeps_what_it_acknowledged(tmp_path: Path) -> None:
    store = tmp_path / "store"
    acknowledged: list[str] = []

    async def run() -> None:
        async with process(store) as server:
            assert server.stdin and server.stdout
            write, read = server.stdin, server.stdout

            def send(method: str, number: int | None, **params: Any) -> None:
                message = {"jsonrpc": "2.0", "method": method, "params": params}
                own = message if number is None else {**message, "id": number}
                write.write(json.dumps(own) + "\n")
                write.flush()

            hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
            send("initialize", 0, **hello, clientInfo={"name": "test", "version": "1"})
            assert json.loads(read.readline())["id"] == 0
            send("notifications/initialized", None)
            for number in range(1, 40):
                texts = [f"The canoe {number} of {each}" for each in ("Ada", "Ben")]
                send("tools/call", number, name="remember", arguments={"texts": texts})
            while len(acknowledged) < 20:
                result = json.loads(read.readline())["result"]
                acknowledged.extend(result["structuredContent"]["ids"])
            server.kill()
            for line in read.read().splitlines(keepends=True):
                if line.endswith("\n"):
                    result = json.loads(line)["result"]
                    acknowledged.extend(result["structuredContent"]["ids"])

    anyio.run(run)
    with opened(store, embedder="hashing") as memory:
        assert all(id in memory for id in acknowledged)
        assert len(memory) % 2 == 0  # a call is stored whole or not at all
        assert memory.check() == []


def test_a_client_that_hangs_up_in_the_middle_of_a_call(tmp_path: Path) -> None:
    store = tmp_path / "store"

    async def run() -> None:
        async with process(store) as server:
            assert server.stdin and server.stdout and server.stderr
            hello = {"protocolVersion": "2025-06-18", "capabilities": {}}
            hello["clientInfo"] = {"name": "test", "version": "1"}
            call = {"name": "remember", "arguments": {"texts": ["The canoe is red."]}}
            for message in (
                {"method": "initialize", "id": 0, "params": hello},
                {"method": "notifications/initialized"},
                {"method": "tools/call", "id": 1, "params": call},
            ):
                server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
            server.stdin.flush()
            server.stdin.close()
            server.stdout.close()
            assert server.wait(60) == 0
            assert server.stderr.read() == ""

    anyio.run(run)
    with opened(store, embedder="hashing") as memory:
        assert len(memory) in (0, 1) and memory.check() == []


def test_http(tmp_path: Path) -> None:
    async def run() -> None:
        async with process(tmp_path / "store", "--http", "127.0.0.1:0") as server:
            assert server.stderr
            url = re.search(r"http://\S+/mcp", server.stderr.readline())
            assert url is not None
            for mode in ("legacy", "auto"):
                async with Client(url[0], mode=mode) as client, Client(url[0]) as other:
                    await ask(client, "remember", texts=["The canoe is red."])
                    assert (await ask(other, "recall", query="canoe"))["memories"]
                    assert "got 5" in await error_of(other, "recall", query=5)
            address = url[0].removeprefix("http://").removesuffix("/mcp")
            assert main(["mcp", "--store", str(tmp_path / "store"), "--http", address]) == 2
            server.send_signal(signal.SIGINT)
            assert server.wait(60) == 130

    anyio.run(run)


# The command.


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--read-only"], "expected a store"),
        (["--http", "nowhere"], "--http: expected HOST:PORT, got 'nowhere'"),
        (["--http", "127.0.0.1:99999"], "--http: expected HOST:PORT"),
        (["--http", "203.0.113.1:80"], "http: expected an address that is free, got 203.0.113.1"),
        (["--preset", "nothing"], "preset"),
        (["--htpp", "x"], "did you mean --http"),
    ],
)
def test_a_wrong_start_is_one_line(
    tmp_path: Path, options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["mcp", "--store", str(tmp_path / "store"), *options]) == 2
    out, err = capsys.readouterr()
    assert not out and message in err and err.count("\n") == 1


def test_the_handshake_loads_no_torch() -> None:
    code = (
        "import asyncio, sys\n"
        "from graphmem_torch.integrations.mcp import MemoryServer\n"
        "server = MemoryServer('store')\n"
        "assert len(asyncio.run(server.list_tools())) == 17\n"
        "found = 'torch' in sys.modules\n"
        "server.close()\n"
        "print(found)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.stdout == "False\n", done.stderr


_HIDE = """
import importlib.machinery, sys

class Hidden(importlib.machinery.PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] not in {hidden}:
            return importlib.machinery.PathFinder.find_spec(name, path, target)

sys.meta_path[sys.meta_path.index(importlib.machinery.PathFinder)] = Hidden
"""


@pytest.mark.parametrize(
    ("before", "message"),
    [
        (_HIDE.format(hidden=["mcp", "mcp_types"]), "expected the package for its adapter"),
        (
            "import sys, types, mcp_types\nsys.modules['mcp.server'] = types.ModuleType('mcp')",
            "got",
        ),
    ],
    ids=["missing", "older"],
)
def test_a_missing_or_older_package_is_one_line(before: str, message: str) -> None:
    code = f"{before}\nfrom graphmem_torch.cli.main import main\n"
    code += "sys.exit(main(['mcp', '--store', 'store']))\n"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 2 and done.stderr.count("\n") == 1, done.stderr
    assert message in done.stderr and "pip install 'graphmem-torch[mcp]'" in done.stderr
