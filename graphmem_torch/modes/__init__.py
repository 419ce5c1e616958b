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

_MODULE = {
    "Alignment": "modes.search",
    "EnergyDrift": "modes.detectors",
    "ModeHits": "modes.search",
    "ModeTracker": "modes.track",
    "Modes": "modes.find",
    "RegimeDetector": "modes.regime",
    "align_modes": "modes.search",
    "atoms_read": "modes.search",
    "find_modes": "modes.find",
    "mode_weights": "modes.search",
    "modes_of": "modes.find",
    "principal_angles": "modes.search",
    "search_modes": "modes.search",
    "select_modes": "modes.search",
}

__getattr__ = lazy_names(__name__, _MODULE)
