"""Captured questions: a CUDA graph for each bucket of questions, replayed for smaller ones.

A question of a large memory sends a device some thousand operators, and sending them takes longer
than running them. A graph records them once and sends them all at once. It reads and writes the
tensors of its recording, so questions are copied into buffers (`index.question_buffers`), and a
memory that grows lies in buffers with room (`index.roomy_memory`).
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from threading import Lock
from typing import Any, NamedTuple, Protocol
from weakref import WeakSet

import torch
from torch import Tensor

from graphmem_torch.checks import needs_gradient
from graphmem_torch.index.execution_plan import CandidateRule, ExecutionPlan
from graphmem_torch.index.question_buffers import Bucket, QuestionBuffers, bucket_of
from graphmem_torch.index.retrieve import OF_HITS, Retrieval
from graphmem_torch.index.roomy_memory import RoomyMemory
from graphmem_torch.index.tiled import retrieve_checked
from graphmem_torch.ops.appendable_graph import AppendableGraph
from graphmem_torch.ops.fixed_shapes import fixing_shapes
from graphmem_torch.ops.growing import RowsOnDevice
from graphmem_torch.ops.spread import FEW_VALUES
from graphmem_torch.ops.tiles import free_bytes
from graphmem_torch.rank.memory_tensors import MemoryTensors
from graphmem_torch.rank.query import QueryBatch

__all__ = ["CapturedGraphs", "CudaRecorder", "Recorder", "Recording"]

_QUARTER = 4
_BUCKETS = 256  # maximum number of buckets whose uses are counted
_ALIKE = 1e-3  # maximum difference of scores between a replay and an ordinary run
_SHARED = 0.98  # minimum share of places with the same hit in both


class Recording(NamedTuple):
    """Operators that a recorder has recorded.

    Attributes:
        replay: Function that runs them again.
        result: Tensor that they write.
        first: Result of an ordinary run before.
        bytes: Memory that they hold until the recording is dropped.
    """

    replay: Callable[[], None]
    result: Tensor
    first: Tensor
    bytes: int


class Recorder(Protocol):
    """Recorder of the operators of a function."""

    @property
    def limit(self) -> int:
        """Maximum bytes that its recordings hold together."""

    def record(self, run: Callable[[], Tensor]) -> Recording:
        """Run a function once, then record it; its operators must not depend on values."""


class CudaRecorder:
    """Records CUDA graphs on one device."""

    def __init__(self, device: torch.device | str) -> None:
        """Record on this device."""
        self._device = torch.device(device)

    @property
    def limit(self) -> int:
        """A quarter of the memory of the device that is free."""
        return free_bytes(self._device) // _QUARTER

    def record(self, run: Callable[[], Tensor]) -> Recording:
        """Run a function, which also compiles its kernels, then capture it as a graph."""
        with torch.cuda.device(self._device):
            before = torch.cuda.current_stream()
            try:
                return self._captured(run, before)
            except BaseException:
                # `torch.cuda.graph` keeps its stream when the end of a capture raises.
                torch.cuda.set_stream(before)
                torch.cuda.synchronize()
                raise

    def _captured(self, run: Callable[[], Tensor], current: torch.cuda.Stream) -> Recording:
        """Run a function on a stream beside the current one, then capture it."""
        stream = torch.cuda.Stream()
        stream.wait_stream(current)
        try:
            with torch.cuda.stream(stream):
                first = run().clone()
        finally:
            current.wait_stream(stream)
        before = torch.cuda.memory_reserved()
        graph = torch.cuda.CUDAGraph()
        # Other threads may allocate meanwhile.
        with torch.cuda.graph(graph, capture_error_mode="thread_local"):
            result = run()
        size = max(0, torch.cuda.memory_reserved() - before)

        def replay() -> None:
            with torch.cuda.device(self._device):
                graph.replay()

        return Recording(replay, result, first, max(size, result.nbytes))


class _Layout(NamedTuple):
    """Columns in one tensor of bytes: name, type, shape and first byte of each."""

    columns: tuple[tuple[str, torch.dtype, torch.Size, int], ...]

    def unpacked(self, packed: Tensor) -> dict[str, Tensor]:
        """Return the columns, which share the memory of `packed`."""
        return {
            name: packed[start : start + shape.numel() * dtype.itemsize].view(dtype).view(shape)
            for name, dtype, shape, start in self.columns
        }


def _packed(columns: Mapping[str, Tensor]) -> tuple[Tensor, _Layout]:
    """Return columns in one tensor of bytes; the widest types come first, so all are aligned."""
    named = sorted(columns.items(), key=lambda column: -column[1].dtype.itemsize)
    places, start = [], 0
    for name, column in named:
        places.append((name, column.dtype, column.shape, start))
        start += column.numel() * column.dtype.itemsize
    parts = [column.contiguous().view(-1).view(torch.uint8) for _, column in named]
    return torch.cat(parts), _Layout(tuple(places))


@dataclass
class _Captured:
    """Graph of a bucket, with the buffers that it reads.

    Attributes:
        uses: Number of batches of questions of the bucket.
        replays: Number of these that the graph answered.
        refused: Reason why the bucket has no graph.
        recording: The operators; None before the second use, and where they cannot be recorded.
        buffers: Buffers of the questions.
        weights: Buffer of the weights.
        layout: Columns of the result.
        bytes: Memory that all of these hold.
    """

    uses: int = 0
    replays: int = 0
    refused: str | None = None
    recording: Recording | None = None
    buffers: QuestionBuffers | None = None
    weights: Tensor | None = None
    layout: _Layout | None = None
    bytes: int = 0


@dataclass
class _Subject:
    """Memory that graphs read: as it is, or in buffers with room.

    Attributes:
        given: The state of the memory that graphs answer for.
        plan: Plan of its questions.
        memory: The tensors that graphs read.
        roomy: Buffers of `memory`; None if these are the tensors of `given`.
        earlier: States before it, which are answered without graphs.
        latest: Plan of the last question, which equals `plan`.
    """

    given: MemoryTensors
    plan: ExecutionPlan
    memory: MemoryTensors
    roomy: RoomyMemory | None
    earlier: WeakSet[MemoryTensors]
    latest: ExecutionPlan

    def existing(self, query: QueryBatch) -> QueryBatch:
        """Return questions that find no atom which does not exist.

        The best by cosine and BM25 are chosen from those that exist. Where every atom is a
        candidate, or what a traversal reaches, others are excluded.
        """
        room = self.memory.room
        if room is None or self.plan.rule == CandidateRule.BASE:
            return query
        there = room.there[None]
        return replace(query, allowed=there if query.allowed is None else there & query.allowed)


class CapturedGraphs:
    """Graphs of the questions of one memory, the most recently used ones within a limit of bytes.

    A bucket is recorded at its second use. A memory that only grows keeps its graphs while its
    buffers have room. Safe for threads, which replay one after another.

    Attributes:
        records: True on devices that record questions.
        used: True while graphs answer questions (`use`).
    """

    records: bool = True

    def __init__(self, recorder: Recorder, rows: Mapping[str, RowsOnDevice] | None = None) -> None:
        """Start without graphs.

        Args:
            recorder: Recorder of operators.
            rows: Growing rows of the memory on its device, by the name of the buffer
                (`MemoryIndex.follow_to`). Without them, a memory that changes is recorded anew.
        """
        self._recorder = recorder
        self._rows = {} if rows is None else rows  # those of an empty mapping may come later
        self._lock = Lock()
        self._graphs: OrderedDict[Bucket, _Captured] = OrderedDict()
        self._subject: _Subject | None = None
        self._warned, self.used = False, True

    @classmethod
    def on(
        cls,
        device: torch.device | str,
        rows: Mapping[str, RowsOnDevice] | None = None,
        earlier: CapturedGraphs | None = None,
    ) -> CapturedGraphs | None:
        """Return graphs of a CUDA device, used if `earlier` ones are; None for other devices."""
        if torch.device(device).type != "cuda":
            return None
        found = cls(CudaRecorder(device), rows)
        found.used = earlier is None or earlier.used
        return found

    def use(self, wanted: bool = True) -> None:
        """Choose whether graphs answer questions; if not, free those that are there."""
        with self._lock:
            self.used = wanted
            if not wanted:
                self._graphs.clear()
                self._subject = None

    def report(self) -> list[dict[str, Any]]:
        """Return bucket, bytes, uses and replays of each graph, and why a bucket has none."""
        with self._lock:
            return [
                {
                    "bucket": str(bucket),
                    "bytes": graph.bytes,
                    "uses": graph.uses,
                    "replays": graph.replays,
                    "refused": graph.refused,
                }
                for bucket, graph in self._graphs.items()
            ]

    @property
    def bytes(self) -> int:
        """Bytes that all graphs hold, with the buffers of their questions and of the memory."""
        with self._lock:
            roomy = None if self._subject is None else self._subject.roomy
            return self._held() + (0 if roomy is None else roomy.bytes)

    def _held(self) -> int:
        return sum(graph.bytes for graph in self._graphs.values())

    def answer(
        self,
        memory: MemoryTensors,
        plan: ExecutionPlan,
        weights: Tensor,  # [3, F], by form
        query: QueryBatch,
        k: int,
        size: int,
    ) -> Retrieval | None:
        """Answer questions of checked sizes by a graph; None if they must be answered without.

        Arguments are those of `index.tiled.retrieve_in_tiles`. The host waits once, for the flags
        of the answer. They are raised by values that need an error or an answer without a graph.
        """
        device = memory.embeddings.device
        same = all(each.device == device for each in query.given().values())
        if not same or memory.peers is not None or not memory.num_atoms:
            return None
        if needs_gradient(weights, *query.given().values(), memory.graph.stored.weight):
            return None
        with self._lock, torch.inference_mode(False), torch.no_grad():
            # Tensors made here outlive the call, and inference tensors could not be written to.
            if not self.used or not self._follow(memory, plan):
                return None
            assert self._subject is not None
            atoms = self._subject.memory.num_atoms
            bucket = bucket_of(query, k, atoms)
            nodes = self._subject.memory.graph.num_nodes
            dense = plan.spreads or plan.walks or plan.traverses
            if bucket is None or (dense and bucket.questions * nodes > FEW_VALUES):
                return None
            graph = self._graphs.setdefault(bucket, _Captured())
            self._graphs.move_to_end(bucket)
            if len(self._graphs) > _BUCKETS:
                self._graphs.popitem(last=False)
            graph.uses += 1
            if graph.recording is None:
                if graph.uses < 2 or graph.refused is not None:
                    return None
                self._record(bucket, graph, weights, query, size)
                if graph.recording is None:
                    return None
            return self._replayed(graph, weights, query, min(k, memory.num_atoms))

    def _follow(self, memory: MemoryTensors, plan: ExecutionPlan) -> bool:
        """Bring the buffers to a state of the memory; False for one that is answered without."""
        subject = self._subject
        if subject is None:
            return self._start(memory, plan, WeakSet())
        if memory is subject.given and plan is subject.latest:
            return True
        if memory in subject.earlier:
            return False
        if memory is not subject.given:
            subject.earlier.add(subject.given)
        if not _same(plan, subject.plan):
            return self._start(memory, plan, subject.earlier)
        if memory is not subject.given and not (subject.roomy and subject.roomy.take(memory)):
            return self._start(memory, plan, subject.earlier)
        subject.given, subject.latest = memory, plan
        return True

    def _start(
        self, memory: MemoryTensors, plan: ExecutionPlan, earlier: WeakSet[MemoryTensors]
    ) -> bool:
        """Drop all graphs, and begin with a state of the memory."""
        self._graphs.clear()
        self._subject = None  # its buffers make room
        roomy = RoomyMemory.of(memory, self._rows)
        graph = memory.graph
        whole = memory.conducting(graph.compact) if isinstance(graph, AppendableGraph) else memory
        buffers = whole if roomy is None else roomy.memory
        self._subject = _Subject(memory, plan, buffers, roomy, earlier, plan)
        return True

    def _record(
        self, bucket: Bucket, graph: _Captured, weights: Tensor, query: QueryBatch, size: int
    ) -> None:
        """Record a bucket; if that fails, warn once and keep the reason."""
        assert self._subject is not None
        subject, device = self._subject, query.embedding.device
        try:
            buffers, own = QuestionBuffers(bucket, device), weights.clone()
            buffers.take(query)
            layouts: list[_Layout] = []

            def run() -> Tensor:
                with fixing_shapes() as doubts:
                    asked = subject.existing(buffers.query)
                    found = retrieve_checked(
                        subject.memory, subject.plan, own, asked, bucket.k, size
                    )
                flags = torch.stack(doubts).any() if doubts else own.new_zeros(()).bool()
                packed, layout = _packed({**found._asdict(), "doubt": flags})
                layouts.append(layout)
                return packed

            recording = self._recorder.record(run)
            held = recording.bytes + buffers.bytes + own.nbytes
            if held > self._recorder.limit:
                raise RuntimeError(
                    f"{held:,} bytes, more than the limit of {self._recorder.limit:,}"
                )
            recording.replay()
            if not _alike(*map(layouts[-1].unpacked, (recording.first, recording.result))):
                raise RuntimeError("its replay differs from its recording")
        except RuntimeError as error:
            graph.refused = str(error).partition("\n")[0]
            if not self._warned:
                self._warned = True
                warnings.warn(
                    f"graphs: expected to record a question ({bucket}), got: {graph.refused}; "
                    "such questions are answered without a graph",
                    RuntimeWarning,
                    stacklevel=5,
                )
            return
        graph.recording, graph.buffers, graph.weights = recording, buffers, own
        graph.layout, graph.bytes = layouts[-1], held
        while self._held() > self._recorder.limit:
            oldest = next(each for each, own_graph in self._graphs.items() if own_graph.bytes)
            del self._graphs[oldest]

    def _replayed(
        self, graph: _Captured, weights: Tensor, query: QueryBatch, most: int
    ) -> Retrieval | None:
        """Return the answer of a graph; None if a flag is raised."""
        assert graph.recording is not None and graph.buffers is not None
        assert graph.weights is not None and graph.layout is not None
        graph.buffers.take(query, (graph.weights, weights))
        graph.recording.replay()
        graph.replays += 1
        found = graph.layout.unpacked(graph.recording.result.clone())
        if bool(found.pop("doubt")):
            return None
        columns = {name: column[: len(query)] for name, column in found.items()}
        of_hits = {name: columns[name][:, :most] for name in OF_HITS}
        return Retrieval(**columns | of_hits)


def _same(plan: ExecutionPlan, other: ExecutionPlan) -> bool:
    """Return whether two plans have the same steps and numbers."""
    names = [each.name for each in fields(plan) if each.name != "gate"]
    return all(getattr(plan, n) == getattr(other, n) for n in names) and torch.equal(
        plan.gate, other.gate
    )


def _alike(found: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> bool:
    """Return whether a replay found what an ordinary run did; the last bits may differ."""
    scores = (found["scores"] - expected["scores"]).abs().nan_to_num(nan=0.0)
    rows = (found["rows"] == expected["rows"]).float()
    return not rows.numel() or bool((rows.mean() > _SHARED) & (scores.max() < _ALIKE))
