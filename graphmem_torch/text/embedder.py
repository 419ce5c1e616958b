"""The protocol of embedders, their result, and the hashing embedder, which needs no model."""

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

from graphmem_torch.checks import check_unit_rows
from graphmem_torch.errors import EmbedderError, GraphMemError, InputError, first_line
from graphmem_torch.progress import Progress
from graphmem_torch.text.models import reference_texts
from graphmem_torch.text.terms import STOP_WORDS, first_terms, terms
from graphmem_torch.text.tokens import Tokenizer, WordTokenizer
from graphmem_torch.text.words import VocabularyCoverage

__all__ = [
    "EmbeddedQuestion",
    "Embedder",
    "Encoded",
    "HashingEmbedder",
    "PooledEmbedder",
    "background_cosine",
    "background_of",
    "checked_rows",
    "encode_checked",
    "require_finite",
    "rescaled",
    "to_int8",
    "unrelated_vectors",
    "usual_cosine",
]
_LATIN = VocabularyCoverage(tuple)  # and English
_PIECES = 1 << 16  # vocabulary size of the hashing embedder
_LENGTH_TOLERANCE = 1e-2  # half precision and quantised models stay within it


@dataclass(frozen=True, eq=False)
class Encoded:
    """Vectors of n texts.

    Attributes:
        pooled: [n, d] float32, unit rows.
        tokens: [T, m] int8, 127 times unit rows: the content pieces of all texts, concatenated.
            None if the embedder has no token vectors.
        pieces: [T] int32, vocabulary number of each row of `tokens`.
        offsets: [n + 1] int64; text i has the rows `offsets[i]:offsets[i + 1]`.
    """

    pooled: Tensor
    tokens: Tensor | None = None
    pieces: Tensor | None = None
    offsets: Tensor | None = None


class EmbeddedQuestion(str):
    """Question that brings its vector, so that it is asked without an encoder.

    It is a string, and may be given wherever a question is.

    Attributes:
        embedding: [d] float32, of length 1.
    """

    embedding: Tensor

    def __new__(cls, text: str, embedding: Any) -> EmbeddedQuestion:
        """Return the question.

        Args:
            text: The question in words, which most signals read.
            embedding: Its vector [d], as the encoder of the memory makes it: a tensor, an array or
                a list.

        Raises:
            InputError: No vector, or one that is not finite or not of length 1.
        """
        question = super().__new__(cls, text)
        try:
            row = torch.as_tensor(embedding, dtype=torch.float32).detach().cpu()
        except (TypeError, ValueError, OverflowError, RuntimeError) as error:
            raise InputError(
                f"embedding: expected a vector [d], got {embedding!r:.60} ({error}); convert it"
            ) from error
        if row.dim() != 1 or not row.any():
            raise InputError(
                f"embedding: expected a vector [d], got {list(row.shape)}"
                f"{'' if row.any() else ' of zeros'}; give one vector"
            )
        check_unit_rows("embedding", row[None])
        question.embedding = row
        return question

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what makes a copy, also in another process."""
        return EmbeddedQuestion, (str(self), self.embedding)


@runtime_checkable
class Embedder(Protocol):
    """Encoder of texts as vectors.

    Questions and memories go through the same `encode`, unless there is an `encode_query` of the
    same form (`encode_checked`). An embedder with `encode_query` that reads questions differently
    has a true attribute `asymmetric`. An embedder may also have:

    - `background`: the cosine of unrelated texts (`rescaled`);
    - `unrelated`: the vectors that `unrelated_vectors` would encode;
    - `unread(texts)`: [n] float32, the share of each text in scripts that the encoder never
      learned;
    - `readable(texts)`: [n] bool, which texts are in a language that it learned; all by default.

    Attributes:
        name: Display name.
        dim: Width d of the pooled vectors.
        token_dim: Width m of the token vectors; 0 without them.
        num_pieces: Size of the vocabulary of `Encoded.pieces`; 0 without token vectors.
        fingerprint: Identifier of the vectors: equal fingerprints mean equal vectors. A store is
            bound to it.
        tokenizer: Tokenizer in whose pieces the encoder's window is counted.
        window: Pieces that the encoder reads at once, without special tokens.
    """

    name: str
    dim: int
    token_dim: int
    num_pieces: int
    fingerprint: str
    tokenizer: Tokenizer
    window: int

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """Return the vectors of `texts`, in order; `progress` shows a bar on stderr."""
        ...


def encode_checked(
    embedder: Embedder, texts: Sequence[str], *, progress: bool = False, query: bool = False
) -> Encoded:
    """Encode texts and validate the result, because an embedder may be foreign code.

    With `query` the texts are questions, encoded by `encode_query` if the embedder has one.

    Raises:
        EmbedderError: No tensors, wrong shapes or dtypes, or pooled vectors that are not finite or
            neither of unit length nor zero. The message names the first such text.
    """
    if query and any(isinstance(text, EmbeddedQuestion) for text in texts):
        return _with_given(embedder, texts)
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


def _with_given(embedder: Embedder, questions: Sequence[str]) -> Encoded:
    """Return the vectors of questions, encoding only those that bring none."""
    rest = [each for each in questions if not isinstance(each, EmbeddedQuestion)]
    none = torch.empty(0, embedder.token_dim, dtype=torch.int8), torch.empty(0, dtype=torch.int32)
    tokens, pieces = none
    pooled, counts = torch.empty(len(questions), embedder.dim), torch.zeros(len(questions) + 1)
    made = Encoded(pooled[:0]) if not rest else encode_checked(embedder, rest, query=True)
    if made.tokens is not None and made.pieces is not None and made.offsets is not None:
        tokens, pieces = made.tokens, made.pieces  # in the order of the questions
    fresh = 0
    for place, question in enumerate(questions):
        if isinstance(question, EmbeddedQuestion):
            if question.embedding.shape[0] != embedder.dim:
                raise InputError(
                    f"embedding: expected a vector of width {embedder.dim}, that of the encoder "
                    f"{embedder.name!r} of this memory, got {question.embedding.shape[0]}; make it "
                    "with that encoder"
                )
            pooled[place] = question.embedding
            continue
        pooled[place] = made.pooled[fresh]
        if made.offsets is not None:
            counts[place + 1] = made.offsets[fresh + 1] - made.offsets[fresh]
        fresh += 1
    if not embedder.token_dim:
        return Encoded(pooled)
    return Encoded(pooled, tokens, pieces, counts.long().cumsum(0))


def _require_tensor(encoded: object, part: str, name: str) -> None:
    value = getattr(encoded, part, None)
    if value is None and isinstance(encoded, Encoded) and part != "pooled":
        return  # reported with the others
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


_ORTHOGONAL = 0.1  # thresholds stay as they are up to this background: all-MiniLM-L6-v2 has 0.05


def background_cosine(pooled: Tensor) -> float:  # [n, d] unit rows
    """Return the mean cosine of unrelated texts."""
    n = len(pooled)
    total = pooled.double().sum(0).square().sum() - pooled.double().square().sum()
    return float(total) / max(n * (n - 1), 1)


_UNRELATED: dict[str, Tensor] = {}
_ENCODERS = 16  # embedders whose vectors of these texts are cached


def unrelated_vectors(embedder: Embedder) -> Tensor:  # [25, d]
    """Return the vectors of short everyday texts, read as questions; encoded once a process."""
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
    """Adapt a cosine threshold to an encoder whose unrelated texts are not orthogonal.

    Linear between the background, which replaces 0.1, and 1. For a background of 0.78, 0.3 becomes
    0.83 and 0.92 becomes 0.98. Without an attribute `background`, and for thresholds from 1 on,
    nothing changes.
    """
    background = background_of(embedder)
    if background is None or cosine >= 1:
        return cosine
    return 1 - (1 - cosine) * (1 - background) / (1 - _ORTHOGONAL)


def background_of(embedder: Embedder) -> float | None:
    """Return the attribute `background` of an embedder; None if unrelated texts are orthogonal."""
    background: float = getattr(embedder, "background", 0.0)
    return background if background > _ORTHOGONAL else None


def usual_cosine(cosine: Tensor, background: Tensor) -> Tensor:
    """Map cosines to a scale where unrelated texts are orthogonal: the inverse of `rescaled`."""
    return 1 - (1 - cosine) * (1 - _ORTHOGONAL) / (1 - background)


class PooledEmbedder:
    """Embedder of pooled vectors from functions; see `Embedder` for the attributes.

    Without token vectors, late interaction compares the words themselves.
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
        """Wrap functions; their vectors are normalised to unit length.

        Args:
            name: Display name, see `Embedder`.
            fingerprint: Identifier of the vectors, see `Embedder`.
            dim: Width of the vectors.
            documents: Function from texts to vectors [n, dim]: numpy, torch or lists.
            queries: Function for questions; `documents` by default.
            tokenizer: Tokenizer whose pieces chunks are counted in; words by default.
            window: Pieces that the encoder reads at once, see `Embedder`.
            batch: Number of texts a call.
        """
        self.name, self.fingerprint, self.dim, self.window = name, fingerprint, dim, window
        self.tokenizer: Tokenizer = tokenizer or WordTokenizer()
        self._documents, self._queries, self._batch = documents, queries or documents, batch
        self.asymmetric = queries is not None

    @cached_property
    def background(self) -> float:
        """See `background_cosine`."""
        asymmetric = self.asymmetric
        found = self.encode(reference_texts()[::6]).pooled if asymmetric else self.unrelated
        return background_cosine(found)

    @cached_property
    def unrelated(self) -> Tensor:  # [25, d]
        """See `unrelated_vectors`; kept, as a server may take long to compute them."""
        return self.encode_query(reference_texts()[::6]).pooled

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`."""
        return self._by(self._documents, texts, progress)

    def encode_query(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """Encode questions."""
        return self._by(self._queries, texts, progress)

    def _by(self, give: Callable[[list[str]], Any], texts: Sequence[str], show: bool) -> Encoded:
        pooled = torch.zeros(len(texts), self.dim)
        with Progress((), "encoding", total=len(texts), unit="texts", shown=show) as bar:
            for start in range(0, len(texts), self._batch):
                part = list(texts[start : start + self._batch])
                rows = checked_rows(give, part, self.name)
                if rows.shape[1] != self.dim:
                    raise EmbedderError(
                        f"embedder {self.name!r}: expected vectors of {self.dim} values, got "
                        f"{rows.shape[1]}; nothing of this batch was stored: use the model that "
                        "filled the store"
                    )
                pooled[start : start + len(part)] = torch.nn.functional.normalize(rows, dim=1)
                bar.update(len(part))
        require_finite(pooled, texts, self.name)
        return Encoded(pooled)


def checked_rows(
    give: Callable[[list[str]], Any], texts: list[str], name: str
) -> Tensor:  # [n, d] float32
    """Return the vectors that a function gives for n texts.

    Raises:
        EmbedderError: The function fails, or gives something else than n vectors of numbers.
    """
    try:
        given = give(texts)
        if isinstance(given, (list, tuple)) and given:  # torch reads these number by number
            if isinstance(given[0], np.ndarray):
                given = np.stack(given)
            elif isinstance(given[0], Tensor):
                given = torch.stack(tuple(given))
        rows = torch.as_tensor(given).detach()
        if rows.is_complex():
            raise TypeError("complex numbers")
        rows = rows.to("cpu", torch.float32)
    except GraphMemError as error:
        raise EmbedderError(f"embedder {name!r}: {error}") from error
    except Exception as error:
        raise EmbedderError(
            f"embedder {name!r}: expected an array of {len(texts)} vectors, got "
            f"{type(error).__name__}: {first_line(error)}; mend the function"
        ) from error
    if rows.ndim != 2 or len(rows) != len(texts) or not rows.shape[1]:
        raise EmbedderError(
            f"embedder {name!r}: expected an array of {len(texts)} vectors, got one of the shape "
            f"{list(rows.shape)}; give a row for each text"
        )
    return rows


def require_finite(pooled: Tensor, texts: Sequence[str], name: str) -> None:
    """Raise `EmbedderError` if a row of `pooled` [n, d] is not finite, naming its text."""
    bad = (~torch.isfinite(pooled).all(dim=1)).nonzero().flatten()
    if len(bad):
        raise EmbedderError(
            f"embedder {name!r}: expected finite vectors, got NaN or infinity for {len(bad)} of "
            f"{len(texts)} texts, the first beginning {texts[int(bad[0])][:60]!r}; nothing of this "
            "batch was stored: check the model, or leave the text out"
        )


def _require_unit_rows(pooled: Tensor, texts: Sequence[str], name: str) -> None:
    """Raise `EmbedderError` for a row that is not finite, or neither of length 1 nor zero."""
    length = torch.linalg.vector_norm(pooled, dim=1)
    low, high = (float(end) for end in length.aminmax()) if len(length) else (1.0, 1.0)
    if low >= 1 - _LENGTH_TOLERANCE and high <= 1 + _LENGTH_TOLERANCE:  # NaN fails it, too
        return
    require_finite(pooled, texts, name)
    # A text without a word that the embedder knows has no direction: zero.
    bad = (((length - 1).abs() > _LENGTH_TOLERANCE) & pooled.any(dim=1)).nonzero().flatten()
    if len(bad):
        first = int(bad[0])
        raise EmbedderError(
            f"embedder {name!r}: expected pooled vectors of length 1 (or 0), got length "
            f"{float(length[first]):.4g} for the text beginning {texts[first][:60]!r}, and others "
            f"than 1 for {len(bad)} of {len(texts)} texts; normalise them in `encode`"
        )


def to_int8(vectors: Tensor) -> Tensor:
    """Convert [T, m] float32 to int8: round(127 x) of rows normalised to unit length."""
    unit = torch.nn.functional.normalize(vectors, dim=1)
    return (unit * 127).round().to(torch.int8)


class HashingEmbedder:
    """Random-sign vector for each word; a text is the normalised sum of its words.

    The signs are bits of SHAKE-128 of the stemmed word, equal on every machine and in every
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
        # The rows have equal lengths, so one division is enough.
        self._level = int(to_int8(torch.ones(1, max(token_dim, 1)))[0, 0])
        self.tokenizer: Tokenizer = WordTokenizer()
        self.window = 254

    def like(self, fingerprint: str | None) -> HashingEmbedder:
        """Return this embedder, or its first version if that one has this fingerprint.

        The two differ for words that are not English.
        """
        first = self.fingerprint.replace("-v2:", "-v1:")
        if fingerprint != first:
            return self
        other = copy.copy(self)
        other.fingerprint, other._terms = first, first_terms
        return other

    def readable(self, texts: Sequence[str]) -> Tensor:  # [n] bool
        """Return whether each text is English: other words carry no meaning; see `Embedder`."""
        own = (_LATIN.is_readable(text, STOP_WORDS) for text in texts)
        return torch.tensor([*own], dtype=torch.bool)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """Encode texts; see `Embedder.encode`. `progress` shows nothing."""
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
            # Only stop words or marks: still a fixed vector of its own, so that the rows stay unit.
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
        # numpy's `take` of many short rows is several times as fast as torch's.
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
