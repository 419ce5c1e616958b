"""Texts to padded batches of windows, without a loop over pieces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.errors import EmbedderError
from graphmem_torch.text.words import FRAGMENTS, STOP_WORDS

__all__ = ["Batch", "Flat", "Pieces"]

# How the vocabularies of WordPiece, SentencePiece and byte-level BPE mark where a word goes on or
# starts.
_MARKS = "#\u2581\u0120"


@dataclass(frozen=True, eq=False)
class Flat:
    """The pieces of n texts one after another.

    Attributes:
        ids: [P] int64, vocabulary numbers.
        keep: [P] bool: content pieces, neither stop words nor punctuation.
        offsets: [n + 1] int64; text i has the pieces `offsets[i]:offsets[i + 1]`.
    """

    ids: Tensor
    keep: Tensor
    offsets: Tensor


@dataclass(frozen=True, eq=False)
class Batch:
    """Windows of one forward pass.

    Attributes:
        owner: [b] int64, text of each window.
        length: [b] int64, its pieces, special tokens not counted.
        ids: [b, L] int64 with special tokens and padding.
        mask: [b, L] int64, 0 for padding.
        position: [b, L] int64, index into `Flat.ids`; -1 for special tokens and padding.
    """

    owner: Tensor
    length: Tensor
    ids: Tensor
    mask: Tensor
    position: Tensor


class Pieces:
    """What an encoder's tokenizer makes of texts."""

    def __init__(self, model: Any, name: str) -> None:
        tokenizer = model.tokenizer
        if not getattr(tokenizer, "is_fast", False):
            raise EmbedderError(
                f"encoder {name!r}: expected a fast tokenizer (tokenizer.json), got "
                f"{type(tokenizer).__name__}; "
                "choose another encoder"
            )
        self._tokenizer = tokenizer
        bare = tokenizer("a", add_special_tokens=False)["input_ids"]
        full = tokenizer("a", add_special_tokens=True)["input_ids"]
        before = next(i for i in range(len(full)) if full[i : i + len(bare)] == bare)
        self._prefix = torch.tensor(full[:before], dtype=torch.int64)
        self._suffix = torch.tensor(full[before + len(bare) :], dtype=torch.int64)
        self._pad = tokenizer.pad_token_id or 0
        reach = min(
            model.max_seq_length or 512, getattr(tokenizer, "model_max_length", None) or 512
        )
        self.window = max(int(reach) - len(full) + len(bare), 1)
        self.size = len(tokenizer)
        words = tokenizer.convert_ids_to_tokens(list(range(self.size)))
        bare_words = [(word or "").strip(_MARKS).casefold() for word in words]
        stop = STOP_WORDS | FRAGMENTS
        self._is_stop = np.array([word in stop for word in bare_words])
        self._is_mark = np.array([not any(c.isalnum() for c in word) for word in bare_words])

    def read(self, texts: Sequence[str]) -> Flat:
        """The pieces of `texts`, special tokens not included."""
        encodings = self._encodings(texts)
        lengths = np.array([len(e.ids) for e in encodings], dtype=np.int64)
        total = int(lengths.sum())
        ids = np.fromiter((i for e in encodings for i in e.ids), dtype=np.int64, count=total)
        word = np.fromiter(
            (-1 if w is None else w for e in encodings for w in e.word_ids),
            dtype=np.int64,
            count=total,
        )
        text = np.repeat(np.arange(len(texts)), lengths)
        # A piece is decided on as a word only where it is one: "the" in "therapy" stays.
        begins = np.ones(total + 1, dtype=bool)
        begins[1:total] = (word[1:] != word[:-1]) | (text[1:] != text[:-1])
        whole = begins[:-1] & begins[1:]
        keep = ~(self._is_mark[ids] | (self._is_stop[ids] & whole))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return Flat(torch.from_numpy(ids), torch.from_numpy(keep), torch.from_numpy(offsets))

    def _encodings(self, texts: Sequence[str]) -> list[Any]:
        if not texts:
            return []
        batch = self._tokenizer(
            list(texts),
            add_special_tokens=False,
            truncation=False,
            padding=False,
            return_attention_mask=False,
            return_token_type_ids=False,
            verbose=False,
        )
        return list(batch.encodings)

    def windows(self, flat: Flat) -> Tensor:
        """How many windows each text takes: [n] int64, at least 1."""
        return ((flat.offsets.diff() + self.window - 1) // self.window).clamp(min=1)

    def batches(self, flat: Flat, budget: int) -> Iterator[Batch]:
        """Windows of nearly equal length, longest first, at most `budget` padded pieces a batch."""
        size, count = flat.offsets.diff(), self.windows(flat)
        owner = torch.repeat_interleave(torch.arange(len(size)), count)
        index = torch.arange(len(owner)) - torch.repeat_interleave(count.cumsum(0) - count, count)
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

    def _padded(self, flat: Flat, owner: Tensor, start: Tensor, length: Tensor) -> Batch:
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
        return Batch(owner, length, ids, mask, position)
