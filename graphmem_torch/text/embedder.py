"""What an embedder is and what it gives back; the hashing embedder, which needs no model."""

from __future__ import annotations

import copy
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.errors import EmbedderError
from graphmem_torch.progress import Progress
from graphmem_torch.text.models import reference_texts
from graphmem_torch.text.terms import STOP_WORDS, first_terms, terms
from graphmem_torch.text.tokens import Tokenizer, WordTokenizer
from graphmem_torch.text.words import is_readable

__all__ = [
    "Embedder",
    "Encoded",
    "HashingEmbedder",
    "PooledEmbedder",
    "background_cosine",
    "background_of",
    "encode_checked",
    "require_finite",
    "rescaled",
    "to_int8",
    "unrelated_vectors",
    "usual_cosine",
]
_PIECES = 1 << 16  # numbers of word pieces of the hashing embedder
_LENGTH_TOLERANCE = 1e-2  # half precision and quantised models stay within it


@dataclass(frozen=True, eq=False)
class Encoded:
    """The vectors of n texts.

    Attributes:
        pooled: [n, d] float32, unit rows.
        tokens: [T, m] int8, 127 times unit rows: the content pieces of all texts one after another;
            None when the embedder has no token vectors.
        pieces: [T] int32, vocabulary number of each row of `tokens`.
        offsets: [n + 1] int64; text i has the rows `offsets[i]:offsets[i + 1]`.
    """

    pooled: Tensor
    tokens: Tensor | None = None
    pieces: Tensor | None = None
    offsets: Tensor | None = None


@runtime_checkable
class Embedder(Protocol):
    """Texts to vectors.

    Questions and memories go through the same `encode`, unless there is also an `encode_query` of
    the same form: of encoders that read questions in another way (`encode_checked`). These have an
    attribute `asymmetric` that is true. An embedder may also have:

    - `background`: the cosine that unrelated texts have (`rescaled`);
    - `unrelated`: the vectors that `unrelated_vectors` would encode;
    - `unread(texts)`: the share of each text ([n] float32) in scripts that it never learned;
    - `readable(texts)`: which texts ([n] bool) are in a language that it learned; without it, all.

    Attributes:
        name: For people.
        dim: Width d of the pooled vectors.
        token_dim: Width m of the token vectors; 0 without them.
        num_pieces: Size of the vocabulary `Encoded.pieces` is taken from; 0 without token vectors.
        fingerprint: Two embedders of one fingerprint give the same vectors; a store is bound to it.
        tokenizer: Cuts texts into the pieces the encoder's window is counted in.
        window: Pieces the encoder reads at once, special tokens not counted.
    """

    name: str
    dim: int
    token_dim: int
    num_pieces: int
    fingerprint: str
    tokenizer: Tokenizer
    window: int

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """Vectors of `texts`, in their order; `progress` shows a bar on stderr."""
        ...


def encode_checked(
    embedder: Embedder, texts: Sequence[str], *, progress: bool = False, query: bool = False
) -> Encoded:
    """`embedder.encode(texts)`, after a look at what came: an embedder may be anybody's.

    With `query` they are questions, and go through `encode_query` where the embedder has one.

    Raises:
        EmbedderError: No tensors, wrong shapes or dtypes, or pooled vectors that are not finite or
            neither of unit length nor zero; names the first such text.
    """
    encode = getattr(embedder, "encode_query", embedder.encode) if query else embedder.encode
    encoded: Encoded = encode(texts, progress=progress)
    n = len(texts)
    for part in ("pooled", *(("tokens", "pieces", "offsets") if embedder.token_dim else ())):
        _require_tensor(encoded, part, embedder.name)
    pooled = encoded.pooled
    if pooled.shape != (n, embedder.dim) or pooled.dtype != torch.float32:
        raise EmbedderError(
            f"embedder {embedder.name!r}: expected pooled vectors [{n}, {embedder.dim}] float32, "
            f"got {list(pooled.shape)} {pooled.dtype}; mend its `encode`"
        )
    _require_unit_rows(pooled, texts, embedder.name)
    if embedder.token_dim == 0:
        return Encoded(pooled)
    tokens, pieces, offsets = encoded.tokens, encoded.pieces, encoded.offsets
    if tokens is None or pieces is None or offsets is None:
        raise EmbedderError(
            f"embedder {embedder.name!r}: expected tokens, pieces and offsets, got no token "
            f"vectors beside token_dim {embedder.token_dim}; give them, or set token_dim to 0"
        )
    rows = int(offsets[-1]) if offsets.shape == (n + 1,) else -1
    if (
        tokens.dtype != torch.int8
        or tokens.shape != (rows, embedder.token_dim)
        or pieces.shape != (rows,)
        or pieces.dtype != torch.int32
        or offsets.dtype != torch.int64
    ):
        raise EmbedderError(
            f"embedder {embedder.name!r}: expected tokens [T, {embedder.token_dim}] int8, pieces "
            f"[T] int32 and offsets [{n + 1}] int64 ending at T, got {list(tokens.shape)} "
            f"{tokens.dtype}, {list(pieces.shape)} {pieces.dtype}, {list(offsets.shape)} "
            f"{offsets.dtype}; mend its `encode`"
        )
    return encoded


def _require_tensor(encoded: object, part: str, name: str) -> None:
    value = getattr(encoded, part, None)
    if value is None and isinstance(encoded, Encoded) and part != "pooled":
        return  # told with the others
    if not isinstance(value, Tensor):
        what, got = (part, value) if hasattr(encoded, part) else ("all of it", encoded)
        raise EmbedderError(
            f"embedder {name!r}: expected `encode` to return an Encoded of tensors, got "
            f"{type(got).__name__} for {what}; return Encoded(torch.from_numpy(...), ...)"
        )
    if value.requires_grad:
        raise EmbedderError(
            f"embedder {name!r}: expected {part} without a gradient, got one; encode under "
            "torch.no_grad()"
        )


_ORTHOGONAL = 0.1  # up to this background thresholds are as they are: all-MiniLM-L6-v2 has 0.05


def background_cosine(pooled: Tensor) -> float:  # [n, d] unit rows
    """The mean cosine of texts that have nothing to do with each other."""
    n = len(pooled)
    total = pooled.double().sum(0).square().sum() - pooled.double().square().sum()
    return float(total) / max(n * (n - 1), 1)


_UNRELATED: dict[str, Tensor] = {}
_ENCODERS = 16  # whose vectors of these texts are kept


def unrelated_vectors(embedder: Embedder) -> Tensor:  # [25, d]
    """The vectors of short texts on everyday things, read as questions; encoded once a process."""
    found = _UNRELATED.get(embedder.fingerprint)
    if found is None:
        found = getattr(embedder, "unrelated", None)
        if found is None:
            found = encode_checked(embedder, reference_texts()[::6], query=True).pooled
        while len(_UNRELATED) >= _ENCODERS:
            _UNRELATED.pop(next(iter(_UNRELATED)), None)
        _UNRELATED[embedder.fingerprint] = found
    return found


def rescaled(cosine: float, embedder: Embedder) -> float:
    """A threshold for cosines, for an encoder whose unrelated texts may be far from orthogonal.

    Linear between the background, which takes the place of 0.1, and 1: of an encoder that gives
    unrelated texts 0.78, 0.3 becomes 0.83 and 0.92 becomes 0.98. The attribute `background` says
    which one it is; without it, and from thresholds of 1 on, nothing changes.
    """
    background = background_of(embedder)
    if background is None or cosine >= 1:
        return cosine
    return 1 - (1 - cosine) * (1 - background) / (1 - _ORTHOGONAL)


def background_of(embedder: Embedder) -> float | None:
    """The attribute `background` of an embedder; None where unrelated texts are orthogonal."""
    background: float = getattr(embedder, "background", 0.0)
    return background if background > _ORTHOGONAL else None


def usual_cosine(cosine: Tensor, background: Tensor) -> Tensor:
    """What cosines would be if unrelated texts were orthogonal: `rescaled` the other way."""
    return 1 - (1 - cosine) * (1 - _ORTHOGONAL) / (1 - background)


class PooledEmbedder:
    """Pooled vectors by functions from texts; see `Embedder` for the attributes.

    There are no token vectors: late interaction is of the words themselves.
    """

    token_dim, num_pieces = 0, 0

    def __init__(
        self,
        name: str,
        fingerprint: str,
        dim: int,
        documents: Callable[[list[str]], Any],
        queries: Callable[[list[str]], Any] | None = None,
        *,
        tokenizer: Tokenizer | None = None,
        window: int = 254,
        batch: int = 256,
    ) -> None:
        """What the functions give is brought to unit length.

        Args:
            name: As in `Embedder`.
            fingerprint: As in `Embedder`.
            dim: Width of the vectors.
            documents: Texts to vectors [n, dim], numpy or torch, or lists.
            queries: The same of questions; by default they are read as other texts.
            tokenizer: What counts the pieces of a chunk; by default words.
            window: As in `Embedder`.
            batch: Texts of one call.
        """
        self.name, self.fingerprint, self.dim, self.window = name, fingerprint, dim, window
        self.tokenizer: Tokenizer = tokenizer or WordTokenizer()
        self._documents, self._queries, self._batch = documents, queries or documents, batch
        self.asymmetric = queries is not None

    @cached_property
    def background(self) -> float:
        """See `background_cosine`."""
        return background_cosine(self.encode(reference_texts()[::6]).pooled)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        return self._by(self._documents, texts, progress)

    def encode_query(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """The same of questions."""
        return self._by(self._queries, texts, progress)

    def _by(self, give: Callable[[list[str]], Any], texts: Sequence[str], show: bool) -> Encoded:
        pooled = torch.zeros(len(texts), self.dim)
        with Progress((), "encoding", total=len(texts), unit="texts", shown=show) as bar:
            for start in range(0, len(texts), self._batch):
                part = list(texts[start : start + self._batch])
                rows = torch.as_tensor(give(part), dtype=torch.float32).cpu()
                pooled[start : start + len(part)] = torch.nn.functional.normalize(rows, dim=1)
                bar.update(len(part))
        require_finite(pooled, texts, self.name)
        return Encoded(pooled)


def require_finite(pooled: Tensor, texts: Sequence[str], name: str) -> None:
    """Raises `EmbedderError` when a row of `pooled` [n, d] is not finite, naming its text."""
    bad = (~torch.isfinite(pooled).all(dim=1)).nonzero().flatten()
    if len(bad):
        raise EmbedderError(
            f"embedder {name!r}: expected finite vectors, got NaN or infinity for {len(bad)} of "
            f"{len(texts)} texts, the first beginning {texts[int(bad[0])][:60]!r}; nothing of this "
            "batch was stored: check the model, or leave the text out"
        )


def _require_unit_rows(pooled: Tensor, texts: Sequence[str], name: str) -> None:
    """Raises `EmbedderError` for a row that is not finite, or neither of length 1 nor zero."""
    length = torch.linalg.vector_norm(pooled, dim=1)
    low, high = (float(end) for end in length.aminmax()) if len(length) else (1.0, 1.0)
    if low >= 1 - _LENGTH_TOLERANCE and high <= 1 + _LENGTH_TOLERANCE:  # no NaN is
        return
    require_finite(pooled, texts, name)
    # A text of which the embedder knows no word has no direction: zero.
    bad = (((length - 1).abs() > _LENGTH_TOLERANCE) & pooled.any(dim=1)).nonzero().flatten()
    if len(bad):
        first = int(bad[0])
        raise EmbedderError(
            f"embedder {name!r}: expected pooled vectors of length 1 (or 0), got length "
            f"{float(length[first]):.4g} for the text beginning {texts[first][:60]!r}, and others "
            f"than 1 for {len(bad)} of {len(texts)} texts; normalise them in `encode`"
        )


def to_int8(vectors: Tensor) -> Tensor:
    """[T, m] float32 to int8: round(127 x), rows brought to unit length first."""
    unit = torch.nn.functional.normalize(vectors, dim=1)
    return (unit * 127).round().to(torch.int8)


class HashingEmbedder:
    """Every word is a fixed vector of random signs; a text is the normalised sum of its words.

    The signs are bits of SHAKE-128 of the stemmed word: the same on every machine and in every
    version. Texts that share content words are similar, others nearly orthogonal (random indexing;
    Kanerva et al. 2000).
    """

    def __init__(self, dim: int = 64, token_dim: int = 32) -> None:
        if dim < 1 or token_dim < 0:
            raise EmbedderError(
                f"dim, token_dim: expected at least 1 and 0, got {dim} and {token_dim}; 64 and 32 "
                "are the defaults"
            )
        self.dim = dim
        self.token_dim = token_dim
        self.num_pieces = _PIECES if token_dim else 0
        self.name = f"hashing:{dim}"
        self.fingerprint = f"hashing-v2:{dim}:{token_dim}"
        self._terms = terms
        # The rows are of one length, by which each need not be divided.
        self._level = int(to_int8(torch.ones(1, max(token_dim, 1)))[0, 0])
        self.tokenizer: Tokenizer = WordTokenizer()
        self.window = 254

    def like(self, fingerprint: str | None) -> HashingEmbedder:
        """Itself, or its first version where that is what has this fingerprint.

        The two differ for words that are not English.
        """
        first = self.fingerprint.replace("-v2:", "-v1:")
        if fingerprint != first:
            return self
        other = copy.copy(self)
        other.fingerprint, other._terms = first, first_terms
        return other

    def readable(self, texts: Sequence[str]) -> Tensor:  # [n] bool
        """See `Embedder`: words of other languages than English are marks to it."""
        own = frozenset(["Latin"]), frozenset(["english"]), STOP_WORDS
        return torch.tensor([is_readable(text, *own) for text in texts], dtype=torch.bool)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`; so fast that `progress` shows nothing."""
        numbers: dict[str, int] = {}
        flat: list[int] = []
        offsets = np.zeros(len(texts) + 1, dtype=np.int64)
        for i, text in enumerate(texts):
            flat.extend([numbers.setdefault(word, len(numbers)) for word in self._terms(text)])
            offsets[i + 1] = len(flat)
        distinct = list(numbers)
        number = np.array(flat, dtype=np.int64)
        pooled = torch.zeros(len(texts), self.dim)
        if distinct:
            signs = torch.from_numpy(_signs("pooled", distinct, self.dim))
            bags = torch.from_numpy(number), signs, torch.from_numpy(offsets[:-1])
            pooled = torch.nn.functional.embedding_bag(*bags, mode="sum")
        for i in (offsets[1:] == offsets[:-1]).nonzero()[0]:
            # Nothing but stop words or marks: still a fixed vector of its own, so that the rows
            # stay unit.
            rest = re.findall(r"\S+", texts[i].lower()) or [""]
            pooled[i] = torch.from_numpy(_signs("pooled", rest, self.dim).sum(axis=0))
        # A sum of signs can cancel to zero; the bias of 1e-3 in one fixed direction keeps every row
        # a unit vector.
        pooled[:, 0].add_(1e-3)
        pooled /= torch.linalg.vector_norm(pooled, dim=1, keepdim=True)
        if self.token_dim == 0:
            return Encoded(pooled)
        rows = (_signs("token", distinct, self.token_dim) * self._level).astype(np.int8)
        names = np.array([_piece(word) for word in distinct], dtype=np.int32)
        # Of numpy, whose `take` of many short rows is several times as fast as that of torch.
        parts = rows.take(number, 0), names.take(number), offsets
        return Encoded(pooled, *map(torch.from_numpy, parts))


def _signs(
    purpose: str,
    words: Sequence[str],
    dim: int,
) -> np.ndarray:  # [len(words), dim] float32, -1 or +1
    packed = b"".join(_bits(purpose, word, dim) for word in words)
    width = -(-dim // 8)
    bits = np.unpackbits(np.frombuffer(packed, dtype=np.uint8).reshape(len(words), width), axis=1)
    return bits[:, :dim].astype(np.float32) * 2 - 1


@lru_cache(maxsize=1 << 17)
def _bits(purpose: str, word: str, dim: int) -> bytes:
    return hashlib.shake_128(f"{purpose}\0{word}".encode()).digest(-(-dim // 8))


@lru_cache(maxsize=1 << 17)
def _piece(word: str) -> int:
    return (
        int.from_bytes(hashlib.shake_128(f"piece\0{word}".encode()).digest(4), "little") % _PIECES
    )
