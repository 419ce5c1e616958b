"""What traversal of the segment graph says."""

from __future__ import annotations

from torch import Tensor

from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.segment import discounted
from graphmem_torch.rank.signals.registry import signal

__all__: list[str] = []


@signal("traversal", graph=True)
def _traversal(scope: Scope) -> Tensor:
    """Hop-discounted similarity around the seed; 0 beyond its reach (`mathematics.md` 3)."""
    if scope.reach is None:
        return scope.zeros()
    reach = scope.reach.to_dense() if scope.rows is None else scope.reach.gather(scope.rows)
    return discounted(scope.memo("semantic"), reach).where(reach > 0, 0.0)
