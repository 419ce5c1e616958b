"""Programs beside the tests: forked from one process that has loaded what they wait for, or begun
before the first test that needs nothing of them.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest

__all__ = [
    "Command",
    "Launch",
    "Program",
    "begun_ahead",
    "environment",
    "interruptible",
    "launch",
    "launcher",
    "programs",
    "start",
]

Launch = Callable[..., "Command"]

# Of all that is begun ahead one program works at a time: no more than one core is free.
_TURN = """
import fcntl
turn = open({!r}, "w")
fcntl.flock(turn, fcntl.LOCK_EX)
"""

# Loads what every command waits for, then forks one for each message, and says how it ended. A fork
# is a process with one thread; it runs `python FILE` or `python -m MODULE` up to the end of the
# interpreter, with the streams it was sent. What it has not finished within two minutes, an alarm
# ends. What is loaded by then stays out of the searches for cycles of every fork, of which the last
# ones, at its end, would take longer than most commands.
_SERVER = """
import contextlib, gc, json, os, runpy, signal, socket, sys
import torch
import graphmem_torch.cli.main, graphmem_torch.context, graphmem_torch.index, graphmem_torch.oracle
import graphmem_torch.readers, graphmem_torch.store, graphmem_torch.text.concepts
import graphmem_torch.text.sentence_transformer
with contextlib.suppress(ImportError):
    import openai
gc.freeze()
turn.close()
wire = socket.socket(fileno=int(sys.argv[1]))
while True:
    message, streams, _, _ = socket.recv_fds(wire, 2**16, 2)
    if not message:
        sys.exit()
    asked = json.loads(message)
    if isinstance(asked, int):
        wire.send(b"%d" % os.waitstatus_to_exitcode(os.waitpid(asked, 0)[1]))
    elif child := os.fork():
        wire.send(b"%d" % child)
        for stream in streams:
            os.close(stream)
    else:
        wire.close()
        for number, stream in enumerate(streams, start=1):
            os.dup2(stream, number)
        sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))
        signal.alarm(120)
        sys.argv = asked
        if asked[0].endswith(".py"):
            runpy.run_path(asked[0], run_name="__main__")
        else:
            runpy.run_module(asked[0], run_name="__main__", alter_sys=True)
        sys.exit()
"""


@dataclass
class Command:
    """A command that runs beside the test.

    Attributes:
        number: Number of its process.
        wire: To the server.
        out, err: Files of what it prints.
    """

    number: int
    wire: socket.socket
    out: Path
    err: Path

    def told(self) -> list[str]:
        """Return its standard error so far; the interpreter reports its imports there."""
        lines = self.err.read_text().splitlines()
        return [line for line in lines if line and not line.startswith("import time:")]

    def wait(self) -> int:
        """The exit code, once there is one."""
        self.wire.send(b"%d" % self.number)
        return int(self.wire.recv(64))


def interruptible() -> None:
    """A background process of a shell ignores SIGINT, and so would its children."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def environment() -> dict[str, str]:
    """With it the interpreter says when it has imported a module: `import time: self | all | x`.

    A program's temporary folders lie where those of the tests do.
    """
    root = str(Path(__file__).resolve().parents[1])
    more = {"PYTHONPATH": root, "OMP_NUM_THREADS": "1", "PYTHONPROFILEIMPORTTIME": "1"}
    folder = os.environ.get("PYTEST_DEBUG_TEMPROOT", tempfile.gettempdir())
    return {**os.environ, **more, "TMPDIR": folder}


@dataclass
class Program:
    """A program that was begun ahead of the tests that ask what it printed.

    Attributes:
        process: It.
        out, err: Files of what it prints.
    """

    process: subprocess.Popen[bytes]
    out: Path
    err: Path

    def said(self) -> str:
        """Return its output once it has succeeded."""
        assert self.process.wait() == 0, self.err.read_text()[-2000:]
        return self.out.read_text()


Begin = Callable[[Path], dict[str, Any]]
_BEGIN: dict[str, Begin] = {}


def begun_ahead(begin: Begin) -> Any:
    """A fixture of a `Program` that runs beside the tests before those that ask for it.

    Args:
        begin: From a folder of its own to its `code`, and what else `subprocess.Popen` is given.
    """
    name = begin.__name__
    _BEGIN[name] = begin

    def begun(programs: dict[str, Program | BaseException]) -> Program:
        program = programs[name]
        if isinstance(program, Program):
            return program
        raise program

    return pytest.fixture(scope="session")(begun)


@pytest.fixture(scope="session")
def turn(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return code by which the programs begun ahead take turns."""
    return _TURN.format(str(tmp_path_factory.mktemp("turn") / "lock"))


@pytest.fixture(scope="session", autouse=True)
def programs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Program | BaseException]]:
    """Return the programs of `begun_ahead` by name, or the reason why one could not be begun."""
    asked = {name for item in request.session.items for name in getattr(item, "fixturenames", ())}
    if "launcher" in asked:
        request.getfixturevalue("launcher")
    running: dict[str, Program | BaseException] = {}
    for name in sorted(asked & _BEGIN.keys()):
        folder = tmp_path_factory.mktemp(name)
        try:
            options = _BEGIN[name](folder)
        except (Exception, pytest.skip.Exception) as error:  # told to the tests that ask for it
            running[name] = error
            continue
        code = request.getfixturevalue("turn") + options.pop("code")
        out, err = folder / "stdout", folder / "stderr"
        with out.open("w") as first, err.open("w") as second:
            command = [sys.executable, "-c", code]
            process = subprocess.Popen(command, stdout=first, stderr=second, **options)
        running[name] = Program(process, out, err)
    yield running
    for program in running.values():
        if isinstance(program, Program):
            program.process.kill()
            program.process.wait()


@pytest.fixture(scope="session")
def launcher(turn: str) -> Iterator[socket.socket]:
    """The process that `launch` forks."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with (
        ours,
        theirs,
        subprocess.Popen(
            [sys.executable, "-c", f"{turn}{_SERVER}", str(theirs.fileno())],
            preexec_fn=interruptible,
            env=environment(),
            pass_fds=[theirs.fileno()],
            stderr=subprocess.DEVNULL,
        ),
    ):
        theirs.close()
        yield ours
        ours.close()


def start(
    launcher: socket.socket,
    folder: Path,
    *command: str | Path,
    stdout: int | None = None,
    stderr: int | None = None,
) -> Command:
    """Starts a module or a file beside the tests; what it prints goes into a folder."""
    out, err = folder / "stdout", folder / "stderr"
    with out.open("w") as first, err.open("w") as second:
        streams = [
            first.fileno() if stdout is None else stdout,
            second.fileno() if stderr is None else stderr,
        ]
        socket.send_fds(launcher, [json.dumps([*map(str, command)]).encode()], streams)
        return Command(int(launcher.recv(64)), launcher, out, err)


@pytest.fixture
def launch(launcher: socket.socket, tmp_path: Path) -> Launch:
    """`launch(program, *arguments, stdout=, stderr=)`: starts a module or a file."""
    return partial(start, launcher, tmp_path)
