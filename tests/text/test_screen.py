"""The screen of pairs passes over no pair that the local judge calls a contradiction."""

from __future__ import annotations

import itertools

import pytest
import torch

from graphmem_torch.text.embedder import HashingEmbedder
from graphmem_torch.text.entailment import LexicalJudge
from graphmem_torch.text.screen import ConflictScreen

SAID = [
    "Ana lives in Lisbon.",
    "Ana: Oh, and I just moved to Porto. How are you?",
    "Ana left Lisbon and settled in Oslo.",
    "Ana doesn't live in Lisbon any more.",
    "Ana's brother lives in Porto.",
    "Ben lives in Lisbon, it rains there every day.",
    "Ana works for Acme.",
    "Ana doesn't work at Acme anymore, but at Hooli.",
    "Ana plays the violin.",
    "Ana gave up the violin.",
    "Ana's favourite drink is mint tea.",
    "Ana now prefers green tea.",
    "The door code is kestrel.",
    "The door code was changed to orchid.",
    "The desk costs 80 euros.",
    "The desk went from 80 euros to 95 euros.",
    "Ana sold 12 red canoes to the harbour museum in March 2021.",
    "Ana did not sell red canoes to the harbour museum. She bought them.",
    "Ana sold 15 red canoes to the harbour museum in April.",
    "Ana bought red canoes at the harbour museum. Ben is not here.",
    "The shop opens early on Sunday.",
    "The shop opens late on Sunday.",
    "I never eat meat, I don't drink.",
    "I eat meat.",
    "Ich wohne nicht mehr in Berlin, ich bin nach Hamburg umgezogen.",
    "Thanks!",
    "",
]
EVERY = torch.tensor(list(itertools.permutations(range(len(SAID)), 2))).T


@pytest.fixture(scope="module")
def contradicted() -> torch.Tensor:
    """Pairs that the judge, asked of texts with equal vectors, calls contradictions."""
    judge = LexicalJudge(HashingEmbedder(32))
    ends = [[SAID[i] for i in side.tolist()] for side in EVERY]
    verdicts = judge.judge_near(*ends, torch.ones(EVERY.shape[1]))
    return torch.tensor([each.label == "contradict" for each in verdicts])


def screened(*parts: list[int]) -> ConflictScreen:
    screen = ConflictScreen()
    for part in parts:
        screen.add(part, [SAID[i] for i in part], stop=part[-1] + 1)
    return screen


def test_no_contradiction_is_passed_over(contradicted: torch.Tensor) -> None:
    screen = screened([*range(len(SAID))])
    passed = screen.by_state(EVERY) | screen.by_words(EVERY)
    assert contradicted.sum() > 30
    assert not (contradicted & ~passed).any()
    assert passed.sum() < len(passed) / 2 and screen.known(EVERY).all()


def test_what_is_far_is_a_matter_of_states() -> None:
    judge = LexicalJudge(HashingEmbedder(32))
    ends = [[SAID[i] for i in side.tolist()] for side in EVERY]
    verdicts = judge.judge_near(*ends, torch.full((EVERY.shape[1],), -1.0))
    sure = torch.tensor([each.label == "contradict" for each in verdicts])
    assert sure.sum() > 20 and not (sure & ~screened([*range(len(SAID))]).by_state(EVERY)).any()


def test_one_by_one_is_as_all_at_once_and_gaps_are_unknown() -> None:
    whole, parts = screened([*range(len(SAID))]), screened(*([i] for i in range(len(SAID))))
    assert torch.equal(whole.by_state(EVERY), parts.by_state(EVERY))
    assert torch.equal(whole.by_words(EVERY), parts.by_words(EVERY))
    gaps = screened([0, 3], [9])
    assert gaps.known(torch.arange(10)).nonzero().flatten().tolist() == [0, 3, 9]
    pairs = torch.tensor([[3, 4, 9], [0, 0, 5]])
    assert gaps.by_state(pairs).tolist() == [True, False, False]
    none = torch.empty(2, 0, dtype=torch.int64)
    assert gaps.by_state(none).shape == gaps.by_words(none).shape == (0,)
