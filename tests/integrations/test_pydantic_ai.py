"""The toolset in agents of Pydantic AI."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai", reason="pip install 'graphmem-torch[pydantic-ai]'")

from pydantic_ai import Agent
from pydantic_ai.exceptions import UnexpectedModelBehavior
from pydantic_ai.messages import (
    ModelMessage,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
)
from pydantic_ai.models.function import AgentInfo, FunctionModel
from pydantic_ai.models.test import TestModel

from graphmem_torch import InputError, Memory, StoreError
from graphmem_torch.integrations.pydantic_ai import GraphMemToolset

NAMES = ["recall", "remember", "update", "forget"]


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(embedder="hashing", concepts="pattern") as made:
        made.add({"id": "o1", "text": "Bertrand restores old deck ovens.", "session": "s1"})
        yield made


def parts(messages: list[ModelMessage], kind: type) -> list[Any]:
    return [part for message in messages for part in message.parts if isinstance(part, kind)]


def scripted(*calls: tuple[str, dict[str, Any]], seen: list[AgentInfo] | None = None) -> Any:
    """A model that makes these calls one after the other, then says "done"."""
    left = list(calls)

    def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
        if seen is not None:
            seen.append(info)
        if not left:
            return ModelResponse(parts=[TextPart("done")])
        name, arguments = left.pop(0)
        return ModelResponse(parts=[ToolCallPart(name, arguments)])

    return FunctionModel(model)


def run(memory: Memory, *calls: tuple[str, dict[str, Any]]) -> list[ModelMessage]:
    agent = Agent(scripted(*calls), toolsets=[GraphMemToolset(memory)])
    result = agent.run_sync("go")
    assert result.output == "done"
    return result.all_messages()


def test_tools_have_schemas_and_descriptions(memory: Memory) -> None:
    seen: list[AgentInfo] = []
    agent = Agent(scripted(seen=seen), toolsets=[GraphMemToolset(memory)])
    agent.run_sync("go")
    tools = {tool.name: tool for tool in seen[0].function_tools}
    assert list(tools) == NAMES
    for tool in tools.values():
        assert tool.description and not tool.description.startswith("Args")
        fields = tool.parameters_json_schema["properties"]
        assert all(each["description"] for each in fields.values())
    assert tools["recall"].parameters_json_schema["required"] == ["question"]
    assert "known" in (tools["recall"].description or "")


def test_agent_recalls_remembers_corrects_and_forgets(memory: Memory) -> None:
    messages = run(
        memory,
        ("recall", {"question": "Who restores ovens?", "k": 1}),
        ("remember", {"text": "Nora keeps bees."}),
        ("update", {"id": "o1", "text": "Bertrand sells old deck ovens."}),
    )
    found, id, text = (part.content for part in parts(messages, ToolReturnPart))
    assert found["memories"] == [
        {"id": "o1", "text": "Bertrand restores old deck ovens.", "session": "s1", "time": None}
    ]
    assert memory.get(id).text == "Nora keeps bees." and memory.get(id).time is not None
    assert text == memory.get("o1").text == "Bertrand sells old deck ovens."
    messages = run(memory, ("forget", {"ids": ["o1", id]}))
    assert parts(messages, ToolReturnPart)[0].content == 2 and len(memory) == 0
    assert memory.check() == []


def test_model_of_tests_calls_every_tool(memory: Memory) -> None:
    """TestModel makes arguments of each schema: ids that are not stored are retried."""
    agent = Agent(TestModel(call_tools=["recall", "remember"]), toolsets=[GraphMemToolset(memory)])
    result = agent.run_sync("go")
    assert set(json.loads(str(result.output))) == {"recall", "remember"}
    assert len(memory) == 2
    before = {atom.id: atom.text for atom in memory}
    agent = Agent(TestModel(call_tools=["update", "forget"]), toolsets=[GraphMemToolset(memory)])
    with pytest.raises(UnexpectedModelBehavior, match="exceeded max retries"):
        agent.run_sync("go")
    assert {atom.id: atom.text for atom in memory} == before and memory.check() == []


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (("recall", {"question": ""}), "question"),
        (("recall", {"question": "x", "k": 0}), "k: expected"),
        (("recall", {"question": "x", "k": "many"}), "integer"),
        (("recall", {}), "required"),
        (("recall", {"question": 3}), "string"),
        (("remember", {"text": "  "}), "text"),
        (("remember", {"words": "x"}), "required"),
        (("update", {"id": "gone", "text": "x"}), "gone"),
        (("update", {"id": "o1", "text": ""}), "text"),
        (("forget", {"ids": ["gone"]}), "gone"),
        (("forget", {"ids": "a"}), "list"),
        (("forget", {"ids": [3]}), "string"),
    ],
)
def test_bad_calls_are_told_to_the_model(
    memory: Memory, call: tuple[str, dict[str, Any]], message: str
) -> None:
    (told,) = parts(run(memory, call), ToolReturnPart)
    assert told.outcome == "retried" and message in str(told.content)
    assert len(memory) == 1 and memory.check() == []


def test_a_model_that_goes_on_is_stopped(memory: Memory) -> None:
    bad = ("forget", {"ids": ["gone"]})
    agent = Agent(scripted(*[bad] * 9), toolsets=[GraphMemToolset(memory)])
    with pytest.raises(UnexpectedModelBehavior):
        agent.run_sync("go")
    assert len(memory) == 1


def test_memory_that_cannot_be_written(tmp_path: Path) -> None:
    with Memory.open(tmp_path, embedder="hashing", concepts="pattern") as memory:
        memory.add("The canoe is red.")
    with Memory.open(tmp_path, mode="r") as memory:
        found = parts(run(memory, ("recall", {"question": "canoe"})), ToolReturnPart)
        assert found[0].content["memories"]
        with pytest.raises(StoreError, match="read"):
            run(memory, ("remember", {"text": "x"}))


def test_toolset_of_a_folder(tmp_path: Path) -> None:
    with GraphMemToolset(tmp_path, embedder="hashing", concepts="pattern") as tools:
        agent = Agent(scripted(("remember", {"text": "Nora keeps bees."})), toolsets=[tools])
        agent.run_sync("go")
        agent = Agent(scripted(("recall", {"question": "bees"})), toolsets=[tools])
        agent.run_sync("go")
    assert tools.memory.store.closed
    with Memory.open(tmp_path) as memory:
        assert [atom.text for atom in memory] == ["Nora keeps bees."]


def test_tools_of_two_memories_and_a_choice_of_them(memory: Memory) -> None:
    with Memory.open(embedder="hashing", concepts="pattern") as other:
        other.add({"id": "b", "text": "The canoe is red."})
        mine = GraphMemToolset(memory).filtered(lambda _, tool: tool.name == "recall")
        seen: list[AgentInfo] = []
        calls = scripted(
            ("recall", {"question": "ovens"}), ("team_recall", {"question": "canoe"}), seen=seen
        )
        agent = Agent(calls, toolsets=[mine, GraphMemToolset(other, id="team").prefixed("team")])
        found = parts(agent.run_sync("go").all_messages(), ToolReturnPart)
        assert [part.content["memories"][0]["id"] for part in found] == ["o1", "b"]
        names = [tool.name for tool in seen[0].function_tools]
        assert names == ["recall", *(f"team_{name}" for name in NAMES)]


def test_bad_arguments(memory: Memory) -> None:
    with pytest.raises(InputError, match="memory: expected a path or a `Memory`"):
        GraphMemToolset(3)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected no options with a memory that is open"):
        GraphMemToolset(memory, embedder="hashing")
