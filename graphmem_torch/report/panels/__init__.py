"""The panels below the graph, one file each.

A panel is a function from what is known of the memory, and the drawing that its buttons lead to,
to a `Panel`; adding one is one file and one entry in `PANELS`.
"""

from __future__ import annotations

from collections.abc import Callable

from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.facts import Facts
from graphmem_torch.report.panels.communities import communities_panel
from graphmem_torch.report.panels.laplacian import laplacian_panel
from graphmem_torch.report.panels.modes import modes_panel
from graphmem_torch.report.panels.panel import Panel
from graphmem_torch.report.panels.regime import regime_panel
from graphmem_torch.report.panels.remarkable import bridges_panel, frontiers_panel
from graphmem_torch.report.panels.spectrum import spectrum_panel
from graphmem_torch.report.panels.store import store_panel

__all__ = ["PANELS", "Panel"]

PANELS: tuple[Callable[[Facts, Drawing], Panel], ...] = (
    communities_panel,
    bridges_panel,
    frontiers_panel,
    regime_panel,
    spectrum_panel,
    laplacian_panel,
    modes_panel,
    store_panel,
)
"""In the order of the page."""
