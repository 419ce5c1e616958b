"""`where`: conditions on what atoms say, against a predicate in plain Python."""

from __future__ import annotations

import logging
import math
import operator
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import StrEnum
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from graphmem_torch.atoms import Atom
from graphmem_torch.config import load_config
from graphmem_torch.errors import InputError
from graphmem_torch.memory import Layout, Memory, Scope
from tests.memories import DAY, asked_with, ids, opened, turns

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
    found = found_in(atom, field)
    return meets(found, condition)


def found_in(atom: Atom, field: str) -> tuple[list[Any], bool]:
    """Return an atom's values of a field, and whether it is a list."""
    name, dot, path = field.partition(".")
    if not dot:
        return ([] if getattr(atom, name) is None else [getattr(atom, name)]), False
    places = list(paths(atom.meta, path))
    parts = [
        part for value, _ in places for part in (value if isinstance(value, list) else [value])
    ]
    return parts or [LIST] * bool(places), len(places) != 1 or bool(
        places[0][1] or isinstance(places[0][0], list)
    )


LIST = object()
"""Stands for a list without elements."""


def paths(value: Any, path: str, listed: bool = False) -> Iterator[tuple[Any, bool]]:
    """Return the values under a path, by all its readings, and whether it was in a list."""
    if isinstance(value, list):
        for each in value:
            if isinstance(each, dict):
                yield from paths(each, path, True)
    elif isinstance(value, dict):
        for key, each in value.items():
            if key == path:
                yield each, listed
            if path.startswith(f"{key}."):
                yield from paths(each, path.removeprefix(f"{key}."), listed)


def meets(found: tuple[list[Any], bool], condition: Any) -> bool:
    """Whether one of the values, or all of them, meet a condition."""
    values, listed = found

    def same(other: Any) -> bool:
        missing = other is None and not values
        return missing or any(kind(v) is kind(other) and bool(v == other) for v in values)

    if not isinstance(condition, dict):
        return same(condition)
    done = True
    for name, other in condition.items():
        if name == "$not":
            done &= not meets(found, other)
        elif name in ("$in", "$nin"):
            done &= any(map(same, other)) == (name == "$in")
        elif name in ("$eq", "$ne"):
            done &= same(other) == (name == "$eq")
        elif name == "$exists":
            done &= bool(values) == other
        elif name == "$contains":
            done &= listed and bool(values) and same(other)
        elif name in ("$containsAny", "$containsAll"):
            some = any if name == "$containsAny" else all
            done &= listed and bool(values) and some(map(same, other))
        else:
            compares = {
                "$gt": operator.gt,
                "$gte": operator.ge,
                "$lt": operator.lt,
                "$lte": operator.le,
            }[name]
            done &= any(kind(v) is kind(other) and bool(compares(v, other)) for v in values)
    return done


def conditions(values: list[Any], *, lists: bool = False) -> st.SearchStrategy[Any]:
    """Conditions on a field that may have these values."""
    value = st.sampled_from(values)
    ordered = st.sampled_from([v for v in values if kind(v) in (float, str)])
    parts = {
        "$eq": value,
        "$ne": value,
        "$exists": st.booleans(),
        "$in": st.lists(value, max_size=4),
        "$nin": st.lists(value, max_size=4),
        **dict.fromkeys(("$gt", "$gte", "$lt", "$lte"), ordered),
    }
    if lists:
        parts["$contains"] = value
        parts |= dict.fromkeys(("$containsAny", "$containsAll"), st.lists(value, min_size=1))
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
    lambda name: conditions(FIELDS[name], lists=name.startswith("meta.")).map(
        lambda condition: {name: condition}
    )
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
    listed = memory._state.fields.where(memory._state.current(), where).tolist()
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
    found = memory.at(as_of=until).retrieve(
        "canoe", k=100, where=where, scope=Scope(kinds=["note"])
    )
    assert set(ids(found)) == {
        a.id for a in atoms() if fits(a, {**where, "kind": "note", "time": {"$lte": until}})
    }
    assert memory.retrieve("canoe", where={"speaker": "nobody"}).hits == ()
    assert set(ids(memory.retrieve("canoe", k=100, where={}))) == {a.id for a in atoms()}
    context = memory.compile("canoe", budget=2000, where=where, layout=Layout(tokenizer=len))
    assert {*context.sources, *context.unrelated} == wanted
    told = memory.answer(
        "canoe", llm=lambda prompt: "yes", budget=2000, where=where, layout=Layout(tokenizer=len)
    )
    assert {*told.context.sources, *told.context.unrelated} == wanted


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
    return {int(atom.id[1:]) for atom in memory.forget(where={"meta.n.v": condition}, dry_run=True)}


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
            memory.upkeep.archive([f"n{i}" for i in range(len(NUMBERS))])
            memory.upkeep.restore([f"n{i}" for i in range(len(NUMBERS))])
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
                found = memory.forget(where={"meta.n": {name: value}}, dry_run=True)
                wanted = compares(values, value).nonzero()[0]
                assert {atom.id for atom in found} == {f"n{i}" for i in wanted.tolist()}


def test_a_number_of_too_many_digits_is_told(memory: Memory) -> None:
    for value in (10**5000, Decimal("1e5000")):
        with pytest.raises(InputError, match=r"where: meta\.page: \$gt: .* 4,300 digits"):
            memory.retrieve("canoe", where={"meta.page": {"$gt": value}})


def test_what_does_not_fit_leads_to_what_does() -> None:
    """The answer shares no word with the question that stands before it."""
    config = load_config(overrides={"link.concepts": "pattern", "rank.exhaustive_up_to": 4})
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
        read = memory._state.fields._read["meta.page"]
        memory.add([Atom("c", "three", meta={"page": 1}), Atom("d", "four")])
        memory.add(Atom("e", "five canoes", meta={"page": "one"}))
        assert set(ids(memory.retrieve("canoe", where={"meta.page": 1}))) == {"b", "c"}
        assert ids(memory.retrieve("canoe", where={"meta.page": {"$gt": "a"}})) == ["e"]
        assert set(ids(memory.retrieve("canoe", where={"meta.page": None}))) == {"a", "d"}
        grown = memory._state.fields._read["meta.page"]
        assert torch.equal(grown.own.type[: len(read.own.type)], read.own.type)


@pytest.mark.parametrize(
    ("where", "message"),
    [
        (
            {"speakr": "Ada"},
            r"where: expected a field such as kind, .*, got 'speakr'; did you mean",
        ),
        ({"page": 3}, "did you mean 'meta.page'"),
        ({"meta": 3}, "got 'meta'"),
        ({"speaker.name": 3}, "got 'speaker.name'"),
        ({"speaker": 3}, "speaker: expected a string or None, got 3"),
        ({"speaker": {"$contains": "Ada"}}, "expected a field of meta, which may hold lists"),
        ({"meta.page": {"$exists": 1}}, r"\$exists: expected True or False, got 1"),
        ({"meta.page": {"$containsAll": []}}, r"\$containsAll: expected at least one value"),
        ({"meta.page": {"$containsAny": 3}}, r"\$containsAny: expected a list of values, got 3"),
        ({"meta.page": datetime(2024, 5, 3)}, "meta.page: expected a datetime with a time zone"),
        ({"meta.page": {"$in": [b"x"]}}, r"meta\.page: expected a string, number, .* \(bytes\)"),
        ({"meta." + "a." * 64: 3}, "expected at most 64 keys"),
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
    with opened() as empty:  # whatever the memories are
        for each in (memory, empty):
            with pytest.raises(InputError, match=message):
                each.retrieve("canoe", where=where)
            with pytest.raises(InputError, match=message):
                each.compile("canoe", budget=99, layout=Layout(tokenizer=len), where=where)
            with pytest.raises(InputError, match=message):
                each.forget(where=where, dry_run=True)


def test_where_of_too_many_levels(memory: Memory) -> None:
    where: dict[str, Any] = {"speaker": "Ada"}
    for _ in range(5000):
        where = {"$not": where}
    with pytest.raises(InputError, match="expected fewer levels"):
        memory.retrieve("canoe", where=where)


KEYS = ["a", "b", "a.b", "b.c", "é", "e\u0301", ""]
SCALARS: list[Any] = [None, True, False, 0, 1, 1.0, 2.5, 2**60 + 1, "1", "x", "é", "e\u0301", ""]
scalars = st.sampled_from(SCALARS)
metas = st.dictionaries(
    st.sampled_from(KEYS),
    st.recursive(
        scalars | st.lists(scalars, max_size=3),
        lambda inner: (
            st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
            | st.lists(
                st.dictionaries(st.sampled_from(KEYS), inner, max_size=2) | scalars, max_size=3
            )
        ),
        max_leaves=6,
    ),
    max_size=4,
)
names = st.lists(st.sampled_from(["a", "b", "c", "é", ""]), min_size=1, max_size=3).map(".".join)


def in_nfc(value: Any) -> Any:
    """The same with its strings and keys in NFC; of keys that are one then, the last stays."""
    if isinstance(value, dict):
        return {in_nfc(key): in_nfc(each) for key, each in value.items()}
    if isinstance(value, list):
        return [in_nfc(each) for each in value]
    return unicodedata.normalize("NFC", value) if isinstance(value, str) else value


@given(
    given=st.lists(metas, min_size=1, max_size=8),
    wheres=st.lists(st.tuples(names, conditions(SCALARS, lists=True)), min_size=1, max_size=8),
)
def test_any_meta_is_filtered_as_it_is_read(
    given: list[Any], wheres: list[tuple[str, Any]]
) -> None:
    made = [Atom(f"m{i}", f"canoe {i}", meta=meta) for i, meta in enumerate(given)]
    with opened() as memory:
        for half in (made[::2], made[1::2]):  # columns grow
            memory.add(half)
            for name, condition in wheres:
                where = {f"meta.{name}": condition}
                found = {atom.id for atom in matching(memory, where)}
                stored = [atom for atom in made if atom.id in memory]
                wanted = {
                    atom.id
                    for atom in stored
                    if holds(
                        replace(atom, meta=in_nfc(atom.meta)), f"meta.{name}", in_nfc(condition)
                    )
                }
                assert found == wanted, where


def matching(memory: Memory, where: Any) -> list[Atom]:
    """What fits, of all kinds."""
    (rows,) = memory._state.fields.where(memory._state.current(), where).nonzero(as_tuple=True)
    return memory.store.atoms(memory._state.current().node[rows].tolist())


def kites(*metas: Any, **options: Any) -> Memory:
    memory = opened(**options)
    memory.add([Atom(f"m{i}", f"a kite {i}", meta=meta) for i, meta in enumerate(metas)])
    return memory


def where_kites(memory: Memory, where: Any) -> list[str]:
    return sorted(ids(memory.retrieve("kite", k=99, where=where)))


def test_keys_with_dots() -> None:
    with opened() as memory:
        memory.add(Atom("a", "notes of the build", meta={"os.linux": "yes"}))
        assert ids(memory.retrieve("build", where={"meta.os.linux": "yes"})) == ["a"]
        memory.add(Atom("b", "notes of another build", meta={"os": {"linux": "no"}}))
        assert ids(memory.retrieve("build", where={"meta.os.linux": "yes"})) == ["a"]
        assert ids(memory.retrieve("build", where={"meta": {"os.linux": "yes"}})) == ["a"]
        assert ids(memory.retrieve("build", where={"meta": {"os": {"linux": "no"}}})) == ["b"]
    spellings = {"a.b.c": 1}, {"a": {"b.c": 1}}, {"a.b": {"c": 1}}, {"a": {"b": {"c": 1}}}, {"a": 1}
    with kites(*spellings) as memory:
        assert where_kites(memory, {"meta.a.b.c": 1}) == ["m0", "m1", "m2", "m3"]
        assert where_kites(memory, {"meta.a.b.c": {"$exists": False}}) == ["m4"]


def test_lists_as_mongodb_has_them() -> None:
    lists = ["red", "toy"], "red", ["blue"], [], None, [1, True, None], [[1]]
    with kites(*({"t": each} for each in lists), {}) as memory:

        def found(condition: Any) -> list[int]:
            return [int(id[1:]) for id in where_kites(memory, {"meta.t": condition})]

        assert found("red") == [0, 1]
        assert found({"$ne": "red"}) == [2, 3, 4, 5, 6, 7]
        assert found({"$in": ["toy", "blue"]}) == [0, 2]
        assert found({"$nin": ["toy", "blue"]}) == [1, 3, 4, 5, 6, 7]
        assert found({"$contains": "red"}) == [0]
        assert found({"$not": {"$contains": "red"}}) == [1, 2, 3, 4, 5, 6, 7]
        assert found({"$containsAny": ["blue", "toy"]}) == [0, 2]
        assert found({"$containsAny": []}) == []
        assert found({"$containsAll": ["toy", "red"]}) == [0]
        assert found({"$contains": True}) == found({"$contains": 1}) == [5]
        assert found({"$gte": "toy"}) == [0]
        assert found(None) == [4, 5, 7]
        assert found({"$exists": True}) == [0, 1, 2, 3, 4, 5, 6]


def test_truth_values_are_no_numbers() -> None:
    with kites({"n": 1}, {"n": True}, {"n": False}, {"n": 0}, {"n": 1.0}) as memory:
        assert where_kites(memory, {"meta.n": True}) == ["m1"]
        assert where_kites(memory, {"meta.n": 1}) == ["m0", "m4"]
        assert where_kites(memory, {"meta.n": {"$gte": 0}}) == ["m0", "m3", "m4"]
        assert where_kites(memory, {"meta.n": {"$in": [False, 1]}}) == ["m0", "m2", "m4"]


def test_values_of_meta_are_found_by_what_was_given_and_by_what_comes_back() -> None:
    moment = datetime(2024, 5, 3, 10, tzinfo=UTC)
    given = moment, date(2024, 5, 3), UUID(int=7), np.True_, np.int8(3), np.float32(0.1)
    with kites(*({"v": value} for value in given), {"v": [moment, 3]}) as memory:
        for i, value in enumerate(given):
            kept = memory.get(f"m{i}").meta["v"]
            assert f"m{i}" in where_kites(memory, {"meta.v": value})
            assert where_kites(memory, {"meta.v": kept}) == where_kites(memory, {"meta.v": value})
            assert memory.update(f"m{i}", meta={"v": value}).meta == {"v": kept}
        assert where_kites(memory, {"meta.v": {"$gt": date(2024, 5, 2)}}) == ["m0", "m1", "m6"]
        with pytest.raises(
            InputError, match=r"atom 'z': meta\.due\.at: expected a datetime with a"
        ):
            memory.add(Atom("z", "a kite", meta={"due": {"at": datetime(2024, 5, 3)}}))
        with pytest.raises(InputError, match=r"meta\.tags: expected .*got .* \(set\)"):
            memory.add({"text": "a kite", "tags": {"red"}})


def warned(caplog: pytest.LogCaptureFixture, call: Any) -> tuple[Any, list[str]]:
    """Return the result of a call, and its warnings."""
    caplog.clear()
    with caplog.at_level(logging.WARNING):
        return call(), [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize(
    ("where", "said"),
    [
        ({"meta.pgae": 3}, "a field of some memory, got 'meta.pgae'; did you mean 'meta.page'?"),
        ({"meta": {"nme": "x"}}, "got 'meta.nme'; did you mean 'meta.name'?"),
        ({"meta.zzz": {"$exists": True}}, "got 'meta.zzz'; check its name"),
        ({"meta.page": "3"}, "meta.page: expected what the field holds, numbers, got '3'"),
        ({"meta.page": True}, "numbers, got True"),
        ({"meta.page": {"$in": ["a"]}}, "numbers, got 'a'"),
        ({"meta.page": {"$contains": 3}}, "expected lists, got numbers; use $eq or $in"),
        ({"meta.own": "oven"}, "objects, got 'oven'"),
    ],
)
def test_what_no_memory_has_gives_no_hits_and_one_warning(
    caplog: pytest.LogCaptureFixture, where: Any, said: str
) -> None:
    with kites({"page": 3, "name": "a"}, {"page": 4, "own": {"b.c": 1}}) as memory:
        for call in (
            lambda: where_kites(memory, where),
            lambda: memory.at(as_of=[2e9, 3e9]).retrieve("kite", where=where)[0].hits,
            lambda: (
                memory.compile("kite", budget=99, layout=Layout(tokenizer=len), where=where).sources
            ),
            lambda: memory.forget(where=where, dry_run=True),
            lambda: memory.forget(where=where, question="kite", k=3, dry_run=True),
            lambda: memory.forget(where=where).atoms,
        ):
            found, warnings = warned(caplog, call)
            assert not found and len(warnings) == 1 and said in warnings[0]
        assert len(memory) == 2


def test_a_field_before_the_first_memory_has_it_and_after_the_last(
    caplog: pytest.LogCaptureFixture,
) -> None:
    where = {"meta.project": "kite"}
    with opened() as memory:
        for text in ("", "a kite"):
            if text:
                memory.add(Atom("x", text))
            found, warnings = warned(caplog, lambda: memory.retrieve("kite", where=where).hits)
            assert found == () and len(warnings) == 1 and "check its name" in warnings[0]
        memory.add(Atom("y", "the red kite", meta={"project": "kite"}))
        found, warnings = warned(caplog, lambda: ids(memory.retrieve("kite", where=where)))
        assert found == ["y"] and warnings == []
        memory.delete("y")
        found, warnings = warned(caplog, lambda: memory.retrieve("kite", where=where).hits)
        assert found == () and len(warnings) == 1
        found, warnings = warned(
            caplog, lambda: memory.retrieve("kite", where={"meta.projct": "kite"}).hits
        )
        assert "project" not in warnings[0].replace("projct", ""), "the name of what was deleted"
        either = {"$or": [where, {"id": "x"}], "meta.project": {"$ne": "oven"}}
        assert ids(memory.retrieve("kite", where=either)) == ["x"]


def test_one_filter_serves_many_namespaces(caplog: pytest.LogCaptureFixture) -> None:
    with opened() as memory:
        for name, meta in (("a", {}), ("b", {"project": "kite"}), ("c", {"project": 3})):
            memory.namespaces.create(name).add(Atom(name, "a kite", meta=meta))

        def found(field: str) -> list[list[str]]:
            results = memory.retrieve(
                ["kite"] * 3, scope=Scope(namespaces=["a", "b", "c"]), where={field: "kite"}
            )
            return [ids(result) for result in results]

        assert warned(caplog, lambda: found("meta.project")) == ([[], ["b"], []], [])
        hits, warnings = warned(caplog, lambda: found("meta.projct"))
        assert hits == [[], [], []] and len(warnings) == 1
        assert "did you mean 'meta.project'?" in warnings[0]


@pytest.mark.parametrize(
    "where",
    [
        {"meta.projct": {"$ne": "kite"}},
        {"meta.projct": None},
        {"$not": {"meta.projct": {"$in": ["kite"]}}},
        {"meta.page": {"$ne": "3"}},
        {"meta.page": {"$nin": ["3", "4"]}},
    ],
)
def test_nothing_is_erased_because_a_field_is_misspelled(where: Any) -> None:
    with kites({"project": "kite", "page": 3}, {"project": "oven", "page": 4}) as memory:
        assert where_kites(memory, where) == ["m0", "m1"], "as MongoDB has it"
        for call in (memory.forget, partial(memory.forget, dry_run=True)):
            with pytest.raises(InputError, match="expected a condition that tells memories apart"):
                call(where=where)
        assert len(memory) == 2
        there = {"meta.gone": {"$exists": False}}
        assert [atom.id for atom in memory.forget(where=there, dry_run=True)] == ["m0", "m1"]


@pytest.mark.parametrize("count", [0, 6])
def test_times_are_wrong_whatever_the_memories_are(count: int) -> None:
    wrong: list[dict[str, Any]] = [
        {"between": ("2024-05-01", "2023-05-01")},
        {"between": ("2024-05-01",)},
        {"between": ("soon", None)},
        {"valid_at": "soon"},
        {"asked": "soon"},
        {"as_of": "soon"},
    ]
    with opened() as memory:
        memory.add(turns(count))
        for scope in wrong:
            for verb, budget in (("retrieve", {}), ("compile", {"budget": 99})):
                with pytest.raises(InputError, match=f"{next(iter(scope))}: expected"):
                    view, conditions = asked_with(memory, scope)
                    getattr(view, verb)("Where?", **conditions, **budget)
