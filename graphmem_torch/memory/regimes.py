"""RegimeWatch: the stream of atoms that are added to a memory, watched for regime switches."""

from __future__ import annotations

import base64
import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict

from torch import Tensor

from graphmem_torch.atoms import CONCEPT, Atom
from graphmem_torch.config import RegimeConfig
from graphmem_torch.errors import InputError
from graphmem_torch.modes.detectors import Detector, EnergyDrift
from graphmem_torch.modes.regime import RegimeDetector
from graphmem_torch.results import RegimeSwitch
from graphmem_torch.store import MemoryStore

__all__ = ["RegimeWatch", "detector_of"]

_log = logging.getLogger(__name__)

_KEY = "regime"  # under which the store keeps the detector's state
_REPLAYED = 4096  # atoms at most that are read again to catch up
_SAVED = 1024  # atoms after which the state is kept anew


def detector_of(config: RegimeConfig, dim: int) -> Detector | None:
    """The detector that the settings ask for, for rows of d columns."""
    if config.detector == "spectral":
        return RegimeDetector(dim, threshold=config.threshold, hazard=config.hazard)
    if config.detector == "published":
        return EnergyDrift(dim, threshold=config.factor)
    return None


class RegimeWatch:
    """Runs a detector over the atoms of a store, in the order of adding, and tells callbacks.

    The detector starts with what is stored: from its own state, which the store keeps, and the
    atoms that came since; at most the last 4,096 atoms are read for it.

    Args:
        store: Open for writing.
        config: Which detector.
        dim: Width of the embeddings.
    """

    def __init__(self, store: MemoryStore, config: RegimeConfig, dim: int) -> None:
        self._store, self._config, self._dim = store, config, dim
        self._callbacks: list[Callable[[RegimeSwitch], object]] = []
        detector = detector_of(config, dim)
        if detector is None:
            raise InputError(
                "on_regime_switch needs a detector; the preset has regime.detector 'none'. Set it "
                "to 'spectral'."
            )
        self._detector = detector
        self._catch_up()
        self._kept = self._detector.count

    def call(self, function: Callable[[RegimeSwitch], object]) -> None:
        """Tells the function of every switch from now on."""
        if not callable(function):
            raise InputError(
                f"expected a function of one RegimeSwitch, got {function!r}; give one that can be "
                "called"
            )
        self._callbacks.append(function)

    def observe(
        self,
        atoms: Sequence[Atom],
        embeddings: Tensor,  # [n, d]
    ) -> list[RegimeSwitch]:
        """Reads atoms that are stored by now; the switches, after the callbacks were told.

        A callback that raises is logged; the others are still called.
        """
        steps = self._detector.update(embeddings)
        found = [
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
        for switch in found:
            for function in self._callbacks:
                try:
                    function(switch)
                except Exception:
                    _log.exception("a callback of on_regime_switch failed at %r", switch.atom)
        if self._detector.count - self._kept >= _SAVED:
            self.save()
        return found

    def save(self) -> None:
        """Keeps the state of the detector in the store."""
        if self._store.readonly or self._store.path is None:
            return
        from safetensors.torch import save

        state = {name: value.contiguous() for name, value in self._detector.state_dict().items()}
        value = {
            "settings": asdict(self._config) | {"dim": self._dim},
            "next": self._store.next_node,
            "state": base64.b85encode(save(state)).decode("ascii"),
        }
        self._store.meta_set(_KEY, json.dumps(value))
        self._kept = self._detector.count

    def _catch_up(self) -> None:
        """From the kept state, and the atoms that came since."""
        start = self._restored()
        first = max(start, self._store.next_node - _REPLAYED)
        with self._store.reading():
            kind = self._store.columns(first).kind
            rows = self._store.embeddings(first)
        if not len(rows):
            return
        concept = kind.names.index(CONCEPT) if CONCEPT in kind.names else -1
        self._detector.update(rows[kind.codes.long() != concept])

    def _restored(self) -> int:
        """Takes up the kept state where it fits; the node number from which to go on."""
        kept = self._store.meta_get(_KEY)
        if kept is None:
            return 0
        from safetensors.torch import load

        value = json.loads(kept)
        if value["settings"] != asdict(self._config) | {"dim": self._dim}:
            return 0
        try:
            self._detector.load_state_dict(load(base64.b85decode(value["state"])))
        except InputError:  # of another version of the detector: it learns from the atoms again
            return 0
        return int(value["next"])
