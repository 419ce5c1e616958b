"""Linear algebra that knows no graph: operators, eigensolvers, linear systems, factorisations.

Imports from `ops`, `checks` and what lies below them.
"""

from __future__ import annotations

from graphmem_torch.linalg.conjugate_gradient import conjugate_gradient
from graphmem_torch.linalg.decompose import decompose
from graphmem_torch.linalg.gram import Gram, gram_svd
from graphmem_torch.linalg.incremental_svd import StreamingSpectrum
from graphmem_torch.linalg.lanczos import lanczos
from graphmem_torch.linalg.operator import MatrixOperator, SymmetricOperator
from graphmem_torch.linalg.randomized_svd import Kernel, randomized_svd
from graphmem_torch.linalg.spectrum import Spectrum, reconstruction_error

__all__ = [
    "Gram",
    "Kernel",
    "MatrixOperator",
    "Spectrum",
    "StreamingSpectrum",
    "SymmetricOperator",
    "conjugate_gradient",
    "decompose",
    "gram_svd",
    "lanczos",
    "randomized_svd",
    "reconstruction_error",
]
