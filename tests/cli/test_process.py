"""The command line as a process among others: two writers, Ctrl-C, a closed pipe."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def _interruptible() -> None:
    """What a shell runs in the background ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _graphmem(*arguments: str | Path, **options: Any) -> subprocess.Popen[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "graphmem_torch", *map(str, arguments)]
    return subprocess.Popen(
        command,
        preexec_fn=_interruptible,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        **options,
    )


def test_the_name_of_a_file_is_shown(tmp_path: Path, fast: list[str]) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "\x1b[2J.png").touch()
    (tmp_path / "in" / "a.txt").write_text("A canoe.")
    process = _graphmem("index", tmp_path / "in", "--store", tmp_path / "store", *fast)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "\\x1b[2J.png: left out" in err


def test_index_beside_a_memory_that_is_open(store: Path, tmp_path: Path, fast: list[str]) -> None:
    from graphmem_torch import Memory

    more = tmp_path / "more.jsonl"
    more.write_text(json.dumps({"id": "new", "text": "Nora mends the telescope", "session": "n"}))
    with Memory.open(store, embedder="hashing") as memory:
        count = len(memory)
        writer = _graphmem("index", more, "--store", store, *fast)
        _, err = writer.communicate(timeout=120)
        assert writer.returncode == 0, err
        assert len(memory) == count + 1 and "new" in memory
        assert memory.add({"id": "next", "text": "and the violin", "session": "n"}).new == 1
        assert memory.check() == []


def test_ctrl_c_loses_nothing_and_a_rerun_resumes(
    tmp_path: Path, fast: list[str], reply: Callable[..., Any]
) -> None:
    from graphmem_torch.store import MemoryStore

    lines = 1500
    path, store = tmp_path / "many.jsonl", tmp_path / "store"
    with path.open("w") as file:
        for i in range(lines):
            file.write(
                json.dumps({"id": str(i), "text": f"Memory {i} of the {i % 97}th kind."}) + "\n"
            )
    command = ["index", path, "--store", store, "--config.link.batch", "64"]
    process = _graphmem(*command, *fast, "--json")

    def acknowledged() -> int:
        with MemoryStore.open(store, mode="r") as reader:
            return sum(kind.isdecimal() for kind in reader.ids())

    deadline = time.monotonic() + 120
    seen = 0
    while seen == 0 and time.monotonic() < deadline and process.poll() is None:
        time.sleep(0.05)
        if (store / "memory.sqlite").exists():
            try:
                seen = acknowledged()
            except Exception:  # the store is still being made
                seen = 0
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130, err
    assert "interrupted" in err and "safe" in err and "Traceback" not in err
    assert out == ""

    kept = acknowledged()
    assert seen <= kept < lines
    added = reply(*command)
    assert added["known"] == kept and added["new"] == lines - kept
    assert acknowledged() == lines


def test_query_into_a_closed_pipe_is_no_error(store: Path, fast: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [
        sys.executable,
        "-m",
        "graphmem_torch",
        "query",
        "Who restores ovens?",
        "--store",
        str(store),
        *fast,
    ]
    with os.fdopen(writing, "w") as closed:
        done = subprocess.run(
            command, env=environment, stdout=closed, stderr=subprocess.PIPE, text=True, timeout=120
        )
    assert done.returncode == 128 + signal.SIGPIPE
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr


def test_main_loads_no_engine() -> None:
    code = (
        "import sys, graphmem_torch.cli.main; "
        "print(sorted({'torch', 'numpy', 'transformers', 'spacy'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "[]\n"


@pytest.mark.parametrize(
    "loaded",
    ["tyro", "graphmem_torch.cli.main", "numpy", "torch._C", "torch.nn", "graphmem_torch.memory"],
)
def test_ctrl_c_while_libraries_load_is_one_line(loaded: str, store: Path, fast: list[str]) -> None:
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPROFILEIMPORTTIME": "1"}
    command = [sys.executable, "-m", "graphmem_torch", "query", "Ovens?", "--store", str(store)]
    with subprocess.Popen(
        [*command, *fast],
        preexec_fn=_interruptible,
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as process:
        assert process.stderr is not None and process.stdout is not None
        # The interpreter says when a module has been imported: `import time: self | all |  name`.
        names = (line.rpartition("|")[2].strip() for line in process.stderr)
        assert loaded in names
        process.send_signal(signal.SIGINT)
        lines = process.stderr.read().splitlines()
        out = process.stdout.read()
    told = [line for line in lines if line and not line.startswith("import time:")]
    assert process.returncode == 130, told
    assert told == ["graphmem: interrupted; nothing was changed"]
    assert out == ""
