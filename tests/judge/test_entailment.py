"""The local judge: what it must see, what it must leave open, and the cues by themselves."""

from __future__ import annotations

import pytest

from graphmem_torch.errors import InputError
from graphmem_torch.judge.entailment import Claim, LexicalJudge, conflicts
from graphmem_torch.oracle import Verdict, ask_judge, method_of
from graphmem_torch.text.embedder import HashingEmbedder

SAID = "Ada sold 12 red canoes to the harbour museum in March 2021."

CASES = [
    (SAID, "Ada sold red canoes to the museum.", "entail"),
    (SAID, SAID, "entail"),
    (SAID, "Ada did not sell red canoes to the harbour museum.", "contradict"),
    (SAID, "Ada never sold 12 red canoes to the harbour museum.", "contradict"),
    (SAID, "Ada sold 15 red canoes to the harbour museum.", "contradict"),
    (SAID, "Ada bought 12 red canoes at the harbour museum.", "contradict"),
    (SAID, "Ada sold red canoes to the harbour museum in April 2021.", "contradict"),
    (SAID, "Ada sold red canoes to the harbour museum in 2019.", "contradict"),
    (SAID, "The orchestra rehearses every Thursday evening.", "neutral"),
    (SAID, "", "neutral"),
    ("", SAID, "neutral"),
    ("The engine doesn't fail without oil.", "The engine doesn't fail without oil.", "entail"),
    # The sentence that is about something else does not count.
    ("Ben is not here. Ada sold red canoes.", "Ada sold red canoes.", "entail"),
]


@pytest.mark.parametrize(("premise", "hypothesis", "label"), CASES)
def test_verdict(premise: str, hypothesis: str, label: str) -> None:
    judge = LexicalJudge(HashingEmbedder(256))
    (verdict,) = judge.judge([premise], [hypothesis])
    assert verdict.label == label
    assert 0.0 <= verdict.confidence <= 1.0


def test_judge_of_a_batch_is_that_of_its_pairs() -> None:
    judge = LexicalJudge(HashingEmbedder(256))
    premises, hypotheses = ([case[i] for case in CASES] for i in (0, 1))
    together = judge.judge(premises, hypotheses)
    alone = [judge.judge([p], [h])[0] for p, h in zip(premises, hypotheses, strict=True)]
    assert together == alone
    assert ask_judge(method_of(judge, "judge"), premises, hypotheses) == alone, (
        "it is a valid oracle"
    )
    assert judge.judge([], []) == []
    support = judge.support(premises, hypotheses)
    order = support.argsort(descending=True).tolist()
    assert [CASES[i][2] for i in order[:4]] == ["entail"] * 4
    with pytest.raises(InputError, match="2 premises and 1 hypotheses"):
        judge.judge(["a", "b"], ["a"])
    with pytest.raises(InputError, match="2 premises and 1 hypotheses"):
        judge.support(["a", "b"], ["a"])


@pytest.mark.parametrize(
    ("premise", "hypothesis", "share", "cues"),
    [
        ("sales increased", "sales increased", 1.0, ()),
        ("sales increased", "sales decreased", 0.5, ("opposite",)),
        ("sales increased and decreased", "sales decreased", 1.0, ()),
        ("it isn't open", "it is open", 1.0, ("negation",)),
        ("nobody isn't here", "everyone is happy", 0.0, ()),
        ("5 cats and 3 dogs", "3 cats", 1.0, ("number",)),
        ("5 cats and 3 dogs", "3 dogs", 1.0, ()),
        ("1,200 euros", "1200 euros", 1.0, ()),
        ("20 % of sales", "30 % of sales", 0.5, ("number",)),
        ("5 cats", "5 dogs", 0.5, ()),
        ("Ana fed 5 cats", "Ana saw 3 cats", 0.5, ()),
        ("Ana fed 5 cats in Rome", "Ana fed 3 cats in Oslo", 0.6, ("number",)),
        ("...", "cats", 0.0, ()),
    ],
)
def test_conflicts(premise: str, hypothesis: str, share: float, cues: tuple[str, ...]) -> None:
    got, found = conflicts(Claim.read(premise), Claim.read(hypothesis))
    assert found == cues
    if hypothesis.split()[0].isdigit():  # numbers count as words as well
        assert got > 0
    else:
        assert got == pytest.approx(share)


@pytest.mark.parametrize(
    ("answers", "good"),
    [
        (["entail"], [Verdict("entail", 1.0)]),
        ([("contradict", 0.25)], [Verdict("contradict", 0.25)]),
        ([["neutral", 1]], [Verdict("neutral", 1.0)]),
        ([Verdict("entail", 0.5)], [Verdict("entail", 0.5)]),
        ([Verdict("entail", -0.5)], [None]),
        ([Verdict("maybe", 0.5)], [None]),  # type: ignore[arg-type]
        ([("entail", True)], [None]),
        ([("entail", float("nan"))], [None]),
        ([("entail", 0.5, 0.5)], [None]),
        ([None], [None]),
        ([], [None]),
        (["entail", "entail"], [None]),
        (None, [None]),
        (7, [None]),
    ],
)
def test_ask_judge_takes_what_an_oracle_may_answer(
    answers: object, good: list[Verdict | None]
) -> None:
    assert ask_judge(lambda p, h: answers, ["premise"], ["hypothesis"]) == good


def test_claim_reads_a_number_of_any_length() -> None:
    long = "9" * 5000  # longer than Python turns into an int
    _, found = conflicts(Claim.read(f"It has {long} boats"), Claim.read("It has 3 boats"))
    assert found == ("number",)


def test_judge_says_nothing_about_other_languages() -> None:
    pairs = [("他不喜欢猫。", "他喜欢猫。"), ("Er ist nicht mehr hier.", "Er ist hier.")]
    premises, hypotheses = zip(*pairs, strict=True)
    verdicts = LexicalJudge(HashingEmbedder()).judge(premises, hypotheses)
    assert [(each.label, each.confidence) for each in verdicts] == [("neutral", 0.0)] * 2
