"""Writers in turn and any number of readers, in this process and in others."""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import shlex
import shutil
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import EmbedderError, InputError, StoreError, StoreLockedError
from graphmem_torch.store import Batch, MemoryStore
from graphmem_torch.store.folder import DATABASE_NAME
from graphmem_torch.store.lock import WriterLock

MakeBatch = Callable[..., Batch]


def hold(path: Path, go: Event, ready: Event) -> None:
    """Keeps the turn until it is killed."""
    go.wait()
    with MemoryStore.open(path) as store, store.turn():
        ready.set()
        signal.pause()


def append_in_turn(path: Path, count: int) -> None:
    with MemoryStore.open(path, dim=8) as store:
        for _ in range(count):
            with store.turn():
                first = store.next_node
                store.append(Batch([Atom(f"n{first}", "x")], torch.full((1, 8), float(first))))


def test_processes_write_in_turn(tmp_path: Path) -> None:
    """Each reads in its turn the value that it increases: no number is read by two."""
    children = []
    for _ in range(3):
        child = os.fork()
        if child == 0:
            try:
                append_in_turn(tmp_path, 12)
                os._exit(0)
            finally:
                os._exit(1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0, 0, 0]
    with MemoryStore.open(tmp_path) as store:
        assert store.ids() == [f"n{i}" for i in range(36)]
        assert store.embeddings()[:, 3].tolist() == list(range(36))
        assert store.check() == []


def test_stores_of_one_folder_write_in_turn(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path) as store, MemoryStore.open(tmp_path) as other:
        for start, writer in enumerate((store, other, other, store)):
            writer.append(make_batch(1, start))
        with store.turn(), store.turn():
            assert other.next_node == store.next_node == 4
        assert store.check() == other.check() == []


def test_a_turn_that_does_not_come_names_who_has_it(
    tmp_path: Path, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WriterLock, "wait", 0.05)
    fork = multiprocessing.get_context("fork")
    go, ready = fork.Event(), fork.Event()
    # Before anything is open that a fork must not share.
    holder = fork.Process(target=hold, args=(tmp_path, go, ready))
    holder.start()
    try:
        with MemoryStore.open(tmp_path) as store:
            go.set()
            assert ready.wait(60)
            for write in (
                lambda: store.append(make_batch(1, 0)),
                lambda: MemoryStore.open(tmp_path),
            ):
                with pytest.raises(StoreLockedError) as caught:
                    write()
                command = shlex.join(sys.orig_argv)[:500]
                for part in (f"process {holder.pid} ", socket.gethostname(), command):
                    assert part in str(caught.value)
            with MemoryStore.open(tmp_path, mode="r") as reader:
                assert reader.num_nodes == 0
            (tmp_path / "writer.lock").write_text("\0")
            with pytest.raises(StoreLockedError, match=r"another process .*mode='r'"):
                store.append(make_batch(1, 0))
            # Killed, it leaves no stale lock.
            holder.kill()
            holder.join()
            store.append(make_batch(1, 0))
    finally:
        holder.kill()
        holder.join()


def test_a_thread_waits_for_its_turn(
    tmp_path: Path, make_batch: MakeBatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WriterLock, "wait", 0.05)
    for path in (None, tmp_path):
        with MemoryStore.open(path) as store, ThreadPoolExecutor(1) as pool:
            with store.turn():
                waiting = pool.submit(store.append, make_batch(1, 0))
                with pytest.raises(StoreLockedError, match=f"process {os.getpid()} on"):
                    waiting.result()
            pool.submit(store.append, make_batch(1, 0)).result()
            assert store.next_node == 1


def test_who_waits_says_for_whom(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    lock, other = WriterLock(tmp_path), WriterLock(tmp_path, wait=math.inf)
    start = datetime.now(UTC).replace(microsecond=0)

    def wait() -> None:
        with other:
            pass

    with ThreadPoolExecutor(1) as pool:
        with lock:
            waiting = pool.submit(wait)
            until = time.monotonic() + 60
            while "waiting for" not in caplog.text and time.monotonic() < until:
                time.sleep(0.05)
            assert not waiting.done()
        waiting.result(60)
    (told,) = [record.getMessage() for record in caplog.records]
    command = shlex.join(sys.orig_argv)[:500]
    for part in (f"{tmp_path}: ", f"process {os.getpid()} on ", socket.gethostname(), command):
        assert part in told
    since = datetime.strptime(told.split(", since ")[1][:23], "%Y-%m-%d %H:%M:%S UTC")
    assert timedelta() <= since.replace(tzinfo=UTC) - start <= timedelta(seconds=60)


def test_a_wait_begins_anew_whenever_the_turn_changes_hands(tmp_path: Path) -> None:
    """Who takes turn after turn, each of them short, makes nobody else give up."""
    lock, other = WriterLock(tmp_path), WriterLock(tmp_path, wait=1.0)
    (tmp_path / "writer.lock").touch()

    def wait() -> float:
        start = time.monotonic()
        with other:
            return time.monotonic() - start

    with ThreadPoolExecutor(1) as pool:
        with lock:
            waiting = pool.submit(wait)
            for number in range(6):  # as another process would note it at each of its turns
                time.sleep(0.4)
                note = {"pid": number, "host": "h", "command": "c", "since": 1e9 + number}
                (tmp_path / "writer.lock").write_text(json.dumps(note))
        assert waiting.result(60) > 1.0


def test_a_lock_that_is_a_link_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "precious"
    target.write_text("not to be lost")
    for make in (lambda lock: lock.symlink_to(target), os.mkfifo):
        (tmp_path / "store").mkdir()
        make(tmp_path / "store" / "writer.lock")
        with pytest.raises(StoreError, match=r"expected a file writer\.lock.*remove it"):
            MemoryStore.open(tmp_path / "store")
        assert target.read_text() == "not to be lost"
        shutil.rmtree(tmp_path / "store")


def test_an_empty_store_that_others_bound_meanwhile(tmp_path: Path, make_batch: MakeBatch) -> None:
    with (
        MemoryStore.open(tmp_path, fingerprint="one", dim=8) as store,
        MemoryStore.open(tmp_path, fingerprint="two", dim=8) as other,
    ):
        store.append(make_batch(1, 0))
        assert store.fingerprint == "one"
        with pytest.raises(EmbedderError, match=r"\(fingerprint one\).*two"):
            other.append(make_batch(1, 1))
        assert other.next_node == 1


def test_readers_see_each_batch_and_may_pin_a_moment(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path) as writer, MemoryStore.open(tmp_path, mode="r") as reader:
        assert reader.next_node == 0
        writer.append(make_batch(3, 0))
        assert reader.next_node == 3
        with reader.reading():
            state = reader.state
            writer.append(make_batch(4, 3))
            assert reader.state == state
            assert reader.embeddings().shape == (3, 8)
            assert len(reader.columns().node) == 3
        assert reader.embeddings().shape == (7, 8)
        assert writer.check() == reader.check() == []


def test_a_reader_cannot_write(tmp_path: Path, make_batch: MakeBatch) -> None:
    MemoryStore.open(tmp_path).close()
    with MemoryStore.open(tmp_path, mode="r") as reader:
        assert reader.readonly
        writes = (
            lambda: reader.append(make_batch(1, 0)),
            lambda: (reader.uses.note([0], 0.0), reader.uses.flush()),
            lambda: reader.meta_set("a", "b"),
        )
        for write in writes:
            with pytest.raises(StoreError, match="reading only"):
                write()


def test_no_write_inside_reading(tmp_path: Path, make_batch: MakeBatch) -> None:
    with MemoryStore.open(tmp_path) as store:
        with store.reading(), pytest.raises(StoreError, match="inside `reading"):
            store.append(make_batch(1, 0))
        store.append(make_batch(1, 0))
        assert store.next_node == 1


def test_many_readers_while_a_writer_writes(tmp_path: Path, make_batch: MakeBatch) -> None:
    batches = [make_batch(10, start) for start in range(0, 150, 10)]
    expected = torch.cat([batch.embeddings for batch in batches])
    wrong: list[str] = []
    done = threading.Event()

    def read() -> None:
        with MemoryStore.open(tmp_path, mode="r") as reader:
            while not done.is_set():
                with reader.reading():
                    n = reader.next_node
                    vectors, ids = reader.embeddings(), reader.ids()
                whole = n % 10 == 0 and len(ids) == n
                if not (whole and torch.equal(vectors, expected[:n])):
                    wrong.append(f"{n} {len(ids)} {len(vectors)}")

    with MemoryStore.open(tmp_path, dim=8) as store:
        threads = [threading.Thread(target=read) for _ in range(2)]
        for thread in threads:
            thread.start()
        for batch in batches:
            store.append(batch)
        done.set()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert store.check() == []


def test_one_store_shared_by_threads(tmp_path: Path, make_batch: MakeBatch) -> None:
    """Reads on the writer's own connection never see half a batch."""
    with MemoryStore.open(tmp_path) as store:
        wrong: list[int] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                seen = store.num_nodes
                if seen % 10:
                    wrong.append(seen)

        thread = threading.Thread(target=read)
        thread.start()
        for start in range(0, 200, 10):
            store.append(make_batch(10, start))
        done.set()
        thread.join()
        assert wrong == []


def test_reading_a_folder_that_may_not_be_written(make_batch: MakeBatch) -> None:
    # Not under tmp_path, which another user may not enter.
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path = Path(folder) / "store"
        with MemoryStore.open(path) as store:
            store.append(make_batch(4, 0))
            store.save_snapshot({"a": torch.ones(1)}, {})
            store.load_snapshot()
        os.chmod(path, 0o555)
        # Nothing is forbidden to root.
        if root := os.geteuid() == 0:
            os.seteuid(65534)
        try:
            with pytest.raises(StoreError, match="cannot be opened for writing"):
                MemoryStore.open(path)
            with MemoryStore.open(path, mode="r") as store:
                assert store.embeddings().shape == (4, 8)
                assert store.load_snapshot() is not None
                assert store.check() == []
        finally:
            if root:
                os.seteuid(0)
            os.chmod(path, 0o755)


def test_reading_after_a_kill_where_nothing_may_be_written(make_batch: MakeBatch) -> None:
    """The write-ahead log cannot be read without its index file, and must not be passed over."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        path, copy = Path(folder) / "store", Path(folder) / "copy"
        with MemoryStore.open(path) as store:
            store.append(make_batch(4, 0))
            # As a kill would leave it.
            shutil.copytree(path, copy)
        (copy / f"{DATABASE_NAME}-shm").unlink()
        os.chmod(copy, 0o555)
        if root := os.geteuid() == 0:
            os.seteuid(65534)
        try:
            with pytest.raises(StoreError, match="did not close"):
                MemoryStore.open(copy, mode="r")
        finally:
            if root:
                os.seteuid(0)
            os.chmod(copy, 0o755)
        with MemoryStore.open(copy, mode="r") as store:
            assert store.next_node == 4


@pytest.mark.parametrize("end", ["close", "forget"])
def test_lock_that_an_interrupt_left_is_given_back(tmp_path, end):
    """Ctrl-C may come where a turn begins or ends, so that nothing ends it."""
    lock, other = WriterLock(tmp_path), WriterLock(tmp_path)
    other.wait = 0.0
    lock.__enter__()
    with pytest.raises(StoreLockedError), other:
        pass
    if end == "close":
        lock.close()
    del lock
    with other:
        pass


def test_what_is_gathered_is_there_whole_or_not_at_all(
    tmp_path: Path, make_batch: MakeBatch
) -> None:
    with MemoryStore.open(tmp_path) as store, MemoryStore.open(tmp_path, mode="r") as reader:
        store.append(make_batch(4, 0))
        store.uses.note([1], 5.0)
        before = store.state
        with pytest.raises(KeyboardInterrupt), store.gathering():
            store.append(make_batch(2, 4))
            with store.reading():
                assert store.num_nodes == 6
            store.lay_aside([1])
            raise KeyboardInterrupt
        assert store.state == before and store.num_nodes == 4 and store.next_node == 4
        assert store.uses.last(torch.tensor([1]), 9.0).tolist() == [5.0]
        with store.gathering():
            store.append(make_batch(2, 4))
            with store.gathering(), pytest.raises(InputError):  # a part that fails is not there
                store.append(Batch([Atom("new", "x"), Atom("a0", "y")], torch.zeros(2, 8)))
            assert store.known(["new"]) == {} and reader.num_nodes == 4
            store.meta_set("key", "value")
        assert reader.num_nodes == 6 and reader.meta_get("key") == "value"
        assert store.check() == []
        with store.reading(), pytest.raises(StoreError, match="no write inside"), store.gathering():
            pass
