"""Premise chains of new statements: votes against a loop, and what is learned from them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor

from graphmem_torch.errors import InputError
from graphmem_torch.quality.proofs.premises import chain_signals, fit_chains


def _library(seed: int = 0) -> tuple[Tensor, Tensor]:
    """90 statements of three kinds over 30 bases: chains `[N, N]`, likeness `[1, N, N]`."""
    chance = torch.Generator().manual_seed(seed)
    kind = torch.arange(120) % 3
    chains = torch.zeros(120, 120)
    likely = kind[30:, None] == kind[:30]
    chains[30:, :30] = (torch.rand(90, 30, generator=chance) < likely * 0.8 + 0.02).float()
    view = torch.nn.functional.one_hot(kind, 3) + 0.3 * torch.randn(120, 3, generator=chance)
    view = torch.nn.functional.normalize(view, dim=1)
    # A first kind of likeness tells nothing, a second one tells the kind.
    noise = torch.nn.functional.normalize(torch.randn(120, 8, generator=chance), dim=1)
    return chains, torch.stack([noise @ noise.T, view @ view.T])


def _alone(nodes: Tensor, count: int) -> Tensor:
    allowed = torch.ones(len(nodes), count, dtype=torch.bool)
    allowed[torch.arange(len(nodes)), nodes] = False
    return allowed


def test_signals_are_votes_of_the_nearest_allowed() -> None:
    chains, likeness = _library()
    nodes = torch.tensor([40, 77])
    allowed = _alone(nodes, 120)
    allowed[0, 80:] = False
    found = chain_signals(chains, likeness[:, nodes], allowed, neighbours=4).double().numpy()
    assert found.shape == (2, 120, 9)
    for question in range(2):
        free = allowed[question].numpy()
        share = (chains.numpy()[free].sum(0) + 0.3) / (free.sum() + 1)
        share = np.minimum(share, 1 - 1e-4)
        np.testing.assert_allclose(
            found[question, :, 0], np.log(share / (1 - share)), rtol=1e-4, atol=1e-4
        )
        for kind in range(2):
            like = likeness[kind, nodes[question]].double().numpy()
            best = sorted(np.flatnonzero(free), key=lambda i: -like[i])[:4]
            weight = np.array([max(like[i], 0) for i in best])
            weight = (weight / weight[0]) ** 8
            weight /= weight.sum()
            votes = np.zeros(120)
            for i, w in zip(best, weight, strict=True):
                votes += w * chains[i].double().numpy()
                votes[i] += w
            place = 1 + 4 * kind
            np.testing.assert_allclose(found[question, :, place], like, atol=1e-6)
            np.testing.assert_allclose(found[question, :, place + 1], votes, atol=1e-5)
            np.testing.assert_allclose(
                found[question, :, place + 2], np.log(votes + 3e-3), atol=1e-3
            )
            np.testing.assert_allclose(
                found[question, :, place + 3], np.log(np.maximum(1 - votes, 0) + 3e-3), atol=1e-2
            )


def test_what_tells_is_learned() -> None:
    chains, likeness = _library()
    order = 30 + torch.randperm(90, generator=torch.Generator().manual_seed(3))
    train, test = order[:50], order[50:]
    model = fit_chains(chains, train, likeness[:, train], _alone(train, 120))
    allowed = _alone(test, 120)
    probability = model.probability(likeness[:, test], allowed)
    assert bool((probability[~allowed] == 0).all())
    assert bool(((probability >= 0) & (probability <= 1)).all())
    gold = chains[test] > 0
    size = gold.sum(1, keepdim=True)

    def own_size(score: Tensor) -> float:
        ranked = gold.gather(1, score.argsort(1, descending=True)).cumsum(1)
        return float((ranked.gather(1, size - 1) / size).mean())

    popular = chains.sum(0).expand_as(probability)
    assert own_size(probability) > own_size(popular) + 0.2
    # Probabilities mean what they say: their mean is the share of members.
    assert float(probability[allowed].mean()) == pytest.approx(float(gold.float().mean()), rel=0.2)


def test_bad_input() -> None:
    chains, likeness = _library()
    nodes = torch.tensor([40, 41])
    with pytest.raises(InputError, match="relevance and allowed"):
        fit_chains(chains, nodes, likeness[:, nodes], _alone(nodes, 120)[:1])
    with pytest.raises(InputError, match="neighbours"):
        fit_chains(chains, nodes, likeness[:, nodes], _alone(nodes, 120), neighbours=0)
    with pytest.raises(InputError, match="rows of both kinds"):
        fit_chains(torch.zeros(120, 120), nodes, likeness[:, nodes], _alone(nodes, 120))
