"""The question of a text without its surroundings."""

import pytest

from graphmem_torch.text.asked import asks_for_questions, read_asked

HOME = "Where do I live?"


@pytest.mark.parametrize(
    "text",
    [
        "where do i live",
        "Hey, where do I live?",
        "Anna, where do I live?",
        "Where do I live, Tom?",
        "Where do I live, please?",
        "Can you tell me: where do I live?",
        "OK. Thanks! Where do I live?",
        "where do I live?? [photo of a map]",
    ],
)
def test_what_stands_around_a_question_is_no_part_of_it(text: str) -> None:
    assert read_asked(text)[:2] == read_asked(HOME)[:2]


@pytest.mark.parametrize(
    "text", ["Could you remind me where I live?", "I was wondering where I live.", "Where I live?"]
)
def test_an_indirect_question_has_the_same_terms(text: str) -> None:
    assert read_asked(text).terms == read_asked(HOME).terms == ("live",)


def test_a_request_asks_for_the_same() -> None:
    wanted = read_asked("What is my wifi password?").terms
    assert read_asked("Please tell me my wifi password.").terms == wanted == ("wifi", "password")


@pytest.mark.parametrize("text", ["Πού μένω;", "Πού μένω\u037e", "Wo wohne ich?\u200b"])
def test_marks_of_any_script_and_invisible_signs_ask(text: str) -> None:
    plain = text.strip("\u200b?;\u037e")
    assert read_asked(text).key == read_asked(f"{plain}?").key != 0


@pytest.mark.parametrize(
    "text",
    [
        "Tell me that it works!",
        "Remind me to call Tom.",
        "Tell him about it.",
        "I live in Lisbon.",
        "When I was young I lived in Rome",
        "What a day!",
        "keys of the office",
        "",
    ],
)
def test_what_tells_asks_nothing(text: str) -> None:
    assert read_asked(text).key == 0


@pytest.mark.parametrize(
    "text", ["Q: How do I reset it? A: Hold the button.", "I moved to Lyon. Where do I live now?"]
)
def test_what_tells_beside_asking_has_no_terms(text: str) -> None:
    found = read_asked(text)
    assert found.key != 0 and found.terms == ()


def test_other_words_are_another_question() -> None:
    asked = [HOME, "Where do I work?", "Where did I live?", "¿Dónde vivo?", "你住在哪里？"]
    assert len({read_asked(text).key for text in asked}) == len(asked)


@pytest.mark.parametrize(
    ("text", "form"),
    [
        (HOME, "open"),
        ("Do I live there?", ""),
        ("Where did I go in 2023?", ""),
        ("Where does Ana live?", ""),
        ("I do not know that yet.", "no answer"),
        ("I don't know, you haven't told me.", "no answer"),
        ("I'm not sure, it may be Porto.", ""),
        ("Sorry, I have no record of that. Could you tell me?", "no answer"),
        ("I don't know Lisbon, but you live in Porto.", ""),
        ("You live in Porto.", ""),
    ],
)
def test_forms(text: str, form: str) -> None:
    assert read_asked(text).form == form


@pytest.mark.parametrize("text", ["What did Anna ask?", "Which questions did I have about Rome?"])
def test_who_wants_questions(text: str) -> None:
    assert asks_for_questions(text)
    assert not asks_for_questions("I was wondering where I live.")


@pytest.mark.parametrize(
    "sign", ["x", "A1", "1.", "a'", "@", "é", "Nora, ", " ", "\t", "\n", "(", ":)", "?"]
)
def test_a_text_of_a_megabyte_asks_nothing(sign: str) -> None:
    assert read_asked("Where is " + sign * (1_000_000 // len(sign)) + "it?").key in (
        0,
        read_asked("Where is it?").key,
    )


def test_blanks_between_words_are_no_part_of_a_question() -> None:
    assert read_asked(HOME.replace(" ", " " * 5000)) == read_asked(HOME)
