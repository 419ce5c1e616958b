"""Worker processes that make findings in texts (`text.findings`), beside the encoder.

A worker is a fresh interpreter that gets pickled lists of texts on its standard input and answers
on its standard output. It is not a process of `multiprocessing`: those import the main module of
the caller again, which a library cannot ask of every script. A worker ends when its input ends, so
it survives neither a normal end nor a kill of its parent.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from typing import BinaryIO

from graphmem_torch.errors import GraphMemError, first_line
from graphmem_torch.text.findings import Finder, TextFindings

__all__ = ["WorkerError", "WorkerPool", "serve"]

# The path of the parent, so that a worker imports the same files. A parent may end before it sends.
_START = """
import pickle, sys
try:
    sys.path[:], spec = pickle.load(sys.stdin.buffer)
except EOFError:
    sys.exit()
from graphmem_torch.text.worker_pool import serve
serve(spec)
"""
_ENDS = 5.0  # seconds for a worker to end by itself


class WorkerError(GraphMemError):
    """A worker process that ended, or cannot be started."""


class WorkerPool:
    """Processes that find concepts in texts; safe for threads.

    A process starts with the first texts that none is free for.
    """

    def __init__(self, spec: str, workers: int) -> None:
        """Start nothing yet.

        Args:
            spec: Name of the extractor, from `finder_spec`.
            workers: Maximum number of processes.
        """
        self._spec, self._most = spec, workers
        self._tasks: queue.SimpleQueue[tuple[list[str], Future[list[TextFindings]]] | None] = (
            queue.SimpleQueue()
        )
        self._processes: list[subprocess.Popen[bytes]] = []
        self._threads: list[threading.Thread] = []
        self._lock, self._open = threading.Lock(), 0

    def submit(self, texts: Sequence[str]) -> Future[list[TextFindings]]:
        """Have the findings of texts made, and return their future.

        Its exception is a `WorkerError` if the worker has ended; its result is empty if the finder
        raised, and the caller makes the findings itself, with the same error in its place.
        """
        future: Future[list[TextFindings]] = Future()
        with self._lock:
            self._open += 1
            if self._open > len(self._processes) < self._most:
                self._begin()
        future.add_done_callback(self._done)
        self._tasks.put((list(texts), future))
        return future

    def _done(self, _: object) -> None:
        with self._lock:
            self._open -= 1

    def _begin(self) -> None:
        environment = {**os.environ, "OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        try:
            process = subprocess.Popen(
                [sys.executable, "-c", _START],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the parent, which ends its workers
            )
        except OSError as error:
            raise WorkerError(
                f"workers: expected a process to start, got {first_line(error)}; index with "
                "--workers 0"
            ) from error
        self._processes.append(process)
        thread = threading.Thread(target=self._attend, args=[process], daemon=True)
        self._threads.append(thread)
        thread.start()

    def _attend(self, process: subprocess.Popen[bytes]) -> None:
        """Pass tasks to one process, one at a time, until it or the pool ends."""
        assert process.stdin is not None and process.stdout is not None
        begun = False
        while (task := self._tasks.get()) is not None:
            texts, future = task
            try:
                if not begun:
                    _send(process.stdin, (sys.path, self._spec))
                    begun = True
                _send(process.stdin, texts)
                future.set_result(pickle.load(process.stdout))
            except (OSError, EOFError, pickle.UnpicklingError, ValueError):
                future.set_exception(self._ended(process))

    def _ended(self, process: subprocess.Popen[bytes]) -> WorkerError:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_ENDS)
        code = process.returncode
        how = f"signal {-code}" if code is not None and code < 0 else f"exit code {code}"
        return WorkerError(
            f"worker {process.pid}: expected concepts of texts, got its end ({how}); what was "
            "acknowledged is safe, and running the same command again resumes"
        )

    def close(self) -> None:
        """End all processes; tasks that wait are not done."""
        for process in self._processes:
            process.kill()
        for _ in self._threads:
            self._tasks.put(None)
        for process in self._processes:
            process.wait()
        for thread in self._threads:
            thread.join()
        for process in self._processes:
            for stream in (process.stdin, process.stdout):
                with contextlib.suppress(OSError):  # what was not sent is lost with its reader
                    if stream is not None:
                        stream.close()


def _send(stream: object, value: object) -> None:
    data = pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    stream.write(data)  # type: ignore[attr-defined]
    stream.flush()  # type: ignore[attr-defined]


def serve(spec: str) -> None:
    """Answer the texts of standard input with their findings, until it ends.

    Args:
        spec: Name of the extractor.
    """
    incoming, outgoing = sys.stdin.buffer, _own_output()
    # thinc loads torch wherever it is installed; the pipelines in use compute with numpy.
    sys.modules.setdefault("torch", None)  # type: ignore[arg-type]
    finder = Finder(spec)
    with contextlib.suppress(EOFError, BrokenPipeError):
        while True:
            texts = pickle.load(incoming)
            try:
                found = finder.find(texts)
            except Exception:  # the parent meets the same error where it can be placed
                found = []
            _send(outgoing, found)
    os._exit(0)  # nothing to clean up, and a broken pipe to flush


def _own_output() -> BinaryIO:
    """Return standard output for answers alone; what else prints goes to standard error."""
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return own
