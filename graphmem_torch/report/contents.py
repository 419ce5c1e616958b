"""ReportFacts: everything that a report tells, gathered from a memory at one moment."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.graph import Graph
from graphmem_torch.index.buffers import modes_by
from graphmem_torch.linalg import Spectrum, decompose
from graphmem_torch.linalg.component import undirected
from graphmem_torch.modes import Modes
from graphmem_torch.modes.detectors import Steps
from graphmem_torch.modes.regime import detector_of
from graphmem_torch.ops.ragged import ranges
from graphmem_torch.results import Result
from graphmem_torch.spectral.structure import Structure
from graphmem_torch.store import Columns
from graphmem_torch.text.terms import GENERIC
from graphmem_torch.text.words import letter_runs, lowered, pairs

__all__ = ["ReportFacts", "ReportInput", "characteristic_words", "gather"]

_READ = 600  # characters read of a text
_COMMON = 20_000  # maximum number of counted words


def characteristic_words(
    texts: Sequence[str],  # [N]
    label: Tensor,  # [N] integers in 0..K-1
    *,
    count: int = 4,
    ignore: Collection[str] = (),
) -> list[str]:  # [K]
    """Return up to `count` words for each group, joined by commas; empty if there are none.

    Class-based TF-IDF (Grootendorst 2022, arXiv 2203.05794, eq. 2) against the other groups. The
    score is the share of a group's texts with the word, times the log of its ratio to the share of
    the others' texts (of its rarity, without others). So a word that all groups use names none, and
    a word of a single text names no group of several.

    Args:
        texts: Texts, read up to their 600th character.
        label: Group of each text.
        count: Words of a name.
        ignore: Lower-cased words to exclude, such as speakers' names.
    """
    found = [set(_words(text[:_READ])).difference(ignore) for text in texts]
    total = Counter(word for words in found for word in words)
    column = {word: i for i, (word, _) in enumerate(total.most_common(_COMMON))}
    cells = [
        (g, column[w])
        for g, words in zip(label.tolist(), found, strict=True)
        for w in words
        if w in column
    ]
    groups = int(label.max()) + 1 if len(label) else 0
    names = list(column)
    if not names:
        return [""] * groups
    group, word = torch.tensor(cells).T
    key, seen = torch.unique(group * len(names) + word, return_counts=True)
    size = torch.bincount(label, minlength=groups).double()
    owner, column_of = key // len(names), key % len(names)
    everywhere = torch.tensor([total[name] for name in names], dtype=torch.float64)
    share, everywhere, own = seen / size[owner], everywhere[column_of], size[owner]
    # Smoothed by one more text with the word's overall share.
    elsewhere = (everywhere - seen + everywhere / len(texts)) / (len(texts) - own + 1)
    alone = own == len(texts)
    telling = torch.where(alone, torch.log1p(own / everywhere), (share / elsewhere).log())
    score = torch.where((seen < 2) & (own > 3), -1.0, share * telling)
    order = torch.argsort(score, descending=True, stable=True)
    order = order[torch.argsort(owner[order], stable=True)]
    order = order[score[order] > 0]
    chosen: list[list[str]] = [[] for _ in range(groups)]
    _, rank = ranges(0, torch.bincount(owner[order], minlength=groups), total=len(order))
    best = order[rank < count]
    for g, w in zip(owner[best].tolist(), column_of[best].tolist(), strict=True):
        chosen[g].append(names[w])
    return [", ".join(words) for words in chosen]


def _words(text: str) -> list[str]:
    """Return the lower-cased words that may carry a topic."""
    found = letter_runs(lowered(text))
    return [
        word for run in found for word in pairs(run) or [run][: len(run) > 2] if word not in GENERIC
    ]


@dataclass(frozen=True, eq=False)
class ReportInput:
    """Input of a report: a memory of M nodes, in the order of storing."""

    name: str
    config: Config
    stats: dict[str, Any]  # `Memory.stats()`
    structure: Structure  # names of its N nodes are among `ids`
    columns: Columns
    ids: list[str]  # [M]
    texts: list[str]  # [M]
    embeddings: Tensor  # [M, d]
    results: tuple[Result, ...] = ()  # of the questions that the report shows


@dataclass(frozen=True, eq=False)
class ReportFacts:
    """Contents of a report for the N nodes of a structure; A of them are not concepts."""

    name: str
    preset: str
    stats: dict[str, Any]  # `Memory.stats()`
    ids: list[str]  # [N], in the order of storing
    texts: list[str]  # [N]
    kind: Tensor  # [N] codes of `kinds`
    kinds: list[str]
    session: Tensor  # [N] codes of `sessions`, -1 = none
    sessions: list[str]
    time: Tensor  # [N] float64 seconds since the epoch UTC, NaN = unknown
    atom: Tensor  # [A] int64, the nodes that are not concepts
    structure: Structure
    label: Tensor  # [N] int64, communities by size: 0 is the largest
    speakers: frozenset[str]  # words of their names, which stand before the texts
    names: list[str]  # of the communities: the words that set each apart
    spectrum: Spectrum | None  # of the atoms' kernel, complete; None if no atom has a vector
    modes: Modes | None  # of the atoms; None if no atom has a vector
    regime: Steps | None  # detector output for the atoms; None also if the settings disable it
    threshold: float  # of its statistic
    detector: str  # its name in the settings
    results: tuple[Result, ...] = ()  # of the questions that are shown

    @property
    def num_nodes(self) -> int:
        """N."""
        return len(self.ids)

    @property
    def graph(self) -> Graph:
        """Graph of the structure."""
        return self.structure.graph

    @property
    def sizes(self) -> Tensor:  # [K] int64
        """Return the nodes of each community."""
        return torch.bincount(self.label)

    def inside(self) -> tuple[Tensor, Tensor]:  # [K] int64, [K] int64
        """Return the links inside each community, and its node with the strongest links."""
        low, high, weight = undirected(self.graph)
        own = self.label[low] == self.label[high]
        low, high, weight = low[own], high[own], weight[own].double().abs()
        strength = weight.new_zeros(self.num_nodes)
        strength.index_add_(0, low, weight).index_add_(0, high, weight)
        order = torch.argsort(strength, descending=True, stable=True)
        order = order[torch.argsort(self.label[order], stable=True)]
        links = torch.bincount(self.label[low], minlength=len(self.sizes))
        return links, order[self.sizes.cumsum(0) - self.sizes]


def gather(data: ReportInput) -> ReportFacts:
    """Compute what is shown."""
    structure, columns, every = _on_cpu(data.structure), data.columns, data.ids
    known = {name: row for row, name in enumerate(every)}
    ids = list(structure.names or ())
    row = torch.tensor([known[name] for name in ids], dtype=torch.int64)
    texts = [data.texts[i] for i in row.tolist()]
    kind, time = columns.kind.codes[row].long(), columns.time[row]
    atom = (~columns.is_concept[row]).nonzero().squeeze(1)
    label = _by_size(structure.community.long())
    speakers = frozenset(w for name in columns.speaker.names for w in name.lower().split())
    vectors = data.embeddings[row[atom]]
    told = len(vectors) > 0 and bool(vectors.any())
    watched = data.config.regime
    detector = detector_of(watched, vectors.shape[1]) if told else None
    return ReportFacts(
        name=data.name,
        preset=data.config.name,
        stats=data.stats,
        ids=ids,
        texts=texts,
        kind=kind,
        kinds=columns.kind.names,
        session=columns.session.codes[row].long(),
        sessions=columns.session.names,
        time=time,
        atom=atom,
        structure=structure,
        label=label,
        speakers=speakers,
        names=characteristic_words(texts, label, ignore=speakers),
        spectrum=decompose(vectors, min(vectors.shape), method="gram") if told else None,
        modes=modes_by(data.config.modes, vectors, time[atom]) if told else None,
        regime=detector.update(vectors) if detector is not None else None,
        threshold=float(detector.threshold) if detector is not None else 0.0,
        detector=watched.detector,
        results=data.results,
    )


def _on_cpu(value: Any) -> Any:
    """Move a tensor, or a dataclass with all its tensors, to the CPU."""
    if isinstance(value, Tensor):
        return value.cpu()
    if is_dataclass(value) and not isinstance(value, type):
        return replace(value, **{f.name: _on_cpu(getattr(value, f.name)) for f in fields(value)})
    return value


def _by_size(label: Tensor) -> Tensor:  # [N] -> [N]
    """Renumber communities from the largest on."""
    order = torch.argsort(torch.bincount(label), descending=True, stable=True)
    rank = torch.empty_like(order)
    rank[order] = torch.arange(len(order))
    return rank[label]
