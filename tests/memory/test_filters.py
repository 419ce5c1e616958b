"""`where`: conditions on what atoms say, against a predicate in plain Python."""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Memory
from tests.memories import DAY, ids, opened, turns

MIXED = ["3", 3, 3.5, True, None, False, "", "ö", -1, 2**60, [1, 2], {"inner": 1}]


def atoms() -> list[Atom]:
    """Turns whose `meta.mixed` holds a value of every type, and the last ones nothing."""
    plain = turns(26)
    return [
        Atom(
            **{name: getattr(atom, name) for name in ("id", "text", "kind", "speaker", "time")},
            session=atom.session if i % 7 else None,
            type="semantic" if i % 4 == 1 else None,
            meta={**atom.meta, **({"mixed": MIXED[i // 2]} if i < 24 else {})},
        )
        for i, atom in enumerate(plain)
    ]


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    with opened() as made:
        made.add(atoms())
        yield made


def value_of(atom: Atom, field: str) -> Any:
    """What an atom says in a field; None where it says nothing."""
    name, *keys = field.split(".")
    value = getattr(atom, name)
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def kind(value: Any) -> type:
    return float if isinstance(value, (int, float)) and not isinstance(value, bool) else type(value)


def fits(atom: Atom, where: dict[str, Any]) -> bool:
    """The same question to one atom."""
    return all(holds(atom, name, condition) for name, condition in where.items())


def holds(atom: Atom, field: str, condition: Any) -> bool:
    if field == "$not":
        return not fits(atom, condition)
    if field in ("$and", "$or"):
        return (all if field == "$and" else any)(fits(atom, part) for part in condition)
    mine = value_of(atom, field)

    def same(other: Any) -> bool:
        return kind(mine) is kind(other) and bool(mine == other)

    if not isinstance(condition, dict):
        return same(condition)
    found = True
    for name, other in condition.items():
        if name == "$not":
            found &= not holds(atom, field, other)
        elif name in ("$in", "$nin"):
            found &= any(map(same, other)) == (name == "$in")
        elif name in ("$eq", "$ne"):
            found &= same(other) == (name == "$eq")
        else:
            compares = {
                "$gt": operator.gt,
                "$gte": operator.ge,
                "$lt": operator.lt,
                "$lte": operator.le,
            }[name]
            found &= kind(mine) is kind(other) and bool(compares(mine, other))
    return found


def conditions(values: list[Any]) -> st.SearchStrategy[Any]:
    """Conditions on a field that may have these values."""
    value = st.sampled_from(values)
    ordered = st.sampled_from([v for v in values if kind(v) in (float, str)])
    parts = {
        "$eq": value,
        "$ne": value,
        "$in": st.lists(value, max_size=4),
        "$nin": st.lists(value, max_size=4),
        **dict.fromkeys(("$gt", "$gte", "$lt", "$lte"), ordered),
    }
    operators = st.lists(st.sampled_from(sorted(parts)), min_size=1, max_size=2, unique=True)
    several = operators.flatmap(lambda names: st.fixed_dictionaries({n: parts[n] for n in names}))
    return value | several | several.map(lambda inner: {"$not": inner})


FIELDS = {
    "kind": ["note", "turn", "o", "zz", None],
    "speaker": ["Ada", "Ben", "Adam", None],
    "session": ["s0", "s3", "s99", None],
    "id": ["a1", "a10", "a2", "b"],
    "type": ["semantic", "episodic", None],
    "time": [1.7e9 + 3 * DAY + 0.5, 1.7e9, 1.7e9 + 9 * DAY, None],
    "meta.page": [1, 7.0, 6.5, 25, -1, 10**400, None],
    "meta.project.name": ["oven", "kite", "l", None],
    "meta.mixed": [v for v in MIXED if not isinstance(v, (list, dict))],
}
one = st.sampled_from(sorted(FIELDS)).flatmap(
    lambda name: conditions(FIELDS[name]).map(lambda condition: {name: condition})
)
wheres = st.recursive(
    one | st.tuples(one, one).map(lambda two: {**two[0], **two[1]}),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$and": parts})
        | st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"$or": parts})
        | inner.map(lambda part: {"$not": part})
    ),
    max_leaves=4,
)


@given(where=wheres)
def test_where_is_a_predicate_of_each_atom(memory: Memory, where: dict[str, Any]) -> None:
    listed = memory._fields.where(memory._current(), where).tolist()
    assert listed == [fits(atom, where) for atom in atoms()]


def test_retrieve_gives_k_hits_that_fit(memory: Memory) -> None:
    where = {"speaker": "Ada", "meta.page": {"$gte": 4}}
    wanted = {atom.id for atom in atoms() if fits(atom, where)}
    assert set(ids(memory.retrieve("canoe", k=100, where=where))) == wanted
    nested = {"speaker": "Ada", "meta": {"page": {"$gte": 4}}}
    both = memory.retrieve(["canoe", "comet"], k=3, where=nested)
    assert [len(result.hits) for result in both] == [3, 3]
    assert all(set(ids(result)) < wanted for result in both)
    until = 1.7e9 + 12 * DAY
    found = memory.retrieve("canoe", k=100, where=where, kinds=["note"], as_of=until)
    assert set(ids(found)) == {
        a.id for a in atoms() if fits(a, {**where, "kind": "note", "time": {"$lte": until}})
    }
    assert memory.retrieve("canoe", where={"speaker": "nobody"}).hits == ()
    assert set(ids(memory.retrieve("canoe", k=100, where={}))) == {a.id for a in atoms()}
    context = memory.compile("canoe", budget=2000, where=where, tokenizer=len)
    assert set(context.sources) == wanted
    told = memory.answer("canoe", llm=lambda prompt: "yes", budget=2000, where=where, tokenizer=len)
    assert set(told.context.sources) == wanted


def test_where_takes_times_as_they_are_given(memory: Memory) -> None:
    start = np.datetime64("2023-11-16T22:13:20.5").astype(object)
    for time in (start, start.isoformat(), 1.7e9 + 2 * DAY + 0.5):
        found = memory.retrieve("canoe", k=100, where={"time": {"$gt": time}})
        later = {a.id for a in atoms() if (a.time or 0) > 1.7e9 + 2 * DAY + 0.5}
        assert set(ids(found)) == later
    assert ids(memory.retrieve("canoe", where={"time": start})) == ["a2"]


def test_where_takes_enumerations_and_numbers_of_numpy(memory: Memory) -> None:
    class Who(StrEnum):
        ADA = "Ada"

    where = {"speaker": Who.ADA, "meta.page": {"$in": (np.int64(4), np.float32(10.0))}}
    assert set(ids(memory.retrieve("canoe", where=where))) == {"a4", "a10"}


FIRST = 1876543210987654321  # an id as of a chat
NUMBERS: list[Any] = [
    *(FIRST, FIRST + 1, FIRST + 2, float(FIRST), 2**53, 2**53 + 1, float(2**53), -(2**53) - 1),
    *(10**400, 10**400 + 1, -(10**400), Decimal("1e400"), Decimal("1e-400"), Decimal("-1e-400")),
    *(
        0.1,
        Decimal("0.1"),
        Decimal.from_float(0.1),
        1,
        1.0,
        True,
        False,
        0,
        -0.0,
        5e-324,
        1.7976931348623157e308,
    ),
    *(Decimal("12345678901234567890.12"), Decimal("12345678901234567890.13"), 2**1024, 0.5),
]
NEAR: list[Any] = [
    *(Fraction(1, 3), Fraction(1, 10), Fraction(2 * 10**400 + 1, 2), Fraction(FIRST * 2 + 1, 2)),
    *(math.inf, -math.inf, Decimal("Infinity"), np.int64(FIRST), np.uint64(2**53 + 1)),
    *(np.float32(0.1), np.float64(0.1), Decimal("0.5"), FIRST + 3, 2**53 + 2, -(10**399)),
]
ORDERS = {"$gt": operator.gt, "$gte": operator.ge, "$lt": operator.lt, "$lte": operator.le}


def exactly(number: Any) -> Any:
    """Something that Python compares exactly with all others; truth values are no numbers."""
    if isinstance(number, np.generic):
        number = number.item()
    if isinstance(number, Decimal):
        return Fraction(number) if number.is_finite() else float(number)
    return Fraction(number) if isinstance(number, float) and math.isfinite(number) else number


@pytest.fixture(scope="module")
def numbered() -> Iterator[Memory]:
    """A memory of `NUMBERS`."""
    with opened() as made:
        made.add([Atom(f"n{i}", "row", meta={"n": {"v": v}}) for i, v in enumerate(NUMBERS)])
        yield made


def rows(memory: Memory, condition: Any) -> set[int]:
    return {int(atom.id[1:]) for atom in memory.forgettable(where={"meta.n.v": condition})}


@pytest.mark.parametrize("value", [*NUMBERS, *NEAR], ids=lambda v: f"{type(v).__name__}-{v!s:.24}")
def test_numbers_compare_exactly(numbered: Memory, value: Any) -> None:
    truth, wanted = isinstance(value, bool), exactly(value)
    kin = {i for i, v in enumerate(NUMBERS) if isinstance(v, bool) == truth}
    same = {i for i in kin if exactly(NUMBERS[i]) == wanted}
    found = ids(numbered.retrieve("row", k=100, where={"meta.n.v": value}))
    assert {int(id[1:]) for id in found} == rows(numbered, {"$eq": value}) == same
    assert rows(numbered, {"$ne": value}) == {*range(len(NUMBERS))} - same
    assert rows(numbered, {"$in": [value, FIRST + 1]}) == same | {1}
    assert rows(numbered, {"$nin": [value, FIRST + 1]}) == {*range(len(NUMBERS))} - same - {1}
    for name, compares in ORDERS.items() if not truth else ():
        assert rows(numbered, {name: value}) == {
            i for i in kin if compares(exactly(NUMBERS[i]), wanted)
        }, name


@pytest.mark.parametrize("way", ["opened", "imported", "archived"])
def test_numbers_come_back_as_they_were(numbered: Memory, tmp_path: Path, way: str) -> None:
    numbered.export(tmp_path / "export.jsonl")
    with opened(tmp_path / "m") as memory:
        memory.import_(tmp_path / "export.jsonl")
        if way == "archived":
            memory.archive([f"n{i}" for i in range(len(NUMBERS))])
            memory.restore([f"n{i}" for i in range(len(NUMBERS))])
        if way == "opened":
            memory.close()
            memory = opened(tmp_path / "m", mode="r")
        for i, value in enumerate(NUMBERS):
            kept = memory.get(f"n{i}").meta["n"]["v"]
            assert exactly(kept) == exactly(value) and (type(kept) is bool) == (type(value) is bool)
            same = {j for j, v in enumerate(NUMBERS) if exactly(v) == exactly(value)}
            kin = {j for j in same if isinstance(NUMBERS[j], bool) == isinstance(value, bool)}
            assert rows(memory, value) == kin
        known = [Atom(f"n{i}", "row", meta={"n": {"v": v}}) for i, v in enumerate(NUMBERS)]
        assert way == "opened" or memory.add(known).new == 0, "they are the same atoms"
        assert memory.check() == []
        memory.close()


def test_numbers_that_are_added_later_compare_exactly() -> None:
    with opened() as memory:
        for i in range(6):  # a column is followed, also behind numbers that no float64 holds
            memory.add([Atom(f"n{i}", "row", meta={"n": {"v": FIRST + i}})])
            assert rows(memory, {"$gte": FIRST + i}) == rows(memory, FIRST + i) == {i}
            assert rows(memory, {"$lt": FIRST + i}) == {*range(i)}
        assert memory.forget(where={"meta.n.v": FIRST + 3}).atoms == 1
        assert rows(memory, {"$in": [FIRST + 2, FIRST + 3]}) == {2}


def test_numbers_of_many_atoms_compare_exactly() -> None:
    """Against numpy's whole numbers of 64 bits, most of which no float64 holds."""
    draw = np.random.default_rng(0)
    values = FIRST + draw.integers(-300, 300, 600)
    with opened() as memory:
        memory.add([Atom(f"n{i}", "row", meta={"n": int(v)}) for i, v in enumerate(values)])
        for value in [*values[:8].tolist(), FIRST - 400, FIRST + 400]:
            for name, compares in {**ORDERS, "$eq": operator.eq, "$ne": operator.ne}.items():
                found = memory.forgettable(where={"meta.n": {name: value}})
                wanted = compares(values, value).nonzero()[0]
                assert {atom.id for atom in found} == {f"n{i}" for i in wanted.tolist()}


def test_a_number_of_too_many_digits_is_told(memory: Memory) -> None:
    for value in (10**5000, Decimal("1e5000")):
        with pytest.raises(InputError, match=r"where: meta\.page: \$gt: .* 4,300 digits"):
            memory.retrieve("canoe", where={"meta.page": {"$gt": value}})


def test_what_does_not_fit_leads_to_what_does() -> None:
    """The answer shares no word with the question that stands before it."""
    config = load_config(overrides={"link.concepts": "pattern", "rank.dense_limit": 4})
    with opened(config=config) as memory:
        talk = [(f"What of topic{i}?", "Ada", f"Hidden answer{i}.", "Ben") for i in range(12)]
        for i, (asked, ada, told, ben) in enumerate(talk):
            memory.add(Atom(f"q{i}", asked, speaker=ada, session="s"))
            memory.add(Atom(f"r{i}", told, speaker=ben, session="s"))
        found = memory.retrieve("Tell me of topic7!", k=3, where={"speaker": "Ben"})
        assert ids(found)[0] == "r7" and len(found.hits) == 3


def test_where_follows_what_is_added() -> None:
    with opened() as memory:
        memory.add([Atom("a", "a canoe"), Atom("b", "two canoes", meta={"page": 1})])
        assert ids(memory.retrieve("canoe", where={"meta.page": 1})) == ["b"]
        read = memory._fields._read["meta.page"]
        memory.add([Atom("c", "three", meta={"page": 1}), Atom("d", "four")])
        memory.add(Atom("e", "five canoes", meta={"page": "one"}))
        assert set(ids(memory.retrieve("canoe", where={"meta.page": 1}))) == {"b", "c"}
        assert ids(memory.retrieve("canoe", where={"meta.page": {"$gt": "a"}})) == ["e"]
        assert set(ids(memory.retrieve("canoe", where={"meta.page": None}))) == {"a", "d"}
        grown = memory._fields._read["meta.page"]
        assert torch.equal(grown.type[: len(read.type)], read.type)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            {"speakr": "Ada"},
            r"where: expected a field such as kind, .*, got 'speakr'; did you mean",
        ),
        ({"page": 3}, "did you mean 'meta.page'"),
        ({"meta.pgae": 3}, "did you mean 'meta.page'"),
        ({"meta.project": {"nme": "oven"}}, "did you mean 'meta.project.name'"),
        ({"meta": 3}, "got 'meta'"),
        ({"speaker.name": 3}, "got 'speaker.name'"),
        ({"meta.page": "3"}, "meta.page: expected what compares with its numbers, got '3'"),
        ({"meta.page": {"$in": [3, "4"]}}, "numbers, got '4'"),
        ({"meta.page": {"$gt": "a"}}, "numbers, got 'a'"),
        ({"meta.page": True}, "numbers, got True"),
        ({"speaker": 3}, "speaker: expected what compares with its strings, got 3"),
        ({"meta.project": "oven"}, "with its objects, got 'oven'"),
        ({"meta.page": {"$gt": None}}, r"\$gt: expected a number or a string, got None"),
        ({"meta.page": float("nan")}, "got nan"),
        ({"speaker": ["Ada", "Ben"]}, r"got \['Ada', 'Ben'\]; for several values use \$in"),
        ({"time": "soon"}, "where: time: expected a time"),
        ({"meta.page": {"$between": 3}}, r"got '\$between'; .* of them|did you mean"),
        ({"meta.page": {"$gt": 3, "x": 1}}, "expected a value or operators"),
        ({"meta.page": {}}, "expected a value or operators"),
        ({"speaker": {"name": "Ada"}}, "expected a value or operators"),
        ({"$nor": []}, r"where: expected one of .*, got '\$nor'; did you mean '\$or'"),
        ({"$or": []}, "expected a list of conditions"),
        ({"$and": {"speaker": "Ada"}}, "expected a list of conditions"),
        ({"$or": ["speaker"]}, "expected conditions by field"),
        ({"speaker": {"$in": "Ada"}}, r"\$in: expected a list of values, got 'Ada'"),
        ({3: 4}, "where: expected one of"),
        ("speaker = 'Ada'", "where: expected conditions by field, got"),
    ],
)
def test_where_that_cannot_be_decided(memory: Memory, where: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        memory.retrieve("canoe", where=where)


def test_where_of_too_many_levels(memory: Memory) -> None:
    where: dict[str, Any] = {"speaker": "Ada"}
    for _ in range(5000):
        where = {"$not": where}
    with pytest.raises(InputError, match="expected fewer levels"):
        memory.retrieve("canoe", where=where)
