"""`graphmem` and `python -m graphmem_torch`: the command line."""

from __future__ import annotations

import sys

from graphmem_torch.cli import leave_at_once

__all__ = ["main"]


def main() -> int:
    """Loads the command line and runs it on the arguments of the process."""
    leave_at_once()
    from graphmem_torch.cli.main import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
