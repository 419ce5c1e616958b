"""Options that the commands share, and how a memory is opened from them."""

from __future__ import annotations

import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import Suppress, UseAppendAction, arg

from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import GraphMemError, InputError, first_line
from graphmem_torch.exact import dump_json
from graphmem_torch.text.visible import visible

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory
    from graphmem_torch.oracle import OpenAIOracle

__all__ = [
    "Command",
    "MemoryCommand",
    "PresetCommand",
    "import_own",
    "print_json",
    "print_text",
    "read_lines",
    "served_oracle",
]


@dataclass(frozen=True, kw_only=True)
class Command(ABC):
    """What every command has.

    Attributes:
        embedder: SentenceTransformer name or folder, or `hashing`; the preset's by default.
        device: `auto`, `cpu`, `cuda` or `cuda:N`.
        imports: Module, or file that ends in .py, with signals and baselines of your own; give it
            once for each.
        overrides: The `--config.*` options of the command line; set by `cli.main`.
    """

    after_interrupt: ClassVar[str] = "nothing was changed"
    """What Ctrl-C leaves behind."""

    embedder: Annotated[str | None, arg(metavar="NAME")] = None
    device: Annotated[str, arg(metavar="DEVICE")] = "auto"
    imports: Annotated[UseAppendAction[tuple[str, ...]], arg(name="import", metavar="MODULE")] = ()
    overrides: Annotated[Mapping[str, Any] | None, Suppress] = None

    @abstractmethod
    def run(self) -> int:
        """Does the work and returns the exit code."""


@dataclass(frozen=True, kw_only=True)
class PresetCommand(Command):
    """A command with one preset.

    Attributes:
        preset: Name of a preset, or the path of a YAML file.
    """

    creates: ClassVar[bool] = False
    """Whether it makes a store or namespace that is missing."""

    preset: Annotated[str, arg(metavar="NAME")] = "default"

    @property
    def config(self) -> Config | None:
        """The preset with the overrides of the command line; None where there are none."""
        return load_config(self.preset, self.overrides) if self.overrides else None

    @contextmanager
    def open_memory(self, store: Path | None, mode: Literal["r", "w"]) -> Iterator[Memory]:
        """Opens a store, None in memory; the engine is imported here: `--help` needs none of it."""
        from graphmem_torch.memory import Memory
        from graphmem_torch.store.folder import DATABASE_NAME

        fresh = store is not None and self.creates and not (store / DATABASE_NAME).exists()
        with Memory.open(
            store,
            preset=self.preset,
            config=self.config,
            embedder=self.embedder,
            device=self.device,
            mode=mode,
            create=self.creates,
        ) as memory:
            if fresh:
                print_text(f"graphmem: {store} is a new store", to_reader=True)
            yield memory


@dataclass(frozen=True, kw_only=True)
class MemoryCommand(PresetCommand):
    """A command that works on a store.

    Attributes:
        store: Folder of the store.
        namespace: Work on this namespace of the store alone; `index` and `import` make it where
            there is none. By default on what is in no namespace.
        json: Print one machine-readable JSON object on standard output.
    """

    store: Annotated[Path, arg(metavar="DIR")]
    namespace: Annotated[str | None, arg(metavar="NAME")] = None
    json: bool = False

    @contextmanager
    def open_memory(self, store: Path | None, mode: Literal["r", "w"]) -> Iterator[Memory]:
        """Opens a store, or the namespace that is named of it."""
        with super().open_memory(store, mode) as memory:
            if self.namespace is None:
                yield memory
            else:
                fresh = self.creates and self.namespace not in memory.namespaces()
                own = memory.namespace(self.namespace, create=self.creates)
                if fresh:
                    name = f"{self.namespace!r} of {store}"
                    print_text(f"graphmem: {name} is a new namespace", to_reader=True)
                yield own


@contextmanager
def served_oracle(model: str | None, base_url: str | None) -> Iterator[OpenAIOracle | None]:
    """A language model on a server as an oracle, None where none is named.

    Raises:
        InputError: A server without a model, no key for OpenAI, or no package `openai`.
    """
    if model is None:
        if base_url is not None:
            raise InputError(
                f"--base-url: expected it beside the name of a model, got {base_url!r} alone; "
                "name the model too"
            )
        yield None
        return
    from graphmem_torch.oracle import OpenAIClient, OpenAIOracle

    with OpenAIClient(model, base_url=base_url) as client:
        yield OpenAIOracle(client)


def print_json(value: Any) -> None:
    """Prints one JSON object, in ASCII where the output is not UTF-8.

    Raises:
        GraphMemError: A number is not finite; JSON has no word for it.
    """
    encoding = (sys.stdout.encoding or "").lower().replace("-", "").replace("_", "")
    try:
        text = dump_json(value, ensure_ascii=encoding != "utf8", allow_nan=False)
    except ValueError as error:
        raise GraphMemError(
            "expected finite numbers in the result, got one that is infinite or not a number; "
            "look for very large values among the --config options and the weights of edges"
        ) from error
    print(visible(text, escape="\\u{:04x}"))


def print_text(text: str, *, to_reader: bool = False) -> None:
    """Prints a text that may hold anything: a terminal obeys nothing in it.

    Args:
        text: Lines.
        to_reader: Whether it goes to standard error, beside the output.
    """
    print(visible(text), file=sys.stderr if to_reader else sys.stdout)


def read_lines(path: str) -> list[str]:
    """Non-empty lines of a UTF-8 file; `-` is standard input.

    Raises:
        InputError: The file is not UTF-8 text.
    """
    from graphmem_torch.readers.source import decode

    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    text = decode(data, "standard input" if path == "-" else path)
    return [line.strip() for line in text.splitlines() if line.strip()]


def import_own(name: str) -> None:
    """Imports a module of the user's, for the signals and baselines that it registers.

    Args:
        name: Dotted name, looked up in the working directory too, or the path of a .py file.

    Raises:
        InputError: There is no such module, or it fails.
    """
    # What ships has registered its names before anything of the user's does.
    import_module("graphmem_torch.rank.signals")
    try:
        if name.endswith(".py"):
            _import_file(Path(name))
            return
        if os.getcwd() not in sys.path:
            sys.path.append(os.getcwd())
        import_module(name)
    except GraphMemError:
        raise
    except Exception as error:
        raise InputError(
            f"--import: expected a module that Python finds, or a file that ends in .py, got "
            f"{name!r} ({type(error).__name__}: {first_line(error)}); mend it, or its name"
        ) from error


def _import_file(path: Path) -> None:
    spec = spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = module_from_spec(spec)
    sys.modules.setdefault(path.stem, module)
    spec.loader.exec_module(module)
