"""Pickles are read as CPython reads them, without running anything, and written so that CPython reads them."""

from __future__ import annotations

import math
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clearstate.errors import FormatError
from clearstate.formats.pt.pickle.read import unpickle
from clearstate.formats.pt.pickle.stubs import Global, Stub
from clearstate.formats.pt.pickle.write import dumps

KEYS = st.one_of(
    st.integers(), st.text(max_size=8), st.booleans(), st.none(), st.tuples(st.integers(), st.text(max_size=3))
)
LEAVES = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False), st.text(max_size=20), st.binary(max_size=300)
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=5),
        st.lists(inner, max_size=5).map(tuple),
        st.dictionaries(KEYS, inner, max_size=5),
        st.sets(KEYS, max_size=4),
        st.frozensets(KEYS, max_size=4),
    ),
    max_leaves=30,
)


@given(VALUES, st.sampled_from([4, 5]))
def test_what_cpython_pickles_is_read_the_same(value: Any, protocol: int) -> None:
    data = pickle.dumps(value, protocol)
    assert unpickle(data) == (value, len(data))


@given(VALUES, st.sampled_from([2, 3, 4, 5]))
def test_what_is_written_cpython_reads_the_same(value: Any, protocol: int) -> None:
    assert pickle.loads(dumps(value, protocol=protocol)) == value


@given(VALUES, st.integers(0, 5))
def test_what_is_read_from_any_protocol_and_written_cpython_reads_the_same(value: Any, protocol: int) -> None:
    read, _ = unpickle(pickle.dumps(value, protocol))
    assert pickle.loads(dumps(read, protocol=max(2, protocol))) == value


@pytest.mark.parametrize("text", [b"'a\\'b\\x41\\n\\101\\\\'", b'"\\q\\t"', b"'\\377'", b"''"])
def test_a_text_of_python_2_is_read_as_cpython_reads_it(text: bytes) -> None:
    data = b"S" + text + b"\n."
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # CPython's, of escapes that are none
        assert unpickle(data)[0] == pickle.loads(data, encoding="latin1")


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read(protocol: int) -> None:
    value = {"a": [1, 2**70, -(2**40), 1.5, math.inf, True, None, "ü" * 300, (1, 2, 3, 4), ()], (1, "x"): {}}
    assert unpickle(pickle.dumps(value, protocol))[0] == value


def test_objects_that_hold_themselves_are_read_and_written() -> None:
    items: list[Any] = []
    pair = (items, 1)
    items += [pair, items]
    back = pickle.loads(dumps(unpickle(pickle.dumps(pair))[0]))
    assert back[0][0] is back
    assert back[0][1] is back[0]


class Thing:
    """Of a class that is never imported while its pickle is read."""

    def __init__(self) -> None:
        self.x = [1, 2]


def test_objects_are_stubs_that_are_written_back_as_they_were() -> None:
    value = unpickle(pickle.dumps([Thing(), Path("a/b"), complex(1, 2)]))[0]
    assert [type(item) for item in value] == [Stub] * 3
    assert value[0].typename.endswith("test_unpickle.Thing")
    assert value[0].attribute("x") == [1, 2]
    thing, path, number = pickle.loads(dumps(value, protocol=4))
    assert (thing.x, path, number) == ([1, 2], Path("a/b"), complex(1, 2))


def test_nothing_is_imported_or_called(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    attack = b"cos\nsystem\n(Vtouch " + str(marker).encode() + b"\ntR."
    value, _ = unpickle(attack)
    assert (value.function, value.args) == (Global("os", "system"), (f"touch {marker}",))
    assert unpickle(b"cno.such.module\nname\n.")[0] == Global("no.such.module", "name")
    assert not marker.exists()


DEEP = 300_000

HOSTILE: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "the end of the data"),
    "no end": (b"N", "the end of the data"),
    "an unknown opcode": (b"\xff.", "byte 0xff"),
    "a value too few": (b"R.", "none"),
    "a mark too few": (b"t.", "none"),
    "a string of 2^63 bytes": (b"\x8d" + b"\xff" * 7 + b"\x7f.", "are missing"),
    "a string of negative length": (b"T\xff\xff\xff\xff.", "more bytes"),
    "a memo nobody filled": (b"h\x07.", "memo 7"),
    "a call of a number": (b"K\x01)R.", "a call of a int"),
    "arguments that are none": (b"cos\nsystem\nK\x01R.", "arguments that are a int"),
    "a state for a list": (b"]}b.", "a state for a list"),
    "entries for a list": (b"](K\x01K\x02u.", "entries for a list"),
    "a list as a key": (b"}(]K\x01u.", "unhashable"),
    "a number that is none": (b"Ione\n.", "invalid literal"),
    "an extension code": (b"\x82\x01.", "an extension code"),
    "a million digits": (b"I" + b"9" * 10**6 + b"\n.", "a number of 1000000 digits"),
    "a key too deep to hash": (b"}(" + b"N" + b"\x85" * DEEP + b"K\x01u.", "a key of more than 1000 parts"),
    "a key that doubles": (b"}(N" + b"q\x00h\x00\x86" * 200 + b"K\x01u.", "a key of more than 1000 parts"),
    "text that is no UTF-8": (b"X\x02\x00\x00\x00\xff\xfe.", "can't decode"),
    "a line without end": (b"c" + b"a" * 1000, "no end of the line"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_pickle_is_refused_with_where_and_why(name: str) -> None:
    data, found = HOSTILE[name]
    with pytest.raises(FormatError, match=found) as caught:
        unpickle(data)
    assert caught.value.offset is not None


@pytest.mark.parametrize("nest", [b"]" * DEEP + b"N" + b"a" * DEEP, b"N" + b"\x85" * DEEP], ids=["lists", "tuples"])
def test_a_deep_nest_is_read_and_written_without_recursion(nest: bytes) -> None:
    value, _ = unpickle(nest + b".")
    again, _ = unpickle(dumps(value))
    depth = 0
    while isinstance(again, list | tuple):
        again, depth = again[0], depth + 1
    assert depth == DEEP


def test_a_huge_memo_index_costs_nothing() -> None:
    assert unpickle(b"Nr\xff\xff\xff\x7f.")[0] is None


SEEDS = [pickle.dumps({"a": [1, (2.5, None), "x"], "b": Thing()}, protocol) for protocol in range(6)]


@given(st.sampled_from(SEEDS), st.data())
@settings(max_examples=1000, deadline=None)
def test_a_mutated_pickle_is_read_or_refused_and_nothing_else(original: bytes, data: st.DataObject) -> None:
    mutated = bytearray(original)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(mutated) - 1))
        mutated[at : at + data.draw(st.integers(0, 3))] = data.draw(st.binary(max_size=4))
        if not mutated:
            return
    try:
        value, _ = unpickle(bytes(mutated))
    except FormatError:
        return
    try:
        dumps(value, protocol=4)
    except TypeError as error:
        assert "no value of a checkpoint" in str(error)
