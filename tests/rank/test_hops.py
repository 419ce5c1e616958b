"""Hops along title mentions and shared entities, against loops over questions and memories."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory import Memory
from graphmem_torch.rank.hops import (
    dense_entity_hop,
    dense_hop_lifts,
    dense_title_hop,
    entity_hop,
    hop_lifts,
    hop_parts,
    name_key,
    named_keys,
    title_hop,
)
from graphmem_torch.rank.registry import SIGNALS, reading, signal_names

Words = list[tuple[int, ...]]


class Case:
    """A random memory as plain lists; words come from few, so that titles are often mentioned."""

    def __init__(self, seed: int, *, atoms: int = 40, concepts: int = 30, words: int = 60) -> None:
        g = torch.Generator().manual_seed(seed)

        def draw(high: int, count: int) -> tuple[int, ...]:
            return tuple(torch.randint(0, high, (count,), generator=g).tolist())

        lengths = draw(14, atoms)
        self.texts: Words = [draw(words, n) for n in lengths]
        self.title = [
            min(size - 1, length) for size, length in zip(draw(5, atoms), lengths, strict=True)
        ]
        for atom, other in enumerate(draw(atoms, atoms)):  # every atom mentions a title, if any
            self.texts[atom] += self.texts[other][: max(0, self.title[other])]
        self.names: Words = [draw(words, n) for n in draw(3, concepts)]
        self.about = set(zip(draw(atoms, 60), draw(concepts, 60), strict=True))
        # The first questions name much of the memory, the others nothing or little.
        much = sum([*self.names[:15], *self.texts[:12]], ())
        self.questions: Words = [much, (), draw(words, 9), draw(words, 1)]
        self.anchors = torch.randint(-1, atoms, (4, 3), generator=g)
        self.value = torch.rand(4, 3, generator=g)

    def found(
        self,
        hop: Callable[..., object],
        *,
        named: bool = True,
        seeds: list[list[int]] | None = None,
        value: Tensor | None = None,
    ) -> Tensor:
        value = self.value if value is None else value
        terms, offsets = _packed(self.texts)
        twice = sorted(self.about) * 2  # an edge may be there more than once
        pairs = torch.tensor(twice, dtype=torch.int64).reshape(-1, 2)
        about = pairs[:, 0], pairs[:, 1]
        parts = hop_parts(
            terms,
            offsets,
            torch.tensor(self.title),
            about,
            *_packed(self.names),
        )
        width = max(map(len, self.questions))
        asked = torch.full((len(self.questions), width), -1)
        for row, words in zip(asked, self.questions, strict=True):
            row[: len(words)] = torch.tensor(words)
        found_keys = named_keys(asked)
        keys = found_keys[0] if named and found_keys is not None else None
        more = []
        if seeds is not None:
            known = [
                [name_key(torch.tensor(self.names[c], dtype=torch.int64)) for c in row]
                for row in seeds
            ]
            more = [(torch.tensor(known), value.amax(1, keepdim=True))]
        found = hop(parts, self.anchors, value, keys, *more)
        return found if isinstance(found, Tensor) else found.to_dense()  # type: ignore[attr-defined]

    def by_title(self) -> Tensor:
        atoms = len(self.texts)
        title = [
            text[:n] if n > 0 else None for text, n in zip(self.texts, self.title, strict=True)
        ]
        holders = {t: [i for i, other in enumerate(title) if other == t] for t in title if t}
        told = {t: {p for p in range(atoms) if _within(t, self.texts[p])} for t in holders}
        usable = [t for t in holders if len(told[t]) <= 2 and len(holders[t]) <= 8]
        out = torch.zeros(len(self.questions), atoms)
        for b, question in enumerate(self.questions):
            for p, w in zip(self.anchors[b].tolist(), self.value[b].tolist(), strict=True):
                if p < 0:
                    continue
                inside = [t for t in usable if p in told[t] and title[p] != t]
                for t in inside:
                    if not _within(t, question):
                        for q in holders[t]:
                            out[b, q] = max(float(out[b, q]), w / math.sqrt(len(inside)))
        return out

    def by_entity(self, seeds: list[list[int]] | None = None) -> Tensor:
        atoms = len(self.texts)
        df = {c: len({a for a, other in self.about if other == c}) for _, c in self.about}
        x = torch.zeros(atoms, len(self.names), dtype=torch.float64)
        for a, c in self.about:
            if 2 <= df[c] <= 2:
                x[a, c] = math.log(atoms / df[c])
        x = torch.nn.functional.normalize(x, dim=1)
        out = [[0.0] * atoms for _ in self.questions]
        for b, (best, question) in enumerate(zip(out, self.questions, strict=True)):
            own = [c for c, name in enumerate(self.names) if name and _within(name, question)]
            for p, w in zip(self.anchors[b].tolist(), self.value[b].tolist(), strict=True):
                rest = x[p].clone()
                rest[own] = 0
                for c, shared in enumerate((x @ rest).tolist()):
                    if p >= 0 and c != p and self.title[c] >= 0:
                        best[c] = max(best[c], w * math.sqrt(shared))
            for entity in seeds[b] if seeds else ():
                alike = [c for c, name in enumerate(self.names) if name == self.names[entity]]
                for c, nearest in enumerate(x[:, alike].amax(1).tolist()):
                    if self.title[c] >= 0 and self.names[entity]:
                        best[c] = max(best[c], float(self.value[b].max()) * math.sqrt(nearest))
        return torch.tensor(out)


def _packed(texts: Words) -> tuple[Tensor, Tensor]:
    flat = torch.tensor([word for text in texts for word in text], dtype=torch.int64)
    counts = torch.tensor([len(text) for text in texts], dtype=torch.int64)
    return flat, torch.nn.functional.pad(counts.cumsum(0), (1, 0))


def _within(name: tuple[int, ...], text: tuple[int, ...]) -> bool:
    return any(text[i : i + len(name)] == name for i in range(len(text) - len(name) + 1))


@pytest.mark.parametrize("seed", range(12))
def test_title_hop_is_the_loop_over_mentions(seed: int) -> None:
    case = Case(seed)
    for hop in (title_hop, dense_title_hop):
        torch.testing.assert_close(case.found(hop), case.by_title())


@pytest.mark.parametrize("seed", range(12))
def test_entity_hop_is_the_loop_over_entities(seed: int) -> None:
    case = Case(seed)
    for hop in (entity_hop, dense_entity_hop):
        torch.testing.assert_close(case.found(hop), case.by_entity())


@pytest.mark.parametrize("hop", [title_hop, entity_hop, dense_title_hop, dense_entity_hop])
def test_hops_have_the_gradient_of_their_finite_differences(hop: Callable[..., object]) -> None:
    """In what the anchors are worth."""
    case = Case(7)
    value = case.value.double().requires_grad_()
    found = case.found(hop, value=value, named=False)
    assert found.count_nonzero() > 3
    torch.autograd.gradcheck(
        lambda given: case.found(hop, value=given, named=False), (value,), fast_mode=True
    )
    (slope,) = torch.autograd.grad(found.sum(), value)
    assert float(slope.abs().max()) > 0


@pytest.mark.parametrize("seed", range(12))
def test_entity_hop_from_seeds_is_the_loop_over_them(seed: int) -> None:
    case = Case(seed)
    named = sorted({c for _, c in case.about})
    seeds = [named[:3], named[3:6], [named[0]] * 3, named[-3:]]
    found = case.found(entity_hop, seeds=seeds)
    torch.testing.assert_close(found, case.by_entity(seeds))
    assert (found >= case.found(entity_hop)).all()


def test_hops_of_the_loops_have_something_to_find() -> None:
    cases = [Case(seed) for seed in range(12)]
    assert sum(int((c.by_title() > 0).sum()) for c in cases) > 10
    assert sum(int((c.by_entity() > 0).sum()) for c in cases) > 10
    many = [[[*range(10)]] * 4, None]
    assert len({sum(float(c.by_entity(seeds).sum()) for c in cases) for seeds in many}) == 2
    # And the questions hide some of it.
    assert any((c.found(title_hop, named=False) > c.by_title() + 1e-6).any() for c in cases)
    assert any((c.found(entity_hop, named=False) > c.by_entity() + 1e-6).any() for c in cases)


@pytest.mark.parametrize("hop", [title_hop, entity_hop, dense_title_hop, dense_entity_hop])
def test_hops_with_nothing_to_go_from_or_to(hop: Callable[..., object]) -> None:
    case = Case(0)
    case.anchors = torch.full((4, 3), -1)
    assert not case.found(hop).any()
    case = Case(0)
    case.title = [-1] * len(case.title)
    assert not case.found(hop).any()
    case = Case(0, concepts=1)
    case.names, case.about = [], set()
    assert case.found(hop).shape == (4, 40)


def test_hops_index_without_documents_ranks_as_without_their_signals(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., dict[str, Tensor]]
) -> None:
    config = load_config("default")
    index = MemoryIndex.build(random_columns(atoms=50), config)
    of_documents = reading(SIGNALS, "hops", "lifts", "documents")
    assert set(of_documents).isdisjoint(index.signal_names)
    assert {"hop", "named"} < set(signal_names(config.rank.weights))
    assert index.hop_document is None


PASSAGES = [
    Atom("film", "Silent Harbour\nA film of 1962, directed by Orla Venn and shot in Malta."),
    Atom("person", "Orla Venn\nShe was born in the town of Quillfort."),
    Atom("town", "Quillfort\nThe town lies on the river Brack."),
    *(Atom(f"other{i}", f"Subject {i}\nNothing that matters, number {i}.") for i in range(20)),
]


def test_hop_leads_to_the_document_and_ends_behind_its_anchor() -> None:
    with Memory.open(None, embedder="hashing:64", device="cpu") as memory:
        memory.add(PASSAGES)
        question = "Where was the director of the film Silent Harbour born?"
        hits = {hit.id: hit for hit in memory.retrieve(question, k=23).hits}
        assert hits["person"].signals["hop"] > 0
        assert hits["film"].raw > hits["person"].raw > hits["other1"].raw
        assert hits["person"].raw == pytest.approx(sum(hits["person"].signals.values()), abs=1e-4)
        # The question names it: no bridge is needed.
        named = {hit.id: hit for hit in memory.retrieve(f"{question} Orla Venn", k=23).hits}
        assert named["person"].signals["hop"] == 0
        atoms = memory.index.num_atoms
        assert int(memory.index.hop_document.sum()) == atoms == len(PASSAGES)


@pytest.mark.parametrize("seed", range(6))
def test_hop_lifts_are_the_loop_over_anchors(seed: int) -> None:
    case = Case(seed)
    strength = torch.rand(4, 2, generator=torch.Generator().manual_seed(seed)) + 0.5
    whole, value = torch.zeros(4, 3, 40), case.value
    for place in range(3):  # one anchor at a time: nothing is the largest of several
        case.value = torch.zeros(4, 3)
        case.value[:, place] = value[:, place]
        by_title, by_entity = case.by_title(), case.by_entity()
        whole[:, place] = strength[:, :1] * by_title + strength[:, 1:] * by_entity
    case.value = value

    def dense(*given: object) -> Tensor:
        parts, anchors, own, named = given
        return dense_hop_lifts(parts, anchors, own, strength, named)  # type: ignore[arg-type]

    def sparse(*given: object) -> Tensor:
        parts, anchors, own, named = given
        found = hop_lifts(parts, anchors, own, strength, named)  # type: ignore[arg-type]
        panel = torch.zeros(4, 3, 40)
        panel[found.row, found.place, found.target] = found.value
        return panel

    assert whole.any()
    for lifts in (dense, sparse):
        torch.testing.assert_close(case.found(lifts), whole)


@pytest.mark.parametrize("limit", [4096, 8])
def test_hop_raises_are_the_loop_over_anchors_and_documents(limit: int) -> None:
    """min(s(c) + lift, s(a) - 0.001) by hand, where all are candidates and where few are."""
    config = load_config("default", {"rank.exhaustive_up_to": limit, "rank.candidates": 4})
    with Memory.open(None, config=config, embedder="hashing:64", device="cpu") as memory:
        memory.add(PASSAGES)
        questions = [
            "Where was the director of the film Silent Harbour born?",
            "Quillfort and Malta?",
        ]
        found = memory.index.candidates(memory.tensors.encode(questions))
        names = memory.index.signal_names
        base = [i for i, name in enumerate(names) if not SIGNALS[name].graph]
        values = found.signals(names)
        score = (values[:, :, base] * memory.index.weights[0, base]).sum(2)
        assert (found.rows is None) is (limit > 100)
        lifts, anchors, raised = found.reached.lifts, found.reached.anchors, 0
        for b in range(2):
            rows = range(found.shape[1]) if found.rows is None else found.rows[b].tolist()
            own = {row: float(score[b, place]) for place, row in enumerate(rows) if row >= 0}
            for place, c in enumerate(rows):
                best = 0.0
                for row, slot, target, lift in zip(*map(Tensor.tolist, lifts), strict=True):
                    if row == b and target == c:
                        a = own[int(anchors[b, slot])]
                        best = max(best, min(own[c] + lift, a - 0.001) - own[c])
                assert float(found.signal("hop")[b, place]) == pytest.approx(best, abs=1e-4)
                raised += best > 0
        assert raised >= 2


def test_named_is_the_share_of_the_question() -> None:
    with Memory.open(None, embedder="hashing:64", device="cpu") as memory:
        memory.add(PASSAGES)
        twins = [Atom(f"twin{i}", f"Grey Heron\nA bird, number {i}.") for i in range(3)]
        memory.add([*twins, *(Atom(f"two{i}", f"Red Kite\nA bird of prey {i}.") for i in range(2))])
        words = "one two three four five six seven eight nine ten eleven twelve Quillfort"
        questions = ["Was Orla Venn at Quillfort?", "The Grey Heron", "The Red Kite", words]
        found = memory.index.candidates(memory.tensors.encode(questions))
        rows = memory.tensors.rows(["person", "town", "twin0", "two0", "two1"])
        assert found.signal("named")[:, rows[:2]].tolist()[0] == [1.0, 1.0]
        assert found.signal("named")[:, rows[2:]].tolist()[1:3] == [[0, 0, 0], [0, 1, 1]]
        # Words that the memory lacks count as the rarest: here one of 13 is named.
        query, bm25 = found.query, memory.index.tensors.bm25
        atoms = memory.index.num_atoms
        known = [term for term in query.terms[3].tolist() if term >= 0]
        rarest = math.log(1 + (atoms - 0.5) / 1.5)
        whole = sum(float(bm25.idf[term]) for term in known) + float(query.missing[3]) * rarest
        (town,) = (term for term in known if term in query.terms[0].tolist())
        share = float(bm25.idf[town]) / whole / 0.15
        assert share < 1
        assert float(found.signal("named")[3, rows[1]]) == pytest.approx(share, rel=1e-4)


def test_titled_is_what_the_question_names() -> None:
    with Memory.open(None, embedder="hashing:64", device="cpu") as memory:
        memory.add([*PASSAGES, Atom("turn", "I saw Silent Harbour by Orla Venn.", speaker="Ann")])
        questions = ["Was orla venn at Quillfort, or silent?", "Subject 1 Subject 12", "Nothing"]
        found = memory.index.candidates(memory.tensors.encode(questions))
        named = [{"person", "town"}, {"other1", "other12"}, set()]
        ids = [*(atom.id for atom in PASSAGES), "turn"]
        rows = memory.tensors.rows(ids)
        for b, wanted in enumerate(named):
            titled = found.signal("titled")[b, rows].tolist()
            assert {name for name, value in zip(ids, titled, strict=True) if value} == wanted
        signals = found.signals(["hop", "named"])
        assert not signals[:, memory.tensors.rows(["turn"])].any()


def test_hop_parts_documents_of_several_chunks_and_turns_are_none() -> None:
    with Memory.open(None, embedder="hashing:64", device="cpu") as memory:
        memory.add([Atom(f"d#{i}", f"Heading {i}\nText {i}.", session="d") for i in range(3)])
        memory.add([Atom("turn", "My list\nof things", speaker="Ann")])
        assert memory.index.hop_document is None


def test_hop_parts_are_in_the_snapshot(tmp_path: object) -> None:
    def asked(atoms: list[Atom]) -> list[tuple[str, float]]:
        with Memory.open(str(tmp_path), embedder="hashing:64", device="cpu") as memory:
            memory.add(atoms)
            found = memory.retrieve("Where was the director of Silent Harbour born?", k=9)
            return [(hit.id, hit.score) for hit in found.hits]

    first, again = asked(PASSAGES), asked([])
    assert [name for name, _ in first] == [name for name, _ in again]
    assert [s for _, s in first] == pytest.approx([s for _, s in again], abs=1e-5)
