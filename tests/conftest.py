"""Settings that must be in place before anything is imported, and inputs that many tests share."""

from __future__ import annotations

import os
from pathlib import Path

# No test may fetch anything; the models come as packages.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import pytest
import torch

# Read when a kernel is decorated, so it is set before any kernel can be imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

ROOT = Path(__file__).resolve().parents[1]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is marked `cuda` where there is no device."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(skip)


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def generator() -> torch.Generator:
    """Seeded randomness, new for every test."""
    return torch.Generator().manual_seed(0)
