"""Spectral methods: leading parts of matrices and kernels, and the Laplacian of a graph."""

from __future__ import annotations

from graphmem_torch.spectral.centrality import centrality
from graphmem_torch.spectral.components import components
from graphmem_torch.spectral.conjugate_gradient import conjugate_gradient
from graphmem_torch.spectral.decompose import decompose
from graphmem_torch.spectral.fiedler import fiedler
from graphmem_torch.spectral.gram import Gram
from graphmem_torch.spectral.gram_svd import gram_svd
from graphmem_torch.spectral.lanczos import lanczos
from graphmem_torch.spectral.laplacian import Laplacian, laplacian
from graphmem_torch.spectral.operator import MatrixOperator, SymmetricOperator
from graphmem_torch.spectral.randomized_svd import Kernel, randomized_svd
from graphmem_torch.spectral.resistance import effective_resistance
from graphmem_torch.spectral.spectrum import Spectrum, reconstruction_error
from graphmem_torch.spectral.streaming import StreamingSpectrum

__all__ = [
    "Gram",
    "Kernel",
    "Laplacian",
    "MatrixOperator",
    "Spectrum",
    "StreamingSpectrum",
    "SymmetricOperator",
    "centrality",
    "components",
    "conjugate_gradient",
    "decompose",
    "effective_resistance",
    "fiedler",
    "gram_svd",
    "lanczos",
    "laplacian",
    "randomized_svd",
    "reconstruction_error",
]
