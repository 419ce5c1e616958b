"""Every signal against a loop over questions and atoms, in both forms of candidates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
import torch

from graphmem_torch.atoms import EdgeType
from graphmem_torch.config import config_from_dict
from graphmem_torch.errors import ConfigError
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.memory.index_builder import reweighted
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import SIGNALS, check_signal_names

ATOMS, COUNT = 40, 5


class Oracle:
    """One question against one atom at a time, from the columns as they are given."""

    def __init__(self, data: IndexInput, query: QueryBatch) -> None:
        self.d, self.q = data, query
        ends = list(zip(data.edges.source.tolist(), data.edges.target.tolist(), strict=True))
        kinds = data.edges.type.tolist()
        self.next: dict[int, int] = {
            s: t for (s, t), kind in zip(ends, kinds, strict=True) if kind == EdgeType.TEMPORAL
        }
        self.previous = {t: s for s, t in self.next.items()}
        self.derived = [
            e
            for e, kind in zip(ends, kinds, strict=True)
            if kind == EdgeType.DERIVED_FROM and max(e) < ATOMS
        ]
        # What many signals ask for is worked out once.
        o = data.term_offsets.tolist()
        self.terms = [data.terms[o[a] : o[a + 1]].tolist() for a in range(ATOMS)]
        words = range(self.asked.shape[1])
        self.matches = [
            [[self.match(b, w, a) for a in range(ATOMS)] for w in words] for b in range(COUNT)
        ]
        self.shares = {
            (b, strict): self.weights(b, strict=strict)
            for b in range(COUNT)
            for strict in (False, True)
        }

        self.lexical = [
            [self.bm25(b, [[i] for i in range(ATOMS)], a, 0.3) for a in range(ATOMS)]
            for b in range(COUNT)
        ]
        self.sessions = [self.by_session(b) for b in range(COUNT)]

    @property
    def asked(self) -> torch.Tensor:
        """Return the compared parts of each question, -1 = padding."""
        return self.q.pieces  # type: ignore[return-value]

    def compared(self, atom: int) -> list[int]:
        """Return the compared parts of an atom."""
        o = self.d.token_offsets.tolist()  # type: ignore[union-attr]
        return self.d.pieces[o[atom] : o[atom + 1]].tolist()  # type: ignore[index]

    def by_session(self, b: int) -> list[float]:
        sessions = list(dict.fromkeys(tuple(self.session(a)) for a in range(ATOMS)))
        # A number that no session has is an empty document.
        known = self.d.session[self.d.session >= 0]
        empty = int(known.max()) + 1 - len(set(known.tolist()))
        documents = [*map(list, sessions), *[[] for _ in range(empty)]]
        scores = {s: self.bm25(b, documents, place, 0.75) for place, s in enumerate(sessions)}
        return [scores[tuple(self.session(a))] for a in range(ATOMS)]

    def words(self, atoms: list[int]) -> Counter[int]:
        return Counter(w for a in atoms for w in self.terms[a])

    def bm25(self, b: int, documents: list[list[int]], which: int, length_norm: float) -> float:
        counts = [self.words(document) for document in documents]
        mean = max(1.0, sum(c.total() for c in counts) / len(counts))
        score = 0.0
        for term in self.q.terms[b].tolist():  # type: ignore[index]
            tf, df = counts[which][term], sum(c[term] > 0 for c in counts)
            if term < 0 or not tf:
                continue
            norm = 1.2 * (1 - length_norm + length_norm * counts[which].total() / mean)
            idf = math.log(1 + (len(counts) - df + 0.5) / (df + 0.5))
            score += idf * tf * 2.2 / (tf + norm)
        return score

    def session(self, atom: int) -> list[int]:
        code = int(self.d.session[atom])
        same = (self.d.session == code).nonzero().squeeze(1).tolist()
        return [atom] if code < 0 else same

    def near(self, atom: int, reach: int) -> list[int]:
        found = [atom]
        for step in (self.next, self.previous):
            row: int | None = atom
            for _ in range(reach):
                row = None if row is None else step.get(row)
                found += [] if row is None else [row]
        return found

    def match(self, b: int, w: int, atom: int) -> float:
        o = self.d.token_offsets.tolist()  # type: ignore[union-attr]
        rows = self.d.tokens[o[atom] : o[atom + 1]].double() / 127  # type: ignore[index]
        if not len(rows) or int(self.q.pieces[b, w]) < 0:  # type: ignore[index]
            return 0.0
        return float((rows @ self.q.tokens[b, w].double()).max())  # type: ignore[index]

    def weights(self, b: int, *, strict: bool) -> list[float]:
        own = [self.compared(a) for a in range(ATOMS)]
        smooth, hard = [], []
        for piece in self.asked[b].tolist():
            df = sum(piece in pieces for pieces in own)
            odds = (ATOMS - df + 0.5) / (df + 0.5)
            smooth.append(math.log(1 + odds) if piece >= 0 else 0.0)
            hard.append(max(0.0, math.log(odds)) if piece >= 0 else 0.0)
        chosen = hard if strict and sum(hard) > 0 else smooth
        whole = sum(chosen) + self.lacking(b)
        return [w / whole if whole else 0.0 for w in chosen]

    def lacking(self, b: int) -> float:
        """Return the weight of asked words that no atom can have."""
        return 0.0

    def late(self, b: int, atom: int) -> float:
        """Late interaction plain and sharp, each without its trend with length."""
        length = self.units([float(self.d.log_words[a]) for a in range(ATOMS)])
        total = 0.0
        for sharp in (False, True):
            own = self.units(
                [self.interaction(b, [a], strict=sharp, sharp=sharp) for a in range(ATOMS)]
            )
            trend = sum(z * y for z, y in zip(own, length, strict=True)) / (ATOMS + 32)
            rest = math.sqrt(max(1 - trend**2, 0.1))
            total += (own[atom] - trend * length[atom]) / rest
        return total

    def units(self, values: list[float]) -> list[float]:
        mean = math.fsum(values) / len(values)
        deviation = math.sqrt(math.fsum((x - mean) ** 2 for x in values) / len(values))
        unit = max(deviation, (max(values) - mean) / 8)
        return [max(-8.0, (x - mean) / unit) if unit > 1e-6 else 0.0 for x in values]

    def interaction(
        self, b: int, atoms: list[int], *, strict: bool = True, sharp: bool = False
    ) -> float:
        """Best match of each token over some atoms; one without tokens matches with 0."""
        total = 0.0
        for w, weight in enumerate(self.shares[b, strict]):
            best = max(self.matches[b][w][a] for a in atoms)
            total += weight * (max(best, 0.0) ** 4 if sharp else best)
        return total

    def widened(self, b: int, atom: int, reach: int, *, sharp: bool = False) -> float:
        # Where a neighbour is missing, its place counts as 0.
        near = self.near(atom, reach)
        missing = len(near) < 2 * reach + 1
        total = 0.0
        for w, weight in enumerate(self.shares[b, True]):
            best = max([*(self.matches[b][w][a] for a in near), *([0.0] if missing else [])])
            total += weight * (max(best, 0.0) ** 4 if sharp else best)
        return total

    def cosine(self, b: int, a: int) -> float:
        return float(self.q.embedding[b].double() @ self.d.embeddings[a].double())

    def from_derived(self, a: int, value: Callable[[int], float]) -> float:
        sources = [s for s, _ in self.derived]
        alone = [] if 1 in map(sources.count, sources) else [value(a)]
        return max([0.0, *([value(s) for s, t in self.derived if t == a] or alone)])

    def before(self, a: int, value: Callable[[int], float]) -> float:
        return value(self.previous[a]) if a in self.previous else 0.0

    def after(self, a: int, value: Callable[[int], float]) -> float:
        return value(self.next[a]) if a in self.next else 0.0

    def speaker(self, b: int, a: int) -> float:
        named, code = self.q.speakers[b].tolist(), int(self.d.speaker[a])  # type: ignore[index]
        return 0.0 if code < 0 or not any(named) else (1.0 if named[code] else -1.0)

    def led(self, b: int, a: int) -> float:
        rows, weights = self.q.replies[b].tolist(), self.q.reply_weight[b].tolist()  # type: ignore[index]
        return max([0.0, *(w for row, w in zip(rows, weights, strict=True) if row == a)])

    def date(self, b: int, a: int) -> float:
        stamp = float(self.d.time[a])
        if math.isnan(stamp):
            return 0.0
        first, behind = self.q.span[b].tolist()  # type: ignore[index]
        within = 0.0
        if math.floor(stamp / 86400) in range(first, behind):
            within = 2.0 if behind - first <= 7 else 1.0
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(seconds=stamp)
        if not self.q.months[b, when.month - 1]:  # type: ignore[index]
            return within
        days = self.q.days[b].nonzero().squeeze(1).tolist()  # type: ignore[index]
        return 2.0 if any(abs(day + 1 - when.day) <= 1 for day in days) else max(1.0, within)

    def event(self, b: int, a: int) -> float:
        asked, told = self.q.span[b].tolist(), self.d.told[a].tolist()  # type: ignore[index]
        return float(not set(range(*asked)).isdisjoint(range(*told)))


class OracleOfWords(Oracle):
    """The same of a memory without token vectors: a term is there, or it is not."""

    @property
    def asked(self) -> torch.Tensor:
        return self.q.terms  # type: ignore[return-value]

    def compared(self, atom: int) -> list[int]:
        return self.terms[atom]

    def match(self, b: int, w: int, atom: int) -> float:
        return float(int(self.asked[b, w]) in self.terms[atom])

    def lacking(self, b: int) -> float:
        rarest = math.log(1 + (ATOMS - 1 + 0.5) / (1 + 0.5))
        return float(self.q.missing[b]) * rarest  # type: ignore[index]


def expected(o: Oracle, name: str, b: int, a: int) -> float:
    def focus(x: int) -> float:
        return o.interaction(b, [x])

    def sharp(x: int) -> float:
        return o.interaction(b, [x], sharp=True)

    def lexical(x: int) -> float:
        return o.lexical[b][x]

    values: dict[str, Callable[[], float]] = {
        "semantic": lambda: o.cosine(b, a),
        "semantic_alone": lambda: o.cosine(b, a),
        "semantic_positive": lambda: max(0.0, o.cosine(b, a)),
        "semantic_previous": lambda: o.before(a, lambda x: o.cosine(b, x)),
        "lexical": lambda: lexical(a),
        "lexical_session": lambda: o.sessions[b][a],
        "lexical_unread": lambda: (
            float(o.q.unread[b]) ** 2  # type: ignore[index]
            * lexical(a)
            / max(*(lexical(x) for x in range(ATOMS)), 1e-9)
        ),
        "interaction": lambda: o.interaction(b, [a], strict=False),
        "interaction_focus": lambda: focus(a),
        "interaction_sharp": lambda: sharp(a),
        "late": lambda: o.late(b, a),
        "interaction_window": lambda: o.widened(b, a, 1),
        "interaction_passage": lambda: o.widened(b, a, 3),
        "interaction_passage_sharp": lambda: o.widened(b, a, 3, sharp=True),
        "interaction_session": lambda: o.interaction(b, o.session(a)),
        "interaction_session_best": lambda: max(focus(x) for x in o.session(a)),
        "interaction_previous": lambda: o.before(a, focus),
        "interaction_next": lambda: o.after(a, focus),
        "interaction_sharp_previous": lambda: o.before(a, sharp),
        "interaction_answer": lambda: o.before(a, lambda x: focus(x) * bool(o.d.is_question[x])),
        "speaker": lambda: o.speaker(b, a),
        "date": lambda: o.date(b, a),
        "ended": lambda: float(o.q.ended[b, a]),  # type: ignore[index]
        "succession": lambda: float(a in o.q.followed[b].tolist()),  # type: ignore[index]
        "reply": lambda: o.led(b, a),
        "event": lambda: o.event(b, a),
        "time_expression": lambda: float(o.q.asks_when[b] and o.d.tells_time[a]),  # type: ignore[index]
        "role": lambda: float(o.d.role[a] * (-1 if o.q.recalls[b] else 1)),  # type: ignore[index]
        "length": lambda: float(o.d.log_words[a]),
        "question": lambda: float(o.d.is_question[a]),
        "derived_semantic": lambda: o.from_derived(a, lambda x: max(0.0, o.cosine(b, x))),
        "derived_late": lambda: o.from_derived(a, lambda x: o.late(b, x)),
        "derived_lexical": lambda: o.from_derived(a, lexical),
        "derived_interaction": lambda: o.from_derived(a, focus),
        "derived_sharp": lambda: o.from_derived(a, sharp),
    }
    return values[name]()


# In test_routing.py, test_hops.py, tests/index/test_retrieve*.py and tests/memory/test_modes.py.
GRAPH = {"activation", "pagerank", "proximity", "bridge", "mode", "traversal"}
GRAPH |= {"decay", "decayed_pagerank", "personalized_pagerank", "strength"}
GRAPH |= {"title_hop", "entity_hop", "titled", "named", "hop", "inverse_resistance", "sign_change"}


@pytest.fixture(scope="module")
def asked(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> tuple[MemoryIndex, QueryBatch, Oracle]:
    """An index, its questions, and what stands in both."""
    ended = (torch.arange(COUNT)[:, None] + torch.arange(ATOMS)) % 3 == 0
    led = torch.arange(COUNT)[:, None] * torch.tensor([1, 3]) % ATOMS
    led[0, 1] = -1
    weight = torch.tensor([0.5, 1.0]).repeat(COUNT, 1)
    own = replace(
        random_questions(COUNT), ended=ended, followed=led, replies=led, reply_weight=weight
    )
    data, query = random_columns(ATOMS), own
    return MemoryIndex.build(data, config_from_dict({})), query, Oracle(data, query)


@pytest.fixture(scope="module")
def asked_words(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> tuple[MemoryIndex, QueryBatch, Oracle]:
    """The same without token vectors."""
    none = dict.fromkeys(("tokens", "pieces", "token_offsets"))
    data = replace(random_columns(ATOMS), **none, num_pieces=0)
    missing = torch.arange(COUNT) % 3.0
    query = replace(random_questions(COUNT), tokens=None, pieces=None, missing=missing)
    return MemoryIndex.build(data, config_from_dict({})), query, OracleOfWords(data, query)


@pytest.mark.parametrize("name", sorted(SIGNALS.keys() - GRAPH - {"semantic_alone"}))
def test_signals_one_by_one(name: str, asked: tuple[MemoryIndex, QueryBatch, Oracle]) -> None:
    check_signal(name, *asked)


OF_WORDS = {name for name in SIGNALS if "interaction" in name or "sharp" in name}
OF_WORDS |= {"late", "derived_late"}


@pytest.mark.parametrize("name", sorted(OF_WORDS | {"semantic_alone"}))
def test_signals_without_token_vectors(
    name: str, asked_words: tuple[MemoryIndex, QueryBatch, Oracle]
) -> None:
    check_signal(name, *asked_words)


def test_a_signal_of_words_is_none_beside_token_vectors(
    asked: tuple[MemoryIndex, QueryBatch, Oracle],
    asked_words: tuple[MemoryIndex, QueryBatch, Oracle],
) -> None:
    config = config_from_dict({"rank": {"weights": {"lexical": 1.0, "semantic_alone": 0.5}}})
    for (index, *_), names in ((asked, ("lexical",)), (asked_words, ("lexical", "semantic_alone"))):
        assert reweighted(index, config).signal_names == names


def check_signal(name: str, index: MemoryIndex, query: QueryBatch, oracle: Oracle) -> None:
    truth = torch.tensor(
        [[expected(oracle, name, b, a) for a in range(ATOMS)] for b in range(COUNT)]
    )
    everyone = Candidates(index.tensors, query, index.config)
    got = SIGNALS[name].compute(everyone).expand(COUNT, ATOMS)
    torch.testing.assert_close(got, truth, rtol=1e-4, atol=1e-5)
    assert truth.abs().max() > 0, "the test would pass with zeros"
    padded = torch.cat([torch.full((COUNT, 3), -1), torch.arange(ATOMS).expand(COUNT, -1)], dim=1)
    got = (
        Candidates(index.tensors, query, index.config, padded)
        .signal(name)
        .expand(COUNT, ATOMS + 3)[:, 3:]
    )
    torch.testing.assert_close(got, truth, rtol=1e-4, atol=1e-5)


def test_signals_are_zero_where_nothing_is_known(random_columns: Callable[..., IndexInput]) -> None:
    index = MemoryIndex.build(random_columns(ATOMS), config_from_dict({}))
    found = Candidates(index.tensors, QueryBatch(torch.zeros(2, 16)), index.config)
    attributes = {"length", "question", "role", "pagerank", "decay", "strength"}
    for name in SIGNALS.keys() - attributes:
        assert not found.signal(name).any(), name


def test_check_signal_names_unknown() -> None:
    with pytest.raises(
        ConfigError, match=r"signal: expected .* got 'lexcal'; did you mean 'lexical'\?"
    ):
        check_signal_names(["semantic", "lexcal"])
