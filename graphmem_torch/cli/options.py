"""Shared options of the commands, which open the store and print the reply."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property, wraps
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast

import click

from graphmem_torch.cli import interrupt_as_usual, leave_at_once
from graphmem_torch.cli.settings_options import HELP_CONFIG
from graphmem_torch.cli.syntax import OVERRIDES, PATH, option
from graphmem_torch.cli.terminal import Reply, print_reply, print_text
from graphmem_torch.config import Config, load_config
from graphmem_torch.errors import GraphMemError, InputError, StoreError, first_line
from graphmem_torch.store.folder import DATABASE_NAME, expect_store, store_folder
from graphmem_torch.store.shard_folder import ShardFolder

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory
    from graphmem_torch.memory.stored import StoredMemory
    from graphmem_torch.oracle import OpenAIOracle

__all__ = [
    "Settings",
    "Target",
    "base_url_option",
    "expect_archive",
    "expect_no_slip",
    "given_settings",
    "json_option",
    "load_engine",
    "preset_option",
    "read_lines",
    "served_oracle",
    "settings_options",
    "store_options",
    "target_options",
]

F = TypeVar("F", bound=Callable[..., Any])
M = TypeVar("M", "Memory", "StoredMemory")
_SETTINGS = "Settings"  # heading of the options that choose them
_STORE = "Store and output"
_COMPARED = 4  # minimum letters of a name for another to count as a slip


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Preset, encoder and device of a command.

    Attributes:
        preset: Name of a preset, or path of a YAML file.
        embedder: Name or folder of an encoder, or an encoder; None: that of the store, else of the
            preset.
        device: Device of the index.
        imports: Modules of the user, with signals and baselines.
        overrides: Settings of the `--config.*` options; None if there are none.
    """

    preset: str = "default"
    embedder: Any = None
    device: str = "auto"
    imports: tuple[str, ...] = ()
    overrides: Mapping[str, Any] | None = None

    @cached_property
    def config(self) -> Config:
        """The preset with the overrides."""
        return load_config(self.preset, self.overrides)

    def load_engine(self) -> None:
        """Import torch and the modules of the user."""
        load_engine(self.imports)

    @contextmanager
    def open(
        self, store: Path | None, mode: Literal["r", "w"], *, create: bool = False
    ) -> Iterator[Memory]:
        """Open a memory.

        Args:
            store: Folder of the store; None: in memory.
            mode: `r` to read, `w` to write.
            create: Whether a missing store is made.
        """
        self.load_engine()
        from graphmem_torch.memory import Memory

        with Memory.open(
            store,
            config=self.config,
            embedder=self.embedder,
            device=self.device,
            mode=mode,
            create=create or store is None,
        ) as memory:
            yield memory


@dataclass(frozen=True, kw_only=True)
class Target:
    """Store of a command.

    Attributes:
        store: Folder of the store.
        namespace: Name of the namespace; None: the memories in no namespace.
        settings: Preset, encoder and device.
    """

    store: Path
    namespace: str | None
    settings: Settings

    def with_embedder(self, embedder: Any) -> Target:
        """Return the same target with another encoder."""
        return replace(self, settings=replace(self.settings, embedder=embedder))

    def with_overrides(self, **values: Any) -> Target:
        """Return the same target with other settings, by dotted name with `_` for the dot."""
        own = {name.replace("_", ".", 1): value for name, value in values.items()}
        overrides = {**(self.settings.overrides or {}), **own}
        return replace(self, settings=replace(self.settings, overrides=overrides or None))

    @property
    def exists(self) -> bool:
        """Return whether the folder holds a store, or the shards of one."""
        return self.sharded or (store_folder(self.store) / DATABASE_NAME).is_file()

    def is_there(self) -> bool:
        """Return whether the folder holds a store, and this the namespace."""
        if not self.exists or self.namespace is None:
            return self.exists
        try:
            with self.read():
                return True
        except InputError:
            return False

    @property
    def sharded(self) -> bool:
        """Return whether the folder holds the shards of a memory."""
        return ShardFolder.is_one(self.store)

    @contextmanager
    def read(self) -> Iterator[StoredMemory]:
        """Open the files of the store for reading, without the engine.

        Raises:
            StoreError: There is no store; names the nearest.
            InputError: There is no such namespace; names the nearest.
        """
        from graphmem_torch.memory.stored import StoredMemory

        if self.sharded:
            from graphmem_torch.memory.stored_shards import StoredShards

            with StoredShards.open(self.store, namespace=self.namespace) as shards:
                yield cast("StoredMemory", shards)
            return
        with StoredMemory.open(self.store, namespace=self.namespace) as memory:
            yield memory

    @contextmanager
    def open(
        self, mode: Literal["r", "w"], *, create: bool = False, in_memory: bool = False
    ) -> Iterator[Memory]:
        """Open the memory.

        Args:
            mode: `r` to read, `w` to write.
            create: Whether a missing store or namespace is made.
            in_memory: Whether it is a new one that is not stored.

        Raises:
            StoreError: There is no store; names the nearest.
            InputError: There is no such namespace; names the nearest.
        """
        if not create and not self.sharded:
            expect_store(store_folder(self.store))
        fresh = not (in_memory or self.exists)
        place = None if in_memory else self.store
        with self.settings.open(place, mode, create=create) as memory:
            if fresh:
                print_text(f"graphmem: {self.store} is a new store", beside=True)
            if self.namespace is None:
                yield memory
                return
            known = self.namespace in memory.namespaces
            spaces = memory.namespaces
            own = spaces.create(self.namespace) if create else spaces[self.namespace]
            if not (known or in_memory):
                name = f"{self.namespace!r} of {self.store}"
                print_text(f"graphmem: {name} is a new namespace", beside=True)
            yield own


def expect_archive(found: M | None) -> M:
    """Return the archive, which must exist.

    Raises:
        InputError: There is no archive.
    """
    if found is None:
        raise InputError("--archived: expected an archive, got none; leave it out")
    return found


def expect_no_slip(path: Path) -> None:
    """Check that the name of a new store is not a slip for an existing one.

    Raises:
        StoreError: The name of another store in the same folder differs by one letter.
    """
    folder = store_folder(path).parent
    others = (each.parent.name for each in folder.glob(f"*/{DATABASE_NAME}"))
    near = next((each for each in sorted(others) if _one_slip(path.name, each)), None)
    if near is not None:
        raise StoreError(
            f"--store: expected a store, got {str(path)!r}; did you mean "
            f"{str(path.with_name(near))!r}? Add --new to make another"
        )


def _one_slip(one: str, other: str) -> bool:
    """Return whether names differ by case, by a letter, or by two swapped letters.

    Names that differ in a digit, or have fewer than four letters, are taken as intended.
    """
    if Path(one).suffix == Path(other).suffix:
        one, other = Path(one).stem, Path(other).stem
    if one.casefold() == other.casefold():
        return one != other
    one, other = one.casefold(), other.casefold()
    pairs = zip(one, other, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), min(len(one), len(other)))
    left, right = one[at:], other[at:]
    replaced, added, missing = left[1:] == right[1:], left[1:] == right, left == right[1:]
    swapped = left[:2] == right[:2][::-1] and left[2:] == right[2:]
    meant = (left[:1] + right[:1]).isdigit() or max(len(one), len(other)) < _COMPARED
    return (replaced or added or missing or swapped) and not meant


def load_engine(imports: Iterable[str] = ()) -> None:
    """Import torch, the slow part of a command, and the modules of the user.

    Meanwhile Ctrl-C ends the process: it cannot be caught while a C++ extension loads.

    Args:
        imports: Names of modules, or paths of files that end in .py.

    Raises:
        InputError: A module is missing, or fails.
    """
    leave_at_once()
    try:
        import_module("torch")
        for name in imports:
            _import_own(name)
    finally:
        interrupt_as_usual()


def preset_option(run: F) -> F:
    """Add the option that names a preset."""
    return option(
        "--preset",
        default="default",
        metavar="NAME",
        section=_SETTINGS,
        help="Use this preset, or YAML file.  [default: default]",
    )(run)


def settings_options(run: F) -> F:
    """Add the options of a command that has settings, except the preset."""
    added = (
        option(
            "--embedder",
            metavar="NAME",
            section=_SETTINGS,
            help="Use this encoder: a SentenceTransformer by name or folder, an embeddings server "
            "as ADDRESS#MODEL (http://localhost:8000/v1#MODEL), or `hashing`.",
        ),
        option(
            "--device",
            default="auto",
            metavar="DEVICE",
            section=_SETTINGS,
            help="Compute on auto, cpu, cuda or cuda:N.  [default: auto]",
        ),
        option(
            "--import",
            "imports",
            multiple=True,
            metavar="MODULE",
            section=_SETTINGS,
            help="Import signals and baselines of your own: a module, or a .py file. Repeatable.",
        ),
        option(
            "--help-config",
            HELP_CONFIG,
            is_flag=True,
            expose_value=False,
            section=_SETTINGS,
            help="List all settings; --config.SECTION.FIELD VALUE overrides one.",
        ),
    )
    for each in reversed(added):
        run = each(run)
    return run


def json_option(run: F) -> F:
    """Add the option that asks for JSON."""
    return option(
        "--json",
        "as_json",
        is_flag=True,
        section=_STORE,
        help="Print one JSON object, complete, for programs.",
    )(run)


def target_options(run: F) -> F:
    """Add the options that name a store and a namespace of it."""
    added = (
        option(
            "--store",
            type=PATH,
            required=True,
            metavar="DIR",
            section=_STORE,
            help="Work on the store in this folder.",
        ),
        option(
            "--namespace",
            metavar="NAME",
            section=_STORE,
            help="Work on this namespace of the store alone.",
        ),
    )
    for each in reversed(added):
        run = each(run)
    return run


def store_options(run: Callable[..., Reply]) -> Callable[..., int]:
    """Add the options of a command that works on a store, and print its reply.

    Args:
        run: Function of a `Target` and the other options by name.
    """

    @target_options
    @json_option
    @preset_option
    @settings_options
    @click.pass_context
    @wraps(run)
    def command(
        ctx: click.Context,
        store: Path,
        namespace: str | None,
        as_json: bool,
        **own: Any,
    ) -> int:
        target = Target(store=store, namespace=namespace, settings=given_settings(ctx, own))
        return print_reply(run(target, **own), as_json=as_json)

    return command


def given_settings(ctx: click.Context, given: dict[str, Any]) -> Settings:
    """Remove the settings from the options of a command, and return them.

    Args:
        ctx: Context of the command, with its `--config.*` options.
        given: Options by name; those of the settings are removed.
    """
    names = ("preset", "embedder", "device", "imports")
    chosen = {name: given.pop(name) for name in names if name in given}
    settings = Settings(**chosen, overrides=ctx.meta[OVERRIDES])
    if settings.overrides or settings.preset != Settings.preset:
        _ = settings.config  # reports an error before the work, not after it
    return settings


def base_url_option(run: F) -> F:
    """Add the option that names the server of a language model."""
    return option(
        "--base-url",
        metavar="URL",
        help="Ask the model on this OpenAI-compatible server, such as "
        "http://127.0.0.1:8080/v1.  [default: $OPENAI_BASE_URL, else OpenAI]",
    )(run)


@contextmanager
def served_oracle(model: str | None, base_url: str | None) -> Iterator[OpenAIOracle | None]:
    """Yield a language model on a server as an oracle; None if none is named.

    Raises:
        InputError: A server has no model, OpenAI has no key, or the package `openai` is missing.
    """
    if model is None:
        if base_url is not None:
            raise InputError(
                f"--base-url: expected the name of a model beside it, got {base_url!r} alone; "
                "name the model too"
            )
        yield None
        return
    from graphmem_torch.oracle import OpenAIClient, OpenAIOracle

    with OpenAIClient(model, base_url=base_url) as client:
        yield OpenAIOracle(client)


def read_lines(path: str) -> list[str]:
    """Return the lines of a UTF-8 file that are not empty; `-` is standard input.

    Raises:
        InputError: The file is not UTF-8 text.
    """
    from graphmem_torch.readers.source import decode

    data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    text = decode(data, "standard input" if path == "-" else path)
    return [line.strip() for line in text.splitlines() if line.strip()]


def _import_own(name: str) -> None:
    """Import a module of the user, for the signals and baselines that it registers.

    Args:
        name: Dotted name, looked up in the working directory too, or path of a .py file.

    Raises:
        InputError: There is no such module, or it fails.
    """
    # Shipped modules register their names before those of the user.
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
