"""A batch: what one acknowledged write holds, and what makes it fit to be written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import EmbedderError, InputError

__all__ = ["Batch"]


@dataclass(frozen=True, eq=False)
class Batch:
    """One acknowledged write: n atoms with their vectors, and any edges.

    Attributes:
        atoms: The n atoms; they get the node numbers `next_node` to `next_node + n - 1`.
        embeddings: [n, d] float32, finite.
        tokens: [T, m] int8 token vectors, packed; None: these atoms have no token vectors.
        pieces: [T] int32 word-piece number of each token vector; with `tokens`.
        offsets: [n + 1] int64, atom i owns rows offsets[i] to offsets[i + 1]; with `tokens`.
        edges: Edges among all nodes up to and including these. A batch may hold nothing but edges.
    """

    atoms: Sequence[Atom]
    embeddings: Tensor
    tokens: Tensor | None = None
    pieces: Tensor | None = None
    offsets: Tensor | None = None
    edges: EdgeBlock = field(default_factory=EdgeBlock.empty)

    def validate(self, *, dim: int | None, token_dim: int | None) -> None:
        """Check the vectors against the atoms and the widths of the store (None: not yet known).

        Raises:
            InputError: Shapes, types or offsets do not fit.
            EmbedderError: An embedding is not finite; the message names the atom.
        """
        n = len(self.atoms)
        width = self.embeddings.shape[-1] if dim is None and self.embeddings.dim() == 2 else dim
        if n or self.embeddings.numel():
            _expect("embeddings", self.embeddings, torch.float32, (n, width))
        bad = (~torch.isfinite(self.embeddings)).nonzero()
        if len(bad):
            atom = self.atoms[int(bad[0, 0])]
            raise EmbedderError(
                f"embeddings: expected finite vectors, got NaN or infinity for atom {atom.id!r} "
                f"({atom.text[:40]!r}). Check the embedder (half precision overflows) or its input"
            )
        if self.tokens is None or self.pieces is None or self.offsets is None:
            if any(part is not None for part in (self.tokens, self.pieces, self.offsets)):
                raise InputError(
                    "tokens, pieces, offsets: expected all three or none, got only some. Pass the "
                    "encoder's output whole"
                )
            return
        self._validate_tokens(self.tokens, self.pieces, self.offsets, token_dim)

    def _validate_tokens(
        self, tokens: Tensor, pieces: Tensor, offsets: Tensor, token_dim: int | None
    ) -> None:
        rows = pieces.shape[0] if pieces.dim() == 1 else None
        width = tokens.shape[-1] if token_dim is None and tokens.dim() == 2 else token_dim
        _expect("pieces", pieces, torch.int32, (rows,))
        _expect("tokens", tokens, torch.int8, (rows, width))
        _expect("offsets", offsets, torch.int64, (len(self.atoms) + 1,))
        first, last = int(offsets[0]), int(offsets[-1])
        if first != 0 or last != rows or bool((offsets.diff() < 0).any()):
            raise InputError(
                f"offsets: expected an ascending sequence from 0 to {rows}, got {first} to {last}. "
                "offsets[i] is where the token vectors of atom i begin"
            )


def _expect(name: str, tensor: Tensor, dtype: torch.dtype, shape: tuple[int | None, ...]) -> None:
    if tensor.dtype == dtype and tuple(tensor.shape) == shape:
        return
    wanted = ", ".join("?" if size is None else str(size) for size in shape)
    raise InputError(
        f"{name}: expected {dtype} of shape [{wanted}], got {tensor.dtype} of shape "
        f"{list(tensor.shape)}. Convert or reshape it; a store keeps one width for ever"
    )
