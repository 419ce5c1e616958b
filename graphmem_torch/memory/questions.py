"""Questions: conversion to the tensors that an index reads, and of its hits to results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from time import perf_counter
from typing import TypeVar
from weakref import WeakKeyDictionary

import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

from graphmem_torch.atoms import AGGREGATE, Atom, EdgeType
from graphmem_torch.config import Config
from graphmem_torch.errors import InputError
from graphmem_torch.index.explain import Explained
from graphmem_torch.index.retrieve import OF_HITS, Retrieval, Stages
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.memory.known_vectors import joined
from graphmem_torch.memory.reasons import Hop, Reasons, hop_nodes, weighed_terms
from graphmem_torch.ops.tiles import stable_topk
from graphmem_torch.ops.topk_cosine import inner_products
from graphmem_torch.oracle import Verifier, ask_verifier
from graphmem_torch.rank.abstention import ABOVE, DEPTH
from graphmem_torch.rank.calibration import constants_of, is_calibrated, probabilities
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import signal_names
from graphmem_torch.rank.relevance import word_share
from graphmem_torch.results import (
    Context,
    EdgeGradient,
    Explanation,
    Hit,
    PathStep,
    Result,
    Start,
    Trace,
    WeighedPath,
)
from graphmem_torch.store.tensor_reader import TensorReader
from graphmem_torch.text.asked import NOTHING_ASKED, asks_for_questions, read_asked
from graphmem_torch.text.embedder import (
    Embedder,
    Encoded,
    background_of,
    encode_checked,
    unrelated_vectors,
)
from graphmem_torch.text.question import asks_when, named_dates, named_speakers, recalls
from graphmem_torch.text.times import told_days
from graphmem_torch.text.wishes import wishes

__all__ = [
    "as_hit",
    "checked_questions",
    "encode_questions",
    "nearest_cosines",
    "pick_encoded",
    "to_explanation",
    "to_results",
    "verdicts",
    "verified",
    "verified_results",
    "with_duplicates",
    "with_traces",
]

Gated = TypeVar("Gated", Result, Context)

_ATOMS = 65_536  # atoms in a batch of cosines with unrelated texts
_WORDS = 0.35  # minimum share of a question's words, by idf, for it to count as answered
_EDGE_NAMES = {int(kind): kind.name.lower() for kind in EdgeType}


def checked_questions(questions: str | Sequence[str]) -> list[str]:
    """Return one or several questions as a list, checked.

    Raises:
        InputError: No text, an empty one, or one that UTF-8 cannot hold.
    """
    if isinstance(questions, str):
        _check_question(questions, "; say what is asked")
        return [questions]
    if isinstance(questions, bytes) or not isinstance(questions, Iterable):
        raise InputError(
            f"questions: expected a question or a list of them, got {questions!r:.80}; give text"
        )
    asked = list(questions)
    for number, question in enumerate(asked, start=1):
        _check_question(question, f" as number {number} of {len(asked)}; leave it out")
    return asked


def _check_question(question: object, do: str) -> None:
    if not isinstance(question, str) or not question.strip():
        raise InputError(f"question: expected a question, got {question!r:.80}{do}")
    try:
        question.encode()
    except UnicodeEncodeError as error:
        raise InputError(
            f"question: expected text that UTF-8 can hold, got half a surrogate pair at position "
            f"{error.start}{do}"
        ) from None


def encode_questions(
    questions: Sequence[str],
    embedder: Embedder,
    snapshot: Snapshot,
    encoded: Encoded | None = None,
    *,
    asked: Sequence[float] | None,
) -> QueryBatch:
    """Return questions as the tensors that the index reads, on its device.

    Args:
        questions: B questions.
        embedder: Encoder of the memory.
        snapshot: Snapshot of the memory.
        encoded: Vectors of the questions, if known.
        asked: When each is asked, seconds since the epoch UTC; None if no signal reads it.
    """
    if encoded is None:
        encoded = encode_checked(embedder, list(questions), query=True)
    tokens, pieces = _padded_tokens(encoded)
    months, days = named_dates(questions)
    unread, readable = (
        None if (ask := getattr(embedder, name, None)) is None else ask(questions)
        for name in ("unread", "readable")
    )
    background = background_of(embedder)
    # Without the encoder, the gate does without its vectors of other texts.
    here = getattr(embedder, "available", True)
    nearest = _nearest(embedder, snapshot) if here else None
    asked_each = None if nearest is None else _wishes(embedder, questions)
    speakers = named_speakers(questions, snapshot.speaker_words, len(snapshot.speakers))
    said = None if asked is None else list(map(told_days, questions, asked))
    spans = None if said is None else torch.tensor(said, dtype=torch.int64).view(-1, 2)
    terms, missing = snapshot.vocabulary.encode_padded(list(questions))
    batch = QueryBatch(
        embedding=encoded.pooled,
        terms=terms,
        missing=missing,
        foreign=snapshot.vocabulary.foreign_idf(questions),
        tokens=tokens,
        pieces=pieces,
        speakers=_if_any(speakers),
        months=_if_any(months),
        days=days,
        span=_if_any(spans),
        asks_when=_if_any(asks_when(questions)),
        recalls=_if_any(recalls(questions)),
        unread=_if_any(unread),
        unreadable=None if readable is None else _if_any(~readable),
        background=None if background is None else torch.full((len(questions),), background),
        wishes=asked_each,
        nearest=None if nearest is None else torch.full((len(questions),), nearest),
        **_asked(questions, snapshot),
    )
    return batch.to(snapshot.index.embeddings.device)


def _asked(questions: Sequence[str], snapshot: Snapshot) -> dict[str, Tensor]:
    """Return the tensors that detect echoes of a question; empty if nothing is asked."""
    read = list(map(read_asked, questions))
    if not any(each.key for each in read):
        return {}
    wanted = [
        NOTHING_ASKED if asks_for_questions(question) else own
        for question, own in zip(questions, read, strict=True)
    ]
    known, bits = [], []
    for own in wanted:
        ids, ends = snapshot.vocabulary.encode_terms([[term] for term in own.terms], grow=False)
        known.append(ids)
        bits.append(torch.tensor([1 << place for place in own.places])[ends.diff() > 0])
    return {
        "asked_key": torch.tensor([each.key for each in read], dtype=torch.int64),
        "asked_terms": pad_sequence(known, batch_first=True, padding_value=-1),
        "asked_bits": pad_sequence(bits, batch_first=True).long(),
        "asked_words": torch.tensor([len(own.terms) for own in wanted]),
    }


_Nearest = WeakKeyDictionary[Snapshot, float]
_NEAREST: _Nearest = WeakKeyDictionary()


def _nearest(embedder: Embedder, snapshot: Snapshot) -> float | None:
    """Return the cached `QueryBatch.nearest` of a memory; None if its gate does not read it."""
    index = snapshot.index
    if snapshot.nearest is not None:
        return snapshot.nearest
    if ABOVE.isdisjoint(signal_names(index.config.gate.weights)) or not index.num_atoms:
        return None
    if snapshot not in _NEAREST:
        _NEAREST[snapshot] = float(nearest_cosines(embedder, snapshot).mean())
    return _NEAREST[snapshot]


def nearest_cosines(embedder: Embedder, snapshot: Snapshot) -> Tensor:  # [U] float32
    """Return the best cosine that a memory with atoms has with each of U unrelated texts."""
    embeddings = snapshot.index.embeddings
    with torch.inference_mode():
        texts = unrelated_vectors(embedder).to(embeddings)
        best = [inner_products(texts, part).amax(1) for part in embeddings.split(_ATOMS)]
        return torch.stack(best).amax(0).float()


_WISHES: dict[tuple[str, str], Tensor] = {}  # by encoder and wish; namespaces share questions
_KEPT = 256


def _wishes(embedder: Embedder, questions: Sequence[str]) -> Tensor | None:  # [B, P, d]
    """Return the vectors of each wish of questions; None if no question has several."""
    asked = [wishes(question) for question in questions]
    if not any(asked):
        return None
    name, every = embedder.fingerprint, list(dict.fromkeys(part for own in asked for part in own))
    known = {part: row for part in every if (row := _WISHES.get((name, part))) is not None}
    fresh = [part for part in every if part not in known]
    if fresh:
        known |= zip(fresh, encode_checked(embedder, fresh, query=True).pooled, strict=True)
    for part in fresh[-_KEPT:]:
        if len(_WISHES) >= _KEPT:
            _WISHES.pop(next(iter(_WISHES), ("", "")), None)
        _WISHES[name, part] = known[part]
    rows = [torch.stack([known[part] for part in own]) for own in asked if own]
    padded = pad_sequence(rows, batch_first=True)
    found = padded.new_zeros(len(asked), *padded.shape[1:])
    found[torch.tensor([bool(own) for own in asked])] = padded
    return found


def _if_any(said: Tensor | None) -> Tensor | None:
    """Return None where no question has any, so that the signal is skipped."""
    return said if said is not None and bool(said.any()) else None


def pick_encoded(encoded: Encoded, places: Sequence[int]) -> Encoded:
    """Return the vectors of some of the texts."""
    return joined([encoded], torch.tensor(places, dtype=torch.int64))


def verdicts(
    snapshot: Snapshot, found: Retrieval, query: QueryBatch, threshold: float
) -> list[tuple[float, bool | None]]:  # B
    """Return the confidence that each question is answered, and the verdict; None: undecided.

    In a language that the encoder does not read, vectors say nothing. There the confidence is the
    share of the question's words that some hit has; if that is low, the verdict is None, as the
    answer may be there in another language. A gate with threshold 0 never closes.

    Args:
        snapshot: Snapshot of the memory.
        found: Retrieval for B questions.
        query: The questions as tensors.
        threshold: Minimum confidence; the gate closes below it.
    """
    sure, unreadable = found.confidence.cpu(), query.unreadable
    open_ = [bool(there) for there in (found.rows >= 0).any(1)]
    known: list[bool | None] = [
        there and own >= threshold for there, own in zip(open_, sure.tolist(), strict=True)
    ]
    if unreadable is None or threshold <= 0:
        return [*zip(sure.tolist(), known, strict=True)]
    share = word_share(snapshot.index.tensors, query, found.rows[:, :DEPTH]).cpu()
    sure = torch.where(unreadable.cpu(), share, sure)
    least = max(threshold, _WORDS)
    for place in unreadable.nonzero().flatten().tolist():
        known[place] = open_[place] and (float(sure[place]) >= least or None)
    return [*zip(sure.tolist(), known, strict=True)]


def to_results(
    questions: Sequence[str],
    snapshot: Snapshot,
    query: QueryBatch,
    found: Retrieval,
    store: TensorReader,
    config: Config,
    encoder: str,
    judged: Sequence[tuple[float, bool | None]],
) -> list[Result]:
    """Convert a retrieval to results, with texts of atoms and names of edges and signals.

    Args:
        questions: B questions.
        snapshot: Snapshot of the memory.
        query: The questions as tensors.
        found: Retrieval of the index.
        store: Texts of atoms and concepts.
        config: Settings of the calibration.
        encoder: Name of the encoder.
        judged: Confidence and verdict of each question, by `verdicts`.
    """
    names, index = snapshot.index.signal_names, snapshot.index
    memory, known = index.tensors, index.tensors.graph.stored
    rows, paths = found.rows.tolist(), found.paths.tolist()
    hops = hop_nodes(snapshot, found)
    listed = sorted({row for line in rows for row in line} - {-1})
    travelled = sorted({edge for line in paths for path in line for edge in path} - {-1})
    # Only edges on paths leave the device, and become Python numbers in one transfer.
    edges = torch.tensor(travelled, dtype=torch.int64, device=known.source.device)
    source, target, weight, kind = (column.index_select(0, edges).tolist() for column in known)
    place = torch.tensor(listed, dtype=torch.int64)
    numbers = dict(zip(listed, snapshot.node.index_select(0, place).tolist(), strict=True))
    nodes = sorted({*numbers.values(), *source, *target, *chain.from_iterable(hops.values())})
    atoms = dict(zip(nodes, store.atoms(nodes), strict=True))
    steps = {
        edge: PathStep(atoms[begin].id, atoms[end].id, _EDGE_NAMES[type_], round(strength, 4))
        for edge, begin, end, type_, strength in zip(
            travelled, source, target, kind, weight, strict=True
        )
    }
    sent = dict(zip(travelled, (atoms[begin] for begin in source), strict=True))
    labels: dict[int, int] = {}
    if (modes := memory.modes) is not None:
        label = modes.label.index_select(0, place.to(modes.label.device))
        labels = dict(zip(listed, label.tolist(), strict=True))

    def hit(
        grounds: Reasons, row: int, score: float, raw: float, shares: list[float], path: list[int]
    ) -> Hit:
        atom = atoms[numbers[row]]
        return Hit(
            id=atom.id,
            text=atom.rendered,
            score=score,
            signals=dict(zip(names, shares, strict=True)),
            path=tuple(steps[edge] for edge in path if edge >= 0),
            kind=atom.kind,
            speaker=atom.speaker,
            session=atom.session,
            time=atom.time,
            mode=labels.get(row),
            meta=atom.meta,
            title=atom.title,
            raw=raw,
            grounds=grounds,
        )

    statistics = found.scores, found.place, found.statistics, index.plan.read
    sure = probabilities(*statistics, constants_of(config.calibration, encoder))
    calibrated = is_calibrated(config.calibration, encoder)
    columns = (rows, sure.tolist(), found.scores.tolist(), found.shares.tolist(), paths)
    led: list[dict[str, Hop]] = [{} for _ in rows]
    for (number, row), (begin, *entities) in hops.items():
        hop = Hop(atoms[begin], tuple(atoms[each] for each in entities))
        led[number][atoms[numbers[row]].id] = hop
    weighed, results = weighed_terms(snapshot, query), []
    for b, (question, (confidence, answered), *line) in enumerate(
        zip(questions, judged, *columns, strict=True)
    ):
        passed = {sent[edge].id: sent[edge] for path in line[-1] for edge in path if edge >= 0}
        grounds = Reasons(*weighed[b], led[b], passed)
        hits = tuple(hit(grounds, *each) for each in zip(*line, strict=True) if each[0] >= 0)
        results.append(Result(question, hits, confidence, answered, calibrated=calibrated))
    return results


def verified(verify: Verifier, found: Sequence[Gated]) -> list[Gated]:
    """Return the results, not `known` where a verifier finds no answer in the text.

    The second check of SYNAPSE's gate, in one call. Refused questions are not sent. Where the gate
    cannot decide, or the verifier fails, the other decides alone.
    """
    places = [place for place, each in enumerate(found) if each.known is not False]
    asked = [found[place] for place in places]
    said = ask_verifier(verify, [each.question for each in asked], [each.text for each in asked])
    checked = list(found)
    for place, each, answer in zip(places, asked, said, strict=True):
        known = each.known if answer is None else answer
        checked[place] = replace(each, known=known, verified=answer)
    return checked


def verified_results(verify: Verifier, found: Sequence[Sequence[Result]]) -> list[list[Result]]:
    """Apply `verified` to the results of each question in one call; traces give its time."""
    start = perf_counter()
    checked = iter(verified(verify, [result for each in found for result in each]))
    seconds = {"verify": perf_counter() - start}

    def timed(result: Result) -> Result:
        trace = result.trace
        if trace is None:
            return result
        return replace(result, trace=replace(trace, seconds=trace.seconds | seconds))

    return [[timed(next(checked)) for _ in each] for each in found]


def with_duplicates(
    results: Sequence[Result],
    snapshot: Snapshot,
    rows: Tensor,  # [B, k] int64, -1 = none
    query: QueryBatch,
    store: TensorReader,
) -> list[Result]:
    """Return results whose hits name the memories they represent, if these may be hits."""
    assert query.group is not None
    group = query.group.expand(len(query), -1)
    listed = group > 0
    for mask in (query.allowed, query.listed):
        listed = listed if mask is None else listed & mask
    own = group.gather(1, rows.clamp(min=0)).masked_fill(rows < 0, 0)
    question, place = (own > 0).nonzero(as_tuple=True)
    same = group[question] == own[question, place, None]
    same &= listed[question] & (
        torch.arange(group.shape[1], device=rows.device) != rows[question, place, None]
    )
    hit, other = same.nonzero(as_tuple=True)
    nodes = snapshot.node[other.cpu()].tolist()
    ids = [atom.id for atom in store.atoms(nodes)]
    named: dict[tuple[int, int], list[str]] = {}
    for row, column, name in zip(question[hit].tolist(), place[hit].tolist(), ids, strict=True):
        named.setdefault((row, column), []).append(name)
    return [
        replace(
            result,
            hits=tuple(
                replace(one, duplicates=tuple(named.get((row, column), ())))
                for column, one in enumerate(result.hits)
            ),
        )
        for row, result in enumerate(results)
    ]


def with_traces(
    results: Sequence[Result],
    snapshot: Snapshot,
    found: Retrieval,
    store: TensorReader,
    stages: Stages,
) -> list[Result]:
    """Return the results with the cost of answering them."""
    anchors, value = found.anchors.cpu(), found.anchor_activation.tolist()
    nodes = snapshot.node[anchors.clamp(min=0)] if anchors.numel() else anchors
    known = nodes[anchors >= 0].unique().tolist()
    named = dict(zip(known, (atom.id for atom in store.atoms(known)), strict=True))
    stages.done("read")
    index, traced = snapshot.index, []
    columns = (results, stages.candidates, stages.activated, nodes.tolist(), value)
    for result, candidates, activated, started, strength in zip(*columns, strict=True):
        pairs = zip(started, strength, strict=True)
        trace = Trace(
            seconds=dict(stages.seconds),
            questions=len(results),
            atoms=index.num_atoms,
            rule=index.plan.rule.value,
            candidates=candidates,
            activated=activated,
            anchors=tuple(dict.fromkeys((named[node], own) for node, own in pairs if own > 0)),
        )
        traced.append(replace(result, trace=trace))
    return traced


def as_hit(
    question: str,
    snapshot: Snapshot,
    query: QueryBatch,
    row: int,
    found: Explained,
    store: TensorReader,
    config: Config,
    encoder: str,
) -> Hit:
    """Return an explained atom as the hit that it is, or would be with its score.

    Args:
        question: Text of the question.
        snapshot: Snapshot of the memory.
        query: The question as tensors.
        row: Row of the atom.
        found: Explanation of the index.
        store: Texts of atoms and concepts.
        config: Settings, as in `to_results`.
        encoder: Name of the encoder.
    """
    with torch.inference_mode():
        ranking = snapshot.index(query, k=found.depth, paths=True)
    at = (ranking.rows[0] == row).nonzero().flatten()
    if len(at):
        own = {name: getattr(ranking, name).index_select(1, at) for name in OF_HITS}
    else:
        rows = ranking.rows.new_tensor([[row]])
        own = {
            "rows": rows,
            "scores": found.score.view(1, 1),
            "shares": found.shares.view(1, 1, -1),
            "place": rows.new_tensor([[max(0, found.rank - 1)]]),
            "paths": rows.new_empty(1, 1, 0),
            "hops": rows.new_full((1, 1, 3), -1),
        }
    one = ranking._replace(**own)
    judged = verdicts(snapshot, one, query, config.gate.threshold)
    (result,) = to_results([question], snapshot, query, one, store, config, encoder, judged)
    return result.hits[0]


def to_explanation(
    question: str,
    snapshot: Snapshot,
    row: int,
    found: Explained,
    shown: Hit,
    store: TensorReader,
    most: int,
) -> Explanation:
    """Explain the score of an atom, with ids instead of nodes; `most` edges and gradients.

    Args:
        question: Text of the question.
        snapshot: Snapshot of the memory.
        row: Row of the atom.
        found: Explanation of the index.
        shown: The atom as a hit.
        store: Texts of atoms and concepts.
        most: Maximum number of edges and of gradients.
    """
    index, graph = snapshot.index, found.graph
    share = (found.edge_gradient * graph.weight).abs()
    edges = stable_topk(share[None], min(most, len(share)))[1][0]
    edges = edges[share[edges] > 0]
    gradient = found.node_gradient.abs()
    sending = stable_topk(gradient[None], min(most, len(gradient)))[1][0]
    sending = sending[gradient[sending] > 0]
    influence = found.influence.cpu()
    left = influence.nonzero().squeeze(1)
    left = left[influence[left].abs().argsort(descending=True, stable=True)]
    walked = found.paths[found.paths >= 0].unique()
    ends = torch.stack([graph.source, graph.target])[:, torch.cat([edges, walked])].long()
    own, others = snapshot.node[row : row + 1], snapshot.node[left]
    parts = (own, others, found.anchors.cpu(), sending.cpu(), ends.flatten().cpu())
    nodes = torch.cat(parts).unique().tolist()
    atoms = dict(zip(nodes, store.atoms(nodes), strict=True))

    def edge(place: int) -> tuple[str, str, str, float]:
        source, target = (atoms[int(end[place])].id for end in (graph.source, graph.target))
        kind, weight = _EDGE_NAMES[int(graph.type[place])], float(graph.weight[place])
        return source, target, kind, round(weight, 4)

    started = (found.anchors, found.value, found.anchor_gradient)
    starts = zip(*(column.tolist() for column in started), strict=True)
    order = found.strength.argsort(descending=True, stable=True)
    chains = zip(found.strength[order].tolist(), found.paths[order].tolist(), strict=True)
    return Explanation(
        question=question,
        id=atoms[int(own)].id,
        text=atoms[int(own)].rendered,
        score=shown.score,
        raw=float(found.score),
        why=shown.why,
        rank=found.rank,
        signals=dict(zip(index.signal_names, found.shares.tolist(), strict=True)),
        starts=tuple(Start(atoms[node].id, value, slope) for node, value, slope in starts),
        paths=tuple(
            WeighedPath(strength, tuple(PathStep(*edge(each)) for each in path if each >= 0))
            for strength, path in chains
            if strength > 0
        ),
        edges=tuple(
            EdgeGradient(*edge(place), float(found.edge_gradient[place]))
            for place in edges.tolist()
        ),
        gradients={atoms[n].id: float(found.node_gradient[n]) for n in sending.tolist()},
        influences={
            atoms[node].id: value
            for node, value in zip(others.tolist(), influence[left].tolist(), strict=True)
        },
        members=_members(atoms[int(own)]),
    )


def _members(atom: Atom) -> tuple[str, ...]:
    """Return the members of an aggregate; none for other memories."""
    if atom.kind != AGGREGATE:
        return ()
    return tuple(link.target for link in atom.edges if link.type == EdgeType.DERIVED_FROM)


def _padded_tokens(encoded: Encoded) -> tuple[Tensor | None, Tensor | None]:
    """Packed token vectors as [B, Q, m] float32 and [B, Q] pieces, -1 = padding."""
    if encoded.tokens is None or encoded.pieces is None or encoded.offsets is None:
        return None, None
    counts = encoded.offsets.diff()
    width = max(1, int(counts.max()) if len(counts) else 0)
    filled = torch.arange(width) < counts[:, None]
    pieces = torch.full(filled.shape, -1, dtype=torch.int64)
    pieces[filled] = encoded.pieces.long()
    tokens = torch.zeros(*filled.shape, encoded.tokens.shape[1])
    tokens[filled] = torch.nn.functional.normalize(encoded.tokens.float(), dim=1)
    return tokens, pieces
