"""`aadd`, `aretrieve`, `acompile` and `aanswer`: many at once give what one after another gives."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.memory import Added
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from tests.memories import QUESTIONS, opened, plain, turns


def test_many_tasks_get_the_answers_of_one_caller() -> None:
    where = {"speaker": "Ada"}
    with opened() as memory:
        memory.add(turns())
        results = memory.retrieve(QUESTIONS, k=5, where=where)
        contexts = [memory.compile(each, budget=200, tokenizer=len) for each in QUESTIONS]

        async def ask(number: int) -> None:
            question = QUESTIONS[number % 3]
            result = await memory.aretrieve(question, k=5, where=where)
            context = await memory.acompile(question, budget=200, tokenizer=len)
            assert plain([result]) == plain([results[number % 3]])
            assert context.text == contexts[number % 3].text

        async def run() -> None:
            await asyncio.gather(*map(ask, range(6)))
            both = await memory.acompile(QUESTIONS[:2], budget=[100, 200], tokenizer=len)
            assert [curve[1].text for curve in both] == [made.text for made in contexts[:2]]

        asyncio.run(run())


def test_many_tasks_add_side_by_side() -> None:
    atoms = turns(48)

    async def run() -> list[Added]:
        adding = [memory.aadd(atoms[i : i + 4], session="s") for i in range(0, 48, 4)]
        asking = [memory.aretrieve(QUESTIONS) for _ in range(4)]
        return (await asyncio.gather(*adding, *asking))[:12]

    with opened() as memory:
        assert asyncio.run(run()) == [Added(4, 0)] * 12
        assert memory.get([atom.id for atom in atoms]) == atoms
        assert memory.check() == []


def test_cancelled_add_leaves_the_store_whole() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    class Waiting(HashingEmbedder):
        def encode(self, *arguments: Any, **options: Any) -> Encoded:
            begun.set()
            cancelled.wait()
            return super().encode(*arguments, **options)

    async def run() -> None:
        adding = asyncio.create_task(memory.aadd(turns(40)))
        await asyncio.to_thread(begun.wait)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        cancelled.set()

    with opened(embedder=Waiting(32)) as memory:
        asyncio.run(run())  # waits for its threads
        assert len(memory) == 40 and memory.check() == []
        assert memory.add(turns(40)) == Added(0, 40)


def test_answers_of_functions_that_are_async_and_not() -> None:
    prompts: list[Any] = []

    async def model(prompt: Any) -> str:
        prompts.append((prompt, asyncio.get_running_loop()))
        await asyncio.sleep(0)
        return "On the lake [1]."

    async def fails(prompt: Any) -> str:
        raise ConnectionError("gone")

    async def run() -> None:
        found = await memory.aanswer(QUESTIONS[0], llm=model, budget=200)
        assert (found.text, found.cited) == ("On the lake [1].", found.context.sources[:1])
        assert prompts == [(found.context.text, asyncio.get_running_loop())]
        two = await memory.aanswer(QUESTIONS[:2], llm=lambda prompt: "yes", budget=200)
        assert [answer.text for answer in two] == ["yes", "yes"]
        lost = await memory.aanswer(QUESTIONS[0], llm=fails, budget=200)
        assert lost.error == "ConnectionError: gone"
        with pytest.raises(InputError, match="expected a question"):
            await memory.aretrieve(" ")

    with opened() as memory:
        memory.add(turns())
        asyncio.run(run())
