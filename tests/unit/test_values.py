"""The one JSON form of values: what both databases write, read into the same."""

from __future__ import annotations

import base64
import datetime as dt
import json
import uuid
from decimal import Decimal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from abreast import InputError
from abreast.store.tracked import Field
from abreast.store.values import canonical, load


def read(kind: str, raw: str, dialect: str = "postgresql", **more: object) -> object:
    """The canonical form of a raw JSON text."""
    return canonical(dialect, Field("f", kind, **more), load(raw))


@pytest.mark.parametrize(
    ("kind", "postgresql", "sqlite", "expected"),
    [
        ("text", '"a"', '"a"', "a"),
        ("text", "null", "null", None),
        ("integer", "9223372036854775807", "9223372036854775807", 2**63 - 1),
        ("boolean", "true", "1", True),
        ("boolean", "false", "0", False),
        ("float", "0.30000000000000004", "0.30000000000000004", 0.1 + 0.2),
        ("float", '"Infinity"', '"Infinity"', "Infinity"),
        ("float", '"NaN"', '"NaN"', "NaN"),
        ("date", '"2026-09-30"', '"2026-09-30"', "2026-09-30"),
        ("datetime", '"2026-09-30T01:02:03"', '"2026-09-30 01:02:03.000000"', "2026-09-30T01:02:03"),
        ("datetime", '"2026-09-30T01:02:03.5"', '"2026-09-30 01:02:03.500000"', "2026-09-30T01:02:03.5"),
        ("datetime", '"2026-09-30T10:02:03+09:00"', '"2026-09-30 01:02:03+00:00"', "2026-09-30T01:02:03Z"),
        ("datetime", '"2026-09-30T10:02:03.250+09"', '"2026-09-30T01:02:03.25Z"', "2026-09-30T01:02:03.25Z"),
        ("datetime", '"infinity"', '"infinity"', "infinity"),
        ("time", '"01:02:03"', '"01:02:03.000000"', "01:02:03"),
        ("time", '"10:20:30"', '"10:20:30"', "10:20:30"),
        ("time", '"01:02:03.50+09:00"', '"01:02:03.500000+09:00"', "01:02:03.5+09:00"),
        (
            "uuid",
            '"01234567-89ab-cdef-0123-456789abcdef"',
            '"0123456789ABCDEF0123456789abcdef"',
            "01234567-89ab-cdef-0123-456789abcdef",
        ),
        ("bytes", '"\\\\x00ff"', '"00FF"', "AP8="),
        ("bytes", '"\\\\x"', '""', ""),
        ("json", '{"a": [1, 2.5]}', '"{\\"a\\":[1,2.5]}"', {"a": [1, 2.5]}),
        ("json", '"5"', '"\\"5\\""', "5"),
        ("json", "5", '"5"', 5),
        ("json", '"{broken"', '"{broken"', "{broken"),
    ],
)
def test_both_databases_are_read_into_one_form(kind, postgresql, sqlite, expected):
    for dialect, raw in (("postgresql", postgresql), ("sqlite", sqlite)):
        found = read(kind, raw, dialect)
        assert found == expected
        assert type(found) is type(expected)


@pytest.mark.parametrize(
    ("raw", "scale", "expected"),
    [
        ("1200.5", 2, "1200.50"),
        ("1200", 2, "1200.00"),
        ("0.1", None, "0.1"),
        ("1200", None, "1200"),
        ("1e+20", 2, "100000000000000000000.00"),
        ("1e+20", None, "100000000000000000000"),
        ("-0.005", 2, "-0.00"),
        ("12345678901234567890123456789012345678.12", 2, "12345678901234567890123456789012345678.12"),
        ('"NaN"', 2, "NaN"),
        ('"1.5"', 1, "1.5"),
    ],
)
def test_a_decimal_is_a_string_with_its_scale_and_all_its_digits(raw, scale, expected):
    assert read("decimal", raw, scale=scale) == expected


@pytest.mark.parametrize("kind", ["decimal", "float", "boolean", "uuid", "bytes", "datetime", "time", "integer", "date"])
def test_what_is_not_what_the_model_says_is_shown_as_it_is(kind):
    assert read(kind, '"not that"', "sqlite") in ("not that", "notTthat", "notT that", "notTthat")
    assert read(kind, "null") is None


@pytest.mark.parametrize(
    ("raw", "data"), [('"AB"', b"AB"), ('"a\\\\\\\\b"', b"a\\b"), ('"\\\\000\\\\377z"', b"\0\xffz"), ('""', b"")]
)
def test_bytes_of_a_writer_that_set_the_older_form(raw, data):
    assert base64.b64decode(str(read("bytes", raw))) == data


def test_an_absurd_number_is_no_way_to_use_up_the_memory():
    assert read("decimal", '"1e999999999"', "sqlite", scale=2) == "1e999999999"
    assert read("decimal", '"1e999999999"', "sqlite") == "1e999999999"


FLOATS = st.floats(allow_nan=False, allow_infinity=False)
PLAIN = st.none() | st.booleans() | st.integers() | FLOATS | st.text()


@settings(derandomize=True, deadline=None)
@given(st.recursive(PLAIN, lambda inside: st.lists(inside) | st.dictionaries(st.text(), inside)))
def test_any_json_comes_back_as_itself(value):
    text = json.dumps(value)
    for dialect, raw in (("postgresql", text), ("sqlite", json.dumps(text))):
        found = read("json", raw, dialect)
        assert json.dumps(found, sort_keys=True) == json.dumps(value, sort_keys=True)


@settings(derandomize=True, deadline=None)
@given(st.text())
def test_no_json_text_of_sqlite_breaks_the_reading(text):
    found = read("json", json.dumps(text), "sqlite")
    json.dumps(found, allow_nan=False)


@settings(derandomize=True, deadline=None)
@given(
    st.datetimes(timezones=st.just(dt.UTC)),
    st.binary(),
    st.uuids(),
    st.decimals(allow_nan=False, allow_infinity=False, places=3),
    FLOATS,
)
def test_python_values_as_the_databases_write_them(moment, data, key, amount, number):
    seoul = moment.astimezone(dt.timezone(dt.timedelta(hours=9))) if moment.year < 9999 else moment
    read_back = read("datetime", json.dumps(seoul.isoformat()))
    assert dt.datetime.fromisoformat(str(read_back)) == moment
    assert base64.b64decode(str(read("bytes", json.dumps(data.hex().upper()), "sqlite"))) == data
    assert base64.b64decode(str(read("bytes", json.dumps("\\x" + data.hex())))) == data
    assert uuid.UUID(str(read("uuid", json.dumps(key.hex), "sqlite"))) == key
    assert Decimal(str(read("decimal", format(amount, "f"), scale=3))) == amount
    assert read("float", json.dumps(number)) == number


def test_the_parts_of_a_composite_id_and_what_is_none():
    import sqlalchemy as sa

    from abreast import constant
    from abreast.store.tracked import resolve
    from abreast.store.values import key_parts, typed_key

    table = sa.Table("t", sa.MetaData(), sa.Column("a", sa.Text, primary_key=True), sa.Column("b", sa.Integer, primary_key=True))
    tracked = resolve(table, workspace=constant("w"), tracked={})
    assert key_parts(tracked, '["x","1"]') == ["x", "1"]
    assert typed_key(tracked, '["x","1"]') == ("x", 1)
    for entity_id in ('["x"]', "x", '["x",1]', '{"a":"x"}', "", "[", '["x","1","2"]'):
        with pytest.raises(InputError, match='\\["a","b"\\]'):
            key_parts(tracked, entity_id)
    for entity_id in ('["x","one"]', '["x","99999999999999999999"]', '["\\u0000","1"]'):
        assert typed_key(tracked, entity_id) is None
