"""Question buffers: questions in tensors of a few sizes, whose addresses stay.

A CUDA graph reads the tensors of its capture. Questions are therefore copied into the buffers of a
*bucket*, the next larger of a few sizes: rows repeat the last question, and lists end in padding.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor

from graphmem_torch.rank.query import ATOM_COLUMNS, LISTS, QueryBatch

__all__ = ["QUESTIONS", "Bucket", "QuestionBuffers", "bucket_of"]

QUESTIONS = (1, 8, 64, 256, 1024)
"""Numbers of questions that buckets have."""
_NARROWEST = 8  # words that the narrowest lists have room for
_ABSENT = {"retention": 1.0}  # value of an atom that does not exist; else 0


class Bucket(NamedTuple):
    """Sizes of questions that one graph answers.

    Attributes:
        questions: Number of questions.
        k: Hits per question.
        columns: Name, type and shape of each column of `QueryBatch`.
    """

    questions: int
    k: int
    columns: tuple[tuple[str, torch.dtype, tuple[int, ...]], ...]

    @property
    def words(self) -> int:
        """Number of terms or tokens of a question, whichever is larger."""
        own = [shape[1] for name, _, shape in self.columns if name in ("terms", "tokens")]
        return max(own, default=0)

    def __str__(self) -> str:
        """Return the name that warnings and reports use."""
        return f"{self.questions} questions, {self.words} words, k={self.k}"


def bucket_of(query: QueryBatch, k: int, atoms: int) -> Bucket | None:
    """Return the smallest bucket that holds B questions; None for no or too many questions.

    Args:
        query: B questions.
        k: Hits per question.
        atoms: Number of atoms that the columns of atoms have room for.
    """
    questions = next((size for size in QUESTIONS if size >= len(query)), 0)
    if not questions or not len(query):
        return None
    columns = []
    for name, value in query.given().items():
        shape = [questions, *value.shape[1:]]
        if name in ATOM_COLUMNS:
            shape = [1 if len(value) == 1 else questions, atoms]
        elif name in LISTS and value.shape[1]:
            shape[1] = max(_NARROWEST, 1 << (value.shape[1] - 1).bit_length())
        columns.append((name, value.dtype, tuple(shape)))
    return Bucket(questions, k, tuple(columns))


class QuestionBuffers:
    """Buffers of a bucket.

    Attributes:
        query: The buffers as questions.
    """

    def __init__(self, bucket: Bucket, device: torch.device) -> None:
        """Allocate the buffers on a device."""
        self._padding = {
            name: torch.full((), float(LISTS.get(name, _ABSENT.get(name, 0))), device=device)
            .to(dtype)
            for name, dtype, _ in bucket.columns
        }  # fmt: skip
        self.query = QueryBatch(
            **{
                name: torch.zeros(shape, dtype=dtype, device=device)
                for name, dtype, shape in bucket.columns
            }
        )

    @property
    def bytes(self) -> int:
        """Size of the buffers."""
        return sum(buffer.nbytes for buffer in self.query.given().values())

    def take(self, query: QueryBatch, *others: tuple[Tensor, Tensor]) -> None:
        """Copy questions into the buffers, and values into `others`, by one operator."""
        parts = [part for part in (*self._parts(query), *others) if part[0].numel()]
        torch._foreach_copy_([own for own, _ in parts], [given for _, given in parts])

    def _parts(self, query: QueryBatch) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield parts of the buffers and their new values."""
        given = query.given()
        for name, buffer in self.query.given().items():
            value, known = given[name], buffer
            if buffer.dim() > 1:
                width = value.shape[1]
                known, rest = buffer[:, :width], buffer[:, width:]
                yield rest, self._padding[name].expand(rest.shape)
            yield known[: len(value)], value
            rest = known[len(value) :]
            yield rest, value[-1:].expand(rest.shape)
