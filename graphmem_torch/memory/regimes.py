"""RegimeMonitor: the stream of atoms that are added to a memory, watched for regime switches."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import asdict

from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import RegimeConfig
from graphmem_torch.errors import InputError
from graphmem_torch.modes.regime import detector_of
from graphmem_torch.results import RegimeSwitch
from graphmem_torch.store import MemoryStore

__all__ = ["RegimeMonitor"]

_KEY = "regime"  # under which the store keeps the detector's state
_REPLAYED = 4096  # atoms at most that are read again to catch up
_SAVED = 1024  # atoms after which the state is kept anew


class RegimeMonitor:
    """Runs a detector over the atoms of a store, in the order of adding.

    The detector starts with what is stored: from its own state, which the store keeps, and the
    atoms that came since; at most the last 4,096 atoms are read for it.
    """

    def __init__(self, store: MemoryStore, config: RegimeConfig, dim: int) -> None:
        """Catches up with the store.

        Args:
            store: Open for writing.
            config: Which detector.
            dim: Width of the embeddings.

        Raises:
            InputError: The settings want no detector.
        """
        detector = detector_of(config, dim)
        if detector is None:
            raise InputError(
                "regime.detector: expected 'spectral' or 'published' to tell regime switches, got "
                "'none'; set it in the preset"
            )
        self._store, self._settings = store, asdict(config) | {"dim": dim}
        self._detector = detector
        first = max(self._restored(), store.next_node - _REPLAYED)
        with store.reading():
            columns, rows = store.columns(first), store.embeddings(first)
        if len(rows):
            detector.update(rows[~columns.is_concept])
        self._kept = detector.count

    def observe(
        self,
        atoms: Sequence[Atom],
        embeddings: Tensor,  # [n, d]
    ) -> list[RegimeSwitch]:
        """The switches in a batch of atoms that is stored by now."""
        steps = self._detector.update(embeddings)
        if self._detector.count - self._kept >= _SAVED:
            self.save()
        return [
            RegimeSwitch(
                atom=atoms[i].id,
                session=atoms[i].session,
                time=atoms[i].time,
                statistic=float(steps.statistic[i]),
                threshold=float(self._detector.threshold),
                position=int(steps.position[i]),
            )
            for i in steps.alarm.nonzero().flatten().tolist()
        ]

    def save(self) -> None:
        """Keeps the state of the detector in the store."""
        if self._store.readonly or self._store.path is None:
            return
        from safetensors.torch import save

        state = {name: value.contiguous() for name, value in self._detector.state_dict().items()}
        value = {
            "settings": self._settings,
            "next": self._store.next_node,
            "state": base64.b85encode(save(state)).decode("ascii"),
        }
        self._store.meta_set(_KEY, json.dumps(value))
        self._kept = self._detector.count

    def _restored(self) -> int:
        """Takes up the kept state where it fits; the node number from which to go on."""
        kept = self._store.meta_get(_KEY)
        if kept is None:
            return 0
        from safetensors.torch import load

        value = json.loads(kept)
        if value["settings"] != self._settings:
            return 0
        try:
            self._detector.load_state_dict(load(base64.b85decode(value["state"])))
        except InputError:  # of another version of the detector: it learns from the atoms again
            return 0
        return int(value["next"])
