"""`GraphMemSession` beside the SDK's own session, in real runs, and its tools."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents", reason="pip install 'graphmem-torch[openai-agents]'")

from agents import Agent, Runner, SessionSettings, SQLiteSession, Usage, set_tracing_disabled
from agents.items import ModelResponse
from agents.memory import Session
from agents.models.interface import Model
from agents.tool_context import ToolContext
from openai.types.responses import (
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseReasoningItem,
)

from graphmem_torch import InputError, Memory
from graphmem_torch.integrations.openai_agents import GraphMemSession, memory_tools
from tests.processes import Launch

set_tracing_disabled(True)

ITEMS: list[Any] = [
    {"role": "user", "content": "I live in Lisbon."},
    {"role": "user", "content": "I live in Lisbon."},
    {
        "type": "function_call",
        "call_id": "c1",
        "name": "weather",
        "arguments": '{"city": "Lisbon"}',
    },
    {"type": "function_call", "call_id": "c2", "name": "now", "arguments": "{}"},
    {"type": "function_call_output", "call_id": "c1", "output": "21 C"},
    {"type": "function_call_output", "call_id": "c2", "output": ""},
    {"type": "reasoning", "id": "r1", "summary": [], "encrypted_content": "gAAA"},
    {
        "type": "message",
        "id": "m1",
        "role": "assistant",
        "status": "completed",
        "content": [
            {"type": "output_text", "text": "It is 21 C.", "annotations": [], "logprobs": []}
        ],
    },
    {"role": "user", "content": [{"type": "input_image", "image_url": "data:image/png;base64,AA"}]},
    {"role": "assistant", "content": ""},
    {"role": "developer", "content": "  \n"},
    {"type": "item_reference", "id": "x"},
    {"type": "compaction", "id": "k", "encrypted_content": "AAAA"},
    {"role": "user", "content": "naïve \ud800 \u0000 中文 🎉", "n": [1, 2.5, None, True]},
    {"type": "web_search_call", "id": "w", "status": "completed", "action": {"type": "search"}},
    {"role": "user", "content": "x" * 5000},
]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(embedder="hashing", concepts="pattern") as made:
        yield made


def test_items_come_back_exactly_and_in_order(memory: Memory) -> None:
    async def run() -> None:
        session = GraphMemSession("s1", memory)
        assert isinstance(session, Session)
        assert await session.get_items() == [] and await session.pop_item() is None
        await session.add_items([])
        for start in range(0, len(ITEMS), 3):
            await session.add_items(ITEMS[start : start + 3])
        found = await session.get_items()
        assert found == ITEMS
        assert [list(each) for each in found] == [list(each) for each in ITEMS], "order of keys"
        for limit in (0, 1, 2, 7, len(ITEMS), 99):
            assert await session.get_items(limit) == (ITEMS[-limit:] if limit else [])
        for item in reversed(ITEMS):
            assert await session.pop_item() == item
        assert await session.pop_item() is None and len(memory) == 0

    asyncio.run(run())
    assert memory.check() == []


def test_same_operations_as_the_session_of_the_sdk(memory: Memory) -> None:
    """150 random operations on four sessions."""
    draw = random.Random(0)
    names = ["a", "b", "c é", "d"]

    async def run() -> None:
        ours = {name: GraphMemSession(name, memory) for name in names}
        theirs = {name: SQLiteSession(name) for name in names}
        for _ in range(150):
            name = draw.choice(names)
            what = draw.choices(["add", "pop", "get", "clear"], [5, 3, 3, 0.3])[0]
            found = []
            for session in (ours[name], theirs[name]):
                state = draw.getstate()
                if what == "add":
                    items = [draw.choice(ITEMS) for _ in range(draw.randrange(4))]
                    found.append(await session.add_items(items))
                elif what == "pop":
                    found.append(await session.pop_item())
                elif what == "get":
                    found.append(await session.get_items(draw.choice([None, 1, 3, 50])))
                else:
                    found.append(await session.clear_session())
                if session is ours[name]:
                    draw.setstate(state)
            assert found[0] == found[1], what
        for name in names:
            assert await ours[name].get_items() == await theirs[name].get_items()
            theirs[name].close()

    asyncio.run(run())
    assert memory.check() == []


def test_sessions_at_once(memory: Memory) -> None:
    async def run() -> None:
        async def talk(name: str) -> None:
            session = GraphMemSession(name, memory)
            for i in range(5):
                pair = [{"role": "user", "content": f"{name} {i} {part}"} for part in "ab"]
                await session.add_items(pair)

        names = [f"s{i}" for i in range(6)]
        await asyncio.gather(*map(talk, names), *map(talk, names))  # two of each
        for name in names:
            said = [item["content"] for item in await GraphMemSession(name, memory).get_items()]
            assert len(said) == 20
            for first, second in zip(said[::2], said[1::2], strict=True):
                assert first[:-1] == second[:-1], "an addition stays together"
        session = GraphMemSession("s0", memory)
        popped = await asyncio.gather(*(session.pop_item() for _ in range(20)))
        assert None not in popped and len(await session.get_items()) == 0
        assert await session.pop_item() is None
        await asyncio.gather(*(GraphMemSession("s1", memory).clear_session() for _ in range(3)))
        assert await GraphMemSession("s1", memory).get_items() == []
        assert len(await GraphMemSession("s2", memory).get_items()) == 20

    asyncio.run(run())
    assert memory.check() == []


WRITER = """
import asyncio, sys
from graphmem_torch import Memory
from graphmem_torch.integrations.openai_agents import GraphMemSession

async def main():
    with Memory.open(sys.argv[1], embedder="hashing", concepts="pattern") as memory:
        session = GraphMemSession("shared", memory)
        for i in range(10):
            await session.add_items([{"role": "user", "content": f"two {i}"}])

asyncio.run(main())
"""


def test_processes_share_a_session(tmp_path: Path, launch: Launch) -> None:
    program, store = tmp_path / "writer.py", tmp_path / "m"
    program.write_text(WRITER)
    with GraphMemSession("shared", store, embedder="hashing", concepts="pattern") as session:
        other, count = launch(program, store), 0
        while len(asyncio.run(session.get_items())) - count < 10:  # the other one is not done
            asyncio.run(session.add_items([{"role": "user", "content": f"one {count}"}]))
            count += 1
            time.sleep(0.2)
        assert (other.wait(), other.told()) == (0, [])
        said = [item["content"] for item in asyncio.run(session.get_items())]
        for name, written in (("one", count), ("two", 10)):
            own = [each for each in said if each.startswith(name)]
            assert own == [f"{name} {i}" for i in range(written)]
        assert len(said) == count + 10


def test_session_of_a_folder_stays(tmp_path: Path) -> None:
    with GraphMemSession("s1", tmp_path, embedder="hashing") as session:
        asyncio.run(session.add_items(ITEMS))
    assert session.memory.store.closed
    with Memory.open(tmp_path) as memory:
        again = GraphMemSession("s1", memory)
        assert asyncio.run(again.get_items()) == ITEMS
        again.close()
        assert not memory.store.closed, "the caller opened it"


def test_other_memories_of_a_session_are_no_items(memory: Memory) -> None:
    session = GraphMemSession("s1", memory)
    asyncio.run(session.add_items(ITEMS[:2]))
    memory.add("A fact that a tool stored.", session="s1")
    asyncio.run(session.add_items(ITEMS[2:3]))
    assert asyncio.run(session.get_items()) == ITEMS[:3]
    assert asyncio.run(session.get_items(2)) == ITEMS[1:3]
    assert asyncio.run(session.pop_item()) == ITEMS[2]
    first = next(iter(memory))
    memory.update(first.id, speaker="Nora")
    assert asyncio.run(session.get_items()) == ITEMS[:2], "keeps its place"
    asyncio.run(session.clear_session())
    assert [atom.text for atom in memory] == ["A fact that a tool stored."]


def test_names_of_sessions(memory: Memory) -> None:
    names = [" x ", "x", "a\nb", "a b", "É", "中文 🎉", "#1", "s" * 2000, "session:1/2?", "Straße"]
    for i, name in enumerate(names):
        asyncio.run(GraphMemSession(name, memory).add_items([{"role": "user", "content": str(i)}]))
    for i, name in enumerate(names):
        found = asyncio.run(GraphMemSession(name, memory).get_items())
        assert found == [{"role": "user", "content": str(i)}], name
    composed = asyncio.run(GraphMemSession("E\u0301", memory).get_items())
    assert composed == [{"role": "user", "content": "4"}], "one name in two forms of Unicode"


def test_default_limit(memory: Memory) -> None:
    session = GraphMemSession("s1", memory, session_settings=SessionSettings(limit=2))
    asyncio.run(session.add_items(ITEMS[:5]))
    assert asyncio.run(session.get_items()) == ITEMS[3:5]
    assert asyncio.run(session.get_items(4)) == ITEMS[1:5]


class Scripted(Model):
    """A model that gives the outputs of a script, and keeps its inputs."""

    def __init__(self, *outputs: Any) -> None:
        self.outputs, self.inputs = list(outputs), list[Any]()

    async def get_response(self, *_: Any, input: Any, **__: Any) -> ModelResponse:
        self.inputs.append(json.loads(json.dumps(input)))
        return ModelResponse(output=self.outputs.pop(0), usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> Any:
        raise NotImplementedError


def says(text: str) -> list[Any]:
    content = ResponseOutputText(type="output_text", text=text, annotations=[])
    return [
        ResponseOutputMessage(
            id="m", type="message", role="assistant", status="completed", content=[content]
        )
    ]


def calls(name: str, **arguments: Any) -> list[Any]:
    reasoning = ResponseReasoningItem(id="r", type="reasoning", summary=[])
    call = ResponseFunctionToolCall(
        type="function_call", call_id=f"call_{name}", name=name, arguments=json.dumps(arguments)
    )
    return [reasoning, call]


def test_agent_remembers_over_sessions(memory: Memory) -> None:
    first = Scripted(says("Noted."), says("In Lisbon."))
    agent = Agent(name="a", model=first)
    session = GraphMemSession("monday", memory)
    Runner.run_sync(agent, "The bakery of Bertrand is in Lisbon.", session=session)
    Runner.run_sync(agent, "Where is it?", session=session)
    said = [item.get("content") for item in first.inputs[1]]
    assert said[0] == "The bakery of Bertrand is in Lisbon." and said[2] == "Where is it?"

    recalling = Scripted(calls("recall", question="Where is the bakery?", k=3), says("Lisbon."))
    agent = Agent(name="a", model=recalling, tools=memory_tools(memory))
    other = GraphMemSession("tuesday", memory)
    result = Runner.run_sync(agent, "Where is the bakery?", session=other)
    assert result.final_output == "Lisbon."
    output = recalling.inputs[1][-1]
    assert output["type"] == "function_call_output" and "Bertrand" in output["output"]
    kinds = [item.get("type") for item in asyncio.run(other.get_items())]
    assert kinds == [None, "reasoning", "function_call", "function_call_output", "message"]

    follow = Scripted(says("Yes."))
    Runner.run_sync(Agent(name="a", model=follow), "Sure?", session=other)
    assert [item.get("type") for item in follow.inputs[0]][:-1] == kinds


def call(memory: Memory, name: str, arguments: str) -> Any:
    tool = next(each for each in memory_tools(memory) if each.name == name)
    context = ToolContext(context=None, tool_name=name, tool_call_id="c", tool_arguments=arguments)
    return asyncio.run(tool.on_invoke_tool(context, arguments))


def test_tools(memory: Memory) -> None:
    id = call(memory, "remember", '{"text": "Nora keeps bees."}')
    found = call(memory, "recall", '{"question": "Who keeps bees?", "k": 2}')
    assert found["memories"][0]["id"] == id and found["memories"][0]["text"] == "Nora keeps bees."
    assert call(memory, "update", json.dumps({"id": id, "text": "Nora keeps goats."}))
    assert memory.get(id).text == "Nora keeps goats."
    assert call(memory, "forget", json.dumps({"ids": [id]})) == 1
    assert len(memory) == 0
    for name, bad in (
        ("recall", '{"question": "", "k": 3}'),
        ("recall", '{"question": "x", "k": 0}'),
        ("recall", '{"question": 3, "k": 3}'),
        ("recall", "no json"),
        ("update", '{"id": "gone", "text": "x"}'),
        ("forget", '{"ids": ["gone"]}'),
        ("remember", '{"text": " "}'),
    ):
        said = call(memory, name, bad)
        assert any(word in str(said).lower() for word in ("expected", "invalid")), (name, bad, said)
    assert call(memory, "forget", '{"ids": []}') == 0
    assert memory.check() == []


def test_placeholders_are_not_recalled(memory: Memory) -> None:
    asyncio.run(GraphMemSession("s1", memory).add_items(ITEMS))
    found = call(memory, "recall", '{"question": "reasoning without text", "k": 30}')
    assert not any("without text" in each["text"] for each in found["memories"])


def test_placeholders_take_no_place_of_a_memory(memory: Memory) -> None:
    thoughts: Any = [{"type": "reasoning", "id": f"r{n}", "summary": []} for n in range(9)]
    asyncio.run(GraphMemSession("s1", memory).add_items(thoughts))
    call(memory, "remember", '{"text": "Nora keeps bees."}')
    found = call(memory, "recall", '{"question": "Which reasoning is without text?", "k": 3}')
    assert [each["text"] for each in found["memories"]] == ["Nora keeps bees."]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ("text", "items: expected a list"),
        ({"role": "user", "content": "x"}, "items: expected a list"),
        (None, "items: expected a list"),
        (5, "items: expected a list"),
        (["text"], "items: expected a mapping"),
        ([None], "items: expected a mapping"),
        ([{"role": "user", "content": {1, 2}}], "items: expected JSON values"),
        ([ITEMS[0], {"role": "user", "content": b"x"}], "items: expected JSON values"),
    ],
)
def test_items_that_are_none(memory: Memory, items: Any, message: str) -> None:
    session = GraphMemSession("s1", memory)
    with pytest.raises(InputError, match=message) as error:
        asyncio.run(session.add_items(items))
    assert "\n" not in str(error.value) and len(memory) == 0


def test_bad_arguments(memory: Memory, tmp_path: Path) -> None:
    for name in ("", "  ", None, 3, "half \ud800"):
        with pytest.raises(InputError, match="session_id: expected a name"):
            GraphMemSession(name, memory)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="memory: expected a path or a `Memory`"):
        GraphMemSession("s1", 3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected no options with a memory that is open"):
        GraphMemSession("s1", memory, embedder="hashing")
    with pytest.raises(InputError, match="memory: expected an open `Memory`"):
        memory_tools(tmp_path)  # type: ignore[arg-type]
    session = GraphMemSession("s1", memory)
    for limit in (-1, True, "3", 1.0):
        with pytest.raises(InputError, match="limit: expected"):
            asyncio.run(session.get_items(limit))  # type: ignore[arg-type]


def test_a_cancelled_addition_is_whole(memory: Memory) -> None:
    session = GraphMemSession("s1", memory)

    async def run() -> None:
        task = asyncio.create_task(session.add_items(ITEMS))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert await session.get_items() in ([], ITEMS)

    asyncio.run(run())
