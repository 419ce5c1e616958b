"""linear_autoencoder: which columns of a matrix foretell which others, in closed form."""

from __future__ import annotations

import torch
from torch import Tensor

from graphmem_torch.graph import Graph
from graphmem_torch.ops._check import check_range
from graphmem_torch.ops.spmm import spmm
from graphmem_torch.spectral.adjacency import adjacency

__all__ = ["linear_autoencoder"]


def linear_autoencoder(graph: Graph, *, penalty: float = 10.0) -> Tensor:  # [N, N] float32
    """The linear map B with zero diagonal that best makes the rows of the adjacency of themselves.

    min ‖A - A B‖² + penalty ‖B‖² with diag(B) = 0: B = I - P diag(P)⁻¹, P = (AᵀA + penalty I)⁻¹
    (Steck 2019, EASE, eq. 8). It is the full spectrum's answer to a truncated SVD of A: every
    singular direction counts by σ² / (σ² + penalty), and what a column says of itself is taken out.
    Row u of A B scores the absent edges of u by what usually goes together with its present ones.

    Args:
        graph: N nodes, at most 20,000; edges count once, whatever their weight.
        penalty: Above 0; the larger, the more edges a pattern needs to count.

    Raises:
        InputError: Too many nodes, or a penalty that is not above 0.
    """
    check_range("penalty", penalty, 1e-6)
    dense = adjacency(graph)
    found = torch.zeros_like(dense)
    used = (graph.in_degree > 0).nonzero().squeeze(1)  # to and from the others B is 0
    # Row v of AᵀA sums the rows of A of all u with an edge to v: the incoming rows of the graph.
    gram = spmm(graph.indptr, graph.source, _once(graph), dense.index_select(1, used))[used]
    gram.diagonal().add_(penalty)
    inverse = torch.cholesky_inverse(torch.linalg.cholesky(gram))
    diagonal = inverse.diagonal().clone()
    found[used[:, None], used] = inverse.div_(-diagonal)
    found.fill_diagonal_(0.0)
    return found


def _once(graph: Graph) -> Tensor:  # [E]
    """Weights of 1 in which parallel edges of several types count once together."""
    pair = graph.target.long() * graph.num_nodes + graph.source.long()
    again = torch.zeros_like(pair, dtype=torch.bool)
    again[1:] = pair[1:] == pair[:-1]
    return (~again).float()
