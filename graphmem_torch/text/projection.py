"""The fixed projection that compresses token vectors (`mathematics.md` 8.1).

It is made once per encoder, from reference text. For encoders we know, it ships with the package;
for any other it is computed from the shipped reference text.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from torch import Tensor

from graphmem_torch.errors import EmbedderError, InputError
from graphmem_torch.spectral import gram_svd

__all__ = ["projection_from", "reference_texts", "shipped_projection"]

_DATA = Path(__file__).resolve().parent / "data"


def reference_texts() -> list[str]:
    """The reference text that ships with the package: short everyday passages, one a line."""
    lines = (_DATA / "reference.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def shipped_projection(weights: str, dim: int) -> Tensor | None:
    """The projection [d, dim] float32 that ships for an encoder, or None.

    Args:
        weights: Hash of the encoder's weights.
        dim: Columns wanted: the leading ones, for they are ordered by how much they hold.
    """
    from safetensors import safe_open

    with safe_open(str(_DATA / "projections.safetensors"), framework="pt") as file:
        if weights not in file.keys():  # noqa: SIM118 - not a mapping
            return None
        matrix: Tensor = file.get_tensor(weights).float()
    return matrix[:, :dim].contiguous() if dim <= matrix.shape[1] else None


def projection_from(vectors: Iterable[Tensor], dim: int) -> Tensor:
    """The `dim` leading right singular vectors, uncentred, of token vectors.

    Uncentred, because inner products of the vectors themselves are to be kept, not those of their
    deviations.

    Args:
        vectors: Blocks [t, d] of unit rows; only their Gram matrix is held.
        dim: Columns wanted, at most d.

    Returns:
        [d, dim] float32 with orthonormal columns; each column's largest entry is positive.

    Raises:
        EmbedderError: When there are fewer than `dim` vectors, or they are not finite.
    """
    try:
        right = gram_svd(vectors, dim).right
    except InputError as error:
        raise EmbedderError(
            f"the token projection needs at least {dim} finite token vectors of reference text; "
            "open the embedder with token_dim=0 to go without token vectors"
        ) from error
    assert right is not None
    return right.float().contiguous()
