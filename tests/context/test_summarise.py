"""Summaries: extracts, what is asked for them, and what becomes of useless answers."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.context.summarise import HuggingFaceSummariser, Summaries, extract, shortened
from graphmem_torch.errors import InputError
from graphmem_torch.oracle import OpenAIClient, OpenAIOracle
from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.terms import terms
from graphmem_torch.text.tokens import get_counter
from tests.oracle.server import Exchange, ScriptedServer

pytest.importorskip("bpe_openai")

TEXTS = [
    "The keeper slept. A canoe sank near the pier. Nobody saw it. The comet shone all night.",
    "Ada plays the violin. She bought it in Oslo. It was old.",
    "Short.",
]
QUESTION = "Where did the canoe sink, and who bought a violin?"


def words(text: str) -> int:
    return len(text.split())


def test_extracts_hold_the_sentences_that_share_words_with_the_question() -> None:
    found = extract(TEXTS, QUESTION, [6, 5, 5], count=words)
    assert found == ["A canoe sank near the pier.", "Ada plays the violin.", "Short."]


def test_gaps_are_marked_and_order_is_kept() -> None:
    text = "The canoe was red. It rained. He ate. The canoe sank."
    found = extract([text], "canoe", 8, count=words)
    assert found == ["The canoe was red. … The canoe sank."]


def test_without_words_in_the_question_the_first_sentences_stand() -> None:
    assert extract([TEXTS[1]], "??", 9, count=words) == [
        "Ada plays the violin. She bought it in Oslo."
    ]


def test_a_rare_word_counts_for_more() -> None:
    text = "The canoe is here. The canoe is there. The canoe is new. A comet fell."
    assert extract([text], "canoe comet", 3, count=words) == ["A comet fell."]


def test_a_sentence_longer_than_the_limit_gives_its_first_words() -> None:
    assert extract(["one two three four five"], "five", 3, count=words) == ["one two three"]
    assert extract(["Unbreakable" * 9], "x", 1, count=len) == ["Unbreakable" * 9]


@given(
    st.lists(st.text(alphabet="aBc. \n!é", max_size=120), max_size=4),
    st.integers(1, 30),
    st.text(alphabet="aBc ", max_size=12),
)
def test_extracts_are_parts_of_their_texts_within_the_limit(
    texts: list[str], limit: int, question: str
) -> None:
    found = extract(texts, question, limit, count=words)
    assert found == extract(texts, question, limit, count=words)
    for text, short in zip(texts, found, strict=True):
        assert words(short) <= max(limit, 1) or short == text
        assert bool(short.strip()) == bool(text.strip())
        assert set(short.replace("…", " ").split()) <= set(text.split())


def test_the_best_sentence_by_a_loop() -> None:
    drawn = torch.randint(0, 8, (6, 5), generator=torch.Generator().manual_seed(1)).tolist()
    names = ["comet", "canoe", "violin", "harbour", "garden", "bakery", "saddle", "lamp"]
    texts = [" ".join(f"Some {names[w]} stood {i}." for w in row) for i, row in enumerate(drawn)]
    parts = [split_sentences(text) for text in texts]
    every = [frozenset(terms(part)) for part in itertools.chain.from_iterable(parts)]
    wanted = frozenset(terms("the comet, the lamp and the garden"))
    idf = {
        w: torch.tensor((len(every) - n + 0.5) / (n + 0.5)).log1p().item()
        for w in wanted
        for n in [sum(w in said for said in every)]
    }
    found = extract(texts, "the comet, the lamp and the garden", 4, count=words)
    for own, short in zip(parts, found, strict=True):
        value = [
            sum(idf[w] for w in frozenset(terms(p)) & wanted) / sum(idf.values()) + 0.1 / (i + 1)
            for i, p in enumerate(own)
        ]
        assert short == own[value.index(max(value))].strip()


def test_shares() -> None:
    assert Summaries(1.0)(QUESTION, TEXTS) == TEXTS
    halves = Summaries(0.5)(QUESTION, TEXTS)
    assert halves[0] == "A canoe sank near the pier."
    assert Summaries(0.5)(QUESTION, []) == []
    for share in (0.0, 1.5, -1, float("nan"), "half", None):
        with pytest.raises(InputError, match="share: expected more than 0 and at most 1"):
            Summaries(share)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="expected a tokenizer"):
        Summaries(tokenizer="cl100k")
    with pytest.raises(InputError, match="oracle: expected summarise"):
        Summaries(by="bart")  # type: ignore[arg-type]


class Fixed:
    """Summarises by a function, and remembers what it was asked."""

    def __init__(self, answer: Callable[[Sequence[str]], Any]) -> None:
        self.answer, self.asked = answer, []  # type: ignore[var-annotated]

    def summarise(self, texts: Sequence[str], question: str, max_tokens: int) -> Any:
        self.asked.append((list(texts), question, max_tokens))
        return self.answer(texts)


def test_what_summarises_is_told_the_question_and_the_limit() -> None:
    by = Fixed(lambda texts: ["canoe", " violin ", "Short."])
    assert Summaries(0.5, by=by)(QUESTION, TEXTS) == ["canoe", "violin", "Short."]
    assert by.asked == [(TEXTS, QUESTION, get_counter()(TEXTS[0]) // 2)]
    plain = Summaries(0.5, by=lambda texts, question, most: [t[:5] for t in texts])
    assert plain(QUESTION, TEXTS) == [text[:5] for text in TEXTS]


def _raises(texts: Sequence[str]) -> Any:
    raise TimeoutError("too slow")


@pytest.mark.parametrize(
    "answer",
    [
        _raises,
        lambda texts: None,
        lambda texts: 7,
        lambda texts: ["one"],
        lambda texts: itertools.repeat("x"),
        lambda texts: [None, "", 3],
        lambda texts: [text + text for text in texts],
        lambda texts: {"summary": "x"},
    ],
)
def test_useless_summaries_are_replaced_by_extracts(
    answer: Callable[[Sequence[str]], Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        found = Summaries(0.5, by=Fixed(answer))(QUESTION, TEXTS)
    assert found == Summaries(0.5)(QUESTION, TEXTS)


def test_one_useless_summary_costs_only_itself() -> None:
    by = Fixed(lambda texts: [None, "Ada plays.", None])
    assert Summaries(0.5, by=by)(QUESTION, TEXTS) == [
        "A canoe sank near the pier.",
        "Ada plays.",
        *Summaries(0.5)(QUESTION, TEXTS)[2:],
    ]


def test_an_oracle_summarises_and_may_be_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openai")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")

    def act(exchange: Exchange) -> None:
        if "Ada plays" in exchange.prompt:
            exchange.say("Ada has a violin.")
        else:
            exchange.fail(500)

    server = ScriptedServer(act)
    try:
        with OpenAIClient("m", base_url=server.url, retries=1, backoff=0.001) as client:
            found = Summaries(0.5, by=OpenAIOracle(client))(QUESTION, TEXTS)
    finally:
        server.close()
    assert found[1] == "Ada has a violin."
    assert [found[0], found[2]] == [Summaries(0.5)(QUESTION, TEXTS)[i] for i in (0, 2)]


@pytest.fixture(scope="module")
def tiny() -> tuple[Any, Any]:
    """A real T5, small and untrained, and its tokenizer."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast, T5Config, T5ForConditionalGeneration

    made = Tokenizer(models.WordLevel(unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Whitespace()
    special = ["<pad>", "</s>", "<unk>"]
    made.train_from_iterator(
        [*TEXTS, "summarize:"], trainers.WordLevelTrainer(special_tokens=special)
    )
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=made, pad_token="<pad>", eos_token="</s>", unk_token="<unk>"
    )
    torch.manual_seed(0)
    config = T5Config(
        vocab_size=len(tokenizer),
        d_model=16,
        d_kv=8,
        d_ff=16,
        num_layers=1,
        num_heads=2,
        decoder_start_token_id=0,
        pad_token_id=0,
        eos_token_id=1,
    )
    config.task_specific_params = {"summarization": {"prefix": "summarize: "}}
    return T5ForConditionalGeneration(config), tokenizer


def test_a_real_model_of_hugging_face(tiny: tuple[Any, Any]) -> None:
    model, tokenizer = tiny
    by = HuggingFaceSummariser(model, tokenizer=tokenizer, batch=2)
    found = by.summarise(TEXTS, QUESTION, 6)
    inputs = tokenizer([f"summarize: {TEXTS[0]}"], return_tensors="pt", return_token_type_ids=False)
    alone = model.generate(**inputs, max_new_tokens=6, do_sample=False)
    assert len(found) == 3
    assert found[0] == tokenizer.decode(alone[0], skip_special_tokens=True)
    assert all(len(tokenizer(text)["input_ids"]) <= 6 for text in found)
    assert by.summarise([], QUESTION, 6) == []
    # Whatever an untrained model says, the memory gets a text for each.
    assert all(Summaries(0.5, by=by)(QUESTION, TEXTS))


def test_a_model_in_a_folder(tiny: tuple[Any, Any], tmp_path: Any) -> None:
    model, tokenizer = tiny
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    loaded = HuggingFaceSummariser(str(tmp_path), device="cpu", prefix="summarize: ", beams=2)
    given = HuggingFaceSummariser(model, tokenizer=tokenizer, beams=2)
    assert loaded.summarise(TEXTS, "", 5) == given.summarise(TEXTS, "", 5)


def test_what_is_no_model(tiny: tuple[Any, Any], tmp_path: Any) -> None:
    with pytest.raises(InputError, match="model: expected the folder"):
        HuggingFaceSummariser(str(tmp_path / "none"))
    with pytest.raises(InputError, match="together with its tokenizer, got T5"):
        HuggingFaceSummariser(tiny[0])
    with pytest.raises(InputError, match="model: expected the name"):
        HuggingFaceSummariser(object(), tokenizer=tiny[1])
    with pytest.raises(InputError, match="expected at least 1, got 0 and 1"):
        HuggingFaceSummariser(tiny[0], tokenizer=tiny[1], batch=0)


WRITTEN = ["one two", "three four"]


def test_what_a_function_makes_is_taken() -> None:
    def first(question: str, texts: Sequence[str]) -> list[str]:
        return [f"{question}: {text.split()[0]}" for text in texts]

    assert shortened(first, "q", WRITTEN) == ["q: one", "q: three"]


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (["only one"], WRITTEN),
        ([], WRITTEN),
        (None, WRITTEN),
        (7, WRITTEN),
        (["a", None], ["a", "three four"]),
        (["a", "  "], ["a", "three four"]),
        ([1, "b"], ["one two", "b"]),
    ],
)
def test_what_it_makes_nothing_of_stays(
    made: Any, expected: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    assert shortened(lambda question, texts: made, "q", WRITTEN) == expected
    assert "written in full" in caplog.text


def test_what_fails_costs_nothing(caplog: pytest.LogCaptureFixture) -> None:
    def broken(question: str, texts: Sequence[str]) -> list[str]:
        raise RuntimeError("down")

    assert shortened(broken, "q", WRITTEN) == WRITTEN
    assert caplog.text.count("`shorten` failed") == 1
    assert "down" in caplog.text


def test_a_text_is_no_list_of_shortened_texts() -> None:
    assert shortened(lambda question, texts: "ab", "q", WRITTEN) == WRITTEN  # type: ignore[arg-type,return-value]
