"""`aadd`, `aretrieve`, `acompile` and `aanswer`: many at once give what one after another gives."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
import threading
from typing import Any

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.memory import Added, Layout
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from tests.memories import QUESTIONS, opened, plain, turns


def test_many_tasks_get_the_answers_of_one_caller() -> None:
    where = {"speaker": "Ada"}
    with opened() as memory:
        memory.add(turns())
        results = memory.retrieve(QUESTIONS, k=5, where=where)
        contexts = [
            memory.compile(each, budget=200, layout=Layout(tokenizer=len)) for each in QUESTIONS
        ]

        async def ask(number: int) -> None:
            question = QUESTIONS[number % 3]
            result = await memory.aio.retrieve(question, k=5, where=where)
            context = await memory.aio.compile(question, budget=200, layout=Layout(tokenizer=len))
            assert plain([result]) == plain([results[number % 3]])
            assert context.text == contexts[number % 3].text

        async def run() -> None:
            await asyncio.gather(*map(ask, range(6)))
            both = await memory.aio.compile(
                QUESTIONS[:2], budget=[100, 200], layout=Layout(tokenizer=len)
            )
            assert [curve[1].text for curve in both] == [made.text for made in contexts[:2]]

        asyncio.run(run())


def test_many_tasks_add_side_by_side() -> None:
    atoms = turns(48)

    async def run() -> list[Added]:
        adding = [memory.aio.add(atoms[i : i + 4], session="s") for i in range(0, 48, 4)]
        asking = [memory.aio.retrieve(QUESTIONS) for _ in range(4)]
        return (await asyncio.gather(*adding, *asking))[:12]

    with opened() as memory:
        assert asyncio.run(run()) == [Added(4, 0)] * 12
        assert memory.get([atom.id for atom in atoms]) == atoms
        assert memory.check() == []


@pytest.mark.parametrize("several", [False, True])
def test_cancelled_answer_cancels_the_model(several: bool, caplog: Any) -> None:
    """It is told so, no further question is asked, and nobody is told of an answer that is lost."""
    asked: list[str] = []
    ended: list[str] = []

    async def model(prompt: str) -> str:
        asked.append(prompt)
        try:
            await asyncio.sleep(3600)
        except asyncio.CancelledError:
            ended.append("cancelled")
            raise
        return "never"

    async def run() -> None:
        answering = asyncio.create_task(
            memory.aio.answer(QUESTIONS if several else QUESTIONS[0], llm=model, budget=500)
        )
        while not asked:
            await asyncio.sleep(0.01)
        answering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await answering
        while not ended:
            await asyncio.sleep(0.01)

    with opened() as memory:
        memory.add(turns())
        asyncio.run(run())
        assert (len(asked), ended, caplog.text) == (1, ["cancelled"], "")
        assert memory.answer(QUESTIONS[0], llm=lambda prompt: "again", budget=500).text == "again"


def test_an_interrupted_answer_cancels_the_model() -> None:
    ended: list[str] = []

    async def model(prompt: str) -> str:
        threading.Timer(0.1, os.kill, [os.getpid(), signal.SIGINT]).start()
        try:
            await asyncio.sleep(60)
        finally:
            ended.append("cancelled")
        return "never"

    # What runs in the background of a shell ignores the signal.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with opened() as memory:
            memory.add(turns())
            with pytest.raises(KeyboardInterrupt):
                memory.answer(QUESTIONS, llm=model, budget=500)
            assert ended == ["cancelled"]
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_model_that_gives_up_costs_its_answer_alone() -> None:
    async def model(prompt: str) -> str:
        if QUESTIONS[0] in prompt:
            raise asyncio.CancelledError
        return "said"

    async def run() -> list[Any]:
        answers = await memory.aio.answer(QUESTIONS[:2], llm=model, budget=500)
        return [(each.text, bool(each.error)) for each in answers]

    with opened() as memory:
        memory.add(turns())
        assert asyncio.run(run()) == [(None, True), ("said", False)]


def test_cancelled_add_leaves_the_store_whole() -> None:
    begun, cancelled = threading.Event(), threading.Event()

    class Waiting(HashingEmbedder):
        def encode(self, *arguments: Any, **options: Any) -> Encoded:
            begun.set()
            cancelled.wait()
            return super().encode(*arguments, **options)

    async def run() -> None:
        adding = asyncio.create_task(memory.aio.add(turns(40)))
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
        found = await memory.aio.answer(QUESTIONS[0], llm=model, budget=200)
        assert (found.text, found.cited) == ("On the lake [1].", found.context.sources[:1])
        assert prompts == [(found.context.text, asyncio.get_running_loop())]
        two = await memory.aio.answer(QUESTIONS[:2], llm=lambda prompt: "yes", budget=200)
        assert [answer.text for answer in two] == ["yes", "yes"]
        lost = await memory.aio.answer(QUESTIONS[0], llm=fails, budget=200)
        assert lost.error == "ConnectionError: gone"
        with pytest.raises(InputError, match="expected a question"):
            await memory.aio.retrieve(" ")

    with opened() as memory:
        memory.add(turns())
        asyncio.run(run())


class _Kinds:
    """Everything that may stand for an async function from a prompt to a text."""

    @staticmethod
    async def function(prompt: str) -> str:
        await asyncio.sleep(0)
        return f"by {prompt.splitlines()[0][:6]}"

    async def __call__(self, prompt: str) -> str:
        return await self.function(prompt)


class _Client:
    async def complete(self, messages: list[dict[str, str]]) -> str:
        await asyncio.sleep(0)
        return f"of {len(messages)}"


class _Many(_Client):
    async def complete_all(self, prompts: list[list[dict[str, str]]]) -> list[str]:
        await asyncio.sleep(0)
        return [f"one of {len(prompts)}" for _ in prompts]


ASYNC = {
    "function": _Kinds.function,
    "object": _Kinds(),
    "partial": functools.partial(_Kinds.function),
    "lambda": lambda prompt: _Kinds.function(prompt),
    "client": _Client(),
    "client of many": _Many(),
}


@pytest.mark.parametrize("kind", ASYNC)
def test_async_models_answer_whoever_asks(kind: str) -> None:
    llm: Any = ASYNC[kind]
    with opened() as memory:
        memory.add(turns())
        alone = [answer.text for answer in memory.answer(QUESTIONS, llm=llm)]
        assert all(alone) and memory.answer(QUESTIONS[0], llm=llm).error is None

        async def run() -> list[str | None]:
            inside = memory.answer(QUESTIONS[0], llm=llm)  # in a thread that has a loop, too
            assert inside.text
            return [answer.text for answer in await memory.aio.answer(QUESTIONS, llm=llm)]

        assert asyncio.run(run()) == alone


def test_async_answers_of_one_call_share_a_loop_and_that_of_the_caller() -> None:
    loops: list[Any] = []

    async def llm(prompt: str) -> str:
        loops.append(asyncio.get_running_loop())
        return "yes"

    async def verify(questions: list[str], texts: list[str]) -> list[bool]:
        loops.append(asyncio.get_running_loop())
        return [True] * len(questions)

    with opened() as memory:
        memory.add(turns())
        memory.answer(QUESTIONS, llm=llm, oracle=verify)
        assert len({id(loop) for loop in loops}) == 1 and loops[0].is_closed()
        loops.clear()

        async def run() -> None:
            await memory.aio.answer(QUESTIONS, llm=llm, oracle=verify)
            assert loops and all(loop is asyncio.get_running_loop() for loop in loops)

        asyncio.run(run())


def test_an_async_model_that_fails_costs_its_answer() -> None:
    async def llm(prompt: str) -> str:
        raise OSError("no route")

    with opened() as memory:
        memory.add(turns())
        answer = memory.answer(QUESTIONS[0], llm=llm)
        assert answer.text is None and answer.error == "OSError: no route"
