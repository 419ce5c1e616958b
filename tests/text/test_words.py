"""Words of any script, and the language that function words show."""

from __future__ import annotations

import pytest

from graphmem_torch.text.terms import STOP_WORDS
from graphmem_torch.text.words import (
    STOP_WORDS_OF,
    VocabularyCoverage,
    count_words,
    foreign,
    language_of,
    languages_of,
    lowered,
    pairs,
    scripts_of,
    unread_share,
    word_ends,
    words,
)
from tests.languages import LANGUAGES

# Cut by hand.
CUT = {
    "東京タワーへ行きました。": ["東京", "タワー", "へ", "行", "きました"],
    "我喜欢 iPhone手机，3月买的": ["我喜欢", "iphone", "手机", "3", "月买的"],
    "ฉันเกิดปี ๒๕๓๐": ["ฉันเกิดปี", "2530"],
    "मुझे हिन्दी पसंद है।": ["मुझे", "हिन्दी", "पसंद", "है"],
    "서울에서 먹었다.": ["서울에서", "먹었다"],
    "كِتَابٌ جَمِيل، كتـــاب": ["كتاب", "جميل", "كتاب"],
    "می\u200cخواهم": ["می", "خواهم"],
    "क्\u200dष": ["क्ष"],
    "שָׁלוֹם": ["שלום"],
    "İstanbul'da A\u030angstro\u0308m": ["istanbul'da", "ångström"],
    "Ｆｕｌｌ ﾊﾝｶｸ": ["full", "ハンカク"],
    "Don\u2019t x_y α1": ["don't", "x", "y", "α1"],
}


@pytest.mark.parametrize("text", CUT)
def test_words_of_scripts(text: str) -> None:
    assert words(lowered(text)) == CUT[text]


def test_pairs_stand_for_words_where_no_space_divides_them() -> None:
    assert pairs("图书馆") == ["图", "书", "馆", "图书", "书馆"]
    assert pairs("ラーメン") == ["ラー", "ーメ", "メン"]
    assert pairs("서울에서") == ["서울", "울에", "에서"]
    assert pairs("ที่นี่") == ["ที่นี่"]  # two characters, each with its vowel and its tone
    assert pairs("猫") == ["猫"]
    assert pairs("हिन्दी") == pairs("straße") == pairs("word") == []


@pytest.mark.parametrize(
    ("text", "language"),
    [
        ("Was ist mit dem Fahrrad passiert?", "german"),
        ("Où est-ce que nous avons mangé hier ?", "french"),
        ("¿Dónde está el perro de mi hermana?", "spanish"),
        ("Dove abita adesso la sorella di Marco, e perché?", "italian"),
        ("Onde você mora agora, e por que não me disse?", "portuguese"),
        ("Waar woont mijn zus nu, en wat doet zij?", "dutch"),
        ("Var bor min syster nu och vad heter hennes hund?", "swedish"),
        ("Gdzie jest mój rower i kto go wziął?", "polish"),
        ("Kız kardeşim için ne aldın ve neden?", "turkish"),
        ("The Die Hard man was in Ludwig van der Rohe's La Scala.", "english"),
        ("Vincent van Gogh", "english"),
        ("He said mais oui, je suis here, and that it was all she had to do.", "english"),
        ("", "english"),
        ("Где ты был?", "english"),  # its script says it
    ],
)
def test_language_by_function_words(text: str, language: str) -> None:
    assert language_of(words(lowered(text)), STOP_WORDS) == language


def test_foreign_is_what_rules_for_english_cannot_read() -> None:
    for said, questions in LANGUAGES.values():
        assert all(foreign(text, STOP_WORDS) for text in said)
        assert all(foreign(text, STOP_WORDS) for text, _ in questions if " ist " in f" {text} ")
    for text in (
        "She flew to Tokyo (東京).",
        "Café Müller",
        "β-carotene",
        "Pizza!",
        "",
        "42",
        "👍",
    ):
        assert not foreign(text, STOP_WORDS)


def test_words_are_counted_where_no_spaces_divide_them() -> None:
    assert count_words("it is  a\nred canoe") == 5
    assert count_words("한국어 문장입니다") == 2
    assert 4 <= count_words("我喜欢吃苹果") <= 6  # 我 喜欢 吃 苹果
    assert count_words("") == 0


def test_word_ends() -> None:
    assert word_ends("a red canoe!") == [1, 5, 12]
    assert word_ends("我 ok吧。") == [1, 4, 5, 6]
    assert word_ends("नमस्ते दुनिया") == [6, 13]


def test_scripts_of_a_vocabulary_are_those_it_has_words_of() -> None:
    letters = [chr(c) for c in range(ord("а"), ord("я") + 1)]
    russian = [one + other for one in letters[:8] for other in letters[:8]]
    han = [chr(c) for c in range(0x4E00, 0x4E00 + 2_500)]
    assert scripts_of(["the", *letters, *han[:500]]) == {"Latin"}
    assert scripts_of(["the", *letters, *russian, *han]) == {"Latin", "Cyrillic", "Han"}


def test_languages_of_a_vocabulary_are_those_whose_function_words_it_has() -> None:
    german = sorted(STOP_WORDS_OF["german"])
    assert languages_of(["the", "of", "der", "die"]) == {"english"}
    assert languages_of(["the", *german]) == {"english", "german"}
    assert languages_of(german[: len(german) // 2]) == {"english"}


def test_unread_share_of_a_text() -> None:
    latin = frozenset({"Latin"})
    assert unread_share("plain café, Žižek 42 ー", latin) < 0.1
    assert unread_share("", latin) == unread_share("!?", latin) == 0.0
    assert unread_share("แมวอยู่ไหน", latin) == 1.0
    assert unread_share("ab 北京", latin) == 0.5
    assert unread_share("ab 北京", frozenset({"Latin", "Han"})) == 0.0


def test_coverage_reads_the_vocabulary_only_where_it_must() -> None:
    german = sorted(STOP_WORDS_OF["german"])
    read = []

    def pieces() -> list[str | None]:
        read.append(1)
        return [None, "\u2581the", *(f"##{word}" for word in german)]

    own = VocabularyCoverage(pieces)
    assert own.is_readable("Where is the canoe?", STOP_WORDS) and own.unread_share("canoe") == 0.0
    assert not read
    assert own.is_readable("Wo ist das Kanu und wer hat es?", STOP_WORDS)
    assert not own.is_readable("Où est le canoë que nous avons pris avec elle ?", STOP_WORDS)
    assert own.unread_share("ab 北京") == 0.5 and not own.is_readable("北京在哪里", STOP_WORDS)
    assert (own.scripts, own.languages) == ({"Latin"}, {"english", "german"})
    whole = VocabularyCoverage(lambda: ["\u0120the", "a"])
    assert whole.scripts is None and whole.unread_share("北京") == 0.0
    assert whole.is_readable("北京在哪里", STOP_WORDS)
