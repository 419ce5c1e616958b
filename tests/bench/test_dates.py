from __future__ import annotations

from collections import Counter
from datetime import date

import pytest

from bench.dates import READERS, Dates, Phrase, is_right, phrases, run
from graphmem_torch.errors import InputError

MAY = [date(2024, 5, day) for day in range(1, 32)]


def test_the_annotated_phrases_are_whole() -> None:
    every = list(phrases())
    assert Counter(each.source for each in every) == {
        "spoken": 21,
        "locomo": 100,
        "longmemeval": 100,
    }
    for each in every:
        if each.least is not None:
            assert each.most is not None
            assert each.most[0] <= each.least[0] <= each.least[1] <= each.most[1], each


def test_a_reading_lies_between_what_must_and_what_may_be_read() -> None:
    phrase = Phrase("made", MAY[0], "about then", False, (MAY[3], MAY[4]), (MAY[2], MAY[6]))
    assert is_right(phrase, [(MAY[3], MAY[4])]) and is_right(phrase, [(MAY[2], MAY[6])])
    assert is_right(phrase, [(MAY[0], MAY[0]), (MAY[3], MAY[5])])
    for wrong in ([], [(MAY[3], MAY[3])], [(MAY[1], MAY[4])], [(MAY[3], MAY[7])]):
        assert not is_right(phrase, wrong)
    none = phrase._replace(least=None, most=None)
    assert is_right(none, []) and not is_right(none, [(MAY[3], MAY[4])])


def test_the_package_reads_what_is_hard_and_nine_in_ten_of_the_others() -> None:
    right = run(Dates())["readers"]["package"]["right"]
    assert right["spoken"] == 21
    assert right["locomo"] >= 90 and right["longmemeval"] >= 90
    wrong = run(Dates(wrong=True))["readers"]["package"]["wrong"]
    assert len(wrong) == 221 - sum(right.values())


def test_unknown_readers_are_refused() -> None:
    with pytest.raises(InputError, match=f"expected names of {', '.join(READERS)}, got timex"):
        run(Dates(readers=("timex",)))
