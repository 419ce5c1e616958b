"""`graphmem` and `python -m graphmem_torch`: the command line."""

from __future__ import annotations

import gc
import sys

from graphmem_torch.cli import leave_at_once

__all__ = ["main"]

# Container objects between two searches for cycles; Python's own is 700. torch alone makes 250,000
# that live until the end: searching them again and again was a sixth of a cold question.
_COLLECT_AFTER = 100_000


def main() -> int:
    """Loads the command line and runs it on the arguments of the process."""
    leave_at_once()
    gc.set_threshold(_COLLECT_AFTER)
    from graphmem_torch.cli.main import main as run

    try:
        return run()
    finally:
        # The exit frees everything anyway; without this it searches all of torch for cycles first.
        gc.freeze()


if __name__ == "__main__":
    sys.exit(main())
