"""Encoder that is known by its fingerprint, and loaded when a text has to be encoded."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

from graphmem_torch.checks import check_count
from graphmem_torch.errors import EmbedderError, first_line
from graphmem_torch.text.embedder import Embedder, Encoded, HashingEmbedder
from graphmem_torch.text.tokens import Tokenizer, WordTokenizer

__all__ = ["DeferredEmbedder"]

_OPTIONAL = frozenset({"asymmetric", "encode_query", "readable", "unrelated", "unread"})
_WINDOW = 254  # pieces of a chunk, as long as the encoder's own window is not known


class DeferredEmbedder:
    """Encoder of vectors that are made elsewhere; see `Embedder` for the attributes.

    A memory opened with it is bound to the fingerprint. It stores atoms that come with vectors
    without the encoder. Questions and other texts need the encoder, which is loaded then; or
    questions bring their vectors (`EmbeddedQuestion`).

    Names of concepts get vectors of their own, of words, so that `link.concepts` works without the
    encoder. These vectors decide which names are one concept, and are in no index.
    """

    def __init__(
        self,
        fingerprint: str,
        dim: int,
        *,
        spec: str | None = None,
        load: Callable[[], Embedder] | None = None,
        token_dim: int = 0,
        num_pieces: int = 0,
        background: float = 0.0,
        names_apart: bool = True,
    ) -> None:
        """Name the encoder; loads nothing.

        Args:
            fingerprint: `Embedder.fingerprint` of the encoder, or a name of your own for it.
            dim: Width of the vectors.
            spec: Name that loads the encoder, as in `Memory.open`; kept with the memory.
            load: Function that returns the encoder; called once, at the first text. By default it
                loads `spec`, if there is one.
            token_dim: Width of the token vectors; 0 without them.
            num_pieces: Size of the vocabulary of their pieces.
            background: Cosine of unrelated texts, see `Embedder`.
            names_apart: Whether names of concepts have vectors of words, not the encoder's.
        """
        if not isinstance(fingerprint, str) or not fingerprint.strip():
            raise EmbedderError(
                f"fingerprint: expected a name, got {fingerprint!r:.60}; give the `fingerprint` of "
                "the encoder, or a name of your own"
            )
        check_count("dim", dim)
        check_count("token_dim", token_dim, 0)
        check_count("num_pieces", num_pieces, 1 if token_dim else 0)
        if load is not None and not callable(load):
            raise EmbedderError(
                f"load: expected a function that returns the encoder, got {load!r:.60}; give its "
                "name as `spec`"
            )
        self.fingerprint, self.dim, self.spec = fingerprint, dim, spec
        self.name = spec or fingerprint
        self.token_dim, self.num_pieces, self.background = token_dim, num_pieces, background
        self.names_apart = names_apart
        self._load = load
        self._loaded: Embedder | None = None
        self.window = _WINDOW
        self.tokenizer: Tokenizer = WordTokenizer() if load is None else _TokenizerOf(self)
        self._lock = threading.Lock()

    def to_dict(self) -> dict[str, Any]:
        """Return the arguments that make it again, without `spec`, `load` and `names_apart`."""
        names = ("fingerprint", "dim", "token_dim", "num_pieces", "background")
        return {name: getattr(self, name) for name in names}

    def loading(self, load: Callable[[], Embedder], *, names_apart: bool) -> DeferredEmbedder:
        """Return the same with a function that loads it, unless it has one."""
        own = self._load or (None if self.spec is None else load)
        apart = self.names_apart and names_apart
        return DeferredEmbedder(load=own, spec=self.spec, names_apart=apart, **self.to_dict())

    @property
    def available(self) -> bool:
        """Return whether the encoder is loaded, or can be."""
        try:
            return self.loaded() is not None
        except EmbedderError:
            return False

    def loaded(self) -> Embedder:
        """Return the encoder, loaded at the first call.

        Raises:
            EmbedderError: It is not here, cannot be loaded, or has another fingerprint.
        """
        with self._lock:
            if self._loaded is None:
                self._loaded = self._found()
            return self._loaded

    def _found(self) -> Embedder:
        do = "name it: Memory.open(..., embedder=...); or give vectors with the texts"
        if self._load is None:
            raise EmbedderError(
                f"embedder: expected the encoder {self.name!r} to encode a text, got none, as this "
                f"memory has vectors from elsewhere; {do}"
            )
        try:
            found = self._load()
        except EmbedderError as error:
            raise EmbedderError(
                f"embedder: expected the encoder {self.name!r} to encode a text, got: {error}; {do}"
            ) from error
        except Exception as error:  # the caller's function raises any kind
            raise EmbedderError(
                f"load: expected the encoder {self.name!r}, got {type(error).__name__}: "
                f"{first_line(error)}; mend the function"
            ) from error
        if not isinstance(found, Embedder):
            raise EmbedderError(
                f"load: expected a function that returns the encoder {self.name!r}, got "
                f"{type(found).__name__}; return an object with the methods of Embedder"
            )
        if isinstance(found, HashingEmbedder):
            found = found.like(self.fingerprint)
        if (found.fingerprint, found.dim) != (self.fingerprint, self.dim):
            raise EmbedderError(
                f"embedder: expected the encoder of these vectors ({self.fingerprint}, width "
                f"{self.dim}), got {found.name!r} ({found.fingerprint}, width {found.dim}); name "
                "the one that made them"
            )
        return found

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """Encode texts; see `Embedder.encode`. No text needs no encoder."""
        if not texts:
            pooled, offsets = torch.empty(0, self.dim), torch.zeros(1, dtype=torch.int64)
            none = torch.empty(0, self.token_dim, dtype=torch.int8), offsets[:0].int(), offsets
            return Encoded(pooled, *(none if self.token_dim else ()))
        made = self.loaded().encode(texts, progress=progress)
        return made if self.token_dim else Encoded(made.pooled)

    def __getattr__(self, name: str) -> Any:
        """Return an optional attribute of the encoder, if it can be loaded."""
        if name not in _OPTIONAL:
            raise AttributeError(name)
        try:
            return getattr(self.loaded(), name)
        except EmbedderError as error:
            raise AttributeError(name) from error


class _TokenizerOf:
    """Tokenizer of a deferred encoder, which is loaded when a text is cut."""

    def __init__(self, embedder: DeferredEmbedder) -> None:
        self._embedder = embedder

    def spans(self, text: str) -> list[tuple[int, int]]:
        """See `Tokenizer.spans`."""
        return self._embedder.loaded().tokenizer.spans(text)
