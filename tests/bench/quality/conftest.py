"""What the tests of several judges read."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.bench.quality.made import locomo_file


@pytest.fixture
def locomo(tmp_path: Path) -> Path:
    """A LoCoMo file with two short conversations."""
    (tmp_path / "data").mkdir()
    return locomo_file(tmp_path / "data")
