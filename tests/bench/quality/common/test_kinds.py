"""Weights fitted to kinds of data, on signals that are made up, and signals that are gathered."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.quality.common.kinds import (
    CONSTANTS,
    KEYS,
    PRIOR,
    KindFit,
    KindSet,
    fit_kinds,
    ingredient_values,
    leave_kinds_out,
    measure,
    preset_values,
    to_config,
)
from graphmem_torch.quality.common.questions import Conversation, Question
from graphmem_torch.quality.common.signals import (
    LEARNED_FROM,
    Gathered,
    gather,
    load_gathered,
    save_gathered,
)
from graphmem_torch.quality.common.task import RetrievalTask, memory_of
from graphmem_torch.rank.registry import FORMS, weight_table
from graphmem_torch.text.embedder import HashingEmbedder

PLACE = {name: place for place, name in enumerate(LEARNED_FROM)}


def made(kind: str, tells: str, *, seed: int = 0, form: str = "plain", hops: int = 0) -> KindSet:
    """Questions whose gold is told by one signal; the others are noise."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(24, 30, len(LEARNED_FROM), generator=generator)
    flags = [PLACE[name] for name in ("named", "role", "date", "event", "speaker", "question")]
    values[:, :, flags] = 0.0
    values[:, :, [PLACE[n] for n in ("time_expression", "lexical_unread", "semantic_alone")]] = 0.0
    gold = torch.zeros(24, 30)
    gold[:, 3] = 1.0
    values[:, 3, PLACE[tells]] += 3.0
    hop = torch.stack([torch.arange(hops), torch.full((hops,), 3), torch.full((hops,), 5)], 1)
    gold[:hops, 5] = 1.0
    found = Gathered(
        values.half(),
        torch.full((24, 30), FORMS.index(form), dtype=torch.int8),
        torch.ones(24, 30, dtype=torch.bool),
        gold,
        gold.sort(dim=1, descending=True).values[:, :2],
        hop.to(torch.int32),
        torch.tensor([[1.0, 0.0]]).expand(hops, 2).clone(),
    )
    return KindSet(f"{kind}-{tells}", kind, "recall", 5, [found])


def test_each_kind_teaches_what_tells_its_gold() -> None:
    sets = [made("tables", "lexical"), made("abstracts", "semantic", seed=1)]
    fit = fit_kinds(sets, {})
    assert set(fit.weights) == set(KEYS)
    assert min(fit.weights["lexical@plain"], fit.weights["semantic@plain"]) > 0.4
    # Nothing was said: those weights stay what they are shrunk to.
    assert all(fit.weights[key] == pytest.approx(PRIOR[key]) for key in PRIOR if "said" in key)
    assert fit.constants == CONSTANTS  # no documents are named and nothing leads anywhere
    for one in sets:
        best = max(float(v.mean()) for v in ingredient_values(one).values())
        assert float(preset_values(one, fit, {}).mean()) > best - 0.2


def test_a_kind_left_out_teaches_nothing() -> None:
    sets = [made("tables", "lexical"), made("people", "late", seed=2, form="peer")]
    without = leave_kinds_out(sets, {})
    assert set(without) == {"tables", "people"}
    assert without["people"].weights["late@said"] == pytest.approx(PRIOR["late@said"])
    assert without["tables"].weights["lexical@plain"] == pytest.approx(PRIOR["lexical@plain"])
    assert without["tables"].weights["late@said"] > PRIOR["late@said"]


def test_hops_are_searched_where_the_gold_needs_them() -> None:
    one = made("hops", "semantic", hops=24)
    fit = fit_kinds([one], {})
    assert fit.constants["hops.title"] > CONSTANTS["hops.title"]
    flat = KindFit(fit.weights, {**fit.constants, "hops.title": 0.0})
    assert preset_values(one, fit, {}).mean() > preset_values(one, flat, {}).mean() + 0.2


@pytest.mark.parametrize("name", ["recall", "ndcg"])
def test_measures_are_those_of_a_loop(name: str) -> None:
    found = made("x", "semantic", hops=6).gathered[0]
    found.gold[:6, 5] = 3.0
    ideal = found.gold.sort(dim=1, descending=True).values[:, :2]
    found = Gathered(found.values, found.form, found.listed, found.gold, ideal, found.hop,
                     found.hop_value)  # fmt: skip
    score = torch.randn(24, 30, generator=torch.Generator().manual_seed(5))
    got = measure(score, found, name, 7)
    for q in range(24):
        order = sorted(range(30), key=lambda c, q=q: -float(score[q, c]))[:7]
        grades = [float(found.gold[q, c]) for c in order]
        best = sorted(found.gold[q].tolist(), reverse=True)[:7]
        if name == "recall":
            wanted = sum(g > 0 for g in grades) / sum(g > 0 for g in found.gold[q].tolist())
        else:
            wanted = sum(g / math.log2(i + 2) for i, g in enumerate(grades)) / sum(
                g / math.log2(i + 2) for i, g in enumerate(best)
            )
        assert float(got[q]) == pytest.approx(wanted, rel=1e-5)


def test_a_fit_as_settings_weighs_the_same() -> None:
    weights = {key: 0.1 * place + 0.05 for place, key in enumerate(KEYS)}
    fit = KindFit(weights, {**CONSTANTS, "named": 0.7, "hops.title": 2.5})
    config = to_config(fit, load_config("default"))
    assert (config.hops.title, config.rank.weights["named"]) == (2.5, 0.7)
    table = weight_table(config.rank.weights)
    names = list(dict.fromkeys(key.partition("@")[0] for key in config.rank.weights))
    for key, value in weights.items():
        name, _, form = key.partition("@")
        rows = {"plain": ["plain"], "said": ["peer"], "": FORMS}.get(form, [form])
        for row in rows:
            got = float(table[FORMS.index(row), names.index(name)])
            assert got == pytest.approx(value, abs=1e-6)
    assert config.rank.weights["lexical_unread"] == 20.0


def test_gathered_signals_are_those_of_the_index(tmp_path: Path) -> None:
    titles = ("Silent Harbour\nA film directed by Orla Venn.", "Orla Venn\nBorn in Quillfort.")
    texts = [*titles, *(f"Subject {i}\nNothing that matters, {i}." for i in range(20))]
    atoms = tuple(Atom(f"a{i}", text, kind="passage") for i, text in enumerate(texts))
    question = Question("Who directed the film Silent Harbour?", 1, ("a1",), relevance=(2.0,))
    asked = Conversation("films", atoms, (question, Question("No gold?", 1, ())))
    config = load_config("default", {"link.concepts": "pattern"})
    with memory_of(atoms, config, HashingEmbedder(64), "cpu") as memory:
        task = RetrievalTask(asked, memory, kind=None)
        found = gather(task, config)
        index = memory.index
        with torch.inference_mode():
            candidates = index.candidates(task.encode([question.text]))
            names = ("semantic", "late", "named")
            wanted = candidates.signals(names)[0]
    assert len(found) == 1 and found.values.shape == (1, 22, len(LEARNED_FROM))
    own = found.values[0][:, [PLACE[name] for name in names]].float()
    # The same rows in another order.
    assert sorted(own[:, 0].tolist()) == pytest.approx(sorted(wanted[:, 0].tolist()), abs=1e-2)
    assert own[int(found.gold[0].argmax())].tolist() == pytest.approx(wanted[1].tolist(), abs=1e-2)
    assert float(found.gold.sum()) == 2.0 and found.ideal.tolist() == [[2.0]]
    first = int(own[:, 2].argmax())  # the film, which is named
    led = {(a, c) for _, a, c in found.hop.tolist()}
    assert (first, int(found.gold[0].argmax())) in led
    save_gathered(tmp_path / "x.pt", found)
    again = load_gathered(tmp_path / "x.pt")
    assert torch.equal(again.values, found.values) and torch.equal(again.hop, found.hop)
    cut = found.cut(1, 5)
    assert cut.values.shape[1] == 5 and bool((cut.hop[:, 1:] < 5).all())
