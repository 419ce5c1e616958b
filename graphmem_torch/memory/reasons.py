"""Reasons: the largest shares of a hit's score, in words.

Reasons come from the signal that carried the hit: the terms that the lexical index matched, the
anchor and the entities of a hop, the edges of a path. Nothing is computed again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from graphmem_torch.atoms import CONCEPT, Atom
from graphmem_torch.index.retrieve import Retrieval
from graphmem_torch.memory.index_builder import Snapshot
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.results import Hit
from graphmem_torch.text.terms import shared_words, terms

__all__ = ["Hop", "Reasons", "hop_nodes", "weighed_terms"]

_MOST = 3  # reasons for a hit
_LEAST = 0.1  # minimum share of the positive score for a reason to be listed
_WORDS, _NEAR = 4, 0.35  # maximum words of a reason; minimum weight relative to the heaviest
_CLIPPED = 40  # maximum characters of a memory in a reason
_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")


@dataclass(frozen=True, slots=True)
class Hop:
    """A hop that led to a document.

    Attributes:
        start: Memory from which it starts.
        entities: Concepts of both, the heaviest first; empty if the memory mentions the title of
            the document.
    """

    start: Atom
    entities: tuple[Atom, ...]

    def told(self, text: str) -> str:
        """Return the hop in words, to a document with this text."""
        names = " and ".join(_as_written(each.text, text) for each in self.entities)
        start = _clipped(self.start)
        return f"two hops by {names}, from “{start}”" if names else f"“{start}” mentions its title"


@dataclass(frozen=True, slots=True, eq=False)
class Reasons:
    """The grounds of the hits of one question (`results.Grounds`).

    terms: Weights (idf) of the question's terms that the memory has.
    missing: Weight of the terms that it does not have.
    hops: Hops that led to hits, by id of the hit.
    passed: Memories and concepts on the paths to hits, by id.
    """

    terms: Mapping[str, float]
    missing: float
    hops: Mapping[str, Hop]
    passed: Mapping[str, Atom]

    def reasons(self, hit: Hit) -> tuple[str, ...]:
        """Return the reasons of a hit; see `results.Hit.why`."""
        matched = shared_words(hit.text, self.terms)
        total = sum(self.terms.values()) + self.missing
        has = set(terms(hit.text)).intersection(self.terms)
        same = sum(self.terms[term] for term in has) / total if total > 0 else 0.0
        shares: dict[str, float] = {}
        for name, share in hit.signals.items():
            kind = _KINDS.get(name, name)
            # Late interaction is exact where words are equal, and similarity elsewhere.
            words = same if kind == "late" else 1.0
            kind = "words" if kind == "late" else kind
            if kind == "words" and not matched:
                kind = "meaning"
            shares[kind] = shares.get(kind, 0.0) + words * share
            if words < 1.0:
                shares["meaning"] = shares.get("meaning", 0.0) + (1.0 - words) * share
        ended = shares.pop("ended", 0.0) < 0
        told = {kind: share for kind, share in shares.items() if share > 0 and kind not in _UNTOLD}
        least = _LEAST * sum(told.values())
        kinds = [kind for kind, share in sorted(told.items(), key=_by_share) if share >= least]
        said: dict[str, None] = {}
        for kind in kinds:
            if kind == "words":
                reason = _same_words(matched, hit, named="speaker" in kinds)
            elif kind == "hop":
                reason = self.hops[hit.id].told(hit.text) if hit.id in self.hops else ""
            elif kind == "linked":
                reason = self._linked(hit)
            else:
                reason = _SENTENCES[kind](hit) if kind in _SENTENCES else kind.replace("_", " ")
            said |= {reason: None} if reason else {}
        if matched and not any(shares.values()):  # a single memory, or all with equal scores
            said = {_same_words(matched, hit, named=False): None}
        first = [*said][: _MOST - ended]
        return (*first, "superseded: no longer true") if ended else tuple(first)

    def _linked(self, hit: Hit) -> str:
        """Return the path that brought activation, in words."""
        if not hit.path:
            return ""
        start = self.passed.get(hit.path[0].source)
        places = [self.passed.get(step.source) for step in hit.path[1:]]
        names = [
            _as_written(each.text, hit.text)
            for each in places
            if each is not None
            and each.kind == CONCEPT
            and each.text.casefold() in hit.text.casefold()
        ]
        begin = f" from “{_clipped(start)}”" if start is not None else ""
        if len(hit.path) == 1:
            return f"linked ({hit.path[0].type.replace('_', ' ')}){begin.replace(' from', ' to')}"
        by = f" by {' and '.join(names)}," if names else ""
        count = len(hit.path)
        return f"{_NUMBERS[count] if count < len(_NUMBERS) else count} hops{by}{begin}"


def _by_share(item: tuple[str, float]) -> float:
    return -item[1]


def _same_words(matched: Sequence[tuple[str, float]], hit: Hit, *, named: bool) -> str:
    """Return the heaviest words; without a speaker who is shown beside them."""
    said = hit.speaker.casefold().split() if named and hit.speaker else []
    kept = [(word, weight) for word, weight in matched if word.casefold() not in said]
    if not kept:
        return ""
    best = kept[0][1]
    words = [word for word, weight in kept[:_WORDS] if weight >= _NEAR * best]
    return f"same {'word' if len(words) == 1 else 'words'}: {', '.join(words)}"


def _said_by(hit: Hit) -> str:
    if not hit.speaker:
        return ""
    article = "the " if hit.speaker in ("user", "assistant") else ""
    return f"said by {article}{hit.speaker}"


def _dated(hit: Hit) -> str:
    if hit.time is None:
        return "from the month or days asked for"
    day = datetime.fromtimestamp(hit.time, UTC)
    return f"from the month or days asked for: {day.day} {day:%B %Y}"


def _titled(hit: Hit) -> str:
    title = "" if hit.title is None else f": {hit.title}"
    return f"the question names its title{title}"


def _plain(text: str) -> Callable[[Hit], str]:
    return lambda _: text


_SENTENCES: Mapping[str, Callable[[Hit], str]] = {
    "meaning": _plain("close in meaning"),
    "around": _plain("fits with the conversation around it"),
    "previous": _plain("follows a turn that matches"),
    "answer": _plain("answers the turn before"),
    "speaker": _said_by,
    "date": _dated,
    "event": _plain("tells of the days asked for"),
    "when": _plain("says when"),
    "title": _titled,
    "derived": _plain("what was derived from it matches"),
    "reply": _plain("was said after the same question"),
    "succession": _plain("was so before or after what the question names"),
    "near": _plain("near the best matches in the graph"),
    "bridge": _plain("joins two groups of memories"),
    "theme": _plain("of the same theme"),
    "fresh": _plain("used lately"),
}

_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("lexical", "lexical_unread"), "words"),
    **dict.fromkeys(("semantic", "semantic_positive", "semantic_alone"), "meaning"),
    **dict.fromkeys(("late", "interaction", "interaction_focus", "interaction_sharp"), "late"),
    **dict.fromkeys(("interaction_window", "interaction_passage"), "around"),
    **dict.fromkeys(("interaction_passage_sharp", "interaction_next"), "around"),
    **dict.fromkeys(("interaction_previous", "interaction_sharp_previous"), "previous"),
    "semantic_previous": "previous",
    "interaction_answer": "answer",
    "inverse_resistance": "near",
    "sign_change": "bridge",
    **dict.fromkeys(("interaction_session", "interaction_session_best"), "around"),
    "lexical_session": "around",
    **dict.fromkeys(("speaker", "role"), "speaker"),
    "time_expression": "when",
    **dict.fromkeys(("named", "titled"), "title"),
    **dict.fromkeys(("hop", "title_hop", "entity_hop"), "hop"),
    **dict.fromkeys(("activation", "personalized_pagerank", "decayed_pagerank"), "linked"),
    **dict.fromkeys((f"derived_{n}" for n in ("interaction", "late", "sharp")), "derived"),
    **dict.fromkeys(("derived_semantic", "derived_lexical"), "derived"),
    "traversal": "meaning",
    "pagerank": "central",
    "proximity": "near",
    "mode": "theme",
    **dict.fromkeys(("decay", "strength"), "fresh"),
}
"""Kind of reason of each signal; an unlisted signal is its own kind."""

_UNTOLD = frozenset({"length", "question", "central"})
"""Signals independent of the question: they decide between hits and are no reasons."""


def hop_nodes(snapshot: Snapshot, found: Retrieval) -> dict[tuple[int, int], list[int]]:
    """Return nodes by question and row of a hit: the anchor of its hop, and the entities."""
    if snapshot.index.tensors.hops is None:
        return {}
    places = (found.hops[:, :, 0] >= 0).nonzero()
    if not len(places):
        return {}
    question, place = places.unbind(1)
    led, rows = found.hops[question, place].cpu(), found.rows[question, place]
    node = snapshot.node[led[:, 0]].tolist()
    entity = led[:, 1:].clone()
    entity[entity >= 0] = snapshot.concept[entity[entity >= 0]]
    keys = zip(question.tolist(), rows.tolist(), strict=True)
    return {
        key: [begin, *(each for each in names if each >= 0)]
        for key, begin, names in zip(keys, node, entity.tolist(), strict=True)
    }


def weighed_terms(snapshot: Snapshot, query: QueryBatch) -> list[tuple[dict[str, float], float]]:
    """Return for each question the idf of its terms, and that of those the memory lacks."""
    asked, memory = query.terms, snapshot.index.tensors
    if asked is None:
        return [({}, 0.0)] * len(query)
    idf = memory.bm25.idf.float()[asked.clamp(min=0)].tolist()
    missing = [0.0] * len(query) if query.missing is None else query.missing.tolist()
    rarest = memory.rarest
    return [
        (dict(zip(snapshot.vocabulary.spell([n for n in row if n >= 0]), own, strict=False)), lost)
        for row, own, lost in zip(
            asked.tolist(), idf, [rarest * each for each in missing], strict=True
        )
    ]


def _as_written(name: str, text: str) -> str:
    """Return a name as a text first writes it; unchanged if the text lacks it."""
    found = re.search(re.escape(name), text, re.IGNORECASE)
    return name if found is None else found[0]


def _clipped(atom: Atom) -> str:
    """Return the title of a memory, or the beginning of its text."""
    text = " ".join((atom.title or atom.rendered).split())
    return text if len(text) <= _CLIPPED else text[: _CLIPPED - 1].rstrip() + "…"
