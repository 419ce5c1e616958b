"""The threshold of abstention keeps its promise exactly, counted over every question held out."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
import torch

from graphmem_torch.config import GateConfig, config_from_dict
from graphmem_torch.errors import ConfigError, InputError
from graphmem_torch.index.index_input import IndexInput
from graphmem_torch.index.module import MemoryIndex
from graphmem_torch.rank.abstention import (
    DEPTH,
    abstention_statistics,
    confidence,
    conformal_threshold,
    fit_abstention,
    of_forms,
)
from graphmem_torch.rank.candidates import Candidates
from graphmem_torch.rank.peers import Ranking
from graphmem_torch.rank.query import QueryBatch
from graphmem_torch.rank.registry import FORMS, weight_table


@pytest.mark.parametrize("n", [1, 9, 10, 19, 99])
@pytest.mark.parametrize("rate", [0.0, 0.03, 0.1, 0.3, 0.57, 0.95])
@pytest.mark.parametrize("ties", [False, True])
def test_conformal_threshold_share_of_refused_questions(
    n: int, rate: float, ties: bool, generator: torch.Generator
) -> None:
    """Each of n + 1 exchangeable questions is the new one once; at most `rate` are refused."""
    scores = torch.rand(n + 1, generator=generator)
    if ties:
        scores = (scores * 4).round() / 4
    refused = 0
    for new in range(n + 1):
        held_out = torch.cat([scores[:new], scores[new + 1 :]])
        refused += bool(scores[new] < conformal_threshold(held_out, rate))
    assert Fraction(refused, n + 1) <= Fraction(str(rate))
    if not ties:  # and no fewer than can be had
        assert refused == math.floor(Fraction(str(rate)) * (n + 1))


def test_conformal_threshold_of_too_few_refuses_nobody() -> None:
    assert conformal_threshold(torch.tensor([0.5, 0.9]), 0.1) == -math.inf


@pytest.mark.parametrize(("rate", "n"), [(1.0, 3), (-0.1, 3), (0.1, 0), (math.nan, 3)])
def test_conformal_threshold_bad_rate(rate: float, n: int) -> None:
    with pytest.raises(InputError, match="rate"):
        conformal_threshold(torch.rand(n), rate)


def test_confidence_is_the_weighted_sum_through_the_link(generator: torch.Generator) -> None:
    x, form = torch.randn(7, 2, generator=generator) * 3, torch.arange(7) % len(FORMS)
    weights = {"activation": 0.7, "best_semantic": -1.3, "activation@peer": 2.0}
    peer = FORMS.index("peer")
    raw = [
        (2.7 if own == peer else 0.7) * float(a) - 1.3 * float(b) + 0.2
        for (a, b), own in zip(x, form.tolist(), strict=True)
    ]
    got = confidence(x, form, weight_table(weights), GateConfig(weights, bias=0.2, link="sigmoid"))
    assert got.tolist() == pytest.approx([1 / (1 + math.exp(-v)) for v in raw], rel=1e-5)
    got = confidence(x, form, weight_table(weights), GateConfig(weights, bias=0.2))
    assert got.tolist() == pytest.approx([min(max(v, 0.0), 1.0) for v in raw], abs=1e-5)
    # What is learned from are the terms of this sum.
    weighed = of_forms(x, form, list(weights))
    assert (weighed @ torch.tensor([*weights.values()]) + 0.2).tolist() == pytest.approx(
        raw, rel=1e-5
    )


def test_abstention_statistics_unknown_name() -> None:
    found: Any = None
    with pytest.raises(ConfigError, match="got 'activatoin'; did you mean 'activation'"):
        abstention_statistics(found, Ranking(*torch.zeros(2, 1, 1)), ["activation", "activatoin"])


def test_abstention_statistics_against_a_loop(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    """The statistics use the best allowed hits, however few there are."""
    data, query = random_columns(14), random_questions(4)
    listed = torch.ones(4, 14, dtype=torch.bool)
    listed[1, 3:], listed[2, 1:], listed[3] = False, False, False
    index = MemoryIndex.build(data, config_from_dict({"rank": {"weights": {"semantic": 2.0}}}))
    found = index.candidates(replace(query, listed=listed))
    score = (2.0 * found.signal("semantic")).masked_fill(~listed, -torch.inf)
    best = score.topk(DEPTH)
    names = ["top_speaker", "mean_speaker", "best_speaker", "score"]
    names += ["lead_2", "lead_5", "lead_10", "one"]
    got = abstention_statistics(found, Ranking(best.indices, best.values), names)
    for b in range(3):
        rows = sorted(range(14), key=lambda a: -float(score[b, a]))
        said = [float(found.signal("speaker").expand(4, 14)[b, a]) for a in rows]
        ahead = [float(score[b, a]) for a in rows if listed[b, a]]
        leads = [ahead[0] - ahead[min(place, len(ahead)) - 1] for place in (2, 5, 10)]
        expected = [said[0], None if len(ahead) < 5 else sum(said[:5]) / 5, max(said), ahead[0]]
        for value, wanted in zip(got[b].tolist(), [*expected, *leads, 1.0], strict=True):
            assert wanted is None or value == pytest.approx(wanted, abs=1e-5)
    assert got[3, 3] < -50 and got[3, 4:7].tolist() == [0.0, 0.0, 0.0], "no hit is no sign of one"


def test_abstention_takes_cosines_as_if_unrelated_texts_were_orthogonal(
    random_columns: Callable[..., IndexInput], random_questions: Callable[..., QueryBatch]
) -> None:
    """Linear, the background becomes 0.1 and 1 stays; other statistics are as they were."""
    index = MemoryIndex.build(random_columns(14), config_from_dict({}))
    query, names = random_questions(2), ["best_semantic", "top_semantic", "best_lexical"]
    best = torch.zeros(2, 1, dtype=torch.int64)
    plain, cone = (
        abstention_statistics(
            Candidates(index.tensors, each, index.config),
            Ranking(best, torch.ones(2, 1)),
            names,
        )
        for each in (query, replace(query, background=torch.tensor([0.4, 0.8])))
    )
    for b, background in enumerate((0.4, 0.8)):
        slope = (1.0 - 0.1) / (1.0 - background)
        expected = [0.1 + slope * (float(value) - background) for value in plain[b, :2]]
        assert cone[b, :2].tolist() == pytest.approx(expected, abs=1e-5)
    assert torch.equal(plain[:, 2], cone[:, 2])


@pytest.mark.parametrize("people", [1, 2, 3, 7])
def test_pair_speaker_counts_less_among_many(
    people: int,
    random_columns: Callable[..., IndexInput],
    random_questions: Callable[..., QueryBatch],
    generator: torch.Generator,
) -> None:
    speaker = torch.randint(-1, people, (14,), generator=generator)
    data = replace(random_columns(14), speaker=speaker, num_speakers=people)
    named = torch.rand(6, people, generator=generator) < 0.4
    query = replace(random_questions(6), speakers=named)
    found = MemoryIndex.build(data, config_from_dict({"rank": {"weights": {"semantic": 1.0}}}))
    found = found.candidates(query)
    best = torch.rand(6, 14, generator=generator).topk(DEPTH)
    got = abstention_statistics(found, Ranking(best.indices, best.values), ["pair_speaker"])
    for line, own in enumerate(named.tolist()):
        said = [int(data.speaker[row]) for row in best.indices[line, :5]]
        values = [0 if code < 0 or not any(own) else 1 if own[code] else -1 for code in said]
        share = (2 / max(2, people)) ** 2
        assert float(got[line]) == pytest.approx(share * sum(values) / 5, abs=1e-6)


@pytest.mark.parametrize("few", [False, True])
def test_best_above_and_near_against_a_loop(
    few: bool,
    random_columns: Callable[..., IndexInput],
    random_questions: Callable[..., QueryBatch],
    generator: torch.Generator,
) -> None:
    """The best cosine of a question or a wish, above what unrelated texts reach."""
    index = MemoryIndex.build(random_columns(14), config_from_dict({}))
    query, nearest = random_questions(4), [0.1, 0.3, 0.8, 1.0]
    wishes = torch.randn(4, 3, query.embedding.shape[1], generator=generator)
    wishes = torch.nn.functional.normalize(wishes, dim=2)
    wishes[0] = 0.0  # has none
    wishes[1, 2] = 0.0  # has two
    allowed = torch.rand(4, 14, generator=generator) < 0.7
    allowed[:, 0] = True
    query = replace(query, nearest=torch.tensor(nearest), wishes=wishes, allowed=allowed)
    found = Candidates(index.tensors, query, index.config)
    rows = [[a for a in range(14) if allowed[b, a]] for b in range(4)]
    if few:
        rows = [own[::2] for own in rows]
        width = max(map(len, rows))
        chosen = torch.tensor([own + [-1] * (width - len(own)) for own in rows])
        found = found.narrowed(chosen)
    best = torch.zeros(4, 1, dtype=torch.int64), torch.ones(4, 1)
    got = abstention_statistics(found, Ranking(*best), ["best_above", "best_near", "best_sharp"])
    for b in range(4):
        asked = [query.embedding[b], *(wish for wish in wishes[b] if wish.any())]
        cosines = [float(each @ index.embeddings[a]) for each in asked for a in rows[b]]
        above = (max(cosines) - nearest[b]) / max(1.0 - nearest[b], 1e-3)
        assert float(got[b, 0]) == pytest.approx(max(above, -1.0), abs=1e-4)
        assert float(got[b, 1]) == pytest.approx(max(float(got[b, 0]), float(got[b, 2])), abs=1e-6)
    # One alone and in a batch give the same.
    alone = Candidates(index.tensors, query.rows(slice(1, 2)), index.config)
    every = Candidates(index.tensors, query, index.config)
    names = ["best_above", "best_near"]
    torch.testing.assert_close(
        abstention_statistics(alone, Ranking(*(each[1:2] for each in best)), names),
        abstention_statistics(every, Ranking(*best), names)[1:2],
    )


@pytest.mark.parametrize("weighted", [False, True])
def test_fit_abstention_against_scikit_learn(weighted: bool, generator: torch.Generator) -> None:
    from sklearn.linear_model import LogisticRegression

    answerable = torch.rand(200, generator=generator) < 0.2
    x = torch.randn(200, 3, generator=generator) * torch.tensor([1.0, 20.0, 0.05])
    x[:, 0] += answerable
    penalty, scaled = 0.01, (x - x.mean(0)) / x.std(0)
    counts = torch.rand(200, generator=generator) if weighted else torch.ones(200)
    weights, bias = fit_abstention(
        x, answerable, weight=counts if weighted else None, penalty=penalty
    )
    # C * sum(loss) + |w|^2 / 2 with class weights that sum to one.
    sides = 0.5 / counts[answerable].sum(), 0.5 / counts[~answerable].sum()
    weight = counts * torch.where(answerable, *sides)
    model = LogisticRegression(C=1 / (2 * penalty), tol=1e-8, max_iter=1000)
    model.fit(scaled.numpy(), answerable.numpy(), sample_weight=weight.numpy())
    expected = model.decision_function(scaled.numpy())
    assert (x @ weights + bias).numpy() == pytest.approx(expected, abs=2e-2)


def test_fit_abstention_needs_both_kinds() -> None:
    for kind in (True, False):
        with pytest.raises(InputError, match="both"):
            fit_abstention(torch.rand(5, 2), torch.full((5,), kind))
