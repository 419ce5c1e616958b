"""The retriever and the memory block inside LlamaIndex."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.core", reason="pip install 'graphmem-torch[llama-index]'")

from llama_index.core.base.llms.types import (
    ChatMessage,
    CitableBlock,
    ImageBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
)
from llama_index.core.llms import MockLLM
from llama_index.core.memory import InsertMethod
from llama_index.core.memory import Memory as ChatMemory
from llama_index.core.query_engine import RetrieverQueryEngine
from llama_index.core.schema import MetadataMode, QueryBundle
from pydantic import ValidationError

from graphmem_torch import InputError, Memory
from graphmem_torch.integrations.llama_index import GraphMemBlock, GraphMemRetriever
from graphmem_torch.text.tokens import count_tokens

FACTS: list[dict[str, Any]] = [
    {
        "id": "a",
        "text": "Bertrand restores old deck ovens.",
        "speaker": "Theo",
        "session": "s1",
        "time": "2024-02-04T10:00Z",
        "meta": {"page": 3, "kind": "mine"},
    },
    {"id": "b", "text": "The conference is in Lisbon.", "title": "Plans", "kind": "chunk"},
    {"id": "c", "text": "The canoe is red.", "session": "s2"},
]


def tokens(text: str) -> list[int]:
    """The default tokenizer of LlamaIndex, which would be loaded from the network."""
    return [0] * count_tokens([text])[0]


def words(text: str) -> list[str]:
    """A tokenizer that needs no file."""
    return text.split()


@pytest.fixture
def memory() -> Iterator[Memory]:
    with Memory.open(embedder="hashing", concepts="pattern") as made:
        made.add(FACTS)
        yield made


def test_retriever_gives_the_hits_of_the_memory(memory: Memory) -> None:
    retriever = GraphMemRetriever(memory, k=2)
    for question in ("Who restores ovens?", "Where is the conference?", "canoe"):
        hits = memory.retrieve(question, k=2).hits
        for found in (
            retriever.retrieve(question),
            retriever.retrieve(QueryBundle(question)),
            asyncio.run(retriever.aretrieve(question)),
        ):
            assert [(n.node_id, n.text, n.score) for n in found] == [
                (hit.id, hit.text, hit.score) for hit in hits
            ]
    node = retriever.retrieve("Who restores ovens?")[0].node
    assert node.metadata == {
        "page": 3,
        "kind": "turn",
        "speaker": "Theo",
        "session": "s1",
        "time": "2024-02-04T10:00:00+00:00",
    }
    assert "Bertrand" in node.get_content(MetadataMode.LLM)


def test_retriever_answers_in_a_query_engine(memory: Memory) -> None:
    engine = RetrieverQueryEngine.from_args(GraphMemRetriever(memory, k=1), llm=MockLLM())
    answer = engine.query("Where is the conference?")
    assert [node.node_id for node in answer.source_nodes] == ["b"]
    assert "Lisbon" in str(answer), "MockLLM repeats its prompt"


def test_retriever_filters_and_abstains(memory: Memory) -> None:
    only = GraphMemRetriever(memory, where={"session": "s2"})
    assert [node.node_id for node in only.retrieve("Who restores ovens?")] == ["c"]
    asked = "What is the salary of Quentin in Zurich?"
    known = memory.retrieve(asked).known
    assert len(GraphMemRetriever(memory, known_only=True).retrieve(asked)) == (
        0 if known is False else 3
    )
    assert GraphMemRetriever(memory).retrieve(asked)


def test_retriever_of_a_folder(tmp_path: Path) -> None:
    with GraphMemRetriever(tmp_path, embedder="hashing", concepts="pattern") as retriever:
        assert retriever.retrieve("anything") == []
        retriever.memory.add(FACTS)
        assert retriever.retrieve("canoe")[0].node_id == "c"
    assert retriever.memory.store.closed


def chat(block: GraphMemBlock, session: str = "monday", **options: Any) -> ChatMemory:
    given: dict[str, Any] = {
        "token_limit": 60,
        "chat_history_token_ratio": 0.5,
        "token_flush_size": 10,
    }
    given |= {"session_id": session, "memory_blocks": [block], "tokenizer_fn": words}
    return ChatMemory.from_defaults(**{**given, **options})


def said(role: str, text: str) -> ChatMessage:
    return ChatMessage(role=role, content=text)


TALK = [
    ("user", "The oven was restored by Bertrand in the spring of last year."),
    ("assistant", "Good to know, I will keep that in mind for later questions."),
    ("user", "My sister keeps bees behind the old mill near the river."),
    ("assistant", "Bees are wonderful animals, how many hives does she have there?"),
    ("user", "Seven hives, and she sells the honey on Saturdays in town."),
    ("assistant", "That sounds like a busy weekend for her and the bees."),
]


@pytest.mark.parametrize("method", list(InsertMethod))
def test_what_leaves_the_short_memory_returns_in_the_prompt(method: InsertMethod) -> None:
    with GraphMemBlock(embedder="hashing", concepts="pattern", budget=40) as block:
        memory = chat(block, insert_method=method)
        for role, text in TALK:
            memory.put(said(role, text))
        history = [message.content for message in memory.get_all(status=None)]
        active = "\n".join(m.content or "" for m in memory.get() if "<memory>" not in str(m))
        assert len(block.memory) >= 2, "the oldest messages have left"
        assert {atom.session for atom in block.memory} == {"monday"}
        assert next(iter(block.memory)).speaker == "user"
        memory.put(said("user", "Who restored the oven?"))
        prompt = memory.get()
        text = "\n".join(message.content or "" for message in prompt)
        assert "Bertrand" in text and "<long_term_memory>" in text
        assert prompt[-1].role == "user" and "Who restored the oven?" in (prompt[-1].content or "")
        assert "Bertrand" not in active and any("Bertrand" in (each or "") for each in history)


def test_block_of_other_sessions() -> None:
    with Memory.open(embedder="hashing", concepts="pattern") as memory:
        monday = chat(GraphMemBlock(memory), "monday")
        for role, text in TALK:
            monday.put(said(role, text))
        question = [said("user", "Who restored the oven?")]
        every, own = GraphMemBlock(memory), GraphMemBlock(memory, own_session=True)

        def content(block: GraphMemBlock, session: str) -> str:
            return asyncio.run(block.aget(question, session_id=session))

        assert "Bertrand" in content(every, "tuesday")
        assert "Bertrand" in content(own, "monday")
        assert "Bertrand" not in content(own, "tuesday")
        assert asyncio.run(own.aget(question)) == ""  # a call without a session sees none
        assert asyncio.run(every.aget([])) == "" == asyncio.run(every.aget(None))
        assert asyncio.run(every.aget([said("assistant", "Hm.")])) == ""


OVENS = [
    f"Bertrand restored the {size} oven of the bakery." for size in ("old", "new", "red", "big")
]
QUESTION = "Which oven of the bakery was restored by Bertrand?"


def test_block_is_shortened_by_tokens(memory: Memory) -> None:
    memory.add(OVENS)
    block = GraphMemBlock(memory, priority=1, budget=200)
    content = asyncio.run(block.aget([said("user", QUESTION)]))
    whole = memory.compile(QUESTION, budget=200)
    assert content == whole.text and len(whole.sources) > 2
    for less in (1, 12, 25):
        short = asyncio.run(block.atruncate(content, less))
        assert short == memory.compile(QUESTION, budget=whole.tokens - less * 9 // 8).text
        assert "Bertrand" in short and len(short) < len(content)
    twice = asyncio.run(block.atruncate(short, 5))
    assert twice is None or len(twice) < len(short)
    assert asyncio.run(block.atruncate(content, whole.tokens)) is None
    assert asyncio.run(block.atruncate("something else", 3)) is None


def test_priority_decides_whether_a_block_is_shortened(memory: Memory) -> None:
    memory.add(OVENS)
    for priority in (0, 1):
        block = GraphMemBlock(memory, priority=priority, budget=500)
        talk = chat(block, token_limit=58, tokenizer_fn=tokens)
        talk.put(said("user", QUESTION))
        prompt = "\n".join(message.content or "" for message in talk.get())
        shown = sum(text in prompt for text in OVENS)
        assert shown == 4 if priority == 0 else 0 < shown < 4


def test_messages_of_every_kind() -> None:
    with GraphMemBlock(embedder="hashing", concepts="pattern") as block:
        blocks = [
            ChatMessage(role="user", blocks=[TextBlock(text="one"), TextBlock(text="two")]),
            ChatMessage(
                role="assistant",
                blocks=[ToolCallBlock(tool_name="weather", tool_kwargs={"city": "Lisbon"})],
                additional_kwargs={"tool_calls": [{"function": {"name": "weather"}}]},
            ),
            ChatMessage(role="tool", content="21 C", additional_kwargs={"name": "weather"}),
            ChatMessage(role="user", blocks=[ImageBlock(url="http://localhost/a.png")]),
            ChatMessage(role="user", content=""),
            ChatMessage(role="assistant", blocks=[ThinkingBlock(content="a thought")]),
            ChatMessage(
                role="user",
                blocks=[CitableBlock(title="t", source="s", content=[TextBlock(text="cited")])],
            ),
            ChatMessage(role="user", content=None),
        ]
        asyncio.run(block.aput(blocks, from_short_term_memory=True, session_id="s"))
        assert [(atom.speaker, atom.text) for atom in block.memory] == [
            ("user", "one\ntwo"),
            ("assistant", "weather(city: Lisbon)"),
            ("weather", "21 C"),
            ("assistant", "a thought"),
            ("user", "cited"),
        ]
        assert block.memory.check() == []
        closed = GraphMemBlock(block.memory, accept_short_term_memory=False)
        asyncio.run(closed.aput(blocks, from_short_term_memory=True))
        assert len(block.memory) == 5


def test_bad_arguments(memory: Memory) -> None:
    for make in (GraphMemRetriever, GraphMemBlock):
        with pytest.raises(InputError, match="memory: expected a path or a `Memory`"):
            make(3)
        with pytest.raises(InputError, match="expected no options with a memory that is open"):
            make(memory, embedder="hashing")
    for k in (0, True, "3"):
        with pytest.raises(InputError, match="k: expected"):
            GraphMemRetriever(memory, k=k)  # type: ignore[arg-type]
    for budget in (0, -3, "much"):
        with pytest.raises(ValidationError, match="budget"):
            GraphMemBlock(memory, budget=budget)  # type: ignore[arg-type]
    with pytest.raises(InputError):
        GraphMemRetriever(memory).retrieve("")
    with pytest.raises(InputError, match="where"):
        GraphMemRetriever(memory, where={"page": {"$near": 3}}).retrieve("x")
    with pytest.raises(InputError):
        asyncio.run(GraphMemRetriever(memory).aretrieve(" "))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "got an empty text; leave the message out"),
        ("   ", "got an empty text; leave the message out"),
        ("\n\t", "got an empty text; leave the message out"),
        ([], "got []; leave the message out"),
        (None, "got []; leave the message out"),
        ([TextBlock(text="")], "got an empty text; leave the message out"),
        ([TextBlock(text=""), TextBlock(text=" ")], "got an empty text; leave the message out"),
        ([ImageBlock(url="https://example.org/a.png")], "got image; leave the message out, or say"),
        ([TextBlock(text=""), ImageBlock(url="https://example.org/a.png")], "got image; leave"),
        (
            [CitableBlock(title="", source="", content=[TextBlock(text="")])],
            "leave the message out",
        ),
    ],
)
def test_the_warning_of_a_message_without_text(
    content: Any, message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with GraphMemBlock(embedder="hashing") as block:
        said = [ChatMessage(role="user", content=content), ChatMessage(role="user", content="Hi!")]
        asyncio.run(block._aput(said))
        assert len(block.memory) == 1
    (line,) = [each.getMessage() for each in caplog.records if "not stored" in each.getMessage()]
    assert "message 1: content: expected text, or parts with text, " + message in line or (
        message in line and "content: expected text" in line
    )
    assert "got text" not in line and "x text" not in line
