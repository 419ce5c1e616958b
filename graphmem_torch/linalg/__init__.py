"""Linear algebra: operators (the Laplacian of a graph is one), eigensolvers, factorisations.

Imports from `ops`, `graph` and the layers below them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphmem_torch.lazy import lazy_names

if TYPE_CHECKING:
    from graphmem_torch.linalg.eigenpairs import lanczos
    from graphmem_torch.linalg.gram import Gram, StreamingSpectrum, gram_svd
    from graphmem_torch.linalg.linear_systems import conjugate_gradient
    from graphmem_torch.linalg.logistic import Logistic, fit_logistic
    from graphmem_torch.linalg.low_rank import Kernel, decompose, randomized_svd
    from graphmem_torch.linalg.operator import SymmetricOperator
    from graphmem_torch.linalg.spectrum import Spectrum, reconstruction_error

__all__ = [
    "Gram",
    "Kernel",
    "Logistic",
    "Spectrum",
    "StreamingSpectrum",
    "SymmetricOperator",
    "conjugate_gradient",
    "decompose",
    "fit_logistic",
    "gram_svd",
    "lanczos",
    "randomized_svd",
    "reconstruction_error",
]

_NAMES = {
    "linalg.eigenpairs": "lanczos",
    "linalg.gram": "Gram StreamingSpectrum gram_svd",
    "linalg.linear_systems": "conjugate_gradient",
    "linalg.logistic": "Logistic fit_logistic",
    "linalg.low_rank": "Kernel decompose randomized_svd",
    "linalg.operator": "SymmetricOperator",
    "linalg.spectrum": "Spectrum reconstruction_error",
}

__getattr__ = lazy_names(__name__, _NAMES)
