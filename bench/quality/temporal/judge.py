"""Judge of changing facts, and of LoCoMo's temporal questions (`docs/evaluation.md` 4)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from graphmem_torch.config import Config
from graphmem_torch.evaluation.bootstrap import interval_table
from graphmem_torch.evaluation.metrics import ranking_measures
from graphmem_torch.memory import Memory, Scope
from graphmem_torch.progress import Progress
from graphmem_torch.results import PRESENT, QueryPlan
from graphmem_torch.text.embedder import encode_checked

from ..common.encoder import CachingEmbedder
from ..common.rankings import gold_positions
from ..common.run import Run
from ..common.scores import gain, share
from ..common.sets import locomo_set
from ..common.tables import Head, Table
from ..common.task import RetrievalTask, build_tasks, memory_of
from ..request import Judged, Request
from .facts import BEGIN, END, Fact, Question, evolving_facts

__all__ = ["FACTS", "INSTANTS", "carried", "judge"]

FACTS = (1_000, 5, 2_000)
"""Numbers of facts, of values of each, and of unrelated turns."""

WEIGHTS = (0.0, -0.5, -1.0, -2.0, -4.0, -8.0)
"""Tested weights of the signal `ended`."""

INSTANTS = tuple(BEGIN + share * (END - BEGIN) for share in (0.2, 0.4, 0.6, 0.8))
"""Moments that questions are about."""

_PART = 50  # questions of one batch, each at all instants
_NEWEST = 5  # hits of which the newest is taken
_DEPTH = 30
_FIRST = 5  # hits in which the value before another is looked for
_MEASURES = ("now", "first hit", "as of", "true at", "before")
_TEMPORAL, _CUTOFF = 2, 10  # LoCoMo's category, and the hits of recall
_NOTHING, _FOUND, _OTHER = "nothing superseded", "superseded as found", "other words"
_WHOLE, _RECONCILED = "as it is", "reconciled"
_TIMES = ("date", "event", "time_expression")

Ranking = list[list[str]]
"""Ids of hits, best first, for each question."""


def judge(
    request: Request,
    *,
    facts: tuple[int, int, int] = FACTS,
    weights: Sequence[float] = WEIGHTS,
    instants: Sequence[float] = INSTANTS,
    resamples: int = 2000,
) -> Judged:
    """Ask for present values, values as known, values as true, and values before another.

    An answer is right if the first hit about the fact, in 30, has the value that was true; by
    `first hit`, if that is the first hit of all. For a value before another it must be in the first
    5. The preset is given the supersessions, or detects them (`Facts.reconcile`), or is asked for
    the present (`QueryPlan.order`). Baselines are the preset without any of these and search by
    cosine.

    Args:
        request: Evaluation request; its data is a LoCoMo file.
        facts: Numbers of facts, values and other turns, see `FACTS`.
        weights: Tested weights of `ended`, see `WEIGHTS`.
        instants: Moments of questions, see `INSTANTS`.
        resamples: Number of resamples of the intervals.

    Raises:
        InputError: Data that cannot be used.
    """
    run = Run(request, resamples)
    config, encoder, drawn = run.config, run.encoder, run.drawn
    told = _Told(*evolving_facts(*facts, seed=request.seed), instants)
    with encoder.caching():
        right, swept = _evolving(told, config, encoder, request, weights)
        found = {}
        held_out = _Told(*evolving_facts(*facts, seed=request.seed, held_out=True), instants)
        for name, own in ((_FOUND, told), (f"{_FOUND}, {_OTHER}", held_out)):
            answers, found[name] = _reconciled(own, config, encoder, request)
            right |= {name + how: measured for how, measured in answers.items()}
        locomo = _locomo(config, encoder, request, drawn)
    return run.judged(
        "temporal",
        _tables,
        n={
            "facts": len(told.facts),
            "atoms": len(told.atoms),
            "before": len(told.past),
            "instants": len(instants),
        },
        embedder=encoder.name,
        facts={
            name: {measure: _mean(values, drawn) for measure, values in found.items()}
            for name, found in right.items()
        },
        found=found,
        weights={
            str(weight): {measure: _mean(values, drawn) for measure, values in found.items()}
            for weight, found in swept.items()
        },
        locomo=locomo,
    )


class _Told:
    """Facts, turns about them, and questions.

    Attributes:
        facts, atoms, now, past: Results of `evolving_facts`.
        instants: Moments that questions are about, seconds since the epoch, UTC.
    """

    def __init__(
        self,
        facts: list[Fact],
        atoms: list[Any],
        now: list[Question],
        past: list[Question],
        instants: Sequence[float],
    ) -> None:
        self.facts, self.atoms, self.now, self.past = facts, atoms, now, past
        self.instants = list(instants)
        self.value = {
            version.id: (number, version.value)
            for number, fact in enumerate(facts)
            for version in fact.versions
        }
        self.texts = [question.text for question in now]

    def right(self, ranked: Ranking, answers: Sequence[str | None]) -> Tensor:  # [B] float64
        """Return whether each question of `now` got its answer; NaN if it has none."""
        asked = [question.fact for question in self.now]
        return torch.tensor(
            [
                torch.nan if answer is None else float(carried(hits, fact, self.value) == answer)
                for hits, fact, answer in zip(ranked, asked, answers, strict=True)
            ],
            dtype=torch.float64,
        )

    def right_first(self, ranked: Ranking, answers: Sequence[str | None]) -> Tensor:  # [B] float64
        """Return whether the first hit of each question of `now` has the fact and its answer."""
        return self.right([hits[:1] for hits in ranked], answers)

    def right_before(self, ranked: Ranking) -> Tensor:  # [B] float64
        """Return whether the answer of each question of `past` is in its first hits."""
        wanted = [(question.fact, question.answer) for question in self.past]
        return torch.tensor(
            [
                float(any(self.value.get(hit) == own for hit in hits[:_FIRST]))
                for hits, own in zip(ranked, wanted, strict=True)
            ],
            dtype=torch.float64,
        )


def carried(hits: Sequence[str], fact: int, value: Mapping[str, tuple[int, str]]) -> str | None:
    """Return the value of the first hit about a fact; None if no hit is about it.

    Args:
        hits: Ids of atoms.
        fact: Number of the fact.
        value: Number and value of the fact of each atom about one.
    """
    of = (value[hit] for hit in hits if hit in value)
    return next((told for number, told in of if number == fact), None)


def _evolving(
    told: _Told,
    config: Config,
    encoder: CachingEmbedder,
    request: Request,
    weights: Sequence[float],
) -> tuple[dict[str, dict[str, Tensor]], dict[float, dict[str, Tensor]]]:
    """Return which questions are answered, by system and by weight of `ended`; a row a fact."""
    concepts = encoder.extractor(config.link.concepts)
    own = request.device
    with memory_of(told.atoms, config, encoder, own, concepts=concepts) as memory:
        found = {
            "cosine": _by_cosine(told, memory, newest=1),
            f"cosine, newest of {_NEWEST}": _by_cosine(told, memory, newest=_NEWEST),
            _NOTHING: _asked(told, memory, request),
            f"{_NOTHING}, asked for the present": _asked(told, memory, request, plan=PRESENT),
        }
        for fact in told.facts:
            for old, new in zip(fact.versions, fact.versions[1:], strict=False):
                memory.facts.supersede(old.id, new.id, known=new.told)
        found["superseded as it was"] = _asked(told, memory, request)
        swept = {}
        for weight in weights:
            memory.learning.use_weights({**config.rank.weights, "ended": weight})
            swept[weight] = _asked(told, memory, request, swept=True)
    return found, swept


def _reconciled(
    told: _Told, config: Config, encoder: CachingEmbedder, request: Request
) -> tuple[dict[str, dict[str, Tensor]], dict[str, Any]]:
    """Measure a memory that detects supersessions itself: answers and detections.

    The answers are by form of the question: plain, and for the present.
    """
    concepts = encoder.extractor(config.link.concepts)
    with memory_of(told.atoms, config, encoder, request.device, concepts=concepts) as memory:
        done = memory.facts.reconcile(progress=request.progress)
        by = {
            name: span.by
            for name, span in memory.facts.validity([atom.id for atom in told.atoms]).items()
            if span.by is not None
        }
        right = {
            "": _asked(told, memory, request),
            ", asked for the present": _asked(told, memory, request, plan=PRESENT),
        }
    ended = {version.id for fact in told.facts for version in fact.versions[:-1]}
    last = {fact.versions[-1].id for fact in told.facts}
    # That a later one of its fact is in its place, not always the next, is right.
    own = {n for n, other in by.items() if n in told.value and _of(told, n) == _of(told, other)}
    return right, {
        "compared": done.compared,
        "superseded": len(by),
        "of the same fact": len(own),
        "ended": len(ended),
        "ended and found": len(ended & own),
        "true still": len(last & by.keys()),
    }


def _of(told: _Told, name: str) -> int | None:
    """Return the fact that an atom tells."""
    return told.value[name][0] if name in told.value else None


def _asked(
    told: _Told,
    memory: Memory,
    request: Request,
    *,
    swept: bool = False,
    plan: QueryPlan | None = None,
) -> dict[str, Tensor]:
    """Return the answers of a memory; `swept`: of now and before alone; `plan`: except before."""
    facts = told.facts

    def ranked(
        questions: Sequence[str], plan: QueryPlan | None = None, valid_at: float | None = None
    ) -> Ranking:
        found: Ranking = []
        for part in _parts(questions):
            view = memory.at(valid_at=valid_at)
            results = view.retrieve(part, k=_DEPTH, scope=Scope(plan=plan))
            found += [[hit.id for hit in result.hits] for result in results]
        return found

    past = [question.text for question in told.past]
    current, values = ranked(told.texts, plan=plan), [fact.true_at(END) for fact in facts]
    found = {
        "now": told.right(current, values),
        "first hit": told.right_first(current, values),
        "before": told.right_before(ranked(past)),
    }
    if swept:
        return found
    by_instant: list[Ranking] = [[] for _ in told.instants]
    bar = Progress(list(_parts(told.texts)), "moments", shown=request.progress)
    for part in bar:
        for results in memory.at(as_of=told.instants).retrieve(
            part, k=_DEPTH, scope=Scope(plan=plan)
        ):
            for own, result in zip(by_instant, results, strict=True):
                own.append([hit.id for hit in result.hits])
    found["as of"] = _over_instants(told, by_instant, Fact.known_at)
    by_instant = [ranked(told.texts, valid_at=moment, plan=plan) for moment in told.instants]
    found["true at"] = _over_instants(told, by_instant, Fact.true_at)
    return found


def _over_instants(
    told: _Told, ranked: Sequence[Ranking], truth: Callable[[Fact, float], str | None]
) -> Tensor:  # [B], the share of instants
    each = [
        told.right(own, [truth(fact, moment) for fact in told.facts])
        for own, moment in zip(ranked, told.instants, strict=True)
    ]
    return torch.stack(each).nanmean(0)


def _by_cosine(told: _Told, memory: Memory, *, newest: int) -> dict[str, Tensor]:
    """Search by cosine in turns told, or values begun, by then; the newest of the best is first."""
    columns = memory.store.columns()
    own = ~columns.is_concept
    atoms = memory.store.atoms(columns.node[own].tolist())
    rows = memory.store.embeddings()[own].float()
    told_at = torch.tensor([atom.time for atom in atoms], dtype=torch.float64)
    begun = torch.tensor([a.event_time or a.time for a in atoms], dtype=torch.float64)

    def ranked(questions: Sequence[str], times: Tensor, until: float) -> Ranking:
        asked = encode_checked(memory.embedder, list(questions), query=True).pooled.float()
        there = (times <= until).nonzero().squeeze(1)
        best = (asked @ rows[there].T).topk(min(_DEPTH, len(there)), dim=1).indices
        best = there[best]
        late = best[:, :newest].gather(1, times[best[:, :newest]].argsort(1, descending=True))
        order = torch.cat([late, best[:, newest:]], dim=1)
        return [[atoms[i].id for i in row] for row in order.tolist()]

    facts = told.facts
    texts, past = told.texts, [question.text for question in told.past]
    known = [ranked(texts, told_at, moment) for moment in told.instants]
    true = [ranked(texts, begun, moment) for moment in told.instants]
    current, values = ranked(texts, told_at, END), [fact.true_at(END) for fact in facts]
    return {
        "now": told.right(current, values),
        "first hit": told.right_first(current, values),
        "before": told.right_before(ranked(past, told_at, END)),
        "as of": _over_instants(told, known, Fact.known_at),
        "true at": _over_instants(told, true, Fact.true_at),
    }


def _parts(questions: Sequence[str]) -> Iterator[list[str]]:
    for at in range(0, len(questions), _PART):
        yield list(questions[at : at + _PART])


def variants(config: Config) -> dict[str, Config]:
    """Return the preset unchanged, without the parts that read times, and with a query plan."""

    def without(*names: str) -> Config:
        weights = {
            key: weight
            for key, weight in config.rank.weights.items()
            if key.partition("@")[0] not in names
        }
        return replace(config, rank=replace(config.rank, weights=weights))

    found = {
        _WHOLE: config,
        "no times": without(*_TIMES),
        "no ended": without("ended"),
        "planned": replace(config, plan=replace(config.plan, use=True)),
    }
    return {name: own for name, own in found.items() if name == _WHOLE or own != config}


def _locomo(
    config: Config, encoder: CachingEmbedder, request: Request, drawn: Mapping[str, Any]
) -> dict[str, Any]:
    """Return recall of LoCoMo's temporal questions, and of all, by variant of a preset."""
    asked = locomo_set(request.data, evidence=request.evidence).answerable()
    tasks, _ = build_tasks(asked.conversations, config, encoder, request.device, request.progress)
    recall = {
        name: torch.cat([_recall(task, own) for task in tasks])
        for name, own in variants(config).items()
    }
    superseded = sum(task.memory.facts.reconcile().superseded for task in tasks)
    recall[_RECONCILED] = torch.cat([_recall(task, config) for task in tasks])
    category = torch.cat([task.categories for task in tasks])
    for task in tasks:
        task.memory.close()
    groups = {"temporal": category == _TEMPORAL, "all": category <= 4}
    return {
        "superseded": superseded,
        "n": {group: int(which.sum()) for group, which in groups.items()},
        "variants": {
            name: {
                group: {
                    "recall": _mean(values[which], drawn),
                    "difference": None
                    if name == _WHOLE
                    else _mean((values - recall[_WHOLE])[which], drawn),
                }
                for group, which in groups.items()
            }
            for name, values in recall.items()
        },
    }


def _recall(task: RetrievalTask, config: Config) -> Tensor:  # [B]
    """Return the recall of a conversation's questions."""
    task.adopt(config)
    results = task.retrieve(task.questions, _DEPTH)
    ranked = task.positions([[hit.id for hit in result.hits] for result in results])
    places = gold_positions(ranked, task.gold, len(task.ids))
    return ranking_measures(places, task.gold, (_CUTOFF,))["recall"][:, 0]


def _mean(values: Tensor, drawn: Mapping[str, Any]) -> list[float] | None:
    return interval_table(values[:, None], [""], **drawn)[""]


def _tables(report: Mapping[str, Any]) -> list[Table]:
    n = report["n"]
    heads = [Head("system"), *(Head(name, share) for name in _MEASURES)]
    rows = [[name, *(found[m] for m in _MEASURES)] for name, found in report["facts"].items()]
    said = (
        f"{n['facts']:,} facts in {n['atoms']:,} turns, {n['instants']} moments; {n['before']:,} "
        "questions for the value before another; right answers in percent"
    )
    judged = [
        f"{name}: {told['superseded']:,} in {told['compared']:,} pairs, "
        f"{told['of the same fact']:,} by a value of the same fact, {told['ended and found']:,} of "
        f"{told['ended']:,} that had ended, {told['true still']:,} that are true still"
        for name, told in report["found"].items()
    ]
    swept = [
        [f"{float(weight):g}", found["now"], found["before"]]
        for weight, found in report["weights"].items()
    ]
    locomo = [
        [name, *(found[g][key] for g in ("temporal", "all") for key in ("recall", "difference"))]
        for name, found in report["locomo"]["variants"].items()
    ]
    counts = report["locomo"]["n"]
    sizes = (
        f"recall@{_CUTOFF} on LoCoMo, {counts['temporal']} of {counts['all']} questions temporal; "
        f"reconciled: {report['locomo']['superseded']:,} turns superseded"
    )
    titles = ("temporal", "difference", "all", "difference")
    shows = (share, gain, share, gain)
    return [
        Table(heads, rows, [said, *judged]),
        Table([Head("weight of ended"), Head("now", share), Head("before", share)], swept),
        Table(
            [Head("preset"), *(Head(t, s) for t, s in zip(titles, shows, strict=True))],
            locomo,
            [sizes],
        ),
    ]
