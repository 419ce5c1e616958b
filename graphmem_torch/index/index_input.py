"""IndexInput: the columns of a memory from which an index is built."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphmem_torch.atoms import EdgeType
from graphmem_torch.checks import check_tensor
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.modes.find import (
    Modes,
)

__all__ = [
    "ASKED",
    "IndexInput",
    "check_input",
    "dates_of",
    "document_frequency",
    "graph_over",
]


@dataclass(frozen=True, eq=False)
class IndexInput:
    """Columns of a memory: A atoms that can be hits and K concepts among N nodes.

    They may also be an addition to a memory (`GrowingIndex.append`). Then A and K count the new
    ones, except for the names of concepts. Entries of `node`, `concept`, `edges`, `duplicate` and
    the codes refer to the whole memory, as do N, S and the sizes of vocabularies.

    Attributes:
        embeddings: [A, d] float32 unit rows.
        terms, term_offsets: [T] int64 and [A + 1] int64, the lexical terms of the atoms.
        vocab_size: Number of terms.
        kind, speaker: [A] int64 codes, -1 = none (speaker).
        num_speakers: S.
        session: [A] int64 codes, -1 = none.
        time: [A] float64 seconds since the epoch UTC, NaN = unknown.
        log_words: [A] float32, ln(1 + words).
        is_question, tells_time: [A] bool.
        role: [A] int8, 1 for the words of a user, -1 for those of an assistant, else 0; None: 0
            for all.
        asked_key, asked_words, asked_bits, asked_form: [A] int64, int16, int64 and int8, the
            question of an atom (`rank.memory_tensors.MemoryTensors`); None if no atom asks.
        told: [A, 2] int32, the days that an atom states (`text.times.told_days`), 0 and 0 for
            none; None if no atom states any.
        edges: Edges between nodes 0..N-1.
        num_nodes: N.
        node: [A] int64, the node that each atom is, ascending; None: the first A.
        concept: [K] int64, the node that each concept is, ascending; None: those after the atoms. A
            node may be neither.
        tokens, pieces, token_offsets: Packed token vectors and their word pieces, or None.
        num_pieces: Size of the word-piece vocabulary.
        duplicate: [A] int64, for each atom the node of the first one of equal content; None: no
            duplicates. Only modes read it.
        modes: Known modes of the atoms; None: found if the settings ask for them.
        title: [A] int64, number of first terms that are an atom's title, -1 = none; None if no atom
            has one.
        name_terms, name_offsets: int64 and [K + 1] int64, the terms of the names of the concepts.
        lot: [A + K] int64 below 2^32, tie-breaker of atoms and concepts, unrelated to age or
            number: of equally strong edges, those to lower ones are kept (`spread.max_edges`).
            None: those to older ones are kept.
    """

    embeddings: Tensor
    terms: Tensor
    term_offsets: Tensor
    vocab_size: int
    kind: Tensor
    speaker: Tensor
    num_speakers: int
    session: Tensor
    time: Tensor
    log_words: Tensor
    is_question: Tensor
    tells_time: Tensor
    edges: EdgeBlock
    num_nodes: int
    node: Tensor | None = None
    concept: Tensor | None = None
    tokens: Tensor | None = None
    pieces: Tensor | None = None
    token_offsets: Tensor | None = None
    num_pieces: int = 0
    duplicate: Tensor | None = None
    modes: Modes | None = None
    role: Tensor | None = None
    told: Tensor | None = None
    title: Tensor | None = None
    name_terms: Tensor | None = None
    name_offsets: Tensor | None = None
    lot: Tensor | None = None
    asked_key: Tensor | None = None
    asked_words: Tensor | None = None
    asked_bits: Tensor | None = None
    asked_form: Tensor | None = None

    @classmethod
    def of_vectors(cls, embeddings: Tensor, num_nodes: int, time: Tensor | None) -> IndexInput:
        """Return the columns of atoms that are vectors alone, without texts and edges.

        Args:
            embeddings: [A, d] unit rows, on the CPU.
            num_nodes: N, at least A.
            time: [A] seconds since the epoch UTC, NaN = unknown; None: all are unknown.
        """
        atoms = len(embeddings)
        none = torch.zeros(atoms, dtype=torch.int64)
        unknown = torch.full((atoms,), torch.nan, dtype=torch.float64)
        return cls(
            embeddings=embeddings,
            terms=none[:0],
            term_offsets=torch.zeros(atoms + 1, dtype=torch.int64),
            vocab_size=0,
            kind=none,
            speaker=none - 1,
            num_speakers=0,
            session=none - 1,
            time=unknown if time is None else time.cpu(),
            log_words=torch.zeros(atoms),
            is_question=none.bool(),
            tells_time=none.bool(),
            edges=EdgeBlock.empty(),
            num_nodes=num_nodes,
        )


def graph_over(atoms: int, graph: Graph | None) -> Graph:
    """Return a graph on the CPU whose first nodes are the atoms; None has no edges.

    Raises:
        InputError: It has too few nodes, or types outside `EdgeType`.
    """
    if graph is None:
        return Graph.from_edges(torch.zeros(2, 0, dtype=torch.int64), num_nodes=atoms)
    own = graph.to("cpu")
    if own.num_nodes < atoms:
        raise InputError(
            f"graph: expected at least {atoms} nodes, one for each row of embeddings, got "
            f"{own.num_nodes}; give num_nodes where the last have no edges"
        )
    if own.num_edges and int(own.type.max()) > max(EdgeType):
        raise InputError(
            f"graph: expected types up to {max(EdgeType)}, got {int(own.type.max())}; use "
            "those of `EdgeType`"
        )
    return own


ASKED = {
    "asked_key": torch.int64,
    "asked_words": torch.int16,
    "asked_bits": torch.int64,
    "asked_form": torch.int8,
}


def check_input(data: IndexInput, before: int) -> None:
    """Check the lengths of columns; `before` counts the concepts that existed before."""
    atoms = len(data.embeddings)
    concepts = data.num_nodes - atoms if data.concept is None else len(data.concept)
    lengths = {
        **dict.fromkeys(("kind", "speaker", "session", "time", "log_words"), atoms),
        **dict.fromkeys(("is_question", "tells_time", "role", "told", "duplicate"), atoms),
        **dict.fromkeys(("title", "node", *ASKED), atoms),
        **dict.fromkeys(("term_offsets", "token_offsets"), atoms + 1),
        "name_offsets": before + concepts + 1,
    }
    do = "give one entry for each atom of `embeddings` (offsets: one more, of concepts for names)"
    for name, length in lengths.items():
        if (column := getattr(data, name)) is not None:
            check_tensor(name, column, "", (length, 2) if name == "told" else (length,), do)


def dates_of(time: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return month 0..11, day of the month 0..30 and day since the epoch in UTC.

    For an unknown time they are -1, -1 and a day before all others.
    """
    known = ~torch.isnan(time)
    stamps = time.nan_to_num(nan=0.0).numpy().astype("datetime64[s]")
    months = stamps.astype("datetime64[M]")
    dates = stamps.astype("datetime64[D]")
    month = torch.from_numpy(months.astype(np.int64) % 12)
    day = torch.from_numpy((dates - months.astype("datetime64[D]")).astype(np.int64))
    said = torch.from_numpy(dates.astype(np.int64))
    return (
        torch.where(known, month, -1).to(torch.int8),
        torch.where(known, day, -1).to(torch.int8),
        torch.where(known, said, torch.iinfo(torch.int32).min).to(torch.int32),
    )


def document_frequency(
    pieces: Tensor,  # [T] integers
    offsets: Tensor,  # [n + 1] int64
    known: Tensor,  # [V] int32
) -> Tensor:  # [V] int32
    """Add the number of atoms with each word piece to the known numbers."""
    size, count = np.diff(offsets.numpy()), len(known)
    atom = np.arange(len(size)).repeat(size)
    seen = torch.from_numpy(np.unique(atom * count + pieces.numpy()) % count)
    return known.index_add(0, seen, known.new_ones(1).expand(seen.shape))
