"""`Memory.answer`: from a question through a prompt to what a language model says."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from graphmem_torch.config import load_config
from graphmem_torch.context.summarise import Summaries
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Layout, Memory, Scope
from graphmem_torch.text.embedder import HashingEmbedder
from tests.memories import config_of, opened, turns

pytest.importorskip("bpe_openai")

QUESTION = "Where is the canoe?"


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with opened() as made:
        made.add(turns())
        yield made


class Model:
    """A function that remembers its prompts."""

    def __init__(self, answer: str = "On the lake [1, 3], not [99].") -> None:
        self.answer, self.prompts = answer, []  # type: ignore[var-annotated]

    def __call__(self, prompt: Any) -> str:
        self.prompts.append(prompt)
        return self.answer


class Client:
    """A client with `complete`, and with `complete_all` where it is asked for."""

    def __init__(self, answers: Any = None) -> None:
        self.one, self.prompts = Model("yes"), []  # type: ignore[var-annotated]
        self.complete = self.one
        if answers is not None:
            self.complete_all = lambda prompts: self.prompts.extend(prompts) or answers  # type: ignore[func-returns-value]


def test_answer_of_a_function_to_context_and_question(memory: Memory) -> None:
    model = Model()
    found = memory.answer(QUESTION, llm=model, budget=120)
    assert found.text == model.answer
    assert found.error is None
    assert model.prompts == [found.context.text]
    assert found.context.tokens <= 120
    assert found.context.text.endswith(f"Question: {QUESTION}\nAnswer:")
    assert found.cited == (found.context.sources[0], found.context.sources[2])
    assert found.as_dict()["cited"] == list(found.cited)


@pytest.mark.parametrize("format", ["openai", "anthropic"])
def test_answer_of_a_chat_to_messages(memory: Memory, format: Any) -> None:
    model = Model()
    found = memory.answer(QUESTION, llm=model, budget=120, layout=Layout(format=format))
    assert [m["role"] for m in model.prompts[0]] == ["system", "user"]
    assert QUESTION in model.prompts[0][1]["content"]
    assert found.context.tokens <= 120


@pytest.mark.parametrize("format", ["text", "markdown", "json"])
def test_answer_asks_the_question_in_every_text_format(memory: Memory, format: Any) -> None:
    model = Model()
    memory.answer(QUESTION, llm=model, budget=150, layout=Layout(format=format))
    assert QUESTION in model.prompts[0]


def test_client_is_asked_by_its_method(memory: Memory) -> None:
    client = Client()
    found = memory.answer([QUESTION, "And the violin?"], llm=client, budget=120)
    assert [each.text for each in found] == ["yes", "yes"]
    assert len(client.one.prompts) == 2
    assert client.one.prompts[0][-1]["role"] == "user"


def test_client_that_takes_many_is_asked_once(memory: Memory) -> None:
    client = Client(["one", None])
    found = memory.answer([QUESTION, "And the violin?"], llm=client, budget=120)
    assert [each.text for each in found] == ["one", None]
    assert found[1].error == "expected a text, got None"
    assert len(client.prompts) == 2
    assert not client.one.prompts


@pytest.mark.parametrize("answers", [["only one"], 5])
def test_client_whose_answers_do_not_fit(memory: Memory, answers: Any) -> None:
    found = memory.answer([QUESTION, "And the violin?"], llm=Client(answers), budget=120)
    assert [each.text for each in found] == [None, None]
    assert all(each.error and each.context.sources for each in found)


def _fails(prompt: Any) -> str:
    raise ConnectionError("gone")


@pytest.mark.parametrize(
    ("llm", "error"),
    [
        (_fails, "ConnectionError: gone"),
        (lambda prompt: None, "expected a text, got None"),
        (lambda prompt: " \n", "expected a text, got ' "),
        (lambda prompt: {"text": "x"}, "expected a text, got {'text'"),
    ],
)
def test_answer_is_all_that_a_failing_model_costs(
    memory: Memory, llm: Callable[[Any], Any], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = memory.answer(QUESTION, llm=llm, budget=120)
    assert found.text is None
    assert found.error is not None and found.error.startswith(error)
    assert found.context.sources and found.cited == ()
    assert error in caplog.text
    assert memory.retrieve(QUESTION).hits


def test_one_error_of_many_questions_is_told_once(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    def llm(prompt: str) -> str:
        raise ConnectionError("gone") if "Who" in prompt else TimeoutError("late")

    with caplog.at_level(logging.WARNING):
        memory.answer(["Who is it?", "Where?", "Who was it?", "Who?"], llm=llm, budget=120)
    assert [record.getMessage() for record in caplog.records] == [
        "No answer to 'Who is it?' and 2 more: ConnectionError: gone",
        "No answer to 'Where?': TimeoutError: late",
    ]


@pytest.mark.parametrize("llm", ["gpt", None, 3])
def test_answer_by_what_cannot_be_asked(memory: Memory, llm: Any) -> None:
    with pytest.raises(InputError, match="llm: expected a function from a prompt to a text"):
        memory.answer(QUESTION, llm=llm)


def test_template_must_ask(memory: Memory) -> None:
    model = Model()
    memory.answer(
        QUESTION, llm=model, budget=90, layout=Layout(template="Notes:\n{context}\n\nQ: {question}")
    )
    assert model.prompts[0].startswith("Notes:\n")
    assert model.prompts[0].endswith(f"\n\nQ: {QUESTION}")
    with pytest.raises(InputError, match=r"expected the field \{question\}"):
        memory.answer(QUESTION, llm=model, layout=Layout(template="Notes: {context}"))
    with pytest.raises(InputError, match=r"did you mean '\{question\}'"):
        memory.answer(QUESTION, llm=model, layout=Layout(template="{context} {questions}"))
    with pytest.raises(InputError, match=r"expected at least the \d+ tokens"):
        memory.answer(QUESTION, llm=model, budget=3)
    assert len(model.prompts) == 1


def test_template_of_a_system_message_leaves_the_question(memory: Memory) -> None:
    found = memory.answer(
        QUESTION, llm=Model(), layout=Layout(format="openai", template={"system": "Be brief."})
    )
    assert [m["role"] for m in found.context.messages] == ["system", "user"]
    assert found.context.messages[1]["content"].endswith(QUESTION)


@pytest.mark.parametrize(
    "wrong",
    [{"layout": Layout(template=cast(Any, wrong))} for wrong in (5, ["{context}"])]
    + [{"budget": [9]}],
)
def test_answer_to_arguments_of_another_kind(memory: Memory, wrong: dict[str, Any]) -> None:
    with pytest.raises(InputError, match="template" if "layout" in wrong else "budget"):
        memory.answer(QUESTION, llm=Model(), **wrong)


def test_answer_of_an_empty_store_and_to_no_question() -> None:
    with opened() as memory:
        model = Model()
        assert memory.answer(QUESTION, llm=model).context.sources == ()
        assert memory.answer([], llm=model) == []
        with pytest.raises(InputError, match="expected a question"):
            memory.answer(" ", llm=model)


def document() -> str:
    return "\n\n".join(
        f"Chapter {i} tells of a {word}. The {word} was old. Nobody saw the {word} again."
        for i, word in enumerate(["canoe", "comet", "violin", "harbour", "bakery", "garden"] * 4)
    )


def segments(**overrides: Any) -> Memory:
    config = load_config(
        "sgrm",
        {
            "embedder.max_tokens": 30,
            "link.min_similarity": 0.05,
            **overrides,
        },
    )
    memory = Memory.open(config=config, embedder=HashingEmbedder(64))
    memory.add_document(document(), name="book")
    return memory


def test_segment_graph_answers_in_the_order_of_the_document() -> None:
    with segments() as memory:
        model = Model()
        found = memory.answer("What of the harbour in chapter 3?", llm=model, budget=300)
        places = [int(i.partition("#")[2]) for i in found.context.sources]
        assert places == sorted(places) and len(places) > 2
        reached = {
            hit.id for hit in memory.retrieve("What of the harbour in chapter 3?", k=99).hits
        }
        assert set(found.context.sources) <= reached
        assert "harbour" in model.prompts[0]


def test_summaries_make_room_for_more_chunks() -> None:
    question = "Which canoe was old?"
    with segments() as memory:
        whole = memory.compile(question, budget=150)
        short = memory.compile(question, budget=150, layout=Layout(shorten=Summaries(0.4)))
        assert len(short.sources) > len(whole.sources)
        assert whole.tokens <= 150 and short.tokens <= 150
        every = memory.compile(question, budget=150, layout=Layout(shorten=Summaries(1.0)))
        assert every.text == whole.text


def test_chunks_are_counted_by_a_named_tokenizer() -> None:
    import bpe_openai

    encode = bpe_openai.get_encoding("o200k_base").encode_ordinary
    with segments(
        **{"embedder.chunk_tokenizer": "o200k_base", "embedder.max_tokens": 20}
    ) as memory:
        node = memory.store.columns().node.tolist()
        texts = [atom.text for atom in memory.store.atoms(node)]
        assert "".join(texts) == document()
        assert 15 < max(len(encode(text)) for text in texts) <= 20
    with (
        Memory.open(
            config=load_config("sgrm", {"embedder.chunk_tokenizer": "o200k"}),
            embedder=HashingEmbedder(64),
        ) as memory,
        pytest.raises(InputError, match="expected a tokenizer"),
    ):
        memory.add_document("text", name="book")


class Checker:
    """A second check that says what it was made with, and remembers what it was asked."""

    def __init__(self, said: Any) -> None:
        self.said, self.asked = said, []  # type: ignore[var-annotated]

    def verify(self, questions: Any, texts: Any) -> Any:
        self.asked += list(zip(questions, texts, strict=True))
        if isinstance(self.said, Exception):
            raise self.said
        return self.said


def gated(threshold: float) -> Memory:
    made = opened(config=config_of(**{"gate.threshold": threshold}))
    made.add(turns())
    return made


def test_answer_behind_a_second_check() -> None:
    asked = [QUESTION, "Who sang?"]
    with gated(0.0) as memory:
        model, checker = Model(), Checker([True, False])
        first, second = memory.answer(asked, llm=model, oracle=checker)
        assert first.text == model.answer and first.context.known
        assert second.text is None and not second.context.known
        assert "no record" in (second.error or "") and second.cited == ()
        assert model.prompts == [first.context.text]
        assert checker.asked == [
            (q, a.context.text) for q, a in zip(asked, (first, second), strict=True)
        ]
        # A plain function does, too.
        assert memory.answer(QUESTION, llm=model, oracle=lambda q, t: [False]).text is None


@pytest.mark.parametrize("said", [RuntimeError("down"), [True], None, ["yes", 1], [True] * 9])
def test_answer_behind_a_second_check_that_fails(
    said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with gated(0.0) as memory, caplog.at_level(logging.WARNING):
        found = memory.answer([QUESTION, "Who sang?"], llm=Model(), oracle=Checker(said))
    assert all(answer.text is not None and answer.context.known for answer in found)
    assert "the gate alone decides" in caplog.text


def test_answer_of_what_the_gate_refuses_is_not_checked() -> None:
    with gated(1.0) as memory:
        model, checker = Model(), Checker([])
        found = memory.answer(QUESTION, llm=model, oracle=checker)
        assert found.text is None and model.prompts == checker.asked == []
        assert memory.answer(QUESTION, llm=model).text is not None  # without an oracle, as before
        with pytest.raises(InputError, match="verify"):
            memory.answer(QUESTION, llm=model, oracle=7)


@pytest.mark.parametrize("moments", [1, 2])
def test_retrieve_behind_a_second_check(moments: int) -> None:
    """One call for all questions, moments and namespaces; the gate refuses the last unasked."""
    times: Any = [2e9, 3e9][:moments]
    said = [True, False] if moments == 1 else [True, None, False, True]
    with gated(0.0) as memory:
        memory.namespaces.create("own").add(turns())
        memory.namespaces.create("empty")
        asked = [QUESTION, "Who sang?", QUESTION]
        before = memory.at(as_of=times).retrieve(asked[:2], k=3)
        checker = Checker(said)
        calls: list[int] = []

        def verify(questions: Any, texts: Any) -> Any:
            calls.append(len(questions))
            return checker.verify(questions, texts)

        names = ["own", "own", "empty"]
        found = memory.at(as_of=times).retrieve(
            asked, scope=Scope(namespaces=names), k=3, oracle=verify, trace=True
        )
    assert calls == [2 * moments]
    every = [result for each in found[:2] for result in each]
    plain = [result for each in before for result in each]
    assert [r.verified for r in every] == said
    assert [r.known for r in every] == [answer is not False for answer in said]
    assert [r.hits for r in every] == [r.hits for r in plain]
    assert checker.asked == [(r.question, "\n\n".join(hit.text for hit in r.hits)) for r in every]
    assert all("verify" in r.trace.seconds for r in every)  # type: ignore[union-attr]
    assert all(not r.known and r.verified is None for r in found[2])
    assert "verified" not in plain[0].as_dict() and every[0].as_dict()["verified"] is True


@pytest.mark.parametrize("said", [RuntimeError("down"), [True], None, ["yes", 1]])
def test_retrieve_behind_a_second_check_that_fails(
    said: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with gated(0.0) as memory, caplog.at_level(logging.WARNING):
        found = memory.retrieve([QUESTION, "Who sang?"], oracle=Checker(said))
        assert all(result.known and result.verified is None for result in found)
        assert "the gate alone decides" in caplog.text
        with pytest.raises(InputError, match="verify"):
            memory.retrieve(QUESTION, oracle=7)
