"""Chats of WhatsApp, as phones of many countries write them."""

from __future__ import annotations

from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.readers import read_atoms, read_whatsapp
from graphmem_torch.readers.whatsapp import is_whatsapp
from graphmem_torch.text.tokens import WordTokenizer

NAME = "WhatsApp Chat with Eva.txt"
SERVICE = "message of the program (joins, calls, pins)"


def at(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> float:
    return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()


def read(text: str, losses: Counter[str] | None = None) -> list[tuple[str, str, float]]:
    assert is_whatsapp(text, NAME)
    found = read_whatsapp(text, NAME, Counter() if losses is None else losses)
    return [(each["speaker"], each["text"], each["time"]) for each in found]


HEADS = """
13.02.22, 22:10 - |[13.02.22, 22:10:10] |13/02/22 22:10 - |2/13/22, 10:10 PM - |13-02-22 22:10 -
2/13/22, 10:10\u202fPM - |2022-02-13 22:10 - |13/2/22 10:10 p. m. - |[13/2/22 10:10:10 p.m.]
13/2/22, 10:10\xa0p.\xa0m. - |[13/2/22, 10:10:10\u202fp.\xa0m.] |2022년 2월 13일 오후 10:10,
[2022. 2. 13. 오후 10:10:10] |2022. 2. 13. 오후 10:10, |\u200f13\u200f/2\u200f/2022, 10:10 م -
\u0662\u0660\u0662\u0662/\u0662/\u0661\u0663, \u0661\u0660:\u0661\u0660 م - |13.2.2022 klo 22.10 -
[13.2.2022 klo 22.10.10] |13/02/22 22.10 - |2022. 02. 13. 22:10 - |13. 2. 2022 22:10 -
13.02.2022., 22:10 - |13/02/2565 22:10 - |[13/2/2565 BE, 22:10:10] |13.02.22 г., 22:10 ч. -
13/02/2022 à 22:10 - |2022-02-13 22 h 10 - |13.02.2022 kl. 22.10 - |[22:10, 13/02/2022]
[10:10 PM, 2/13/2022] |2022/2/13 下午10:10 - |2022/02/13 22:10 - |[2022/02/13 22:10:10]
13/02/22, 10:10 CH - |2022-02-13, 10:10 p.m. - |13.2.22, 10:10 nachm. - |13.02.2022 um 22:10 -
\u200e[13/02/22, 22:10:10] |13/2/2022, 10:10 pm \u2013 |13/02/22, 22:10 น. - |13.02.22 22:10:10:
13/02/2022, 22:10 Uhr - |[2/13/22, 10:10:10 PM] |13/02/2022, 10:10:10 PM: """


@pytest.mark.parametrize(
    "head", [each for line in HEADS.split("\n") if line for each in line.split("|")]
)
def test_heads_of_many_countries(head: str) -> None:
    head = head.rstrip(" ") + " "
    when = at(2022, 2, 13, 22, 10, 10 if ":10:10" in head or "10.10]" in head else 0)
    found = read(f"{head}Eva: hello there\n{head}Tom: yes: no\nmore\n")
    assert found == [("Eva", "hello there", when), ("Tom", "yes: no\nmore", when)]


@pytest.mark.parametrize(
    ("clock", "hour"),
    [
        ("12:10 AM", 0),
        ("12:10 PM", 12),
        ("1:10 AM", 1),
        ("11:10 p.m.", 23),
        ("上午12:10", 0),
        ("00:10", 0),
    ],
)
def test_halves_of_the_day(clock: str, hour: int) -> None:
    assert read(f"13/5/24, {clock} - Eva: x\n") == [("Eva", "x", at(2024, 5, 13, hour, 10))]


def test_what_whatsapp_says_itself_is_counted() -> None:
    losses: Counter[str] = Counter()
    text = (
        "\ufeff5/13/24, 9:07\u202fPM - Messages and calls are end-to-end encrypted.\r\n"
        '5/13/24, 9:08\u202fPM - Eva changed the name to "Lake: summer"\r\n'
        "5/13/24, 9:08\u202fPM - Eva: <Media omitted>\r\n"
        "5/13/24, 9:08\u202fPM - Eva: IMG-1.jpg (file attached)\r\n"
        "5/13/24, 9:08\u202fPM - Eva: \u200eThis message was deleted\r\n"
        "5/13/24, 9:08\u202fPM - Eva: null\r\n"
        "5/13/24, 9:09\u202fPM - ~\u202fTom R: IMG-2.jpg (file attached)\r\nnext line\r\n"
        "5/13/24, 9:10\u202fPM - +358 40 1234567: at ten <This message was edited>\r\n"
        "5/13/24, 9:11\u202fPM - Eva: 3 < 4 and <b>bold</b>\r\n"
        "5/13/24, 9:12\u202fPM - Eva: \r\n"
    )
    found = [(speaker, said) for speaker, said, _ in read(text, losses)]
    assert [speaker for speaker, _ in found] == ["Tom R", "+358 40 1234567", "Eva"]
    assert [said for _, said in found] == ["next line", "at ten", "3 < 4 and <b>bold</b>"]
    assert losses == {SERVICE: 2, "media": 5}


@pytest.mark.parametrize(
    ("dates", "order"),
    [
        (["03/04/2024", "13/04/2024"], "dmy"),
        (["03/04/2024", "04/13/2024"], "mdy"),
        (["01/02/2024", "02/02/2024", "03/02/2024", "01/03/2024"], "dmy"),
        (["01/30/24", "02/01/24", "02/02/24"], "mdy"),
        (["02/01/24", "02/02/24", "03/01/24"], "mdy"),
        (["3.4.24", "4.4.24"], "dmy"),
        (["05/05/2024"], "dmy"),
        (["03/04/2024"], None),
        (["03/04/2024", "04/04/2024", "05/04/2024"], None),
    ],
)
def test_the_order_of_day_and_month_is_that_of_the_whole_file(
    dates: list[str], order: str | None
) -> None:
    text = "".join(f"{date}, 10:00 - Eva: x\n" for date in dates)
    if order is None:
        with pytest.raises(InputError, match="ambiguous in the whole file"):
            read(text)
        stated = read_whatsapp(text, NAME, Counter(), order="mdy")
        assert next(stated)["time"] == at(2024, 3, 4, 10)
        return
    parts = [int(part) for part in dates[0].replace(".", "/").split("/")]
    day, month = parts[:2] if order == "dmy" else parts[1::-1]
    assert read(text)[0][2] == at(2024, month, day, 10)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("2024-05-03 10:00:00 - root: started\n2024-05-03 10:00:01 - root: done\n", "app.txt"),
        ("[2024-05-03 10:00:00] local.ERROR: no such file\n", "laravel.txt"),
        ("Notes\n13/05/2024, 10:00 - Eva: hi\n", "notes.txt"),
        ("13/05/2024, 10:00 - a line without anybody\n", "x.txt"),
        ("12:30 lunch with Eva: soup\n", "day.txt"),
        ("", "empty.txt"),
    ],
)
def test_texts_that_are_no_chats(text: str, name: str) -> None:
    assert not is_whatsapp(text, name)


@pytest.mark.parametrize(
    ("name", "chat"),
    [
        ("WhatsApp Chat with Eva.txt", "Eva"),
        ("WhatsApp Chat - Eva (2).zip", "Eva"),
        ("WhatsApp-Chat mit Eva.txt", "Eva"),
        ("Chat de WhatsApp con Eva.txt", "Eva"),
        ("WhatsApp Chat - Eva/_chat.txt", "Eva"),
        ("family/_chat.txt", "family"),
    ],
)
def test_what_a_chat_is_called(name: str, chat: str) -> None:
    (found,) = read_whatsapp("13/5/24, 9:00 - Eva: x\n", f"/home/{name}", Counter())
    assert (found["title"], found["session"]) == (chat, f"whatsapp:{chat}")


def test_a_chat_that_is_ambiguous_in_a_folder_keeps_nobody_from_the_rest(tmp_path: Path) -> None:
    (tmp_path / "WhatsApp Chat with Eva.txt").write_text("03/04/2024, 10:00 - Eva: x\n")
    (tmp_path / "b.txt").write_text("The canoe is red.")
    with Memory.open(embedder="hashing") as memory:
        with pytest.raises(InputError, match="ambiguous"):
            memory.add_files(tmp_path)
        assert [atom.text for atom in memory] == ["The canoe is red."]
        with pytest.raises(InputError, match="--format whatsapp-dmy"):
            memory.add_files(tmp_path / "WhatsApp Chat with Eva.txt")
        done = memory.add_files(tmp_path / "WhatsApp Chat with Eva.txt", format="whatsapp-dmy")
        assert done.new == 1


def test_a_chat_that_was_read_as_a_text_before(tmp_path: Path) -> None:
    path = tmp_path / "WhatsApp Chat with Eva.txt"
    path.write_text("13/05/24, 21:08 - Eva: the key is red\n13/05/24, 21:09 - Tom: ok\n")
    with Memory.open(embedder="hashing") as memory:
        assert memory.add_files(path, format="text").new == 1
        done = memory.add_files(path)
        assert (done.new, done.deleted) == (2, 1) and not memory.check()


@pytest.mark.parametrize("sign", ["1", "a", "13/05/24, ", " ", "<a ", "a.jpg ("])
def test_long_lines_are_read(sign: str) -> None:
    line = sign * (300_000 // len(sign))
    found = read(f"13/05/24, 21:08 - Eva: x\n{line}\n13/05/24, 21:08 - Eva: {line}y\n")
    assert len(found) == 2 and found[1][1].endswith("y")


def test_the_same_said_twice_in_a_minute(tmp_path: Path) -> None:
    path = tmp_path / NAME
    path.write_text("13/05/24, 21:08 - Eva: ok\n13/05/24, 21:08 - Eva: ok\n")
    ids = [atom.id for atom in read_atoms([path], tokenizer=WordTokenizer())]
    assert ids[1] == f"{ids[0]}-2"
