"""The judges of `graphmem eval`; their sources are in `bench/quality`.

In a checkout they are reached through this package, in a wheel they lie in it.
"""

from __future__ import annotations

from pathlib import Path

_here = Path(__file__).resolve().parent
if not (_here / "request.py").is_file():  # a checkout
    __path__.append(str(_here.parents[1] / "bench" / "quality"))
