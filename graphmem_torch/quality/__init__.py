"""The judges of `graphmem eval`; their sources are in `bench/quality`.

That folder has no `__init__.py`: in a checkout it is reached through this package, in a wheel its
files lie beside this one. Judges may import the whole package; only the command line imports them.
"""

from __future__ import annotations

from pathlib import Path

_here = Path(__file__).resolve().parent
if not (_here / "request.py").is_file():  # a checkout
    __path__.append(str(_here.parents[1] / "bench" / "quality"))
