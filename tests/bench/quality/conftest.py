"""Data for the tests of several judges."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.bench.quality.made import locomo_file, novel


@pytest.fixture
def locomo(tmp_path: Path) -> Path:
    """A LoCoMo file with two short conversations."""
    (tmp_path / "data").mkdir()
    return locomo_file(tmp_path / "data")


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    """A file of thirty texts of three sentences."""
    file = tmp_path / "texts.jsonl"
    file.write_text("".join(json.dumps({"text": text}) + "\n" for text in novel(30)))
    return file
