"""The smallest eigenvalues of the graph's Laplacian: how well it hangs together."""

from __future__ import annotations

from graphmem_torch.report.chart import Chart, Series
from graphmem_torch.report.drawing import Drawing
from graphmem_torch.report.facts import Facts
from graphmem_torch.report.markup import number
from graphmem_torch.report.panels.panel import NO_EDGES, Panel, paragraph

__all__ = ["laplacian_panel"]


def laplacian_panel(facts: Facts, drawing: Drawing) -> Panel:
    """The eigenvalues next to 0, and how often 0 occurs."""
    title = "Spectrum of the graph"
    values = facts.structure.values.tolist()
    if not values:
        return Panel(title, (paragraph(NO_EDGES),))
    zeros = facts.structure.num_components
    said = (
        "The graph has one component, so 0 occurs once. The spectral gap is "
        if zeros == 1
        else f"The graph has {zeros:,} components, so 0 occurs {zeros:,} times. The first value "
        "above is "
    )
    said += f"{number(values[0])}: small values mean parts that hardly hang together."
    if not facts.structure.converged:
        said += " The values are within their residuals, not exact."
    camps = facts.structure.frustration
    worst = camps.contradictory
    if len(worst):
        part = int(worst[0])
        said += (
            f" Contradictions that no split into two camps resolves are in {len(worst):,} of the "
            f"components; the worst is frustrated by {number(float(camps.value[part]))}."
        )
    ranks = [float(zeros + i + 1) for i in range(len(values))]
    chart = Chart(
        "Smallest eigenvalues beside the zeros",
        "rank",
        "eigenvalue μ of the normalised Laplacian",
        [Series("μ", ranks, values, kind="dots")],
        summary=said,
    )
    return Panel(title, (chart.html(),))
