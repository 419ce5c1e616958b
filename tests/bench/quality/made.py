"""Vectors, texts and conversations that the tests of the judges make up."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from graphmem_torch.config import load_config
from graphmem_torch.quality.request import Request

PATTERN = load_config("default", {"link.concepts": "pattern"})

REMARKS = [
    ("{a}", "I planted red tulips beside the old garden wall this morning."),
    ("{b}", "Lovely! My sister Vera repaired the wooden rowing boat at lake Iseo."),
    ("{a}", "Does she still work at the observatory in Bergamo?"),
    ("{b}", "Yes, she photographs comets there every winter."),
    ("{a}", "I started to learn the cello, the teacher lives near the harbour."),
    ("{b}", "My dog Pippo chewed my new running shoes yesterday."),
    ("{a}", "Oh no. I will bake a lemon cake for you on Sunday."),
    ("{b}", "Thank you! Vera is going to sail to Corsica with the boat in June."),
    ("{a}", "The tulips are in bloom, and I played the cello for my mother."),
    ("{b}", "Pippo ran away on the beach, but a fisherman brought him back."),
    ("{a}", "I sold my motorbike to pay for the cello lessons."),
    ("{b}", "Vera saw a comet from the boat on her way to Corsica."),
]


def unit(*shape: int, seed: int = 0) -> torch.Tensor:
    """Random unit rows."""
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(seed))
    return torch.nn.functional.normalize(rows, dim=-1)


def clusters(groups: int, each: int, width: int = 16) -> torch.Tensor:
    """Unit rows around random centres."""
    rows = unit(groups, width).repeat_interleave(each, 0) + 0.1 * unit(groups * each, width)
    return torch.nn.functional.normalize(rows, dim=1)


def of_sizes(data: Path, *sizes: int) -> Request:
    """Return a request to a judge of memories of several sizes."""
    return Request(data=data, sizes=sizes, config=PATTERN, embedder="hashing:32", device="cpu")


def novel(count: int) -> list[str]:
    """Texts of three sentences."""
    chance = random.Random(4)
    words = [f"word{i}" for i in range(300)]
    phrases = [[" ".join(chance.choices(words, k=7)) for _ in range(3)] for _ in range(count)]
    return [". ".join(part.capitalize() for part in three) + "." for three in phrases]


def locomo_file(folder: Path) -> Path:
    """A LoCoMo file with two conversations of twelve turns and five questions each."""
    file = folder / "locomo2.json"
    samples = [_sample("conv-a", "Ada", "Bruno"), _sample("conv-b", "Clara", "Dario")]
    file.write_text(json.dumps(samples), encoding="utf-8")
    return file


def _sample(name: str, a: str, b: str) -> dict[str, Any]:
    sessions: dict[str, Any] = {"speaker_a": a, "speaker_b": b}
    facts: dict[str, Any] = {}
    for number in range(3):
        turns = [
            {
                "speaker": who.format(a=a, b=b),
                "dia_id": f"D{number + 1}:{place + 1}",
                "text": text,
            }
            for place, (who, text) in enumerate(REMARKS[4 * number : 4 * number + 4])
        ]
        sessions[f"session_{number + 1}_date_time"] = f"1:56 pm on {number + 5} May, 2023"
        sessions[f"session_{number + 1}"] = turns
        facts[f"session_{number + 1}_observation"] = {
            turns[0]["speaker"]: [[f"{a} told something: {turns[0]['text']}", turns[0]["dia_id"]]],
            turns[1]["speaker"]: [[f"{b} said: {turns[1]['text']}", [turns[1]["dia_id"]]]],
        }
    questions = [
        (f"What did {a} plant?", ["D1:1"], 4),
        ("What did Vera see on the boat that she repaired?", ["D1:2; D3:4"], 1),
        ("When will Vera sail to Corsica?", ["D2:4"], 2),
        ("Why is the sky green?", [], 3),
        (f"Which motorbike did {b} sell?", ["D3:3"], 5),
    ]
    qa = [
        {"question": text, "evidence": evidence, "category": category, "answer": "-"}
        for text, evidence, category in questions
    ]
    return {"sample_id": name, "conversation": sessions, "observation": facts, "qa": qa}


TITLES = ("Bergamo", "Corsica", "Iseo", "Pippo", "Cello", "Tulip", "Comet", "Harbour")


def lines(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """A file of JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def passage_files(folder: Path, name: str = "small", titles: Sequence[str] = TITLES) -> None:
    """Eight passages, two questions: the first needs two of them, the other one."""
    folder.mkdir(exist_ok=True)
    corpus = [
        {
            "id": i,
            "title": title,
            "text": f"{title} was first written about by {titles[(i + 1) % 8]} in year {i}. "
            "Nothing else is known about it, but this sentence is long enough to matter.",
        }
        for i, title in enumerate(titles)
    ]
    asked = [
        {"question": f"Who wrote first about {titles[0]}, and who about them?", "gold_ids": [0, 1]},
        {"question": f"Which year is told of the {titles[6]}?", "gold_ids": [6]},
    ]
    lines(folder / f"{name}_corpus.jsonl", corpus)
    lines(folder / f"{name}_queries.jsonl", asked)


def chat_files(folder: Path) -> None:
    """Three sessions of four turns; two questions of two types, and one that has no answer."""
    folder.mkdir()
    sessions = [
        {
            "session_id": f"s{number}",
            "date": f"2023/05/2{number} (Sun) 21:04",
            "turns": [
                {"role": "user" if place % 2 == 0 else "assistant", "content": text}
                for place, (_, text) in enumerate(REMARKS[4 * number : 4 * number + 4])
            ],
        }
        for number in range(3)
    ]
    asked: list[tuple[str, str, str, list[str], list[list[Any]]]] = [
        ("q1", "user", "Which tulips did I plant?", ["s0"], [["s0", 0]]),
        ("q2", "sessions", "Which comets did Vera see?", ["s0", "s2"], [["s0", 3], ["s2", 3]]),
        ("q3_abs", "user", "Which oboe did I learn to play?", ["s1"], [["s1", 0]]),
    ]
    names = ("question_id", "type", "question", "gold_sessions", "gold_turns")
    lines(folder / "sessions.jsonl", sessions)
    lines(folder / "questions.jsonl", [dict(zip(names, row, strict=True)) for row in asked])
