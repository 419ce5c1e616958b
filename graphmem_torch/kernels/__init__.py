"""Triton sources, reached as `graphmem_torch.kernels` wherever they lie.

In a checkout they are in the top-level folder `kernels/`, which must not be a package: `kernels` is
also the name of a well-known one, and transformers imports any regular package of that name on the
path.
"""

from __future__ import annotations

from pathlib import Path

_here = Path(__file__).resolve().parent
if not (_here / "propagate.py").is_file():
    __path__.append(str(_here.parents[1] / "kernels"))
