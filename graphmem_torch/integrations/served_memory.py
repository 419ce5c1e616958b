"""Memory that a server opens when a call first needs it, with the namespaces that it serves."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from graphmem_torch.errors import GraphMemError, InputError, nearest

if TYPE_CHECKING:
    from graphmem_torch.memory import Memory

__all__ = ["ServedMemory"]


class ServedMemory:
    """Memory behind the tools of a server; safe between threads.

    Attributes:
        namespace: Name of the only namespace that is served; None serves all.
        readonly: Whether nothing may be written.
    """

    def __init__(
        self,
        memory: Memory | str | os.PathLike[str] | Callable[[], Memory],
        *,
        namespace: str | None,
        readonly: bool,
        opening: Mapping[str, Any],
    ) -> None:
        """Open nothing.

        Args:
            memory: Folder of a store, an open memory, or a function that opens one.
            namespace: Name of the only namespace that is served; None serves all.
            readonly: Whether nothing may be written.
            opening: Arguments of `Memory.open` for a folder.
        """
        self.namespace, self.readonly = namespace, readonly
        self._given, self._opening = memory, opening
        self._memory: Memory | None = None
        self._lock = threading.Lock()  # guards the opening

    def root(self) -> Memory:
        """Return the memory, opened at the first call.

        Raises:
            ConfigError, EmbedderError, StoreError: See `Memory.open`; the next call tries again.
        """
        with self._lock:
            if self._memory is None:
                self._memory = self._opened()
            return self._memory

    def _opened(self) -> Memory:
        if not isinstance(self._given, str | os.PathLike):
            return self._given() if callable(self._given) else self._given
        from graphmem_torch.memory import Memory

        mode: Literal["r", "w"] = "r" if self.readonly else "w"
        return Memory.open(self._given, mode=mode, **self._opening)

    def within(self, namespace: str = "") -> Memory:
        """Return the memory, or the namespace of it that a call names.

        Args:
            namespace: Name of a namespace; empty for the one that is served, else for none.

        Raises:
            InputError: No such namespace, or another than the only one that is served.
        """
        own = self.namespace
        if own is not None and namespace not in ("", own):
            raise InputError(
                f"namespace: expected {own!r}, the only one that is served, got "
                f"{namespace!r:.80}; leave it out"
            )
        name, root = namespace or own, self.root()
        if not name:
            return root
        if own is not None and not self.readonly:
            return root.namespaces.create(own)
        if name not in root.namespaces:
            close = nearest(name, root.namespaces)
            do = f"did you mean {close!r}?" if close else "leave it out."
            raise InputError(
                f"namespace: expected one that this memory has, got {name!r:.80}; {do} `remember` "
                "makes one with create_namespace"
            )
        return root.namespaces[name]

    def load(self) -> None:
        """Load what the first question needs; leaves errors to the call that meets them."""
        with suppress(GraphMemError, OSError):
            memory = self.within()
            if memory.store.fingerprint is not None:
                _ = memory.embedder, memory.index

    def close(self) -> None:
        """Close the memory if it was opened here; waits for `load`."""
        with self._lock:
            memory, self._memory = self._memory, None
        if memory is not None and memory is not self._given:
            memory.close()
