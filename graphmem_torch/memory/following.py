"""ModeFollower: the modes of a memory that grows, taken along instead of found anew each time."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.config import ModesConfig
from graphmem_torch.index.data import modes_by
from graphmem_torch.modes.find import Modes, modes_from_tensors, modes_to_tensors
from graphmem_torch.modes.track import ModeTracker

__all__ = ["ModeFollower"]


class ModeFollower:
    """Gives the modes of a memory at each of its states (`docs/mathematics.md` 1.8).

    Where atoms were only added since the last state, the new ones are counted in by a
    `ModeTracker`; the old ones are read once a process, for its sums. All modes are found anew at
    first, where the drift exceeds `modes.drift`, after `renew`, and where the settings changed or
    anything else became of the old atoms. What is kept is derived: sums of size d², and a few
    numbers an atom.

    Attributes:
        found: How often all modes were found anew.
        followed: How often new atoms were counted in instead.
        share: `Modes.centroid_error` when they were last found, as a share of the energy: what
            drift is measured from.
    """

    def __init__(self) -> None:
        self.found, self.followed, self.share = 0, 0, 0.0
        self._modes: Modes | None = None
        self._settings: tuple[object, ...] = ()
        self._node = torch.empty(0, dtype=torch.int64)
        self._tracker: ModeTracker | None = None
        self._due = False

    @property
    def blank(self) -> bool:
        """Whether modes that were kept elsewhere would be of use."""
        return self._modes is None and not self._due

    def renew(self) -> None:
        """Has the modes found anew when they are next asked for: a regime has switched."""
        self._modes, self._tracker, self._due = None, None, True

    def take(self, modes: Modes, settings: ModesConfig, node: Tensor, share: float) -> None:
        """Goes on from modes of the atoms `node` [A], found by these settings at `share`."""
        shape = (len(node), modes.centroid.shape[1])
        self._modes, self._tracker, self._due = modes, None, False
        self._settings, self._node, self.share = _asked(settings, shape), node, share

    def modes(
        self,
        settings: ModesConfig,
        embeddings: Tensor,  # [A, d]
        time: Tensor,  # [A] float64 seconds since the epoch, NaN = unknown
        node: Tensor,  # [A] int64, ascending
    ) -> Modes:
        """The modes of the atoms, on their device.

        Args:
            settings: By which modes are found.
            embeddings: One row an atom.
            time: When each atom was.
            node: Its number in the store, which no other atom is ever given.
        """
        old, shape = len(self._node), (embeddings.shape[0], embeddings.shape[1])
        same = self._settings == _asked(settings, shape) and torch.equal(self._node, node[:old])
        if self._modes is not None and same:
            if old < len(node):
                self._follow(settings, embeddings, time, node)
            if self._modes is not None:
                return self._modes
        found = modes_by(settings, embeddings, time)
        share = found.centroid_error / (found.spectrum.total_energy or 1.0)
        self.take(found, settings, node, share)
        self.found += 1
        return found

    def _follow(
        self, settings: ModesConfig, embeddings: Tensor, time: Tensor, node: Tensor
    ) -> None:
        """Counts the new atoms in; leaves no modes where they drifted too far."""
        assert self._modes is not None
        old, device = len(self._node), embeddings.device
        if self._tracker is None:
            self._tracker = ModeTracker(
                _moved(self._modes, "cpu"),
                embeddings[:old].cpu(),
                time=time[:old].cpu(),
                tol=min(settings.drift, 1.0),
                share=self.share,
                find=lambda rows, times: modes_by(settings, rows, times),
            )
        self._tracker.add(embeddings[old:].cpu(), time[old:].cpu())
        if self._tracker.stale or settings.drift == 0:
            self._modes = self._tracker = None
            return
        self._modes, self._node = _moved(self._tracker.modes(), device), node
        self.followed += 1


def _asked(settings: ModesConfig, shape: tuple[int, int]) -> tuple[object, ...]:
    """What modes are found by: other values make other modes."""
    count = min(settings.count, *shape)
    return settings.select, count, settings.epsilon, settings.assign, settings.drift


def _moved(modes: Modes, device: torch.device | str) -> Modes:
    return modes_from_tensors(
        {name: part.to(device) for name, part in modes_to_tensors(modes).items()}
    )
