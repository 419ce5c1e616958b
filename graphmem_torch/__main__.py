"""`python -m graphmem_torch`: the command line."""

from __future__ import annotations

import sys

from graphmem_torch.cli import main

if __name__ == "__main__":
    sys.exit(main())
