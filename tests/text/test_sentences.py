"""Sentences against what a reader sees; chunks against what must hold of any cut."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from graphmem_torch.errors import InputError
from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.sentences import chunk_text, split_at_marks, split_sentences
from graphmem_torch.text.tokens import WordTokenizer, get_tokenizer

WORDS = WordTokenizer()

CASES = [
    ["The canoe sank. ", "Ada swam ashore! ", "Who saw it?"],
    ["It was founded by G. Stanley Hall in 1892. ", "He led it."],
    ["The U.S. Navy came, e.g. from Maine. ", "Dr. Ray waved."],
    ['"Go." ', "He went (at last). ", "[2] says so."],
    ["At 3 p.m. he left.\n\n", "A new paragraph"],
    ["A heading\n", "Its text begins here and\nruns on over the line. ", "Done."],
    ["1. One item.\n", "2. Another: 3.5 kg of it.\n", "- A third"],
    ["It cost 3.50 in all. ", "2019 was better."],
    ["彼は来た。", "そして去った！", "誰？"],
    ["「行こう。」", "と言った！？", "本当だ。"],
    ["वह आया। ", "कौन?  ", "श्लोक समाप्त॥", "फिर"],
    ["أين هو؟ ", "لا أدري. ", "انتهى"],
    ["کیا؟ ", "ہاں۔ ", "ٹھیک"],
    ["ฉันชอบแมว เธอชอบหมา\n", "เขาไม่ชอบ"],
    ["Он ушёл. ", "Куда? ", "Домой."],
    ["no capital. no end"],
    ["Wait… ", "What?! ", "Nothing."],
]


@pytest.mark.parametrize("parts", CASES, ids=lambda parts: parts[0][:16])
def test_split_sentences(parts: list[str]) -> None:
    assert split_sentences("".join(parts)) == parts


@given(st.text(alphabet="aB1. \n!?)\"'é。", max_size=80))
def test_split_sentences_join_to_the_text(text: str) -> None:
    parts = split_sentences(text)
    assert "".join(parts) == text
    assert all(parts)


def test_split_sentences_of_nearly_nothing() -> None:
    assert split_sentences("") == []
    assert split_sentences(" \n ") == [" \n "]
    assert split_sentences("...") == ["..."]


@pytest.mark.parametrize("unit", [" ", "\n", ".", ". ", "a.", "\n ", '"', "A. ", "1. ", "。"])
def test_split_sentences_of_a_long_run_takes_no_long_time(unit: str) -> None:
    text = "x" + unit * 20_000 + "y"
    assert "".join(split_sentences(text)) == text


def test_split_at_marks_knows_the_marks_of_other_scripts() -> None:
    assert split_at_marks("他来了。她走了！？好。") == ["他来了。", "她走了！？", "好。"]
    assert split_at_marks("वह आया। वह गया।") == ["वह आया।", "वह गया।"]


def test_chunks_of_chinese_end_with_sentences() -> None:
    text = "我今天去了市场买了很多新鲜的水果和蔬菜。" * 6
    assert {text[a:b][-1] for a, b in chunk_text(text, WordTokenizer(1), 70)} == {"。"}


def test_split_at_marks_is_plain() -> None:
    assert split_at_marks("See Dr. Who? no.  Yes; 3.5 kg") == [
        "See Dr.",
        "Who?",
        "no.",
        "Yes; 3.5 kg",
    ]
    assert split_at_marks("Yes; 3.5 kg", ".;") == ["Yes;", "3.5 kg"]
    assert split_at_marks("") == [""]


def check(
    text: str, slices: list[tuple[int, int]], spans: list[tuple[int, int]], most: int
) -> None:
    assert "".join(text[start:end] for start, end in slices) == text
    assert all(start < end for start, end in slices)
    owners = [
        [i for i, (start, end) in enumerate(slices) if start <= low and high <= end]
        for low, high in spans
    ]
    assert all(len(owner) == 1 for owner in owners)
    for i in range(len(slices)):
        assert sum(owner == [i] for owner in owners) <= most


@given(st.text(alphabet="ab .\n!é中", max_size=300), st.integers(1, 9))
def test_chunk_text_slices_join_to_the_text_and_hold_every_piece_once(text: str, most: int) -> None:
    check(text, chunk_text(text, WORDS, most), WORDS.spans(text), most)


def test_chunk_text_of_nothing() -> None:
    assert chunk_text("", WORDS) == []
    assert chunk_text(" \n ", WORDS) == [(0, 3)]


@pytest.mark.parametrize(
    ("gap", "mark"),
    [
        *[("\n\n", "w"), ("\n", "w"), ("\n \n", "w.")],
        *[(" ", mark) for mark in ("w.", 'w."', 'w!"', "w?)", "w。", "w…")],
    ],
)
def test_chunk_text_cuts_at_the_best_boundary_of_the_last_quarter(gap: str, mark: str) -> None:
    # 14 pieces of 16, then the boundary, then words only.
    head = " ".join(["w"] * (16 - 2 - len(mark) + 1)) + " " + mark
    text = head + gap + " ".join(["v"] * 20)
    assert chunk_text(text, WORDS, 16)[0] == (0, len(head + gap))


def test_chunk_text_prefers_a_paragraph_to_a_later_sentence() -> None:
    text = " ".join(["w"] * 14) + "\n\nIt is. " + " ".join(["v"] * 20)
    assert text[: chunk_text(text, WORDS, 17)[0][1]].endswith("\n\n")


def test_chunk_text_cuts_no_word_where_another_cut_is_possible() -> None:
    tokenizer = WordTokenizer(longest=2)
    text = "one " + "abcdefghij " * 6
    for start, end in chunk_text(text, tokenizer, 8):
        assert text[start:end].endswith(" ")
    assert len(chunk_text("a" * 40, tokenizer, 8)) == 3


def test_chunk_text_checks_max_tokens() -> None:
    with pytest.raises(InputError, match="at least 1, got 0"):
        chunk_text("text", WORDS, 0)


def test_chunk_text_of_a_whole_book_through_the_encoders_tokenizer(minilm: Embedder) -> None:
    paragraph = (
        "He didn't see the lighthouse-keeper (aged 61); naïve, isn't it? 漢字 😀 Nebenwirkungen.\n"
    )
    text = (paragraph * 900)[:80_000]
    slices = chunk_text(text, minilm.tokenizer)
    assert "".join(text[start:end] for start, end in slices) == text
    pieces = [len(minilm.tokenizer.spans(text[start:end])) for start, end in slices]
    assert max(pieces) <= 254
    assert sum(pieces) == len(minilm.tokenizer.spans(text))
    assert min(pieces[:-1]) > 150


def test_chunk_text_of_a_long_run_without_a_space(minilm: Embedder) -> None:
    text = "x" * 200_000
    slices = chunk_text(text, minilm.tokenizer)
    assert "".join(text[start:end] for start, end in slices) == text
    slices = chunk_text(text, WORDS)
    assert "".join(text[start:end] for start, end in slices) == text
    assert len(slices) == -(-200_000 // 16 // 254)


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_chunk_text_by_an_encoding(name: str) -> None:
    bpe = pytest.importorskip("bpe_openai")
    tokenizer, encoding = get_tokenizer(name), bpe.get_encoding(name)
    text = "Naïve 漢字 😀👋🏽 lighthouse-keepers aren't <|endoftext|>; e\u0301t\u0301.\n\n" * 15
    spans = tokenizer.spans(text)
    assert len(spans) == len(encoding.encode_ordinary(text))
    covered = [i for start, end in spans for i in range(start, end)]
    assert set(covered) == set(range(len(text)))
    for most in (1, 7, 30):
        check(text, chunk_text(text, tokenizer, most), spans, max(most, 9))
    cut = chunk_text(text, tokenizer, 30)
    assert max(len(encoding.encode_ordinary(text[start:end])) for start, end in cut) <= 30


def test_chunk_text_longer_than_an_encoding_takes() -> None:
    pytest.importorskip("bpe_openai")
    text = "one two three, " * 15_000
    spans = get_tokenizer("cl100k_base").spans(text)
    assert spans[0][0] == 0 and spans[-1][1] == len(text)
    assert all(one[1] == two[0] for one, two in pairwise(spans))


@pytest.mark.parametrize("byte_level", [True, False])
def test_chunk_text_by_a_hugging_face_tokenizer(byte_level: bool, tmp_path: Path) -> None:
    text = "The keeper of Körkarlen's light — 漢字 — slept. He woke!\n" * 12
    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel() if byte_level else pre_tokenizers.Whitespace()
    made.train_from_iterator([text], trainers.BpeTrainer(vocab_size=120, show_progress=False))
    PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(tmp_path)
    tokenizer = get_tokenizer(str(tmp_path))
    spans = tokenizer.spans(text)
    assert spans == [tuple(each) for each in made.encode(text, add_special_tokens=False).offsets]
    cut = chunk_text(text, tokenizer, 20)
    assert "".join(text[start:end] for start, end in cut) == text
    assert len(cut) >= len(spans) / 20


def test_get_tokenizer_of_an_unknown_name() -> None:
    with pytest.raises(InputError, match=r"did you mean 'cl100k_base'"):
        get_tokenizer("cl100k")
