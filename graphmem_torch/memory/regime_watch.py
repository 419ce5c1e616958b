"""Regime watch: the detector of switches of one store, and the functions that listen to it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import RegimeConfig
from graphmem_torch.errors import InputError
from graphmem_torch.store import MemoryStore

if TYPE_CHECKING:
    from graphmem_torch.memory.modes import RegimeMonitor
    from graphmem_torch.results import RegimeSwitch

__all__ = ["RegimeWatch"]

_log = logging.getLogger(__name__)

_UNSEEN = 4096  # maximum number of unread earlier memories that `observe` reads first
_REREAD = 256  # minimum number of memories after which saving beats reading them again

Listener = Callable[["RegimeSwitch"], object]
"""Function that is called at every switch."""


class RegimeWatch:
    """Watch for regime switches in a store; its methods are called in the store's turn.

    The detector is created at its first use and keeps its state in the store (`RegimeMonitor`).
    """

    def __init__(self, store: MemoryStore, config: RegimeConfig) -> None:
        """Read nothing yet.

        Args:
            store: Store of the memories.
            config: Settings of the detector.
        """
        self._store, self._config = store, config
        self._monitor: RegimeMonitor | None = None
        self._listeners: list[Listener] = []

    @property
    def listened_to(self) -> bool:
        """Return whether any function listens."""
        return bool(self._listeners)

    def observe(
        self,
        atoms: Sequence[Atom],
        embeddings: Tensor,  # [n, d]
        first: int,
    ) -> list[RegimeSwitch]:
        """Return the switches in a batch of atoms that was just stored.

        If too many earlier memories are unread, as in an older store, they are left to `catch_up`,
        so that `add` does not wait for them.

        Args:
            atoms: Atoms in the order of storing.
            embeddings: [n, d] vectors of the atoms.
            first: Node number of the first atom.
        """
        if self._config.detector == "none":
            return []
        if self._monitor is None:
            self._monitor = self._new_monitor()
        if not self._listeners and self._monitor.behind(first) > _UNSEEN:
            return []
        return self._monitor.observe(atoms, embeddings, first)

    def catch_up(self) -> RegimeMonitor:
        """Run the detector on all that is stored, and return it.

        Raises:
            InputError: Settings without a detector.
        """
        if self._monitor is None:
            self._monitor = self._new_monitor()
        self._monitor.catch_up()
        return self._monitor

    def switches(self) -> list[RegimeSwitch]:
        """Return the switches among all stored atoms, in the order of adding; outside of a turn.

        Raises:
            InputError: Settings without a detector.
        """
        if self._store.readonly:
            monitor = self._new_monitor()
            monitor.catch_up()
            return monitor.switches()
        with self._store.turn():
            monitor = self.catch_up()
            monitor.save()
            return monitor.switches()

    def listen(self, function: Listener) -> None:
        """Call a function at every switch from now on; outside of a turn.

        Raises:
            InputError: No function, a read-only memory, or settings without a detector.
        """
        if self._store.readonly:
            raise InputError(
                "on_switch: expected a memory that can be added to, got one opened with "
                "mode='r'; open it with mode='w'"
            )
        if not callable(function):
            raise InputError(
                f"function: expected a function of one RegimeSwitch, got {function!r:.80}; give "
                "one that can be called"
            )
        # In one turn, so that no atom is stored between the catch-up and the first call.
        with self._store.turn():
            self.catch_up()
            self._listeners.append(function)

    def notify(self, switches: Sequence[RegimeSwitch]) -> None:
        """Call the listeners, and log what they raise; outside of a turn.

        Listeners find modes and structure already updated.
        """
        for switch in switches:
            for function in tuple(self._listeners):
                try:
                    function(switch)
                except Exception:
                    _log.exception("a callback of on_switch failed at %r", switch.atom)

    def read_again(self) -> None:
        """Restore the state in the store, as after a rollback or an erasure."""
        self._monitor = None
        if self._listeners:
            with self._store.turn():
                self.catch_up()

    def save(self) -> None:
        """Write the state of the detector, unless reading the atoms again is cheaper."""
        if self._monitor is not None:
            self._monitor.save(min_new=1 if self._listeners else _REREAD)

    def release(self) -> None:
        """Save and drop the detector, which is created again when it is needed."""
        self.save()
        self._monitor = None

    def _new_monitor(self) -> RegimeMonitor:
        from graphmem_torch.memory.modes import RegimeMonitor

        # A store without a width has no atoms, so no detector reads a vector.
        return RegimeMonitor(self._store, self._config, self._store.dim or 1)
