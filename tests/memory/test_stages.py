"""Indexing in stages: whatever is made ahead, a memory holds what a run without stages makes."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.memory import Memory
from graphmem_torch.memory.encoder_thread import EncoderThread, Unit
from graphmem_torch.memory.file_sync import FileSync
from graphmem_torch.memory.found_files import ReadSettings
from graphmem_torch.memory.stages import WORTH
from graphmem_torch.results import Indexed
from graphmem_torch.text.concepts import PatternConcepts
from graphmem_torch.text.embedder import Encoded, HashingEmbedder
from graphmem_torch.text.findings import finder_spec
from graphmem_torch.text.worker_pool import WorkerPool
from tests.memories import WORDS, config_of, opened
from tests.processes import interruptible

Draw = random.Random


def sentence(draw: Draw, words: int = 12) -> str:
    names = ["Ada Lovelace", "Lisbon", "the Red Canoe Club", "May 2021"]
    said = [f"{draw.choice(WORDS)}{draw.randrange(40)}" for _ in range(words)]
    return f"{draw.choice(names)} met {draw.choice(names)} by the {' '.join(said)}."


def corpus(folder: Path, seed: int) -> Path:
    """Files of all kinds: many small ones, long ones, and what cannot be read."""
    draw = Draw(seed)
    folder.mkdir()
    texts = [sentence(draw, draw.randint(3, 30)) for _ in range(150)]

    def line() -> bytes:
        record: dict[str, Any] = {"text": draw.choice(texts)}
        if draw.random() < 0.5:
            record |= {"id": f"n{draw.randrange(500)}"}  # often again, with other content
        if draw.random() < 0.3:
            record |= {"session": f"s{draw.randrange(3)}", "time": float(draw.randrange(10**6))}
        if draw.random() < 0.2:
            record |= {"edges": [f"n{draw.randrange(500)}"], "title": draw.choice(WORDS)}
        bad = [b'{"text": ', b'{"text": "\xff"}', b"", b'{"text": "x", "kind": "concept"}']
        return draw.choice(bad) if draw.random() < 0.05 else json.dumps(record).encode()

    (folder / "a.jsonl").write_bytes(b"\n".join(line() for _ in range(400)))
    (folder / "b.jsonl").write_bytes(b"\n".join(line() for _ in range(90)))
    for number in range(25):
        said = " \n\n".join(draw.choice(texts) for _ in range(draw.randint(1, 6)))
        (folder / f"note{number}.txt").write_text(said)
    (folder / "long.md").write_text("# Title\n\n" + "\n\n".join(texts * 3))
    (folder / "empty.txt").write_text("")
    (folder / "blank.txt").write_text(" \n ")
    (folder / "latin.txt").write_bytes("caf\xe9 au lait".encode("latin-1"))
    (folder / "line.jsonl").write_text(json.dumps({"text": "huge " * 30_000}) + "\n")
    (folder / "word.txt").write_text("x" * 20_000)
    return folder


def indexed(
    memory: Memory, paths: Sequence[Path], workers: int, *, skip_bad: bool = True
) -> Indexed:
    """Index with workers that pay for any text."""
    settings = replace(
        ReadSettings.of(memory._state, format=None, input="raw", workers=workers), pays=0
    )
    sync = FileSync(memory._writing, settings, dry_run=False)
    return sync.run([*paths], prune=False, skip_bad=skip_bad, progress=False)


def held(memory: Memory) -> tuple[Any, ...]:
    """Return all that the store holds, in its order."""
    store = memory.store
    nodes, edges = store.columns().node.tolist(), store.edges()
    ends = torch.stack([edges.source, edges.target, edges.type.long()]).tolist()
    rows = [(row.name, row.digest, row.reading, row.next) for row in store.sources.rows()]
    vectors = store.vectors(nodes)
    tokens = None if vectors.tokens is None else [each.tolist() for each in vectors.tokens]
    atoms = store.atoms(nodes)
    return nodes, atoms, ends, edges.weight, vectors.embeddings, tokens, store.aliases(), rows


def expect_equal(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    for mine, theirs in zip(one, other, strict=True):
        if isinstance(mine, torch.Tensor):
            torch.testing.assert_close(mine, theirs, rtol=0, atol=1e-6)
        else:
            assert mine == theirs


@pytest.mark.parametrize(("seed", "workers"), [(1, 1), (2, 3), (3, 2)])
def test_a_run_in_stages_equals_a_serial_one(
    tmp_path: Path, seed: int, workers: int, caplog: pytest.LogCaptureFixture
) -> None:
    folder, draw = corpus(tmp_path / "files", seed), Draw(seed)
    config = config_of(**{"embedder.max_tokens": draw.choice([20, 60])})
    made = []
    for number in (0, workers):
        caplog.clear()
        with opened(None, config=config, clock=lambda: 1e9) as memory:
            done = indexed(memory, [folder], number)
            again = indexed(memory, [folder], number)
            made.append((held(memory), asdict(done), asdict(again), caplog.messages))
    assert made[0][1:] == made[1][1:]
    expect_equal(made[0][0], made[1][0])


def test_changed_and_moved_files_too(tmp_path: Path) -> None:
    folder, made = corpus(tmp_path / "files", 4), []
    kept = {path: path.read_bytes() for path in folder.iterdir()}
    for number in (0, 2):
        for path in {*folder.iterdir()} - {*kept}:
            path.unlink()
        for path, data in kept.items():
            path.write_bytes(data)
        draw = Draw(5)
        with opened(None, clock=lambda: 1e9) as memory:
            done = [indexed(memory, [folder], number)]
            lines = (folder / "a.jsonl").read_bytes().splitlines()
            more = [json.dumps({"text": sentence(draw)}).encode() for _ in range(300)]
            draw.shuffle(lines)
            (folder / "a.jsonl").write_bytes(b"\n".join(lines[:300] + more))
            (folder / "note1.txt").write_text(sentence(draw) * 9)
            done.append(indexed(memory, [folder], number))
            (folder / "note2.txt").rename(folder / "note99.txt")
            done.append(indexed(memory, [folder], number))
            made.append((held(memory)[:-1], [asdict(each) for each in done]))
    assert made[0][1] == made[1][1]
    expect_equal(made[0][0], made[1][0])


def test_an_error_is_raised_where_a_serial_run_raises_it(tmp_path: Path) -> None:
    folder, made = corpus(tmp_path / "files", 6), []
    for number in (0, 2):
        with opened(None, clock=lambda: 1e9) as memory:
            with pytest.raises(InputError) as raised:
                indexed(memory, [folder], number, skip_bad=False)
            made.append((held(memory), str(raised.value)))
    assert made[0][1] == made[1][1]
    expect_equal(made[0][0], made[1][0])


def test_functions_of_the_caller_work_in_this_process(tmp_path: Path) -> None:
    """Neither can be sent to a worker."""
    folder, inner = corpus(tmp_path / "files", 7), HashingEmbedder(32, 0)
    pattern = PatternConcepts()

    class Own:
        name = "own"

        def extract(self, texts: Sequence[str]) -> list[list[str]]:
            return [names[:2] for names in pattern.extract(texts)]

        forms = staticmethod(lambda word: frozenset([word]))

    def own_vectors(texts: list[str]) -> Any:
        return inner.encode(texts).pooled.numpy()

    made = []
    for number in (0, 2):
        options: dict[str, Any] = {"embedder": own_vectors, "concepts": Own()}
        with Memory.open(None, config=config_of(), clock=lambda: 1e9, **options) as memory:
            indexed(memory, [folder], number)
            made.append(held(memory))
    expect_equal(made[0], made[1])


class Picky(HashingEmbedder):
    """Encoder that refuses a word."""

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        if any("refused" in text for text in texts):
            raise EmbedderError("embedder: expected another word, got 'refused'; leave it out")
        return super().encode(texts)


def test_a_text_that_the_encoder_refuses_is_left_out_alone(tmp_path: Path) -> None:
    draw, path, made = Draw(8), tmp_path / "a.jsonl", []
    texts = [sentence(draw) + (" refused" if i in (3, 70, 71) else "") for i in range(90)]
    path.write_text("\n".join(json.dumps({"text": text}) for text in texts))
    for number in (0, 2):
        with opened(None, embedder=Picky(), clock=lambda: 1e9) as memory:
            done = indexed(memory, [path], number)
            assert (done.new, len(done.skipped)) == (87, 3)
            made.append(held(memory))
    expect_equal(made[0], made[1])


class Listing(HashingEmbedder):
    """Encoder that keeps the texts of its calls."""

    def __init__(self, batch_pieces: int | None) -> None:
        super().__init__(32, 8)
        self.calls: list[list[str]] = []
        if batch_pieces is not None:
            self.batch_pieces = batch_pieces

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        self.calls.append([*texts])
        return super().encode(texts)


@pytest.mark.parametrize("pieces", [None, 4, 65_536])
def test_the_encoder_gets_as_much_as_a_pass_takes(pieces: int | None) -> None:
    draw, encoder, oracle = Draw(11), Listing(pieces), HashingEmbedder(32, 8)
    texts = [f"{sentence(draw, draw.randint(1, 30))} {number}" for number in range(70)]
    units = [Unit(len(own), own, [], []) for own in (texts[:20], [], texts[20:50], texts[50:])]
    thread = EncoderThread(encoder)
    try:
        for unit in units:
            thread.submit(unit)
        for unit in units:
            unit.encoded.result(timeout=60)
            made, whole = unit.encoded.result(timeout=60), oracle.encode(unit.texts)
            if not unit.texts:
                continue
            assert made is not None and made.tokens is not None and whole.tokens is not None
            torch.testing.assert_close(made.pooled, whole.pooled)
            assert torch.equal(made.tokens, whole.tokens)
            assert made.offsets is not None and torch.equal(made.offsets, whole.offsets)
    finally:
        thread.close()
    assert sorted(text for call in encoder.calls for text in call) == sorted(texts)
    letters = [sum(map(len, call[:-1])) for call in encoder.calls]
    assert pieces != 4 or max(letters) < 4 * 4 * 8  # eight passes, of four letters a piece
    assert pieces == 4 or len(encoder.calls) <= 4


def test_a_stopped_thread_leaves_the_rest_to_the_writer() -> None:
    units = [Unit(1, [f"text {number}"], [], []) for number in range(3)]
    thread = EncoderThread(Listing(4))
    thread.close()
    for unit in units:
        thread.submit(unit)
    thread.close()
    assert not any(unit.encoded.done() for unit in units)


def test_workers_find_what_the_finder_does() -> None:
    draw, finder = Draw(12), PatternConcepts()
    texts = [sentence(draw) for _ in range(50)] + ["", "\ud800", "x" * 10_000]
    pool = WorkerPool("pattern", 3)
    try:
        parts = [pool.submit(texts[start : start + 7]) for start in range(0, len(texts), 7)]
        found = [each.names for part in parts for each in part.result(timeout=60)]
        assert found == finder.extract(texts)
        waiting = [pool.submit(texts) for _ in range(20)]
    finally:
        pool.close()  # although tasks wait
    assert len(waiting) == 20
    assert finder_spec(finder) == "pattern"
    assert finder_spec(None) is None


def test_few_texts_start_no_process(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("Ada met Bert in Lisbon.")
    with opened(None) as memory:
        memory.add_files(path, workers=3)
        assert not [each for each in children() if "worker_pool" in command(each)]
        with pytest.raises(InputError, match=r"workers: expected an integer of at least 0, got -1"):
            memory.add_files(path, workers=-1)


# Processes that end before their work does.


def children(pid: int | str = "self") -> list[int]:
    """Return the numbers of the processes that a process has started."""
    tasks = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(each) for task in tasks for each in task.read_text().split()]


def command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def workers_of(pid: int) -> list[int]:
    return [each for each in children(pid) if "worker_pool" in command(each)]


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file for which workers pay by its size."""
    draw, path = Draw(9), tmp_path_factory.mktemp("large") / "a.jsonl"
    beside = {"meta": {"scan": "x" * 2_400}}
    lines = (json.dumps({"text": sentence(draw, 20), **beside}) for _ in range(1_800))
    path.write_text("\n".join(lines))
    assert path.stat().st_size > WORTH["pattern"]
    return path


def begin(file: Path, store: Path) -> subprocess.Popen[str]:
    words = ["--store", str(store), "--embedder", "hashing", "--workers", "2", "--device", "cpu"]
    settings = ["--config.link.concepts", "pattern", "--config.link.batch_atoms", "50"]
    return subprocess.Popen(
        [sys.executable, "-m", "graphmem_torch", "index", str(file), *words, *settings],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=interruptible,
    )


def with_workers(process: subprocess.Popen[str], store: Path) -> list[int]:
    """Wait until a run has workers, and has stored something; returns their numbers."""
    deadline = time.monotonic() + 100
    while time.monotonic() < deadline and process.poll() is None:
        found = workers_of(process.pid)
        if found and count(store):
            return found
        time.sleep(0.02)
    raise AssertionError("no worker was seen")


def count(store: Path) -> int:
    from graphmem_torch.memory.stored import StoredMemory

    try:
        with StoredMemory.open(store) as memory:
            return int(memory.stats()["next_node"])
    except Exception:  # not made yet
        return 0


def gone(pids: Sequence[int]) -> bool:
    """Return whether processes end within ten seconds."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        if not any("worker_pool" in command(pid) for pid in pids):
            return True
        time.sleep(0.05)
    return False


def test_interrupted_runs_leave_no_process_and_are_resumed(large: Path, tmp_path: Path) -> None:
    store, draw = tmp_path / "store", Draw(10)
    for how in ("worker", "interrupt", "kill"):
        process = begin(large, store)
        before = count(store)
        found = with_workers(process, store)
        if how == "worker":
            os.kill(draw.choice(found), signal.SIGKILL)
        else:
            process.send_signal(signal.SIGINT if how == "interrupt" else signal.SIGKILL)
        _, said = process.communicate(timeout=100)
        beside = ("new store", "graphmem: index: ")  # progress of a slow machine
        lines = [line for line in said.splitlines() if not any(each in line for each in beside)]
        assert gone(found)
        assert count(store) >= before
        if how == "worker":
            assert process.returncode == 2
            assert len(lines) == 1
            assert "expected concepts of texts, got its end (signal 9)" in lines[0]
        elif how == "interrupt":
            assert process.returncode == 130
            assert len([line for line in lines if line]) == 1
            assert "running the same command again resumes" in lines[-1]
    assert begin(large, store).wait() == 0
    config = config_of(**{"link.batch_atoms": 50})
    with (
        Memory.open(store, config=config, embedder="hashing", device="cpu") as resumed,
        Memory.open(None, config=config, embedder="hashing", device="cpu") as whole,
    ):
        whole.add_files(large, workers=0)
        mine, theirs = held(resumed), held(whole)
        assert [a.text for a in mine[1] if a.kind != "concept"] == [
            a.text for a in theirs[1] if a.kind != "concept"
        ]
        assert edges_by_text(mine) == edges_by_text(theirs)


def edges_by_text(content: tuple[Any, ...]) -> dict[tuple[str, str, int], float]:
    """Return the edges by what their ends say: numbers depend on where batches ended."""
    nodes, atoms, ends, weights = content[:4]
    said = dict(zip(nodes, (f"{a.kind} {a.id} {a.text}" for a in atoms), strict=True))
    pairs = zip(*ends, weights.tolist(), strict=True)
    return {(said[one], said[other], kind): round(w, 5) for one, other, kind, w in pairs}
