"""Captured questions: replays of recorded operators give the answers of operators."""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch.nn.functional import pad

from bench.counting import counted
from bench.made_memory import made_memory, questions
from bench.recorder import StandInRecorder
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.index.captured import CapturedGraphs, CudaRecorder
from graphmem_torch.index.data import GrowingIndex
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.index.retrieve import Retrieval
from graphmem_torch.ops.growing import RowsOnDevice
from graphmem_torch.rank.query import QueryBatch
from tests.index.growing import additions

PRESETS = ("default", "synapse", "contextos", "spectral", "sgrm", "weave")
SMALL, LARGE = 400, 2500  # every atom is a candidate, or the best ones
MADE = {(n, rich): made_memory(n, rich=rich) for n in (SMALL, LARGE) for rich in (False, True)}


def made(preset: str, atoms: int = LARGE, rich: bool = False) -> tuple[MemoryIndex, QueryBatch]:
    data = MADE[atoms, rich]
    index = MemoryIndex.build(data, load_config(preset)).eval()
    return index, questions(data, 40, rich=rich, masked=rich)


def same(found: Retrieval, expected: Retrieval) -> None:
    assert torch.equal(found.rows, expected.rows)
    there = (found.rows >= 0)[:, :, None]  # the shares of no hit are undefined
    found, expected = (each._replace(shares=each.shares * there) for each in (found, expected))
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.confidence, expected.confidence, rtol=0, atol=1e-6)


def asked_both(index: MemoryIndex, graphs: CapturedGraphs, asked: QueryBatch, k: int = 7) -> None:
    """Ask without and with graphs, and compare."""
    expected = index.capture(None)(asked, k=k)
    same(index.capture(graphs)(asked, k=k), expected)


def replays(graphs: CapturedGraphs) -> int:
    assert [each["refused"] for each in graphs.report() if each["refused"]] == []
    return sum(each["replays"] for each in graphs.report())


def cut(asked: QueryBatch, tokens: int, words: int) -> QueryBatch:
    """Shorten the lists of questions."""
    assert asked.tokens is not None and asked.pieces is not None and asked.terms is not None
    return replace(
        asked,
        tokens=asked.tokens[:, :tokens],
        pieces=asked.pieces[:, :tokens],
        terms=asked.terms[:, :words].contiguous(),
    )


@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
@pytest.mark.parametrize("atoms", [SMALL, LARGE])
@pytest.mark.parametrize("preset", PRESETS)
def test_replays_answer_smaller_questions_of_a_bucket(preset: str, atoms: int, rich: bool) -> None:
    index, asked = made(preset, atoms, rich)
    graphs = CapturedGraphs(StandInRecorder())
    parts = [(0, 7), (7, 10), (12, 20), (20, 21), (22, 23), (5, 8)]
    for first, last in parts:
        asked_both(index, graphs, asked.rows(slice(first, last)))
    for tokens, words in ((3, 5), (1, 1)):
        asked_both(index, graphs, cut(asked.rows(slice(30, 34)), tokens, words))
    # Of 6 batches of up to eight questions, all but the first are replayed, and of 2 alone, one.
    assert replays(graphs) == 6
    assert {each["bucket"] for each in graphs.report()} == {
        "8 questions, 8 words, k=7", "1 questions, 8 words, k=7"
    }  # fmt: skip


@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
@pytest.mark.parametrize("atoms", [SMALL, LARGE])
@pytest.mark.parametrize("preset", PRESETS)
def test_additions_replay_the_same_graph(preset: str, atoms: int, rich: bool) -> None:
    config, kept, recorder = load_config(preset), dict[str, RowsOnDevice](), StandInRecorder()
    growing, graphs = GrowingIndex(config), CapturedGraphs(recorder, kept)
    data = MADE[atoms, rich]
    every = questions(data, 12, rich=rich, masked=rich)
    first = atoms * 9 // 10
    for step, part in enumerate(additions(data, [first, first + 3, first + 4, first + 30])):
        index = MemoryIndex(growing.append(part), config, growing.listed).eval()
        index.follow_to("cpu", kept)
        for at in range(3):
            asked = every.rows(slice(3 * at, 3 * at + 3))
            if asked.allowed is not None:
                asked = replace(asked, allowed=asked.allowed[:, : index.num_atoms])
            asked_both(index, graphs, asked)
        if step == 1:  # now the rows have room
            before = len(recorder.recorded)
    assert replays(graphs) == (8 if preset != "spectral" else 2)
    assert len(recorder.recorded) - before == (0 if preset != "spectral" else 2)
    assert graphs.bytes > 1000


def test_a_smaller_memory_and_other_weights_are_recorded_anew() -> None:
    config, kept, recorder = load_config("default"), dict[str, RowsOnDevice](), StandInRecorder()
    growing, graphs = GrowingIndex(config), CapturedGraphs(recorder, kept)
    asked = questions(MADE[LARGE, False], 12)
    parts = additions(MADE[LARGE, False], [2300, 2310, 2320])

    def grown(part: IndexInput) -> MemoryIndex:
        index = MemoryIndex(growing.append(part), config, growing.listed).eval()
        index.follow_to("cpu", kept)
        return index

    def ask(index: MemoryIndex) -> None:
        for at in range(3):
            asked_both(index, graphs, asked.rows(slice(4 * at, 4 * at + 4)))

    ask(grown(parts[0]))
    index = grown(parts[1])
    ask(index)
    with torch.no_grad():
        index.weights.mul_(0.5)  # are copied like questions
    ask(index)
    assert len(recorder.recorded) == 2
    with torch.no_grad():
        index.constants["spread"].mul_(0.7)
        index.edge_gains.mul_(0.9)
    ask(index)
    growing.remove(torch.arange(300, 340))
    ask(grown(parts[2]))
    assert replays(graphs) == 2 and len(recorder.recorded) == 4


def test_masks_and_numbers_of_hits_have_graphs_of_their_own() -> None:
    index, asked = made("default", rich=True)
    graphs, row = CapturedGraphs(StandInRecorder()), torch.arange(LARGE)
    asked = replace(asked, allowed=None).rows(slice(0, 6))
    for change in (
        {"allowed": (row % 3 != 0)[None]},
        {"allowed": (row + torch.arange(6)[:, None]) % 5 != 0},
        {"listed": (row % 4 != 0)[None], "ended": (row % 7 == 0)[None]},
        {"group": torch.where(row % 9 < 2, row // 9 + 1, 0)[None]},
        {"tier": (row % 3)[None]},
        {"seeds": torch.tensor([[LARGE + 3, -1]] * 6)},
        {"retention": torch.rand(6, LARGE)},
        {"wishes": asked.embedding[:, None].expand(-1, 3, -1).contiguous()},
    ):
        for k in (3, 12):
            for _ in range(3):
                asked_both(index, graphs, replace(asked, **change), k=k)
    assert replays(graphs) == 2 * 2 * 8


def test_questions_of_words_and_echoes_are_captured() -> None:
    """A memory without token vectors compares terms, and stored questions that ask the same."""
    data = replace(MADE[LARGE, False], tokens=None, pieces=None, token_offsets=None)
    asks = torch.arange(LARGE) % 11 == 0
    data = replace(
        data,
        asked_key=torch.where(asks, torch.arange(LARGE) % 40 + 1, 0),
        asked_words=torch.where(asks, 3, 0).to(torch.int16),
        asked_bits=torch.where(asks, 7, 0),
        asked_form=asks.to(torch.int8),
    )
    index = MemoryIndex.build(data, load_config("default")).eval()
    graphs, plain = CapturedGraphs(StandInRecorder()), questions(MADE[LARGE, False], 30)
    assert plain.terms is not None
    asked = replace(
        plain,
        tokens=None,
        pieces=None,
        asked_key=torch.arange(30) % 40 + 1,
        asked_terms=plain.terms[:, :3].contiguous(),
        asked_bits=torch.tensor([[1, 2, 4]]).expand(30, 3),
        asked_words=torch.full((30,), 3),
    )
    for first in (0, 5, 11, 20):
        asked_both(index, graphs, asked.rows(slice(first, first + 5)))
    assert replays(graphs) == 3


@pytest.mark.parametrize("rich", [False, True], ids=["plain", "rich"])
@pytest.mark.parametrize("preset", PRESETS)
def test_host_sends_three_operators_beside_the_graph(preset: str, rich: bool) -> None:
    index, asked = made(preset, rich=rich)
    index.capture(CapturedGraphs(StandInRecorder()))
    for _ in range(2):
        index(asked)
    work = counted(lambda _: index(asked))["all"]
    assert (work.calls, work.waits, work.uploads) == (3, 1, 0), work.places


@pytest.mark.parametrize("dtype", [torch.float16, torch.float64])
def test_other_precisions_and_tensors_of_inference_mode(dtype: torch.dtype) -> None:
    index, asked = made("default", rich=True)
    graphs, index = CapturedGraphs(StandInRecorder()), index.to(dtype)
    with torch.inference_mode():
        for first in (0, 6, 12):
            part = asked.rows(torch.arange(first, first + 6))
            assert part.embedding.is_inference()
            asked_both(index, graphs, part)
    assert replays(graphs) == 2


def test_a_capture_that_fails_warns_once() -> None:
    index, asked = made("default")
    graphs = CapturedGraphs(StandInRecorder(fails=True))
    expected = index(asked)
    index.capture(graphs)
    same(index(asked), expected)
    with pytest.warns(RuntimeWarning, match=r"\(64 questions, 8 words, k=30\), got: CUDA error"):
        same(index(asked), expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count in (40, 40, 5, 5, 5):
            index(asked.rows(slice(0, count)))
    assert [each["replays"] for each in graphs.report()] == [0, 0]


def test_a_bucket_beyond_the_limit_is_refused_by_name() -> None:
    index, asked = made("default")
    index.capture(graphs := CapturedGraphs(StandInRecorder(bytes=900, limit=800)))
    index(asked)
    with pytest.warns(RuntimeWarning, match=r"64 questions, 8 words, k=30\), got: .* more than"):
        index(asked)
    (report,) = graphs.report()
    assert "more than the limit of 800" in report["refused"] and report["bytes"] == 0


def test_least_recently_used_buckets_are_dropped() -> None:
    index, asked = made("default")
    recorder = StandInRecorder(bytes=10_000_000, limit=25_000_000)
    index.capture(graphs := CapturedGraphs(recorder))
    for k in (3, 4, 3, 5):
        for _ in range(2):
            index(asked.rows(slice(0, 4)), k=k)
    held = {each["bucket"]: each["bytes"] for each in graphs.report()}
    assert [*held] == ["8 questions, 8 words, k=3", "8 questions, 8 words, k=5"]
    assert 20_000_000 < sum(held.values()) == graphs.bytes <= recorder.limit
    graphs.use(False)
    index(asked)
    assert graphs.report() == [] and graphs.bytes == 0
    graphs.use()
    asked_both(index, graphs, asked)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"embedding": torch.full((40, 384), torch.nan)}, "query.embedding: expected finite"),
        ({"tokens": torch.full((40, 7, 128), torch.inf)}, "query.tokens: expected finite"),
        ({"terms": torch.full((40, 7), 10**6)}, "query_terms: expected terms below"),
        ({"embedding": torch.zeros(40, 3)}, "query.embedding: expected"),
        ({"k": 0}, "k: expected"),
    ],
)
def test_bad_questions_are_refused_as_without(change: dict[str, Any], message: str) -> None:
    index, asked = made("default")
    index.capture(graphs := CapturedGraphs(StandInRecorder()))
    for _ in range(3):
        index(asked)
    given = {"k": change["k"]} if "k" in change else {}
    bad = asked if given else replace(asked, **change)
    with pytest.raises(InputError, match=message):
        index(bad, **given)
    asked_both(index, graphs, asked, k=30)


def test_a_term_in_the_room_of_the_vocabulary_is_unknown() -> None:
    config, kept = load_config("default"), dict[str, RowsOnDevice]()
    growing, graphs = GrowingIndex(config), CapturedGraphs(StandInRecorder(), kept)
    data, asked = MADE[LARGE, False], questions(MADE[LARGE, False], 4)
    for part in additions(data, [2300, 2310]):
        index = MemoryIndex(growing.append(part), config, growing.listed).eval()
        index.follow_to("cpu", kept)
        for _ in range(3):
            asked_both(index, graphs, asked)
    assert asked.terms is not None
    with pytest.raises(InputError, match="query_terms: expected terms below"):
        index(replace(asked, terms=asked.terms.clone().fill_(index.tensors.bm25.idf.shape[0])))


def test_paths_gradients_and_explanations_are_not_captured() -> None:
    index, asked = made("default")
    recorder = StandInRecorder()
    expected = index(asked, k=5, paths=True)
    index.capture(CapturedGraphs(recorder))
    for _ in range(3):
        same(index(asked, k=5, paths=True), expected)
        index.explain(asked.rows(slice(0, 1)), 3)
    index.requires_grad_()
    for _ in range(3):
        index(asked, k=5)
    assert recorder.recorded == []
    with torch.no_grad():
        index(asked, k=5), index(asked, k=5)
    assert len(recorder.recorded) == 1


def test_more_questions_than_the_largest_bucket_run_their_operators() -> None:
    index, asked = made("default", SMALL)
    recorder = StandInRecorder()
    index.capture(CapturedGraphs(recorder))
    for _ in range(2):
        index(asked.rows(torch.arange(1025) % 40)), index(asked.rows(slice(0, 0)))
    assert recorder.recorded == []


def test_threads_and_states_that_alternate_get_their_own_answers() -> None:
    """Threads share the buffers of a bucket; an earlier state of a memory is asked without."""
    config, kept, recorder = load_config("default"), dict[str, RowsOnDevice](), StandInRecorder()
    growing, graphs = GrowingIndex(config), CapturedGraphs(recorder, kept)
    asked = questions(MADE[LARGE, False], 40)
    batches = [asked.rows(slice(3 * i, 3 * i + 1 + i % 3)) for i in range(12)]
    states, expected = [], []
    for part in additions(MADE[LARGE, False], [2300, 2310, 2315, 2320]):
        index = MemoryIndex(growing.append(part), config, growing.listed).eval()
        index.follow_to("cpu", kept)
        states.append(index)
        expected.append([index(each, k=5) for each in batches])
    for index in states:
        index.capture(graphs)
    with ThreadPoolExecutor(6) as pool:
        jobs = [(state, i) for i in range(12) for state in (1, 2, 3, 2)]
        found = pool.map(lambda job: states[job[0]](batches[job[1]], k=5), jobs)
        for (state, i), one in zip(jobs, found, strict=True):
            same(one, expected[state][i])
    assert replays(graphs) > 0


def test_recordings_that_take_numbers_from_the_host_are_refused() -> None:
    recorder, x = StandInRecorder(), torch.arange(3.0)
    for run in (
        lambda: x[x > 1],
        lambda: x * float(x[0]),
        lambda: x + torch.tensor(1.0),
        lambda: pad(x, (0, int(x.sum()))),
        lambda: torch.from_numpy(x.numpy()),
    ):
        with pytest.raises(RuntimeError, match="cannot be captured"):
            recorder.record(run)
    recording = recorder.record(lambda: x.square().sum()[None])
    x.add_(1)
    recording.replay()
    assert recording.result.tolist() == [14.0] and recording.first.tolist() == [5.0]


@pytest.mark.cuda
@pytest.mark.parametrize("preset", PRESETS)
def test_cuda_graphs_answer_as_operators_do(preset: str) -> None:
    index, asked = made(preset, rich=True)
    index, asked = index.to("cuda"), asked.to("cuda")
    graphs = CapturedGraphs.on("cuda")
    assert graphs is not None
    with torch.inference_mode():
        expected = [index(asked.rows(slice(i, i + 6)), k=7) for i in range(6)]
        index.capture(graphs)
        for part, other in enumerate(expected):
            found = index(asked.rows(slice(part, part + 6)), k=7)
            assert (found.rows == other.rows).float().mean() > 0.98
            torch.testing.assert_close(found.scores, other.scores, rtol=1e-3, atol=1e-3)
    assert replays(graphs) == 5


class StandInStreams:
    """Streams and graphs in place of those of `torch.cuda`; the end of a capture raises."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.current: Any = (default := StandInStream("default"))
        self.default, self.calls = default, 0
        patch.setattr(torch.cuda, "device", lambda _: nullcontext())
        patch.setattr(torch.cuda, "Stream", lambda: StandInStream("side"))
        patch.setattr(torch.cuda, "current_stream", lambda: self.current)
        patch.setattr(torch.cuda, "set_stream", lambda stream: setattr(self, "current", stream))
        patch.setattr(torch.cuda, "synchronize", lambda: setattr(self, "calls", self.calls + 1))
        patch.setattr(torch.cuda, "memory_reserved", lambda: 0)
        patch.setattr(torch.cuda, "CUDAGraph", object)
        patch.setattr(torch.cuda, "stream", self.on)
        patch.setattr(torch.cuda, "graph", self.capture)

    @contextmanager
    def on(self, stream: Any) -> Iterator[None]:
        before, self.current = self.current, stream
        try:
            yield
        finally:
            self.current = before

    @contextmanager
    def capture(self, *_: Any, **__: Any) -> Iterator[None]:
        self.current = StandInStream("capture")  # stays, as in torch, when the end raises
        yield
        raise RuntimeError("CUDA error: operation failed due to a previous error")


class StandInStream:
    def __init__(self, name: str) -> None:
        self.name, self.waited = name, list[str]()

    def wait_stream(self, other: Any) -> None:
        self.waited.append(other.name)


@pytest.mark.parametrize("failing", ["warm-up", "capture"])
def test_a_failed_recording_gives_the_stream_back(
    monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    streams = StandInStreams(monkeypatch)

    def run() -> torch.Tensor:
        if failing == "warm-up":
            raise RuntimeError("out of memory")
        return torch.ones(3)

    with pytest.raises(RuntimeError, match=r"out of memory|previous error"):
        CudaRecorder("cuda").record(run)
    assert streams.current is streams.default and streams.calls == 1
    assert streams.default.waited == ["side"]


def test_an_index_without_graphs_reports_none_of_them() -> None:
    index, asked = made("default", SMALL)
    expected = index(asked)
    index.graphs.use(False)
    assert index.graphs.report() == [] and index.graphs.bytes == 0
    same(pickle.loads(pickle.dumps(index))(asked), expected)
    same(index.capture(CapturedGraphs.on("cpu"))(asked), expected)
    assert index.graphs.report() == []


def test_graphs_turned_off_stay_off_in_the_graphs_after_them() -> None:
    first = CapturedGraphs.on("cuda")
    assert first is not None
    for wanted in (False, True, False):
        first.use(wanted)
        later = CapturedGraphs.on("cuda", {}, first)
        assert later is not None and later.used is wanted
