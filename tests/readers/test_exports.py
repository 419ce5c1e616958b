"""Exports of chat programs: read, read again later, and read past what is odd."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphmem_torch.atoms import Atom, EdgeType
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from graphmem_torch.readers import read_atoms
from graphmem_torch.readers.exports import read_zip
from graphmem_torch.results import Indexed
from graphmem_torch.text.tokens import WordTokenizer
from tests.readers.chats import (
    WHEN,
    chatgpt,
    claude,
    conversation,
    discord,
    node,
    post,
    said,
    sent,
    slack,
    telegram,
    typed,
    unzipped,
    written,
    zipped,
)

SERVICE = "message of the program (joins, calls, pins)"
ODD = "message that cannot be read"
EMPTY = "message without text"


def read(path: Path, losses: Counter[str] | None = None) -> list[Atom]:
    return list(read_atoms([path], tokenizer=WordTokenizer(), max_tokens=50, losses=losses))


def shown(atoms: list[Atom]) -> list[tuple[str | None, str]]:
    return [(atom.speaker, atom.text) for atom in atoms]


def indexed(*paths: Path) -> tuple[dict[str, str], list[Indexed]]:
    """Return a memory's atoms by id, after exports were indexed in order."""
    with Memory.open(embedder="hashing") as memory:
        done = [memory.add_files(path) for path in paths]
        ids = [name for name in memory.store.ids() if not name.startswith("concept:")]
        assert not memory.check()
        return {atom.id: atom.text for atom in memory.get(ids)}, done


# One export of each program: two messages, and what the second export has of them.

ASKED = node("a", "user", "Where to in May?", "root")
BOTH = [ASKED, node("b", "assistant", "To Ghent.", "a", time=WHEN + 5)]
MORE = [*BOTH, node("c", "user", "Thanks", "b")]
LEEKS = [said("1", "human", "When to plant?"), said("2", "assistant", "In April.")]
MARCH = {"content": [{"type": "text", "text": "In March."}], "updated_at": "2024-06-01T00:00:00Z"}
DAY = "general/2024-05-03.json"
LATER = "1714730460.000200"
EDITED = {"ts": "1714730999.000000", "user": "U1"}


def whatsapp(*lines: str) -> str:
    return "".join(f"[13/5/24, 21:08:0{i}] Eva: {line}\n" for i, line in enumerate(lines))


EXPORTS: dict[str, tuple[dict[str, Any], dict[str, Any], list[str]]] = {
    "chatgpt": (
        chatgpt([conversation(BOTH, "b")]),
        chatgpt([conversation(MORE, "c")]),
        ["Where to in May?", "To Ghent.", "Thanks"],
    ),
    "claude": (
        {"conversations.json": [claude(LEEKS)], "users.json": [{"uuid": "acc"}]},
        {
            "conversations.json": [
                claude([LEEKS[0], {**LEEKS[1], **MARCH}, said("3", "human", "Ok")])
            ]
        },
        ["When to plant?", "In March.", "Ok"],
    ),
    "slack": (
        slack({DAY: [post("U1", "at nine"), post("U2", "yes", LATER)]}),
        slack(
            {
                DAY: [
                    post("U1", "at ten", edited=EDITED),
                    post("U2", "yes", LATER),
                    post("U1", "ok", "1714730999.1"),
                ]
            }
        ),
        ["at ten", "yes", "ok"],
    ),
    "whatsapp": (
        {"_chat.txt": whatsapp("one", "two")},
        {"_chat.txt": whatsapp("one", "two", "three")},
        ["one", "two", "three"],
    ),
    "telegram": (
        {"Export/result.json": telegram([sent(1, "Mia", "at nine"), sent(2, "Leo", "yes")])},
        {
            "Export/result.json": telegram(
                [
                    sent(1, "Mia", "at ten", edited_unixtime="1714739999"),
                    sent(2, "Leo", "yes"),
                    sent(3, "Mia", "ok"),
                ]
            )
        },
        ["at ten", "yes", "ok"],
    ),
    "discord": (
        {"Makers - general.json": discord([typed("1", "mo", "old"), typed("2", "li", "yes")])},
        {
            "Makers - general.json": discord(
                [
                    typed("1", "mo", "new", timestampEdited="2024-05-03T11:00:00Z"),
                    typed("2", "li", "yes"),
                    typed("3", "mo", "ok"),
                ]
            )
        },
        ["new", "yes", "ok"],
    ),
}


@pytest.mark.parametrize("program", EXPORTS)
@pytest.mark.parametrize("write", [zipped, unzipped])
def test_a_later_export_adds_what_is_new_and_updates_what_was_edited(
    tmp_path: Path, program: str, write: Callable[..., Path]
) -> None:
    first, second, texts = EXPORTS[program]
    suffix = ".zip" if write is zipped else ""
    one = write(tmp_path / f"WhatsApp Chat - Eva{suffix}", first)
    (tmp_path / "later").mkdir()
    two = write(tmp_path / "later" / f"WhatsApp Chat - Eva{suffix}", second)
    held, done = indexed(one, two, one, two)
    assert sorted(held.values()) == sorted(texts)
    assert all(name.startswith(f"{program}:") for name in held)
    assert [each.new for each in done] == [2, 1, 0, 0]
    assert done[1].replaced == sum(text not in json.dumps(first) for text in texts[:2])


@pytest.mark.parametrize("program", EXPORTS)
def test_an_export_in_the_place_of_the_one_before(tmp_path: Path, program: str) -> None:
    first, second, texts = EXPORTS[program]
    path = tmp_path / "WhatsApp Chat - Eva.zip"
    with Memory.open(embedder="hashing") as memory:
        memory.add_files(zipped(path, first))
        done = memory.add_files(zipped(path, second))
        ids = [name for name in memory.store.ids() if not name.startswith("concept:")]
        assert sorted(atom.text for atom in memory.get(ids)) == sorted(texts)
        assert (done.new, done.deleted) == (1, 0)


@pytest.mark.parametrize("program", EXPORTS)
def test_an_export_read_after_a_later_one_changes_nothing(tmp_path: Path, program: str) -> None:
    first, second, texts = EXPORTS[program]
    (tmp_path / "WhatsApp Chat - Eva").mkdir()
    two = zipped(tmp_path / "WhatsApp Chat - Eva.zip", second)
    one = zipped(tmp_path / "WhatsApp Chat - Eva" / "WhatsApp Chat - Eva.zip", first)
    held, done = indexed(two, one)
    assert sorted(held.values()) == sorted(texts)
    assert (done[1].new, done[1].replaced, done[1].known) == (0, 0, 2)


def test_a_folder_with_exports_of_all_programs(tmp_path: Path) -> None:
    for program, (first, second, _) in EXPORTS.items():
        zipped(tmp_path / f"{program} WhatsApp Chat - Eva.zip", first)
        zipped(tmp_path / f"{program}-2 WhatsApp Chat - Eva.zip", second)
    zipped(tmp_path / "photos.zip", {"a.jpg": b"x"})
    zipped(tmp_path / "code.zip", {"readme.txt": "words", "package.json": {}})
    held, done = indexed(tmp_path)
    assert sorted(held.values()) == sorted(t for *_, texts in EXPORTS.values() for t in texts)
    assert done[0].new == 18


def test_chatgpt_reads_the_branch_that_is_shown(tmp_path: Path) -> None:
    nodes = [
        node("s", "system", "rules", "root"),
        node("h", "user", "about me", "s", metadata={"is_visually_hidden_from_conversation": True}),
        node("a", "user", "Name a fish", "h"),
        node("b", "assistant", "Trout", "a"),
        node("c", "assistant", "Salmon\ue200cite\ue202turn0\ue201", "a", time=None),
    ]
    losses: Counter[str] = Counter()
    atoms = read(written(tmp_path / "conversations.json", [conversation(nodes, "c")]), losses)
    assert shown(atoms) == [("user", "Name a fish"), ("assistant", "Salmon")]
    assert [atom.time for atom in atoms] == [WHEN, WHEN]
    assert {atom.session for atom in atoms} == {"chatgpt:conv-1"}
    assert losses == {"hidden message": 2, "message of another branch": 1}
    # Without `current_node` the branch of the latest message.
    atoms = read(written(tmp_path / "c.json", conversation([*nodes[:4], {**nodes[4]}], None)))
    assert [atom.text for atom in atoms] == ["Name a fish", "Trout"]


def test_chatgpt_reads_every_kind_of_content(tmp_path: Path) -> None:
    image = {"content_type": "image_asset_pointer", "asset_pointer": "file-service://f"}
    nodes = [
        node(
            "a", "user", {"content_type": "multimodal_text", "parts": [image, "Which dog?"]}, "root"
        ),
        node(
            "b",
            "assistant",
            {"content_type": "thoughts", "thoughts": [{"summary": "Thin", "content": "long legs"}]},
            "a",
        ),
        node(
            "c",
            "assistant",
            {"content_type": "code", "language": "python", "text": "find('dog')"},
            "b",
            recipient="browser",
        ),
        node(
            "d",
            "tool",
            {"content_type": "tether_quote", "title": "Dogs", "text": "sighthounds"},
            "c",
            name="browser",
        ),
        node("e", "tool", {"content_type": "execution_output", "text": "42"}, "d", name="python"),
        node("f", "assistant", {"content_type": "multimodal_text", "parts": [image]}, "e"),
        node("g", "assistant", "A whippet.", "f"),
    ]
    losses: Counter[str] = Counter()
    atoms = read(written(tmp_path / "x.json", [conversation(nodes, "g")]), losses)
    assert shown(atoms) == [
        ("user", "Which dog?"),
        ("assistant", "Thin\nlong legs"),
        ("assistant", "browser(find('dog'))"),
        ("browser", "Dogs\nsighthounds"),
        ("python", "42"),
        ("assistant", "A whippet."),
    ]
    assert losses == {"image": 2, EMPTY: 1}


def test_claude_reads_blocks_and_documents(tmp_path: Path) -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm"},
        {"type": "tool_use", "name": "artifacts", "input": {"title": "Soup"}},
        {"type": "tool_result", "content": [{"type": "text", "text": "OK"}]},
        {"type": "text", "text": "Here."},
    ]
    soil = {"file_name": "soil.txt", "extracted_content": "The soil is clay. " * 30}
    old = said("3", "human", "of an old export", files=[{"file_name": "a.png"}])
    del old["content"]
    messages = [
        said("1", "human", "", attachments=[soil], content=[]),
        said("2", "assistant", "", content=blocks),
        old,
    ]
    losses: Counter[str] = Counter()
    atoms = read(written(tmp_path / "conversations.json", [claude(messages)]), losses)
    chunks = [atom for atom in atoms if atom.kind == "chunk"]
    assert "".join(atom.text for atom in chunks) == "The soil is clay. " * 30 and len(chunks) > 2
    assert {(atom.session, atom.meta["file"]) for atom in chunks} == {("claude:k1", "soil.txt")}
    assert shown([atom for atom in atoms if atom.kind == "turn"]) == [
        ("assistant", "hm\nartifacts(title: Soup)\nOK\nHere."),
        ("user", "of an old export"),
    ]
    assert losses == {"file": 1, EMPTY: 1}


@pytest.mark.parametrize("write", [zipped, unzipped])
def test_slack_reads_marks_threads_and_names(tmp_path: Path, write: Callable[..., Path]) -> None:
    rich = [
        {
            "type": "rich_text",
            "elements": [
                {
                    "type": "rich_text_section",
                    "elements": [
                        {"type": "user", "user_id": "U2"},
                        {"type": "text", "text": "look"},
                    ],
                }
            ],
        }
    ]
    days = {
        DAY: [
            post(
                "U1",
                "<@U2> <https://a.b|the menu> &amp; <#C1> <!here> <!subteam^S1|@devs> <https://c.d>",
                reply_count=1,
            ),
            post("U1", "<@U1> has joined the channel", LATER, subtype="channel_join"),
            post("U2", "", "1714730470.1", blocks=rich),
            post(
                "B1",
                "",
                "1714730471.1",
                subtype="bot_message",
                username="Bot",
                attachments=[{"title": "Build", "text": "passed"}],
            ),
            post("U1", "", "1714730472.1", files=[{"name": "a.png"}]),
            {"type": "message", "ts": {}},
            "odd",
        ],
        "general/2024-05-04.json": [
            post("U2", "yes", "1714816800.1", thread_ts="1714730400.000100")
        ],
        "D1/2024-05-04.json": [post("U2", "between us", "1714816801.1")],
    }
    path = write(tmp_path / ("export.zip" if write is zipped else "export"), slack(days))
    losses: Counter[str] = Counter()
    atoms = {atom.text: atom for atom in read(path, losses)}
    first = atoms["@Ben Oh the menu (https://a.b) & #general @here @devs https://c.d"]
    assert (first.speaker, first.time, first.id) == (
        "Ada King",
        WHEN + 0.0001,
        "slack:C1/1714730400.000100",
    )
    assert atoms["Build\npassed"].speaker == "Bot" and atoms["@Ben Oh look"].speaker == "Ben Oh"
    assert {atoms[text].session for atom in atoms for text in ("yes", first.text)} == {"slack:C1"}
    assert atoms["between us"].meta.get("title", "") in ("Ada King, Ben Oh", "")
    assert losses == {SERVICE: 1, "file": 1, EMPTY: 2, ODD: 1}
    if write is zipped:
        (link,) = atoms["yes"].edges
        assert (link.target, link.type) == (first.id, EdgeType.RELATED_TO)


def test_telegram_reads_entities_polls_and_all_chats(tmp_path: Path) -> None:
    link = {"type": "text_link", "text": "this", "href": "https://a.b"}
    messages = [
        sent(1, "Mia", ["see ", link, " now"]),
        {**sent(2, "Mia", ""), "type": "service", "actor": "Mia", "action": "phone_call"},
        sent(
            3, None, "", poll={"question": "Pizza?", "answers": [{"text": "yes"}, {"text": "no"}]}
        ),
        sent(4, "Leo", "a photo", photo="x.jpg", reply_to_message_id=1),
        sent(5, "Leo", "", media_type="sticker", file="x.webp"),
        sent(6, "Leo", {"odd": 1}),
        5,
    ]
    other = telegram([sent(1, "Zed", "two")], "Zed", 43)
    del other["messages"][0]["date_unixtime"]
    whole = {"about": "x", "chats": {"list": [telegram(messages), other]}}
    losses: Counter[str] = Counter()
    atoms = read(written(tmp_path / "result.json", whole), losses)
    assert shown(atoms) == [
        ("Mia", "see this (https://a.b) now"),
        ("user7", "Pizza? yes / no"),
        ("Leo", "a photo"),
        ("Zed", "two"),
    ]
    assert [atom.time for atom in atoms] == [WHEN, WHEN, WHEN, WHEN + 7200]
    assert [atom.id for atom in atoms][::3] == ["telegram:42/1", "telegram:43/1"]
    assert atoms[2].edges[0].target == "telegram:42/1"
    assert losses == {SERVICE: 1, "photo": 1, "sticker": 1, EMPTY: 1, ODD: 2}


def test_discord_reads_mentions_embeds_and_replies(tmp_path: Path) -> None:
    embed = {"title": "Flux", "description": "Use rosin", "fields": [{"name": "N", "value": "V"}]}
    messages = [
        typed(
            "1",
            "mo",
            "hey <@!9li> in <#100> <:smile:5> <t:1714730400:f>",
            mentions=[{"id": "9li", "name": "li", "nickname": "Li"}],
        ),
        typed("2", "mo", "Joined the server.", type="GuildMemberJoin"),
        typed("3", "li", "yes", type="Reply", reference={"messageId": "1"}),
        typed("4", "li", "", embeds=[embed]),
        typed("5", "li", "", attachments=[{"fileName": "a.png"}]),
        {"id": "6"},
        typed("7", "li", 5),
        None,
    ]
    losses: Counter[str] = Counter()
    atoms = read(written(tmp_path / "c.json", discord(messages)), losses)
    assert shown(atoms) == [
        ("Mo", "hey @Li in #general :smile: 2024-05-03 10:00 UTC"),
        ("Li", "yes"),
        ("Li", "Flux\nUse rosin\nN: V"),
    ]
    assert atoms[1].edges[0].target == "discord:100/1" and atoms[0].time == WHEN
    assert losses == {SERVICE: 1, "attachment": 1, EMPTY: 1, ODD: 3}


@pytest.mark.parametrize(
    "data",
    [
        [conversation(BOTH, "b"), {"mapping": "no"}, 17, {"title": None, "mapping": {"q": 3}}],
        [claude(LEEKS), 17, {"uuid": "x", "chat_messages": None}],
    ],
)
def test_a_conversation_that_is_odd_keeps_the_others(tmp_path: Path, data: Any) -> None:
    losses: Counter[str] = Counter()
    assert len(read(written(tmp_path / "conversations.json", data), losses)) == 2
    assert losses["conversation that cannot be read"] == 2


def test_a_circle_of_messages_ends(tmp_path: Path) -> None:
    talk = conversation(BOTH, "b")
    talk["mapping"]["a"]["parent"] = "b"
    assert len(read(written(tmp_path / "conversations.json", [talk]))) == 2


def test_zips_that_are_refused(tmp_path: Path) -> None:
    bomb = zipped(tmp_path / "bomb.zip", {"conversations.json": b"[" + b" " * (20 << 20) + b"]"})
    with pytest.raises(InputError, match="bytes packed into"):
        read(bomb)
    large = zipped(tmp_path / "large.zip", EXPORTS["chatgpt"][0])
    with pytest.raises(InputError, match="at most 500 bytes"):
        list(read_zip(large, Counter(), limit=500))
    with pytest.raises(InputError, match="got a zip without one; unpack it"):
        read(zipped(tmp_path / "none.zip", {"a.txt": "words", "b.json": {}, "c.json": "{"}))
    (tmp_path / "no.zip").write_bytes(b"PK\x03\x04 broken")
    with pytest.raises(InputError, match=r"no.zip: expected a zip, got one that cannot be read"):
        read(tmp_path / "no.zip")


def test_a_message_that_callers_added_is_theirs(tmp_path: Path) -> None:
    path = written(tmp_path / "c.json", discord([typed("1", "mo", "new")]))
    with Memory.open(embedder="hashing") as memory:
        memory.add({"id": "discord:100/1", "text": "mine"})
        with pytest.raises(InputError, match="is stored already with other content"):
            memory.add_files(path)
        assert memory.get("discord:100/1").text == "mine"
