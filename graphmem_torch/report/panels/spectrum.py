"""The spectrum of the memory kernel: how many directions the memories fill."""

from __future__ import annotations

import torch

from graphmem_torch.report.chart import Chart, Mark, Series
from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.facts import Facts
from graphmem_torch.report.markup import number
from graphmem_torch.report.panels.panel import Panel, paragraph

__all__ = ["spectrum_panel"]

_LEAST = 1e-7  # of the largest eigenvalue: less is rounding
_POINTS = 400


def spectrum_panel(facts: Facts, drawing: Drawing) -> Panel:
    """Eigenvalues with the chosen K, and the energy that the leading ones hold."""
    title = "Spectrum of the memory kernel"
    if facts.spectrum is None or facts.modes is None:
        return Panel(title, (paragraph("There are no vectors to take a spectrum of."),))
    values = facts.spectrum.values
    values = values[values > _LEAST * values[0]]
    kept = len(facts.modes.spectrum.values)
    total = facts.spectrum.total_energy or float(values.sum())
    share = values.cumsum(0) / total
    at = torch.arange(len(values))
    if len(values) > _POINTS:
        at = torch.linspace(0, len(values) - 1, _POINTS).round().long().unique()
    rank = [float(i + 1) for i in at.tolist()]
    mark = Mark(float(kept), f"K = {kept}", 2, f"K = {kept} are kept")
    exponent = facts.modes.exponent
    eigenvalues = Chart(
        "Eigenvalues",
        "rank k",
        "eigenvalue λ of E Eᵀ / N",
        [Series("eigenvalue", rank, values[at].tolist())],
        [mark],
        log_y=True,
        summary=f"K = {kept} eigenvectors are kept; they hold {float(share[kept - 1]):.1%} of the "
        f"energy. The rows projected on them err by {number(facts.modes.measured_error)} in the "
        f"mean square (certified bound {number(facts.modes.bound)}). Fitted power law: "
        f"λ ~ k^−{number(exponent)}.",
    )
    energy = Chart(
        "Energy of the leading eigenvectors",
        "rank k",
        "share of the energy, %",
        [Series("share", rank, (100 * share[at]).tolist(), tone=3)],
        [mark],
    )
    return Panel(title, (eigenvalues.html(), energy.html()))
