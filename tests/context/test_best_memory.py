"""A context holds the best memory, and nothing that is there only because it is short."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from graphmem_torch import Memory
from graphmem_torch.config import load_config
from graphmem_torch.context.summarise import extract
from graphmem_torch.memory import Layout
from graphmem_torch.text.tokens import count_tokens

REST = "The committee met on many mornings and went through the list without any haste. "
KEY = "The spare key of the boat house is under the third blue flower pot. "
FACT = REST * 20 + KEY + REST * 20
NOISY = {"context.min_relevance": 0.15}  # unrelated texts are nearer by hashing than by a model
SHORT = ("Yes.", "I agree.", "No.", "Sure.")
ASKED = "Where is the spare key of the boat house?"


def memory_of(*texts: str, **settings: Any) -> Memory:
    memory = Memory.open(
        None, config=load_config("default", {"embedder.name": "hashing", **NOISY, **settings})
    )
    memory.add([{"id": str(number), "text": text} for number, text in enumerate(texts)])
    return memory


@pytest.mark.parametrize("format", ["text", "markdown", "openai", "anthropic", "json"])
@pytest.mark.parametrize("budget", [90, 130, 300])
def test_a_memory_that_does_not_fit_is_there_in_part(format: Any, budget: int) -> None:
    with memory_of(FACT, *SHORT) as memory:
        context = memory.compile(ASKED, budget=budget, layout=Layout(format=format))
        assert KEY.strip() in context.text + str(context.messages)
        assert context.tokens <= budget and context.extract
        assert context.sources == ("0",) and set(context.unrelated) == {"1", "2", "3", "4"}
        assert any("extract" in note for note in context.notes)
        whole = memory.compile(ASKED, budget=2000, layout=Layout(format=format))
        assert not whole.extract and FACT.strip()[:60] in whole.text + str(whole.messages)


def test_what_fits_beside_an_extract_is_there_whole() -> None:
    oar = "The boat house has a spare oar in the loft."
    with memory_of(FACT, oar, *SHORT) as memory:
        context = memory.compile(ASKED, budget=140)
        assert oar in context.text and KEY.strip() in context.text and context.extract


def test_any_budget_is_kept() -> None:
    with memory_of(FACT, *SHORT) as memory:
        budgets = list(range(12, 100, 4))
        for budget, context in zip(budgets, memory.compile(ASKED, budget=budgets), strict=True):
            assert context.tokens <= budget
            assert not set(context.sources) & {"1", "2", "3", "4"}


def test_without_a_floor_all_may_be_there() -> None:
    with memory_of(KEY, *SHORT, **{"context.min_relevance": 0.0}) as memory:
        context = memory.compile(ASKED, budget=500)
        assert len(context.sources) == 5 and not context.unrelated


@pytest.mark.parametrize(("count", "note"), [(1, "1 memory has"), (2, "2 memories have")])
def test_a_note_counts_what_stays_out(count: int, note: str) -> None:
    with memory_of(KEY, *SHORT[:count], **NOISY) as memory:
        context = memory.compile(ASKED, budget=500)
        assert len(context.unrelated) == count
        stay = "stays" if count == 1 else "stay"
        assert context.notes == (f"{note} nothing to do with the question and {stay} out",)


def test_where_nothing_is_related_nothing_is_left_out_for_it() -> None:
    with memory_of(*SHORT) as memory:
        assert not memory.compile("What boils at 630 kelvin?", budget=200).unrelated


def test_a_pinned_memory_stays_whatever_it_says() -> None:
    with memory_of(FACT, *SHORT) as memory:
        memory.pin(["2"])
        context = memory.compile(ASKED, budget=140)
        assert {"0", "2"} <= set(context.sources) and "2" not in context.unrelated


def test_a_long_sentence_gives_the_words_that_are_asked_for() -> None:
    """The run of words with the most of those that are wanted, of all runs that fit."""
    words = [f"word{number}" for number in range(60)]
    words[41:44] = ["vault", "code", "7713"]
    text, limit = " ".join(words), 9

    def count(part: str) -> int:
        return len(part.split())

    found = extract([text], "What is the vault code?", limit, count=count)[0]
    runs = [words[a:b] for a, b in itertools.combinations(range(61), 2) if b - a <= limit - 1]
    most = max(len({"vault", "code"} & {*run}) for run in runs)
    assert count(found) <= limit and len({"vault", "code"} & {*found.split()}) == most
    assert "7713" in found


@pytest.mark.parametrize(
    ("text", "asked", "wanted"),
    [
        (
            "| city | mayor |\n|---|---|\n"
            + "".join(f"| Town{i} | Mayor{i} |\n" for i in range(150))
            + "| Zell | Palmer |\n",
            "Who is the mayor of Zell?",
            "Palmer",
        ),
        (
            "```python\n"
            + "".join(f"def helper_{i}(x):\n    return x + {i}\n\n" for i in range(90))
            + "def retry_delay(attempt):\n    return 0.25 * 2 ** attempt\n```",
            "What does retry_delay return?",
            "0.25",
        ),
        (
            "name,number\n" + "".join(f"person{i},{1000 + i}\n" for i in range(300)),
            "What is the number of person157?",
            "1157",
        ),
        (
            "Hello. "
            + " ".join(f"reed{i}" for i in range(400))
            + " the spare key hangs in the boathouse "
            + " ".join(f"moss{i}" for i in range(400))
            + ". Bye.",
            "Where is the spare key?",
            "boathouse",
        ),
        (
            "今天天气很好我们去公园散步，" * 120 + "我的保险箱号码是4471，" + "今天天气很好。" * 9,
            "我的保险箱号码是多少？",
            "4471",
        ),
        (
            "Der Ausschuss ging die lange Liste ohne Eile durch. " * 30
            + "Der Ersatzschlüssel liegt unter dem Blumentopf. ",
            "Wo liegt der Ersatzschlüssel?",
            "Blumentopf",
        ),
        (
            "委员会在许多早晨开会讨论了一长串小事。" * 40 + "备用钥匙在第三个蓝色花盆下面。",
            "备用钥匙在哪里？",
            "花盆",
        ),
    ],
    ids=["table", "code", "rows", "between greetings", "one sentence", "German", "Chinese"],
)
def test_extracts_of_other_texts(text: str, asked: str, wanted: str) -> None:
    with memory_of(text, "Yes.", "Sure.") as memory:
        context = memory.compile(asked, budget=90)
        assert wanted in context.text and count_tokens([context.text])[0] <= 90


@pytest.mark.parametrize("seed", range(20))
def test_the_line_that_is_asked_for_is_in_an_extract(seed: int) -> None:
    """Rows of tables of any size, with any white space after them."""
    draw = random.Random(seed)
    rows = [f"item{i} {draw.randrange(10**6)}" for i in range(draw.randint(20, 200))]
    place = draw.randrange(len(rows))
    text = "\n".join(rows) + draw.choice(["", "\n", "\n\n  ", " " * 50])

    def count(part: str) -> int:
        return len(part.split())

    limit = draw.randint(3, 20)
    found = extract([text], f"What is item{place}?", limit, count=count)[0]
    assert rows[place] in found and count(found) <= limit
    assert set(found.replace("\u2026 ", "").splitlines()) <= set(rows)


def test_white_space_is_no_part_of_an_extract() -> None:
    assert extract(["One. Two.   \n\n\n"], "Three?", 9, count=len) == ["One."]
