"""The fit of probabilities to kinds of data, on hits that are made up and on a small set."""

from __future__ import annotations

import pytest
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.quality.calibration import (
    Asked,
    Judged,
    fitted,
    gather_asked,
    kind_table,
    left_out,
    reliability_table,
    said,
)
from graphmem_torch.quality.common.questions import Conversation, Question
from graphmem_torch.quality.common.sets import QuestionSet
from graphmem_torch.quality.common.task import RetrievalTask, memory_of
from graphmem_torch.text.embedder import HashingEmbedder

WANTED = ("behind", "top_semantic")


def made(kind: str, *, slope: float, seed: int) -> Asked:
    """Hits that are relevant with the probability of a model."""
    generator = torch.Generator().manual_seed(seed)
    scores = (4 * torch.rand(300, 10, generator=generator)).sort(dim=1, descending=True).values
    top = torch.rand(300, generator=generator)
    foreign = torch.arange(300) >= 250
    odds = -1.0 + slope * top[:, None] - 1.5 * (scores[:, :1] - scores).sqrt()
    relevant = torch.rand(300, 10, generator=generator) < odds.sigmoid()
    return Asked(
        f"{kind} {seed}",
        kind,
        scores,
        torch.arange(10).expand(300, 10),
        torch.stack([scores[:, 0], top], 1),
        ("score", "top_semantic"),
        relevant & ~foreign[:, None],
        foreign,
    )


def test_a_model_is_found_again() -> None:
    sets = [made(kind, slope=3.0, seed=seed) for seed, kind in enumerate("abc")]
    found = fitted(sets, WANTED)
    assert found["behind"] == pytest.approx(1.5, abs=0.4) and found["top_semantic"] > 1.0
    for probability in left_out(sets, WANTED):
        assert bool((probability.diff(dim=1) <= 0).all())
    judged = Judged.of(sets, left_out(sets, WANTED))
    assert judged.expected_error < 0.08


def test_what_is_left_out_is_not_learned_from() -> None:
    odd = made("odd", slope=9.0, seed=1)
    others = [made(kind, slope=1.0, seed=seed) for seed, kind in ((2, "a"), (3, "b"))]
    (own, *_) = left_out([odd, *others], WANTED)
    assert torch.equal(own, said(odd, fitted(others, WANTED)))


def test_errors_are_those_of_a_loop() -> None:
    one = made("a", slope=2.0, seed=4)
    probability = said(one, {"bias": -0.5, "behind": 0.7, "top_semantic": 1.0})
    judged = Judged.of([one], [probability])
    bins: dict[int, list[tuple[float, float, float]]] = {}
    weight = one.weight()
    for row in range(300):
        for column in range(10):
            p = float(probability[row, column])
            entry = (float(weight[row, column]), p, float(one.relevant[row, column]))
            bins.setdefault(min(9, int(10 * p)), []).append(entry)
    assert float(weight[~one.foreign].sum()) == pytest.approx(0.75)
    error = sum(abs(sum(w * (p - y) for w, p, y in each)) for each in bins.values())
    assert judged.expected_error == pytest.approx(error / float(weight.sum()), abs=1e-9)
    assert "mean" in str(kind_table([one], [probability]))
    assert "0.9 to 1.0" in str(reliability_table([one], [probability]))


def test_gathers_what_questions_find() -> None:
    atoms = tuple(
        Atom(f"p{i}", f"kite number {i} and comet {i % 7}", kind="passage") for i in range(40)
    )
    questions = tuple(
        Question(f"Where is kite number {i}?", 1, (f"p{i}",), id=f"p{i + 1}") for i in range(20)
    )
    conversation = Conversation("small", atoms, questions)
    one = QuestionSet("small", (conversation,), kind="passage", data_kind="made")
    config = load_config("default", {"link.concepts": "none"})
    with memory_of(atoms, config, HashingEmbedder(64), "cpu") as memory:
        task = RetrievalTask(conversation, memory, kind="passage")
        foreign = [Question("Who sang in the rain?", 1, ("elsewhere",))]
        found = gather_asked(one, [task], foreign, config)
        assert found.scores.shape == (21, 10) and found.foreign.tolist() == [False] * 20 + [True]
        assert not bool(found.relevant[found.foreign].any())
        assert bool(found.relevant.any(1)[:20].all())
        assert bool((found.scores.diff(dim=1) <= 0).all())
        assert set(fitted([found], WANTED)) == {"bias", *WANTED}
