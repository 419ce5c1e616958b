"""What the modes of the memory say."""

from __future__ import annotations

from torch import Tensor

from graphmem_torch.rank.scope import Scope
from graphmem_torch.rank.signals.registry import signal
from graphmem_torch.spectral.mode_search import mode_weights

__all__: list[str] = []


@signal("mode")
def _mode(scope: Scope) -> Tensor:
    """w_k of the atom's mode (`mathematics.md` 1.5); 0 where the index has no modes."""
    modes = scope.index.modes
    if modes is None:
        return scope.zeros()
    own = scope.index.config.modes
    weight = mode_weights(
        modes, scope.query.embedding, half_life=own.half_life, absolute=own.absolute
    )
    label = scope.pick(modes.label.long())
    return weight.gather(1, label.expand(scope.shape))
