"""Fit the probability that a hit is relevant, on kinds of data that each count alike.

`python -m bench.quality.calibration --data ROOT [--preset NAME] [--embedder NAME]`

Every memory is asked up to 60 of its own questions, and 20 of other sets, which count a quarter: a
score must be low if a memory holds no answer. The program prints the constants of the encoder as
YAML. Tables then show the calibration with the kind of data left out, by kind and by predicted
probability. Unjudged documents count as irrelevant.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated

import torch
import tyro
from torch import Tensor
from tqdm import tqdm
from tyro.conf import arg

from graphmem_torch.config import CalibrationConfig, Config
from graphmem_torch.memory.index_builder import reweighted
from graphmem_torch.rank.calibration import (
    OF_HIT,
    TOP,
    fit_calibration,
    hit_features,
    probabilities,
)

from .all.judge import sets_of
from .common.compare import build
from .common.encoder import caching, load_encoders
from .common.questions import Question
from .common.sets import QuestionSet
from .common.tables import Table
from .common.task import RetrievalTask
from .request import Request

__all__ = ["Asked", "Judged", "fitted", "gather_asked", "left_out", "main", "said"]

STATISTICS = ("top_semantic", "top_lexical")
"""Statistics of a question for a calibrated encoder and preset."""

OTHERS = ("best_semantic", "place")
"""Statistics for other presets; no score is used."""

_OWN, _FOREIGN = 60, 20  # questions of a memory, and of other sets
_SHARE = 0.25  # share of foreign questions in the weight of all
_DEPTH = 10  # hits of a question for learning and judging
_BATCH, _BINS = 16, 10


@dataclass(frozen=True)
class Calibration:
    """Fit the probability that a hit is relevant.

    Attributes:
        data: Root of the data, as for `graphmem eval all`.
        preset: Name of a preset, or its file.
        embedder: Name of the encoder; the preset's by default.
        cache: Folder of encodings.
        atoms: Maximum documents of a collection.
        sets: Names of the sets; all by default.
        device: `auto`, `cpu`, `cuda`.
    """

    data: Annotated[Path, arg(metavar="ROOT")]
    preset: str = "default"
    embedder: str | None = None
    cache: Annotated[Path | None, arg(metavar="FOLDER")] = None
    atoms: int = 1500
    sets: tuple[str, ...] = ()
    device: str = "auto"


@dataclass(frozen=True, eq=False)
class Asked:
    """Hits of the questions to one set: Q questions, k hits each.

    Attributes:
        name: Name of the set.
        data_kind: Kind of data.
        scores, place: [Q, k], see `index.Retrieval`.
        statistics: [Q, S], the statistics `names`.
        names: Names of the S statistics.
        relevant: [Q, k] bool.
        foreign: [Q] bool, questions that another set answers.
    """

    name: str
    data_kind: str
    scores: Tensor
    place: Tensor
    statistics: Tensor
    names: tuple[str, ...]
    relevant: Tensor
    foreign: Tensor

    def features(self, wanted: Sequence[str]) -> dict[str, Tensor]:  # [Q, k] each
        """Return the features of all hits."""
        top = self.statistics[:, self.names.index(TOP)]
        given = (each.double().numpy() for each in (self.scores, self.place, top))
        of_hit = {name: torch.from_numpy(value) for name, value in hit_features(*given).items()}
        return {
            name: of_hit[name]
            if name in OF_HIT
            else self.statistics[:, [self.names.index(name)]].double().expand_as(self.scores)
            for name in wanted
        }

    def weight(self) -> Tensor:  # [Q, k]
        """Return the weight of each hit: own questions have 0.75 in total, the others 0.25."""
        hit = (self.scores > -torch.inf).double()
        own, others = hit * ~self.foreign[:, None], hit * self.foreign[:, None]
        return sum(
            share * part / part.sum().clamp(min=1)
            for share, part in ((1 - _SHARE, own), (_SHARE, others))
        )


def gather_asked(
    one: QuestionSet, tasks: Sequence[RetrievalTask], foreign: Sequence[Question], config: Config
) -> Asked:
    """Gather the hits of a set's questions and of foreign questions in its memories.

    Args:
        one: Set of questions.
        tasks: Memories of the set.
        foreign: Questions of other sets.
        config: Settings; all features are gathered, whatever their weights.
    """
    read = CalibrationConfig(encoders={"others": dict.fromkeys([*STATISTICS, *OTHERS], 0.0)})
    config = replace(config, calibration=read)
    parts = [
        part
        for number, task in enumerate(tasks)
        for part in _found(one, task, foreign, config, random.Random(number))
    ]
    wide = max(part.scores.shape[1] for part in parts)
    columns = {
        name: torch.cat(
            [
                torch.nn.functional.pad(value, (0, wide - value.shape[1]), value=fill)
                for value in (getattr(part, name) for part in parts)
            ]
        )
        for name, fill in (("scores", -torch.inf), ("place", 0), ("relevant", False))
    }
    columns |= {
        name: torch.cat([getattr(part, name) for part in parts])
        for name in ("statistics", "foreign")
    }
    return replace(parts[0], **columns)


def _found(
    one: QuestionSet,
    task: RetrievalTask,
    foreign: Sequence[Question],
    config: Config,
    chance: random.Random,
) -> Iterator[Asked]:
    """Yield the hits of one memory, batch by batch."""
    index = reweighted(task.memory.index, config)
    own = [question for question in task.asked if question.gold]
    own = chance.sample(own, min(_OWN, len(own)))
    others = chance.sample(list(foreign), min(_FOREIGN, len(foreign)))
    row = dict(zip(task.ids, task.turns.tolist(), strict=True))
    for asked, strange in ((own, False), (others, True)):
        for start in range(0, len(asked), _BATCH):
            batch = asked[start : start + _BATCH]
            listed = torch.zeros(len(batch), index.num_atoms, dtype=torch.bool)
            listed[:, task.turns] = True
            gold = torch.zeros_like(listed)
            for line, question in enumerate(batch):
                if question.id in row:  # a query that is a document does not find itself
                    listed[line, row[question.id]] = False
                gold[line, [] if strange else [row[id] for id in question.gold]] = True
            query = replace(task.encode([question.text for question in batch]), listed=listed)
            with torch.inference_mode():
                found = index(query, k=_DEPTH)
            yield Asked(
                one.name,
                one.data_kind,
                found.scores,
                found.place,
                found.statistics,
                index.plan.read,
                gold.gather(1, found.rows.clamp(min=0)),
                torch.full((len(batch),), strange),
            )


def fitted(sets: Sequence[Asked], wanted: Sequence[str]) -> dict[str, float]:
    """Fit the constants to several kinds of data; kinds count alike, and so do sets of a kind."""
    kinds = [one.data_kind for one in sets]
    columns: dict[str, list[Tensor]] = {name: [] for name in wanted}
    relevant, weight = [], []
    for one in sets:
        hit = one.scores > -torch.inf
        for name, value in one.features(wanted).items():
            columns[name].append(value[hit])
        relevant.append(one.relevant[hit])
        weight.append(one.weight()[hit] / kinds.count(one.data_kind))
    features = {name: torch.cat(values) for name, values in columns.items()}
    return fit_calibration(features, torch.cat(relevant), torch.cat(weight))


def said(one: Asked, constants: Mapping[str, float]) -> Tensor:  # [Q, k]
    """Return the probabilities by some constants."""
    given = one.scores, one.place, one.statistics, one.names
    return torch.from_numpy(probabilities(*given, constants))


def left_out(sets: Sequence[Asked], wanted: Sequence[str]) -> list[Tensor]:
    """Return the probabilities of each set by constants fitted to the other kinds of data."""
    by_kind = {
        kind: fitted([one for one in sets if one.data_kind != kind], wanted)
        for kind in dict.fromkeys(one.data_kind for one in sets)
    }
    return [said(one, by_kind[one.data_kind]) for one in sets]


@dataclass(frozen=True, eq=False)
class Judged:
    """n hits with probabilities.

    Attributes:
        said, relevant, weight: [n].
    """

    said: Tensor
    relevant: Tensor
    weight: Tensor

    @classmethod
    def of(cls, sets: Sequence[Asked], probability: Sequence[Tensor]) -> Judged:
        """Return the hits of some sets, each set counting alike."""
        hits = [one.scores > -torch.inf for one in sets]
        return cls(
            *(
                torch.cat([value[hit].double() for value, hit in zip(values, hits, strict=True)])
                for values in (
                    probability,
                    [one.relevant for one in sets],
                    [one.weight() / len(sets) for one in sets],
                )
            )
        )

    def bins(self) -> list[tuple[float, float, float]]:
        """Return weight, mean probability and relevant share of the hits in ten equal bins."""
        place = (self.said * _BINS).long().clamp(max=_BINS - 1)
        found = []
        for number in range(_BINS):
            weight = self.weight * (place == number)
            total = float(weight.sum())
            mean = [
                float((weight * value).sum()) / total if total else 0.0
                for value in (self.said, self.relevant)
            ]
            found.append((total / float(self.weight.sum()), *mean))
        return found

    @property
    def expected_error(self) -> float:
        """Return the expected calibration error (Naeini et al. 2015) over ten bins."""
        return sum(share * abs(mean - true) for share, mean, true in self.bins())

    def mean(self, values: Tensor) -> float:
        """Return the weighted mean of some values of the hits."""
        return float((self.weight * values).sum() / self.weight.sum())

    def row(self) -> list[str]:
        """Return relevant share, mean probability, ECE, Brier score, and the share's own."""
        base = self.mean(self.relevant)
        brier = self.mean((self.said - self.relevant).square())
        shown = [base, self.mean(self.said), self.expected_error, brier, base * (1 - base)]
        return [f"{value:.3f}" for value in shown]


def kind_table(sets: Sequence[Asked], probability: Sequence[Tensor]) -> Table:
    """Return a row for each kind of data, and their means."""
    head = ["kind", "questions", "relevant", "mean score", "ECE", "Brier", "Brier of the share"]
    rows = []
    kinds = dict.fromkeys(one.data_kind for one in sets)
    for kind in kinds:
        places = [i for i, one in enumerate(sets) if one.data_kind == kind]
        own = [sets[i] for i in places]
        count = sum(len(one.foreign) for one in own)
        judged = Judged.of(own, [probability[i] for i in places])
        rows.append([kind, str(count), *judged.row()])
    means = [sum(float(row[i]) for row in rows) / len(rows) for i in range(2, len(head))]
    total = str(sum(int(row[1]) for row in rows))
    rows.append(["mean", total, *(f"{value:.3f}" for value in means)])
    return Table.of_texts([head, *rows])


def reliability_table(sets: Sequence[Asked], probability: Sequence[Tensor]) -> Table:
    """Return the relevant share of the hits by predicted probability; sets count alike."""
    rows = [
        [f"{number / _BINS:.1f} to {(number + 1) / _BINS:.1f}", *(f"{v:.3f}" for v in each)]
        for number, each in enumerate(Judged.of(sets, probability).bins())
    ]
    return Table.of_texts([["score", "share of hits", "mean score", "relevant"], *rows])


def main() -> int:
    """Read the options, ask, fit, print."""
    options = tyro.cli(Calibration, description=__doc__)
    request = Request(
        data=options.data,
        preset=options.preset,
        embedder=options.embedder,
        cache=options.cache,
        device=options.device,
    )
    encoders = load_encoders(request)
    known = [one for one in sets_of(request, encoders) if len(one.sources) == 1]
    known = [one for one in known if not options.sets or one.name in options.sets]
    found = []
    for one in tqdm(known, desc="sets"):
        foreign = [
            question
            for other in known
            if other.name != one.name
            for conversation in other.conversations
            for question in conversation.questions
            if question.gold
        ]
        built = build(
            one.cut(options.atoms, _OWN), request.presets, encoders, options.device, progress=False
        )
        with caching(encoders):
            found.append(gather_asked(one, built.own, foreign, built.config))
        built.close()
    for what, wanted in (
        (encoders[0].name.rpartition("/")[2], ("behind", *STATISTICS)),
        ("others", OTHERS),
    ):
        constants = {name: round(value, 4) for name, value in fitted(found, wanted).items()}
        print(f"{what}: {constants}".replace("'", ""))
        probability = left_out(found, wanted)
        print(kind_table(found, probability), end="\n\n")
        print(reliability_table(found, probability), end="\n\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
