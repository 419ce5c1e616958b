"""Names, dates and orders in questions."""

from __future__ import annotations

import calendar

import pytest

from graphmem_torch.text.question import (
    asks,
    asks_order,
    asks_succession,
    asks_when,
    is_question,
    looks_back,
    name_words,
    named_dates,
    named_speakers,
    tells_time,
    value_terms,
)


def test_asks_when() -> None:
    asking = ["When did Ada leave?", "Since WHEN?", "how long was it", "Which year was that?"]
    asking += ["What time is it?", "On what date?"]
    other = ["Whenever you like", "What did she do?", "How did the day go?", "Who?"]
    assert asks_when(asking + other).tolist() == [True] * len(asking) + [False] * len(other)
    assert asks_when([]).shape == (0,)


def test_looks_back() -> None:
    back = ["Where did Ada live?", "What was her job before?", "Who used to be the boss?"]
    back += ["Which car had she at first?", "What is her previous address?"]
    not_back = ["Where does Ada live?", "What was changed most recently?", "Is it still on?"]
    not_back += ["Who is it NOW, and who was it?", "Wo wohnt sie?", "What is a didgeridoo?"]
    assert looks_back(back + not_back).tolist() == [True] * len(back) + [False] * len(not_back)
    assert looks_back([]).shape == (0,)


@pytest.mark.parametrize(
    ("question", "asked"),
    [
        ("Where did she live before Oslo?", ("before", "Oslo")),
        ("Which car had he before the Volvo broke down?", ("before", "the Volvo broke down")),
        ("What did the kettle cost before it was 40 euros?", ("before", "it was 40 euros")),
        ("What came after the red Volvo?", ("after", "the red Volvo")),
        ("Who took over from Ms Duarte?", ("after", "Ms Duarte")),
        ("What does she drink instead of chai?", ("after", "chai")),
        ("Where did he use to work?", ("before", "")),
        ("Where has she worked before?", ("before", "")),
        ("What was her previous job?", ("before", "")),
        ("Which car did she have before her current one?", ("before", "")),
        ("Which car did she have before this one?", ("before", "")),
        ("What was the price originally?", ("first", "")),
        ("What was Nora's first car?", ("first", "")),
        ("WHERE DID SHE LIVE BEFORE OSLO?", ("before", "OSLO")),
        ("What did she buy before May 2023?", None),
        ("What did they do two days before the race?", None),
        ("What did they do the week before the race?", None),
        ("What will she do after this one?", None),
        ("Who looks after the dog?", None),
        ("Whom was he named after Milo?", None),
        ("Will it rain before long?", None),
        ("What is used to cut wood?", None),
        ("What did you tell me before Oslo?", None),
        ("Remind me of our previous chat", None),
        ("Who came first?", None),
        ("What is his job?", None),
        ("Wo wohnte sie vor Oslo?", None),
        ("", None),
    ],
)
def test_asks_succession(question: str, asked: tuple[str, str] | None) -> None:
    assert asks_succession(question) == asked


@pytest.mark.parametrize(
    ("of", "value"),
    [
        ("moving to Oslo", "oslo"),
        ("she joined Kestrel Foods", "kestrel food"),
        ("it was 40 euros", "40"),
        ("switching to chai", "chai"),
        ("getting married", "marri"),
        ("taking up the chess", "chess"),
        ("rowing", "row"),
        ("the red car", "red car"),
        ("I moved", "move"),
        ("was", ""),
    ],
)
def test_value_terms(of: str, value: str) -> None:
    assert value_terms(of) == value.split()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("The sun is warm", False),
        ("You may sit", False),
        ("I march on", False),
        ("May I come in?", False),
        ("We met in May", True),
        ("on 3 March we left", True),
        ("March 3 it was", True),
        ("on Sundays", True),
        ("I went there yesterday", True),
        ("last Tuesday we met", True),
        ("Two weeks ago", True),
        ("It was 2019.", True),
        ("See you on Friday!", True),
        ("in SEPTEMBER", True),
        ("I have a red canoe", False),
        ("It cost 300 dollars", False),
        ("the lasting nextness", False),
    ],
)
def test_tells_time(text: str, told: bool) -> None:
    assert tells_time(text) is told


@pytest.mark.parametrize(
    ("text", "asks"),
    [
        ("Where is it?", True),
        ("Where is it?  ", True),
        ("Look at this? [image: a red canoe]", True),
        ("Really? Yes.", False),
        ("[image: is it?]", False),
        ("", False),
        ("?", True),
        ("What? ]", False),
        ("Is it?" + " " * 1_000_000 + "[a]", True),
        ("Is it" + " " * 1_000_000 + "x", False),
        ("Is it?" + "[" * 1_000_000, False),
        ("Is it" + " [" * 500_000 + "]", False),
    ],
)
def test_is_question(text: str, asks: bool) -> None:
    assert is_question(text) is asks


def test_named_dates_of_every_month() -> None:
    names = list(calendar.month_name)[1:]
    months, days = named_dates([f"What happened in {name}?" for name in names])
    assert months.int().tolist() == [[int(i == j) for j in range(12)] for i in range(12)]
    assert not days.any()


@pytest.mark.parametrize(
    ("question", "months", "days"),
    [
        ("What did Ada do on 8 May, 2023?", [5], [8]),
        ("May I ask who was there?", [], []),
        ("What may have happened?", [], []),
        ("Was it in May or on the 3rd of June?", [5, 6], [3]),
        ("Between 30 and 31 january, or the 32nd?", [1], [30, 31]),
        ("What cost 8 dollars?", [], []),  # a day needs a month
        ("What was on 0 March?", [3], []),
        ("Who marched on 12 augusts?", [], []),
    ],
)
def test_named_dates(question: str, months: list[int], days: list[int]) -> None:
    found, on = named_dates([question])
    assert [m + 1 for m in found[0].nonzero().squeeze(1).tolist()] == months
    assert [d + 1 for d in on[0].nonzero().squeeze(1).tolist()] == days


def test_named_speakers() -> None:
    words = {"ada": [0], "lovelace": [0], "ben": [1, 2]}
    named = named_speakers(
        ["What did ADA say to Ben's dog?", "And Lovelace?", "Benjamin?", "adaben"], words, 3
    )
    assert named.int().tolist() == [[1, 1, 1], [1, 0, 0], [0, 0, 0], [0, 0, 0]]
    assert named_speakers([], words, 3).shape == (0, 3)


@pytest.mark.parametrize("text", ["他在哪里？", "أين هو؟", "「誰？」", "Где он?"])
def test_is_question_by_the_marks_of_other_scripts(text: str) -> None:
    assert is_question(text) is (not text.endswith("」"))


@pytest.mark.parametrize(
    ("names", "question", "named"),
    [
        (["小明", "李华"], "小明现在住在哪里？", [0]),
        (["健太", "花子"], "花子さんの猫は？", [1]),
        (["สมชาย", "มานี"], "มานีแพ้อะไร", [1]),
        (["민수", "지영"], "민수가 사는 곳은?", [0]),
        (["राहुल", "प्रिया"], "प्रिया को किससे एलर्जी है?", [1]),
        (["أحمد", "ليلى"], "ما حساسية ليلى؟", [1]),
        (["Лена", "Пётр Иванов"], "На что у Лены аллергия? И у Петра?", [0, 1]),
        (["Jürgen", "Özdemir"], "Wo wohnt Frau ÖZDEMIR?", [1]),
        (["明", "华"], "小明明天来吗？", []),  # a single character is in too many words
    ],
)
def test_named_speakers_of_any_script(names: list[str], question: str, named: list[int]) -> None:
    speakers: dict[str, list[int]] = {}
    for code, name in enumerate(names):
        for word in name_words(name):
            speakers.setdefault(word, []).append(code)
    assert named_speakers([question], speakers, 2)[0].nonzero().flatten().tolist() == named


def test_names_of_english_are_their_words() -> None:
    assert name_words("Mary_Jane O'Neil's 2nd") == ["mary", "jane", "o", "neil", "s", "2nd"]


@pytest.mark.parametrize(
    ("question", "order"),
    [
        ("Where did she work first?", "first"),
        ("What is the latest project?", "latest"),
        ("What was her last trip?", "latest"),
        ("What is my current address?", "latest"),
        ("What did I do last week?", "relevance"),
        ("What did I do last Friday, or in the last two months?", "relevance"),
        ("First or last?", "relevance"),
        ("Which did I buy first, the sofa or the lamp?", "relevance"),
        ("What came last: the dog or the cat?", "relevance"),
        ("Was the concert or the play first?", "relevance"),
        ("What did I last buy at the market or online?", "latest"),
        ("Who was my first boss in Rome or Oslo?", "first"),
        ("Remind me which book you named last.", "relevance"),
        ("Who is it?", "relevance"),
    ],
)
def test_asks_order(question: str, order: str) -> None:
    assert asks_order(question) == order


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Great to hear! What about you? I'm fine.", True),
        ("Great to hear!What about you?I'm fine.", True),
        ("You sold the boat?! I can't believe it.", True),
        ("Really!? No.", True),
        ("Do you like tea? and coffee too", True),
        ("(Are you coming?) I am.", True),
        ('"Where are you?" I am here.', True),
        ('Have you read "Who Goes There"? I have.', True),
        ("Have you read it (or not)? I have.", True),
        ("Ça va ? Je suis là.", True),
        ("\u4f60\u53bb\u54ea\u91cc\u4e86\uff1f\u6211\u5728\u5bb6\u3002", True),
        (
            "\u0623\u064a\u0646 \u0643\u0646\u062a\u061f \u0643\u0646\u062a \u0647\u0646\u0627.",
            True,
        ),
        ("Πού ήσουν χθες; Σε περίμενα.", True),
        ("Πού ήσουν\u037e Εδώ.", True),
        ("Ի՞նչ ես անում։", True),
        ("What is this? [image: a dog]", True),
        ('She asked "where are you going?" and left.', False),
        ("She asked: 'Who is it?' and left.", False),
        ("\u201cIs it late?\u201d he said.", False),
        ("Il demanda \u00abQui est l\u00e0 ?\u00bb et partit.", False),
        ("I wonder (who doesn't?) about bees.", False),
        ("He paid 40 (?) euros.", False),
        ("See https://example.com/search?q=lisbon for trams.", False),
        ("It is at www.example.com/?", False),
        ("The pattern is `colou?r`, and a?b is one too.", False),
        ("I read it [why?] yesterday.", False),
        ("Red; green; blue.", False),
        ("Well, that is it.", False),
        ("", False),
    ],
)
def test_a_question_inside_a_text(text: str, found: bool) -> None:
    assert asks(text) is found
