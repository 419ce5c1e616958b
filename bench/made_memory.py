"""Made-up memories and their questions, for measurements without texts and models.

Sessions of turns in time, topics in the embeddings, Zipf words, int8 token vectors, and edges as
linking would draw them. A *rich* memory also has what real memories have and plain turns lack:
derived atoms, documents with titles, roles, stated days, and a concept that a tenth of the atoms
mention. A question is a noisy copy of a memory.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import normalize, pad

from graphmem_torch.atoms import EdgeType
from graphmem_torch.coo import offsets_of
from graphmem_torch.edges import EdgeBlock
from graphmem_torch.graph import GRAPH_PARTS, Graph
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.ops.bm25 import BM25
from graphmem_torch.rank.query import QueryBatch

__all__ = ["made_memory", "made_on", "questions"]

_WIDTH, _TOKEN_WIDTH = 384, 128
_WORDS, _TOKENS, _ASKED = 9, 15, 7  # mean words of an atom; tokens of an atom; tokens of a question
_VOCABULARY, _PIECES = 40_000, 20_000
_SESSION, _SPEAKERS, _TOPIC = 24, 50, 200  # turns of a session; speakers; atoms of a topic
_DERIVED, _DOCUMENTS, _TELLS, _HUB = 20, 4, 9, 10  # one atom in so many
_MENTIONS = 10  # one atom in so many begins with the title of a document
_TITLE = 2  # terms of a title
_EXCLUDED = 20  # one atom in so many does not exist for the questions
_START, _DAY = 1.6e9, 86_400.0
_CHUNK = 1 << 20  # atoms that are drawn together on a device


def made_memory(atoms: int, *, rich: bool = False, seed: int = 0) -> IndexInput:
    """Return a memory of `atoms` turns, with a concept for every ten of them."""
    g = torch.Generator().manual_seed(seed)

    def integers(high: int, *shape: int) -> Tensor:
        return torch.randint(0, high, shape, generator=g)

    def zipf(high: int, count: int) -> Tensor:
        return (high ** torch.rand(count, generator=g) - 1).long().clamp_(max=high - 1)

    topics = max(1, atoms // _TOPIC)
    centre = torch.randn(topics, _WIDTH, generator=g)
    topic = integers(topics, atoms)
    embeddings = torch.randn(atoms, _WIDTH, generator=g).add_(centre[topic])
    lengths = 2 + integers(2 * _WORDS - 3, atoms)
    concepts, node = max(1, atoms // 10), torch.arange(atoms)
    session = node // _SESSION
    after = node[1:][session[1:] == session[:-1]]
    # Link near atoms of one topic, as linking by cosine would.
    by_topic = topic.argsort(stable=True)
    near = [torch.stack([by_topic[step:], by_topic[:-step]]) for step in (1, 2, 3)]
    mention = torch.stack([integers(atoms, 2 * atoms), atoms + zipf(concepts, 2 * atoms)])
    parts = [torch.stack([after - 1, after]), *near, mention]
    types = [EdgeType.TEMPORAL, *[EdgeType.SIMILARITY] * 3, EdgeType.ABSTRACTION]
    ends = torch.cat(parts, 1)
    kind = torch.cat([torch.full((p.shape[1],), int(t)) for p, t in zip(parts, types, strict=True)])
    start = _START + 3600.0 * session.double() + 60.0 * (node % _SESSION)
    tokens = torch.randint(-60, 61, (atoms * _TOKENS, _TOKEN_WIDTH), generator=g, dtype=torch.int8)
    plain = IndexInput(
        embeddings=normalize(embeddings, dim=1),
        terms=zipf(_VOCABULARY, int(lengths.sum())),
        term_offsets=offsets_of(lengths),
        vocab_size=_VOCABULARY,
        kind=torch.zeros(atoms, dtype=torch.int64),
        speaker=integers(_SPEAKERS, atoms),
        num_speakers=_SPEAKERS,
        session=session,
        time=start,
        log_words=torch.log1p(lengths.float()),
        is_question=integers(5, atoms) == 0,
        tells_time=integers(9, atoms) == 0,
        edges=EdgeBlock.of(ends[0], ends[1], kind, torch.rand(ends.shape[1], generator=g) + 0.05),
        num_nodes=atoms + concepts,
        tokens=tokens,
        pieces=zipf(_PIECES, atoms * _TOKENS).to(torch.int32),
        token_offsets=torch.arange(atoms + 1) * _TOKENS,
        num_pieces=_PIECES,
    )
    return _enriched(plain, g) if rich else plain


def _enriched(data: IndexInput, g: torch.Generator) -> IndexInput:
    """Add documents, derived atoms, roles, stated days and a hub to a plain memory."""
    atoms = len(data.embeddings)
    concepts, node = data.num_nodes - atoms, torch.arange(atoms)

    def one_in(count: int) -> Tensor:
        return torch.randint(0, count, (atoms,), generator=g) == 0

    document, terms, first = one_in(_DOCUMENTS), data.terms.clone(), data.term_offsets[:-1]
    # Documents stand alone: no session, no speaker. Some turns begin with the title of one.
    titled = document.nonzero().squeeze(1)
    mentions = (one_in(_MENTIONS) & ~document).nonzero().squeeze(1)
    if len(titled):
        about = titled[torch.randint(0, len(titled), (len(mentions),), generator=g)]
        for place in range(_TITLE):
            terms[first[mentions] + place] = terms[first[about] + place]
    derived = (one_in(_DERIVED) & (node > 0)).nonzero().squeeze(1)
    source = (torch.rand(len(derived), generator=g) * derived).long()  # an earlier atom
    hub = one_in(_HUB).nonzero().squeeze(1)
    session = data.session.masked_fill(document, -1)
    e = data.edges
    turns = e.type == int(EdgeType.TEMPORAL)
    loose = turns & (document[e.source % atoms] | document[e.target % atoms])
    more = (
        (derived, source, EdgeType.DERIVED_FROM),
        (hub, torch.full_like(hub, atoms), EdgeType.ABSTRACTION),
    )
    edges = EdgeBlock.cat(
        [
            EdgeBlock(e.source[~loose], e.target[~loose], e.type[~loose], e.weight[~loose]),
            *(EdgeBlock.of(one, other, int(kind), 1.0) for one, other, kind in more),
        ]
    )
    day = (data.time // _DAY).int()
    told = torch.stack([day - 3, day - 1], 1).where(one_in(_TELLS)[:, None], 0)
    chats = ~document & (data.session % 2 == 0)
    return replace(
        data,
        terms=terms,
        session=session,
        speaker=data.speaker.masked_fill(document, -1),
        role=torch.where(chats, 1 - 2 * (node % 2), 0).to(torch.int8),
        told=told.int(),
        title=torch.where(document, _TITLE, -1),
        edges=edges,
        name_terms=torch.randint(0, _VOCABULARY, (concepts,), generator=g),
        name_offsets=torch.arange(concepts + 1),
    )


def questions(
    data: IndexInput, count: int, *, rich: bool = False, masked: bool = False, seed: int = 1
) -> QueryBatch:
    """Return noisy copies of random memories: most of their words, some of their tokens.

    Args:
        data: The memory.
        count: Number of questions.
        rich: Whether some name a speaker or state days, and have words that the memory lacks.
        masked: Whether one atom in twenty does not exist for the questions.
        seed: Seed of the draw.
    """
    g = torch.Generator().manual_seed(seed)
    row = torch.randint(len(data.embeddings), (count,), generator=g)
    assert data.tokens is not None and data.pieces is not None
    texts = data.terms, data.term_offsets, data.tokens, data.pieces
    plain = _copies(row, data.embeddings, texts, data.num_speakers, g)
    if rich:
        speaker = data.speaker[row]
        names = (torch.rand(count, generator=g) < 0.3) & (speaker >= 0)
        day = (data.time[row] // _DAY).long()
        states = torch.rand(count, generator=g) < 0.3
        assert plain.speakers is not None
        plain = replace(
            plain,
            speakers=plain.speakers.scatter(1, speaker.clamp(min=0)[:, None], names[:, None]),
            span=torch.stack([day - 3, day + 4], 1).where(states[:, None], 0),
            recalls=torch.rand(count, generator=g) < 0.2,
            unread=0.2 * torch.rand(count, generator=g),
            missing=(torch.rand(count, generator=g) < 0.2).float(),
        )
    if masked:
        there = torch.rand(len(data.embeddings), generator=g) >= 1 / _EXCLUDED
        plain = replace(plain, allowed=there[None])
    return plain


def made_on(
    device: torch.device | str, atoms: int, dtype: torch.dtype, count: int, *, seed: int = 0
) -> tuple[dict[str, Tensor], QueryBatch]:
    """Return the buffers of a plain memory, drawn on a device, and `count` questions for it.

    For memories that are too large to build on the host. Edges conduct alike in both directions,
    without the gains and the cap of the settings.

    Args:
        device: Device of the buffers.
        atoms: Number of atoms.
        dtype: Floating-point type of the buffers.
        count: Number of questions.
        seed: Seed of the draw.
    """
    g = torch.Generator(device).manual_seed(seed)
    on: dict[str, Any] = {"device": device, "generator": g}
    concepts = max(1, atoms // 10)

    def zipf(high: int, count: int) -> Tensor:
        return (high ** torch.rand(count, **on) - 1).long().clamp_(max=high - 1)

    embeddings = torch.empty(atoms, _WIDTH, dtype=dtype, device=device)
    tokens = torch.empty(atoms * _TOKENS, _TOKEN_WIDTH, dtype=torch.int8, device=device)
    pieces = zipf(_PIECES, atoms * _TOKENS).to(torch.int32)
    frequency = torch.zeros(_PIECES, dtype=torch.int32, device=device)
    topics = max(1, atoms // _TOPIC)
    centre = torch.randn(topics, _WIDTH, **on)
    for begin in range(0, atoms, _CHUNK):
        part = slice(begin, min(atoms, begin + _CHUNK))
        some = part.stop - begin
        own = centre[torch.randint(0, topics, (some,), **on)].add_(torch.randn(some, _WIDTH, **on))
        embeddings[part] = normalize(own, dim=1)
        entries = slice(begin * _TOKENS, part.stop * _TOKENS)
        tokens[entries] = torch.randint(
            -60, 61, (some * _TOKENS, _TOKEN_WIDTH), dtype=torch.int8, **on
        )
        atom = torch.arange(some, device=device).repeat_interleave(_TOKENS)
        seen = torch.unique(atom * _PIECES + pieces[entries]) % _PIECES
        frequency += torch.bincount(seen, minlength=_PIECES).to(torch.int32)
    node = torch.arange(atoms, device=device)
    session = node // _SESSION
    later = torch.where(session[1:] == session[:-1], node[1:], -1)
    earlier = torch.where(later >= 0, node[:-1], -1)
    turn = (later >= 0).nonzero().squeeze(1)
    near = torch.randint(0, atoms, (2, 3 * atoms), **on)
    mention = torch.stack(
        [torch.randint(0, atoms, (2 * atoms,), **on), atoms + zipf(concepts, 2 * atoms)]
    )
    ends = torch.cat([torch.stack([turn, turn + 1]), near, mention], 1)
    graph = Graph.from_edges(
        torch.cat([ends, ends.flip(0)], 1),
        weight=torch.rand(ends.shape[1], **on).add_(0.05).repeat(2),
        num_nodes=atoms + concepts,
    )
    lengths = 2 + torch.randint(0, 2 * _WORDS - 3, (atoms,), **on)
    offsets = offsets_of(lengths)
    terms = zipf(_VOCABULARY, int(offsets[-1]))
    text = BM25.build(terms, offsets, _VOCABULARY, b=0.3)
    whole = BM25.build(terms, torch.cat([offsets[:-1:_SESSION], offsets[-1:]]), _VOCABULARY)
    time = _START + 3600.0 * session.double() + 60.0 * (node % _SESSION)
    day = (time // _DAY).to(torch.int32)

    def full(value: int, kind: torch.dtype, count: int = atoms) -> Tensor:
        return torch.full((count,), value, dtype=kind, device=device)

    state = {
        "embeddings": embeddings,
        "node": node.to(torch.int32),
        "atom": pad(node, (0, concepts), value=-1).to(torch.int32),
        "named": full(0, torch.uint8, _SPEAKERS),
        "kind": full(0, torch.int16),
        "speaker": torch.randint(0, _SPEAKERS, (atoms,), **on).to(torch.int32),
        "session": session.to(torch.int32),
        "time_bits": time.view(torch.int64),
        "time_order": node.to(torch.int32),
        "told_order": full(0, torch.int32, 0),
        "month": (day // 30 % 12).to(torch.int8),
        "day": (day % 30).to(torch.int8),
        "said": day,
        "told": torch.zeros(atoms, 2, dtype=torch.int32, device=device),
        "log_words": torch.log1p(lengths.float()).to(dtype),
        "is_question": (torch.randint(0, 5, (atoms,), **on) == 0).to(dtype),
        "tells_time": (torch.randint(0, 9, (atoms,), **on) == 0).to(dtype),
        "role": full(0, torch.int8),
        "previous": pad(earlier, (1, 0), value=-1).to(torch.int32),
        "next": pad(later, (0, 1), value=-1).to(torch.int32),
        "derived_source": full(0, torch.int32, 0),
        "derived_target": full(0, torch.int32, 0),
        "tokens": tokens,
        "token_offsets": torch.arange(atoms + 1, device=device) * _TOKENS,
        "piece_df": frequency,
    }
    for name in GRAPH_PARTS:
        part = getattr(graph, name)
        state[f"graph_{name}"] = part.to(dtype) if name == "weight" else part
    for prefix, lexical in (("bm25", text), ("session_bm25", whole)):
        for name in ("indptr", "docs", "counts", "norm", "idf"):
            part = getattr(lexical, name)
            floating = part.is_floating_point()
            state[f"{prefix}_{name}"] = part.to(dtype) if floating else part
    row = torch.randint(0, atoms, (count,), **on)
    return state, _copies(row, embeddings, (terms, offsets, tokens, pieces), _SPEAKERS, g)


def _copies(
    row: Tensor,  # [B] int64
    embeddings: Tensor,  # [A, d]
    texts: tuple[Tensor, Tensor, Tensor, Tensor],
    speakers: int,
    g: torch.Generator,
) -> QueryBatch:
    """Return noisy copies of some atoms; `texts` are terms, their offsets, tokens and pieces."""
    terms, offsets, tokens, pieces = texts
    count = len(row)
    on: dict[str, Any] = {"device": row.device, "generator": g}
    noise = torch.randn(count, _WIDTH, **on) / _WIDTH**0.5
    lane = torch.arange(_ASKED, device=row.device)
    length = offsets.diff()[row]
    place = offsets[row, None] + lane % length[:, None]
    token = row[:, None] * _TOKENS + lane
    words = tokens[token].float()
    words += 20 * torch.randn(words.shape, **on)
    return QueryBatch(
        embedding=normalize(embeddings[row].float() + noise, dim=1),
        terms=terms[place].where(lane < length[:, None], -1),
        tokens=normalize(words, dim=2),
        pieces=pieces[token].long(),
        speakers=torch.zeros(count, speakers, dtype=torch.bool, device=row.device),
        asks_when=torch.rand(count, **on) < 0.1,
    )
