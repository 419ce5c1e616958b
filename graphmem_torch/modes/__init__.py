"""Themes of embeddings (finding, searching, tracking, comparing), and switches of regime.

Imports from `linalg` and the layers below it; uses no graph.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names

if TYPE_CHECKING:
    from graphmem_torch.modes.detectors import EnergyDrift
    from graphmem_torch.modes.find import Modes, find_modes, modes_of
    from graphmem_torch.modes.regime import RegimeDetector
    from graphmem_torch.modes.search import (
        Alignment,
        ModeHits,
        align_modes,
        atoms_read,
        mode_weights,
        principal_angles,
        search_modes,
        select_modes,
    )
    from graphmem_torch.modes.track import ModeTracker

__all__ = [
    "Alignment",
    "EnergyDrift",
    "ModeHits",
    "ModeTracker",
    "Modes",
    "RegimeDetector",
    "align_modes",
    "atoms_read",
    "find_modes",
    "mode_weights",
    "modes_of",
    "principal_angles",
    "search_modes",
    "select_modes",
]

_NAMES = {
    "modes.detectors": "EnergyDrift",
    "modes.find": "Modes find_modes modes_of",
    "modes.regime": "RegimeDetector",
    "modes.search": "Alignment ModeHits align_modes atoms_read mode_weights principal_angles "
    "search_modes select_modes",
    "modes.track": "ModeTracker",
}

__getattr__ = lazy_names(__name__, _NAMES)
