"""Insight particles: a memory with its signifiers, resonance keys and relations.

A particle is not stored: it is read from the atom, its edges, times and uses, and an oracle's
earlier answers (`docs/mathematics.md` 5.3). Without an answer, rules read signifiers and keys from
the text, where the paper uses a language model (Cognitive Weave, section 3.2). Their cues are
English; in other texts (`text.words.foreign`) they read only marks of questions.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from graphmem_torch.atoms import CONCEPT, SIGNIFIERS, Atom, EdgeType
from graphmem_torch.lazy import lazy_pattern
from graphmem_torch.memory.mentions import own_mentions
from graphmem_torch.oracle import Extractor, ask_extractor
from graphmem_torch.results import Particle, Understood, Validity
from graphmem_torch.store import MemoryStore
from graphmem_torch.text.question import asks, tells_time, without_links
from graphmem_torch.text.sentences import split_sentences
from graphmem_torch.text.terms import STOP_WORDS, terms
from graphmem_torch.text.times import told_days
from graphmem_torch.text.words import foreign, pairs, words

__all__ = ["KEYS", "Insight", "read_insight", "to_particles", "understand_nodes"]

_ASKED = 64  # atoms of a call and a transaction, lost if the oracle fails
_IMPRINT = ("agent_state", "environment")  # fields of `meta` in the imprint
_WORTH = ("value", "relevance", "complexity")  # more such fields, of aggregates

KEYS = 8
"""Maximum resonance keys of a text."""

_DAY = 86_400.0
_READ = 2000  # maximum characters, to limit the cost of long chunks
_PAST = (
    r"(?:was|were|had|did|went|got|took|made|said|told|came|saw|bought|met|found|left|gave|began"
    r"|ran|felt|sent|brought|wrote|won|lost|heard|broke|built|spoke|spent|taught|caught|drove|ate"
    r"|chose|sold|paid|sang|swam|led|[a-z]{2,}[^e\W]ed)"
)
_CUES: Mapping[str, re.Pattern[str]] = {
    "hypothesis": lazy_pattern(
        r"\b(?:maybe|perhaps|might|possibly|probably|presumably|i (?:think|guess|suppose|suspect)"
        r"|could be|not sure|it seems|if (?:only|it|he|she|they|i|we) )\b"
    ),
    "plan": lazy_pattern(
        r"\b(?:going to|gonna|plan(?:s|ning|ned)? (?:to|on)|intend(?:s|ing)? to|hop(?:e|es|ing) to"
        r"|want(?:s)? to|look(?:s|ing)? forward to|scheduled|next (?:week|month|year|weekend|spring"
        r"|summer|autumn|fall|winter|\w+day)|tomorrow|(?:i|we|he|she|they)(?:'ll| will))\b"
    ),
    "preference": lazy_pattern(
        r"\b(?:loves?|likes?|prefers?|favou?rites?|enjoys?|hates?|dislikes?|can't stand"
        r"|(?:big |huge )?fan of|rather have|allergic to)\b"
    ),
    "event": lazy_pattern(
        r"(?:\b(?:i|we|he|she|they|it|who)|^\w+)"
        rf"(?:'ve| also| just| have| has| had| recently)* {_PAST}\b"
    ),
    "instruction": lazy_pattern(
        r"^(?:please\b|always\b|never\b|do not\b|don't\b|make sure\b|remember to\b|(?:you )?must\b"
        r"|add|ask|avoid|call|check|choose|click|close|create|delete|ensure|follow|give|keep|list"
        r"|open|press|put|remove|run|save|select|send|set|start|stop|use|verify|write)\b"
    ),
}


@dataclass(frozen=True, slots=True)
class Insight:
    """Signifiers and keys of a text.

    Attributes:
        signifiers: Names from `SIGNIFIERS`, in that order.
        keys: Resonance keys by decreasing weight.
        importance: Importance in [0, 1]; None: unknown.
    """

    signifiers: tuple[str, ...]
    keys: tuple[str, ...] = ()
    importance: float | None = None


def read_insight(text: str, names: Sequence[str] = ()) -> Insight:
    """Read the signifiers and keys of a text by rules.

    Args:
        text: Any text.
        names: Concepts that it mentions, used as first keys. The less common words of the text
            follow, in order. Each is written in its most frequent form, in lower case unless it is
            a name.
    """
    text = text[:_READ]
    found = {"question"} if asks(text) else set[str]()
    if not foreign(text, STOP_WORDS):
        sentences = [each.strip() for each in split_sentences(text.replace("\u2019", "'"))]
        # A single word is no assertion.
        told = [s.lower() for s in sentences if len(terms(s)) > 1 and not asks(s)]
        for name, cue in _CUES.items():
            if any(cue.search(each) for each in told):
                found.add(name)
        if "event" not in found and any(tells_time(each) for each in told) and "plan" not in found:
            found.add("event")
        # Questions, requests and suppositions are no assertions.
        if told and not found & {"hypothesis", "instruction"}:
            found.add("assertion")
    return Insight(tuple(name for name in SIGNIFIERS if name in found), _keys(text, names))


def _keys(text: str, names: Sequence[str]) -> tuple[str, ...]:
    """Return the keys of a text in its own words: names first, then other words."""
    plain = without_links(unicodedata.normalize("NFKC", text).replace("\u2019", "'"))
    proper = _proper(plain)
    forms: dict[str, Counter[str]] = {}
    spoken = {*terms(plain)}
    for word in words(plain):
        for part in [sign for sign in pairs(word) if len(sign) > 1] or [word]:
            # Alone, a word of another language may get other stems; keep those of the text.
            stems = [stem for stem in terms(part) if stem in spoken]
            if stems:
                form = part if part in proper else part.lower()
                forms.setdefault(stems[-1], Counter())[form] += 1
    own = {stem for name in names for stem in terms(name)}
    shown = [_as_written(name, plain, proper) for name in names]
    shown += [written.most_common(1)[0][0] for stem, written in forms.items() if stem not in own]
    return tuple(dict.fromkeys(shown))[:KEYS]


def _proper(text: str) -> set[str]:
    """Return the names in a text: words capitalised within a sentence, or inside the word."""
    found = set[str]()
    for sentence in split_sentences(text):
        own = words(sentence)
        for place, word in enumerate(own):
            follows = own[place + 1] if place + 1 < len(own) else ""
            first = place == 0 and not (follows[:1].isupper() and terms(word))
            if word[1:] != word[1:].lower() or (word[:1].isupper() and not first):
                found.add(word)
    lower = {word for word in words(text) if word == word.lower()}
    return {word for word in found if word.lower() not in lower and terms(word)}


def _as_written(name: str, text: str, proper: Container[str]) -> str:
    """Return a concept in its most frequent form in a text; unchanged if it is not there."""
    spaced = r"[\W_]+".join(map(re.escape, name.split()))
    written = re.findall(rf"(?<!\w){spaced}(?!\w)", text, re.IGNORECASE)
    found = Counter(" ".join(each.split()) for each in written)
    if not found:
        return name
    return re.sub(
        r"[^\W_]+(?:'[^\W_]+)*",
        lambda word: word[0] if word[0] in proper else word[0].lower(),
        found.most_common(1)[0][0],
    )


def understand_nodes(
    store: MemoryStore, extract: Extractor, nodes: Sequence[int]
) -> Iterator[Understood]:
    """Ask an oracle for insights into atoms; yields the result of each call after storing it.

    Raises:
        StoreError: Read-only store or full disk; results of earlier calls are kept.
    """
    for start in range(0, len(nodes), _ASKED):
        store.expect_writable()
        part = store.present(nodes[start : start + _ASKED])
        answers = ask_extractor(extract, [atom.rendered for atom in store.atoms(part)])
        said = {n: answer for n, answer in zip(part, answers, strict=True) if answer is not None}
        store.insights.say(said)
        yield Understood(len(said), len(part) - len(said))


def to_particles(
    store: MemoryStore,
    nodes: Sequence[int],
    importance: Mapping[int, float],
    validity: Mapping[str, Validity],
) -> list[Particle]:
    """Return atoms as particles; inside `store.reading()`.

    Args:
        store: Store of the atoms.
        nodes: Node numbers of the atoms.
        importance: Importance by node.
        validity: Validity by id.
    """
    atoms = store.atoms(list(nodes))
    strands, mentions = _strands(store, nodes)
    said, stored = store.insights.said(nodes), store.life.stored_at(torch.tensor(nodes)).tolist()
    used, counts = store.uses.counts()
    uses = dict(zip(used.tolist(), counts.tolist(), strict=True))
    last = store.uses.last(torch.tensor(nodes), torch.inf).tolist()
    found = []
    for node, atom, when, accessed in zip(nodes, atoms, stored, last, strict=True):
        insight = _insight(atom, mentions.get(node, ()), said.get(node))
        earlier, span = store.versions(node), validity[atom.id]
        found.append(
            Particle(
                id=atom.id,
                content=atom.whole,
                keys=insight.keys,
                signifiers=insight.signifiers,
                imprint=_imprint(atom),
                created=_known(when) if atom.time is None else atom.time,
                modified=earlier[-1][1] if earlier else None,
                accessed=_known(accessed),
                event_start=atom.event_time if atom.is_built else _begun(atom, span),
                event_end=atom.event_end if atom.is_built else span.stop,
                strands=tuple(strands.get(node, ())),
                importance=importance[node],
                uses=uses.get(node, 0),
            )
        )
    return found


def _begun(atom: Atom, span: Validity) -> float | None:
    """Return the start of an atom's content: as stated, else the first day its text mentions."""
    if atom.event_time is not None or span.start != atom.time:
        return span.start
    first, behind = told_days(atom.text, atom.time)
    told = first * _DAY
    ended = span.stop is not None and told > span.stop
    return span.start if first == behind or ended else told


def _known(time: float) -> float | None:
    """Return a time, or None for NaN and infinity."""
    return time if abs(time) < float("inf") else None


def _insight(atom: Atom, names: Sequence[str], said: Mapping[str, Any] | None) -> Insight:
    """Return the insight that an oracle gave into an atom, else that of the local rules."""
    if said is None:
        return read_insight(atom.text, names)
    return Insight(tuple(said["signifiers"]), tuple(said["keys"][:KEYS]))


def _imprint(atom: Atom) -> dict[str, Any]:
    source = {"kind": atom.kind, "speaker": atom.speaker, "session": atom.session}
    source["title"] = atom.title
    names = (*_IMPRINT, *_WORTH) if atom.is_built else _IMPRINT
    told = {name: atom.meta[name] for name in names if name in atom.meta}
    return {"source": {name: value for name, value in source.items() if value is not None}, **told}


def _strands(
    store: MemoryStore, nodes: Sequence[int]
) -> tuple[dict[int, list[tuple[str, str, float]]], dict[int, list[str]]]:
    """Return the edges of atoms to others, outgoing ones first, and their mentioned concepts."""
    edges = store.edges()
    own = torch.zeros(store.next_node, dtype=torch.bool)
    own[torch.tensor(list(nodes), dtype=torch.int64)] = True
    edges = edges.take(own[edges.source] | own[edges.target])
    ends = torch.cat([edges.source, edges.target]).unique().tolist()
    atom = dict(zip(ends, store.atoms(ends), strict=True))
    strands: dict[int, list[tuple[str, str, float]]] = {}
    incoming: dict[int, list[tuple[str, str, float]]] = {}
    mentions: dict[int, list[str]] = {}
    columns = (*edges.columns, own_mentions(edges))
    for one, other, kind, weight, said in zip(*(c.tolist() for c in columns), strict=True):
        name = EdgeType(kind).name.lower()
        if atom[other].kind == CONCEPT:
            if said:
                mentions.setdefault(one, []).append(atom[other].text)
        elif atom[one].kind != CONCEPT:
            for node, to, of in ((one, other, strands), (other, one, incoming)):
                if own[node]:
                    of.setdefault(node, []).append((name, atom[to].id, weight))
    for node, more in incoming.items():
        strands.setdefault(node, []).extend(more)
    return strands, mentions
