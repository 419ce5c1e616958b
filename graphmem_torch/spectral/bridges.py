"""bridges: the edges between communities whose loss would part the graph the most."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from graphmem_torch.checks import check_choice, check_count, check_range
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.spectral._pairs import check_pairs
from graphmem_torch.spectral._pseudo_inverse import SMALL
from graphmem_torch.spectral._resistance_change import (
    Forms,
    exact_forms,
    sketched_forms,
    solved_forms,
)
from graphmem_torch.spectral.components import undirected
from graphmem_torch.spectral.laplacian import Laplacian
from graphmem_torch.spectral.workspace import Workspace

__all__ = ["Bridges", "bridge_scores", "bridges"]

_log = logging.getLogger(__name__)

_MANY = 512  # pairs from which the sketch is the method of choice
_SPARE = 4  # times `top` that the sketch leaves to be solved exactly, and
_LEAST = 32  # at least so many


@dataclass(frozen=True, eq=False)
class Bridges:
    """Pairs of nodes and what an edge between them does to the total effective resistance.

    Attributes:
        pairs: `[2, P]` int64.
        score: `[P]` float64: of an existing edge the rise if it went, of an absent pair the fall if
            it came; inf for a cut edge and between components.
        side: `[P]` int64: nodes of the smaller part that a cut edge holds on to, or that an absent
            pair would join; 0 where the score is finite. It orders infinite scores.
        weight: `[P]` float32: of an existing edge, signed; else the one that was supposed.
        exists: `[P]` bool.
        error: `[P]` float64, relative, of the score: rounding, the tolerance, or one standard
            deviation.
        converged: Whether conjugate gradients reached their tolerance.
    """

    pairs: Tensor
    score: Tensor
    side: Tensor
    weight: Tensor
    exists: Tensor
    error: Tensor
    converged: bool = True

    def __len__(self) -> int:
        """Number of pairs P."""
        return self.pairs.shape[1]

    def take(self, place: Tensor) -> Bridges:  # [k] integers or [P] bool
        """Some of them, in that order."""
        columns = ("score", "side", "weight", "exists", "error")
        parts = {name: getattr(self, name)[place] for name in columns}
        return replace(self, pairs=self.pairs[:, place], **parts)

    def order(self) -> Tensor:  # [P] int64
        """Best first: by score, infinite ones by side; equals stay as they are."""
        order = torch.argsort(self.side, descending=True, stable=True)
        return order[torch.argsort(self.score[order], descending=True, stable=True)]


def bridge_scores(
    graph: Graph,  # N nodes
    pairs: Tensor | None = None,  # [2, P] or [P, 2] integers
    method: str = "auto",
    *,
    weight: float = 1.0,
    tol: float = 1e-10,
    max_iter: int = 2000,
    columns: int = 128,
    generator: torch.Generator | None = None,
    workspace: Workspace | None = None,
) -> Bridges:
    """How the total effective resistance changes with an edge (`docs/mathematics.md` 2.5).

    With L = D - W on |w|, b = e_i - e_j, R = b'L⁺b and n nodes in the component, the loss of an
    edge of weight w raises Σ_{i<j} R_ij by n w ‖L⁺b‖² / (1 - wR), a new one lowers it by
    n w ‖L⁺b‖² / (1 + wR) (Sherman and Morrison 1950; Ghosh, Boyd and Saberi 2008, section 2).
    Cut edges, where wR = 1, are found as such, not by rounding.

    * "exact": the dense pseudo-inverse in float64, up to 20,000 nodes.
    * "cg": conjugate gradients in float64 with the pairs as columns.
    * "sketch": random projections for any number of pairs; where wR is nearer to 1 than their
      noise, 1 - wR is taken as that noise, and the score is too small rather than too large.
    * "auto": "exact" up to 1,024 nodes, else "cg" up to 512 pairs, else "sketch".

    Args:
        graph: Signs and directions are ignored; loops carry nothing.
        pairs: Node numbers, every undirected edge once when omitted.
        method: As above.
        weight: That an absent pair is supposed to have.
        tol: Relative error asked of R by "cg"; about its root is that of the score.
        max_iter: Of conjugate gradients.
        columns: Of the sketch.
        generator: Of the sketch.
        workspace: Of the graph, which keeps what is solved.

    Returns:
        The pairs as they came; from a node to itself the score is 0.

    Raises:
        InputError: For pairs of a wrong shape or dtype or out of range, weights that require a
            gradient, or a constant out of range.
    """
    check_choice("method", method, ("auto", "exact", "cg", "sketch"))
    check_range("tol", tol, 0.0)
    for name, value in (("max_iter", max_iter), ("columns", columns)):
        check_count(name, value)
    if not 0 < weight < float("inf"):
        raise InputError(f"weight must be above 0 and finite; got {weight}. Try 1.0.")
    low, high, strength = undirected(graph)
    ends = torch.stack([low, high]) if pairs is None else check_pairs(pairs, graph)
    if method == "auto":
        few = "cg" if ends.shape[1] <= _MANY else "sketch"
        method = "exact" if graph.num_nodes <= SMALL else few
    own = workspace or Workspace(graph, generator=generator)
    operator = own.operator if method == "sketch" else own.exact
    if method == "exact":
        forms = exact_forms(graph, ends, max(tol, 1e-6))
    elif method == "cg":
        forms = solved_forms(operator, ends, tol, max_iter, workspace)
    else:
        forms = sketched_forms(own, ends, columns, max_iter)
    if not forms.converged:
        _log.warning(
            "Bridge scores by %r are less exact than asked for after %d iterations: raise max_iter "
            "or tol, or drop edges that are nothing beside the others",
            method,
            forms.iterations,
        )
    return _assembled(operator, strength, ends, forms, own.cut, weight)


def bridges(
    graph: Graph,  # N nodes
    label: Tensor,  # [N] integers
    top: int = 10,
    *,
    tol: float = 1e-10,
    max_iter: int = 2000,
    columns: int = 64,
    generator: torch.Generator | None = None,
    workspace: Workspace | None = None,
) -> Bridges:
    """The existing edges between communities that the graph would miss the most, best first.

    Cut edges come before all others, the one that cuts off most first. Of many other edges a sketch
    leaves the best `4 top`, at least 32, which are then solved exactly; so the scores are exact,
    and an edge is left out wrongly only where its score is within the sketch's noise of the last.

    Args:
        graph: Signs and directions are ignored.
        label: Community of every node.
        top: How many at most.
        tol: As for `bridge_scores`.
        max_iter: As for `bridge_scores`.
        columns: Of the sketch.
        generator: Of the sketch.
        workspace: Of the graph, which keeps what is solved.

    Raises:
        InputError: If the labels do not fit the graph or a constant is out of range.
    """
    check_count("top", top)
    check_labels(label, graph)
    workspace = workspace or Workspace(graph, generator=generator)
    low, high = workspace.operator.low, workspace.operator.high
    crossing = (label[low] != label[high]).nonzero().squeeze(1)
    ends = torch.stack([low[crossing], high[crossing]])
    if graph.num_nodes > SMALL:
        side = workspace.cut[crossing]
        cut = side > 0
        if int(cut.sum()) >= top:  # nothing finite can be among the best
            best = torch.argsort(side, descending=True, stable=True)[:top]
            ends = ends[:, best]
        elif ends.shape[1] > _MANY:
            rough = bridge_scores(
                graph, ends, "sketch", columns=columns, max_iter=max_iter, workspace=workspace
            )
            ends = ends[:, rough.order()[: max(_SPARE * top, _LEAST)]]
    method = "exact" if graph.num_nodes <= SMALL else "cg"
    found = bridge_scores(graph, ends, method, tol=tol, max_iter=max_iter, workspace=workspace)
    return found.take(found.order()[:top])


def check_labels(label: Tensor, graph: Graph) -> None:
    """Raises `InputError` unless there is an integer label for every node, on its device."""
    if (
        label.shape != (graph.num_nodes,)
        or label.is_floating_point()
        or label.device != graph.device
    ):
        raise InputError(
            f"label must be integers of shape [{graph.num_nodes}] on {graph.device}; got "
            f"{label.dtype} {list(label.shape)} on {label.device}. Was the graph rebuilt since?"
        )


def _assembled(
    operator: Laplacian,
    strength: Tensor,  # [M] signed
    ends: Tensor,  # [2, P]
    forms: Forms,
    side: Tensor,  # [M]
    supposed: float,
) -> Bridges:
    low, high = ends.aminmax(dim=0) if ends.shape[1] else (ends[0], ends[1])
    nodes, edges = operator.shape[0], operator.low.shape[0]
    exists = torch.zeros(ends.shape[1], dtype=torch.bool, device=ends.device)
    weight = torch.full(ends.shape[1:], supposed, device=ends.device)
    cut = torch.zeros_like(low)
    if edges:
        known, wanted = operator.low * nodes + operator.high, low * nodes + high
        at = torch.searchsorted(known, wanted).clamp(max=edges - 1)
        exists = known[at] == wanted
        weight = torch.where(exists, strength[at], weight)
        cut = torch.where(exists, side[at], 0)
    size = torch.bincount(operator.component, minlength=1)
    first, second = operator.component[low], operator.component[high]
    apart = first != second
    joined = torch.where(apart, torch.minimum(size[first], size[second]), cut)
    share = (weight.double().abs() * forms.resistance).where(~apart, 0.0)
    least = (forms.resistance_error * share).clamp(min=torch.finfo(torch.float64).eps)
    left = torch.where(exists, torch.maximum(1 - share, least), 1 + share)
    score = size[first] * weight.double().abs() * forms.square / left
    infinite = joined > 0
    error = forms.square_error + share * forms.resistance_error / left
    return Bridges(
        ends,
        torch.where(infinite, torch.inf, score),
        joined,
        weight.float(),
        exists,
        torch.where(infinite, 0.0, error),
        forms.converged,
    )
