"""Entry point of the command line: runs one command and reports errors in one line.

Exit codes: 0 done; 1 `store check` found a problem; 2 an error of input, store or options; 3
`index --skip-bad` left something out; 130 interrupted; 141 the reader of the output is gone.
"""

from __future__ import annotations

import contextlib
import io
import logging
import os
import signal
import sys
from collections.abc import Sequence
from typing import Any

import click

from graphmem_torch.cli import interrupt_as_usual, leave_at_once
from graphmem_torch.cli.syntax import Tree
from graphmem_torch.cli.terminal import print_json, print_text
from graphmem_torch.errors import GraphMemError
from graphmem_torch.text.visible import visible
from graphmem_torch.version import __version__

__all__ = ["COMMANDS", "main", "run_command"]

COMMANDS = Tree(
    "graphmem",
    help="Long-term memory for LLM agents.",
    epilog="`graphmem COMMAND --help` shows the options of a command.",
    commands={
        name: f"graphmem_torch.cli.{place}"
        for name, place in {
            "index": "index_command:index",
            "query": "question_commands:query",
            "context": "question_commands:context",
            "answer": "question_commands:answer",
            "explain": "question_commands:explain",
            "mcp": "mcp_commands:mcp",
            "demo": "demo:demo",
            "eval": "eval_command:evaluate",
            "atoms": "atom_commands:atoms",
            "facts": "fact_commands:facts",
            "store": "store_commands:store",
        }.items()
    },
)
"""All commands; their files are imported when they are used."""

click.version_option(__version__, prog_name="graphmem", message="%(prog)s %(version)s")(COMMANDS)

_STREAMS = (("stdin", "r"), ("stdout", "w"), ("stderr", "w"))


class _Shown(logging.Formatter):
    """Formatter that escapes control characters, such as those in names of files."""

    def format(self, record: logging.LogRecord) -> str:
        """Format a message, with its traceback if it has one."""
        return visible(super().format(record))


class _Messages(io.FileIO):
    """Standard error that ignores write failures, as of a full disk or a closed terminal."""

    def write(self, data: Any) -> int:
        """Write and return the number of bytes; if writing fails, all of them."""
        try:
            return super().write(data)
        except BlockingIOError:
            raise
        except OSError:
            return len(data)


def _ready_streams() -> None:
    """Prepare the standard streams; idempotent.

    Replaces a closed stream by the null device: otherwise the next opened file, such as the
    database, would get its number and its output. Messages that cannot be written are dropped.
    Characters that cannot be encoded are replaced.
    """
    for number, (name, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            with contextlib.suppress(OSError):  # nothing has its number
                os.fstat(number)
                continue
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            setattr(sys, name, open(number, mode, closefd=False))  # noqa: SIM115 - for good
    stderr = sys.stderr
    if _is_standard_error(stderr):
        raw = io.BufferedWriter(_Messages(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, stderr.encoding, line_buffering=True)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")


def _is_standard_error(stream: object) -> bool:
    """Return whether a stream writes to standard error of the process, and may fail."""
    buffer = getattr(stream, "buffer", None)
    raw = getattr(buffer, "raw", buffer)  # with PYTHONUNBUFFERED there is no buffer
    return isinstance(raw, io.FileIO) and not isinstance(raw, _Messages) and raw.fileno() == 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    Args:
        arguments: Arguments without the name of the program; by default those of the process.
    """
    return run_command(COMMANDS, "graphmem", arguments)


def run_command(commands: Tree, name: str, arguments: Sequence[str] | None = None) -> int:
    """Run one of some commands, report errors in one line, and return the exit code.

    Args:
        commands: The commands.
        name: Name of the program.
        arguments: Arguments without the name of the program; by default those of the process.
    """
    _ready_streams()
    handler = logging.StreamHandler()
    handler.setFormatter(_Shown("graphmem: %(message)s"))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])
    given = list(sys.argv[1:] if arguments is None else arguments)
    leave_at_once()
    try:
        with commands.make_context(name, [*given]) as ctx:
            interrupt_as_usual()
            code = int(commands.invoke(ctx))
            sys.stdout.flush()
            return code
    except click.exceptions.Exit as done:  # help or the version is printed
        return done.exit_code
    except GraphMemError as error:
        return _fail(str(error), _wants_json(given))
    except BrokenPipeError:
        # The reader is gone (`graphmem query ... | head`). The null device takes the buffered rest,
        # else the interpreter reports an error when it flushes at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except OSError as error:
        if error.strerror is None:
            raise
        where = f"{error.filename}: " if error.filename is not None else ""
        return _fail(f"{where}{error.strerror}", _wants_json(given))
    except KeyboardInterrupt as stopped:
        left = stopped.args[0] if stopped.args else "nothing was changed"
        print(f"\ngraphmem: interrupted; {left}", file=sys.stderr)
        return 128 + signal.SIGINT
    finally:
        interrupt_as_usual()


def _fail(message: str, as_json: bool) -> int:
    message = " ".join(message.split())
    print_text(f"graphmem: error: {message}", beside=True)
    if as_json:
        print_json({"error": message})
    return 2


def _wants_json(words: list[str]) -> bool:
    """Return whether standard output is JSON; `--json` of `eval` names a file."""
    end = words.index("--") if "--" in words else len(words)
    return "--json" in words[:end] and words[:1] != ["eval"]
