"""Inputs of the readers' tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

SESSION_1 = [
    {"speaker": "Ada", "dia_id": "D1:1", "text": "I bought a canoe.", "img_url": ["x"]},
    {
        "speaker": "Ben",
        "dia_id": "D1:2",
        "text": "Show me!",
        "blip_caption": "a red canoe on a lake",
        "query": "secret search words",
    },
]
SESSION_2 = [{"speaker": "Ada", "dia_id": "D2:1", "text": "The canoe sank."}]


@pytest.fixture
def sample() -> dict[str, Any]:
    """A conversation in the form of LoCoMo."""
    return {
        "sample_id": "conv-7",
        "qa": [{"question": "What sank?", "answer": "canoe", "evidence": ["D2:1"], "category": 4}],
        "conversation": {
            "speaker_a": "Ada",
            "speaker_b": "Ben",
            "session_2_date_time": "10:05 am on 9 May, 2023",
            "session_2": [dict(turn) for turn in SESSION_2],
            "session_1_date_time": "1:56 pm on 8 May, 2023",
            "session_1": [dict(turn) for turn in SESSION_1],
            "session_3_date_time": "1:00 pm on 1 June, 2023",
        },
        "observation": {
            "session_1_observation": {"Ada": [["Ada owns a canoe.", "D1:1"]]},
            "session_2_observation": {
                "Ada": [["Her canoe sank.", ["D2:1", "D1:1"]], ["She is sad.", "D2:1, D1:2; D9:9"]]
            },
        },
    }


@pytest.fixture
def locomo_file(tmp_path: Path, sample: dict[str, Any]) -> Path:
    path = tmp_path / "talk.json"
    path.write_text(json.dumps([sample]))
    return path
