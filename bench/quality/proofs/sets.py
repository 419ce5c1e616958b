"""Proof sets of a folder as input of every system: texts, vectors, words, dependencies."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.errors import InputError
from graphmem_torch.graph import Graph
from graphmem_torch.ops.bm25 import BM25
from graphmem_torch.readers.proofs import is_edge_table, proof_format, read_proofs, set_names
from graphmem_torch.text.embedder import Embedder, HashingEmbedder, encode_checked
from graphmem_torch.text.tokens import count_tokens

__all__ = ["ProofSet", "find_sets", "make_set", "read_set"]
_LARGEST = 10_000  # maximum statements of a set: everything here is dense
_NO_SET = "neither statements with a table of edges nor a blueprint"
_WORD = re.compile(r"\S+")
_EDGES = ".,:;"  # stripped from words; brackets and the like are symbols of the statement
_SPELLING = 384  # width of the vectors of words and their pieces


@dataclass(frozen=True, eq=False)
class ProofSet:
    """Proof graph with texts and vectors.

    Attributes:
        name: Name of the set.
        texts: N statements with their comments.
        asserts: `[N]` bool; false for statements that only say how to write a formula.
        graph: An edge from each statement to each one it uses.
        order: `[N]` place in the file if every statement uses only earlier ones, else None.
        costs: `[N]` tokens of each text.
        views: Vectors of the texts, `[N, d]` each: the encoder's, and those of words and their
            pieces.
        words: Lexical index.
        terms: `[N, Q]` distinct terms of each text, padded with -1.
        left_out: Number of statements beyond the maximum.
    """

    name: str
    texts: Sequence[str]
    asserts: Tensor
    graph: Graph
    order: Tensor | None
    costs: Tensor
    views: tuple[Tensor, ...]
    words: BM25
    terms: Tensor
    left_out: int = 0

    def relevance(self, nodes: Tensor) -> Tensor:  # [T] -> [2, T, N]
        """Return the similarity of some texts to all: cosine, and BM25 relative to their own."""
        cosine = self.views[0][nodes] @ self.views[0].T
        lexical = self.words.score(self.terms[nodes])
        own = lexical.gather(1, nodes[:, None]).clamp(min=1e-6)
        return torch.stack([cosine, lexical / own])


def find_sets(data: Path) -> tuple[dict[Path, str], dict[str, str]]:
    """Find the proof sets of a folder or file by file, ordered by name.

    Returns:
        Names by file; and for each other file the reason why it is left out, by its name.

    Raises:
        InputError: No set, or two of one name.
    """
    files = [data] if data.is_file() else sorted(data.iterdir()) if data.is_dir() else []
    files = [path for path in files if path.is_file() and not path.name.startswith(".")]
    sets = [path for path in files if proof_format(path)]
    if not sets:
        raise InputError(
            "expected proof sets: *_nodes.jsonl with *_edges.tsv beside them, or blueprint *.json, "
            "found none; name another folder",
            where=str(data),
        )
    others = [path for path in files if path not in sets and not is_edge_table(path)]
    return set_names(sets), dict.fromkeys((path.name for path in others), _NO_SET)


def read_set(path: Path, name: str, embedder: Embedder) -> ProofSet:
    """Read the set of a file.

    Raises:
        InputError: Unreadable, or fewer than 3 statements or dependencies.
    """
    return make_set(name, list(read_proofs(path)), embedder)


def make_set(name: str, atoms: Sequence[Atom], embedder: Embedder) -> ProofSet:
    """Build a set from its atoms, or from the first 10,000 statements if dense matrices need it.

    Raises:
        InputError: Fewer than 3 statements or dependencies.
    """
    left_out = max(0, len(atoms) - _LARGEST)
    atoms = atoms[:_LARGEST]
    place = {atom.id: i for i, atom in enumerate(atoms)}
    ends = [
        (i, place[link.target])
        for i, atom in enumerate(atoms)
        for link in atom.edges
        if link.target in place
    ]
    if len(atoms) < 3 or len(ends) < 3:
        raise InputError(
            f"{name}: expected at least 3 statements and 3 dependencies, got {len(atoms)} and "
            f"{len(ends)}; leave it out"
        )
    edges = torch.tensor(ends).T
    texts = [atom.text for atom in atoms]
    vocabulary: dict[str, int] = {}
    terms, offsets = [], [0]
    for text in texts:
        found = (word.strip(_EDGES) or word for word in _WORD.findall(text.lower()))
        terms += [vocabulary.setdefault(word, len(vocabulary)) for word in found]
        offsets.append(len(terms))
    occurrences = torch.tensor(terms)
    once = [part.unique() for part in occurrences.split(torch.tensor(offsets).diff().tolist())]
    backward = bool((edges[0] > edges[1]).all())
    return ProofSet(
        name=name,
        texts=texts,
        asserts=torch.tensor([atom.kind != "syntax" for atom in atoms]),
        graph=Graph.from_edges(edges, num_nodes=len(atoms)),
        order=torch.arange(len(atoms)) if backward else None,
        costs=torch.tensor(count_tokens(texts)),
        views=(
            encode_checked(embedder, texts, progress=False).pooled,
            HashingEmbedder(_SPELLING, 0).encode(texts).pooled,
        ),
        words=BM25.build(occurrences, torch.tensor(offsets), len(vocabulary)),
        terms=torch.nn.utils.rnn.pad_sequence(once, batch_first=True, padding_value=-1),
        left_out=left_out,
    )
