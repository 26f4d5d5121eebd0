"""What a write tool asks for: its parameters as the columns say, its values as the database takes them."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest
import sqlalchemy as sa
from langchain_core.utils.function_calling import convert_to_openai_tool
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from abreast import ConfigurationError, InputError, Writable, constant
from abreast.agents.parameters import Own, Parameters
from abreast.core.permits import as_writable, settable
from abreast.store.tracked import resolve
from columns import Cents, Colour


class Base(DeclarativeBase):
    pass


class Thing(Base):
    __tablename__ = "thing"
    number: Mapped[int] = mapped_column(primary_key=True)
    home: Mapped[str]
    name: Mapped[str] = mapped_column(sa.String(5), doc="What it is called.")
    count: Mapped[int | None]
    real: Mapped[float | None] = mapped_column(sa.Float(53))
    price: Mapped[Decimal | None] = mapped_column(sa.Numeric(6, 2))
    cents: Mapped[Decimal | None] = mapped_column(Cents)
    yes: Mapped[bool] = mapped_column(default=False)
    day: Mapped[dt.date | None]
    moment: Mapped[dt.datetime | None]
    zoned: Mapped[dt.datetime | None] = mapped_column(sa.DateTime(timezone=True))
    clock: Mapped[dt.time | None]
    span: Mapped[dt.timedelta | None]
    other: Mapped[UUID | None]
    text_id: Mapped[str | None] = mapped_column(sa.Uuid(as_uuid=False))
    colour: Mapped[Colour | None]
    data: Mapped[bytes | None]
    json: Mapped[Any | None] = mapped_column(sa.JSON)
    listed: Mapped[Any | None] = mapped_column(sa.JSON().with_variant(postgresql.ARRAY(sa.Text), "postgresql"))
    version: Mapped[str | None]
    model_config: Mapped[str | None]
    twice: Mapped[int | None] = mapped_column(sa.Computed("count * 2"))
    changed_at: Mapped[dt.datetime | None] = mapped_column(onupdate=dt.datetime.now)
    made_at: Mapped[dt.datetime] = mapped_column(server_default=sa.func.now())
    입주일: Mapped[dt.date | None]
    counter: Mapped[int] = mapped_column()
    __mapper_args__ = {"version_id_col": counter}  # noqa: RUF012


def parameters(*, creating: bool = False, dialect: Any = None, **options: Any) -> Parameters:
    tracked = resolve(Thing, workspace="home", tracked={}, labels={"day": "Einzug"}, **options)
    fields = settable(tracked) - (set() if creating else {"number"})
    own = {"id": Own(str | int, "Which."), "version": Own(int, "As read.")}
    made: Any = dialect or sqlite.dialect()
    return Parameters(
        tracked,
        shown=fields - {f.name for f in tracked.fields if f.redacted},
        accepted=fields,
        own=own,
        creating=creating,
        dialect=made,
    )


def value(name: str, given: Any) -> Any:
    return parameters().read({name: given})[1][name.rstrip("_")]


def test_what_nobody_should_set_is_not_asked_for():
    known = set(parameters(redact={"data"}).schema["properties"])
    assert known.isdisjoint({"number", "home", "twice", "changed_at", "counter", "data"})
    assert {"id", "version", "version_", "name", "made_at", "model_config"} < known
    assert "number" not in parameters(creating=True).schema["properties"]


def test_what_must_be_given():
    assert parameters().schema["required"] == ["id", "version"]
    assert parameters(creating=True).schema["required"] == ["id", "version", "name"]
    with pytest.raises(InputError, match="name: Field required"):
        parameters(creating=True).read({})


@pytest.fixture
def make(hubs, tmp_path):
    """Makes hubs; nothing is read or written through them."""
    return lambda: hubs(f"sqlite:///{tmp_path / 'app.db'}")


def test_the_schema_is_one_that_providers_take(make):
    tracked_hub = make()
    tracked_hub.track(Thing, workspace="home")
    for tool in tracked_hub.tools(Thing):
        function = convert_to_openai_tool(tool)["function"]
        assert function["parameters"]["type"] == "object"
        assert all(name.isascii() for name in function["parameters"]["properties"])
        assert "runtime" not in function["parameters"]["properties"]
        assert len(function["description"]) < 700
    schema = parameters().schema
    assert schema["properties"]["name"] == {"type": "string", "maxLength": 5, "description": "What it is called."}
    assert schema["properties"]["day"] == {
        "anyOf": [{"type": "string", "format": "date"}, {"type": "null"}],
        "description": "Einzug",
    }
    assert schema["properties"]["colour"]["anyOf"][0] == {"enum": ["RED", "BLUE"], "type": "string"}
    assert schema["properties"]["version"] == {"type": "integer", "description": "As read."}
    assert "default" not in str(schema)
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize(
    ("name", "given", "taken"),
    [
        ("count", 7, 7),
        ("real", 0.1, 0.1),
        ("price", "12.50", Decimal("12.50")),
        ("price", 12.5, Decimal("12.5")),
        ("cents", 1050, Decimal("10.5")),
        ("yes", True, True),
        ("day", "2026-09-30", dt.date(2026, 9, 30)),
        ("moment", "2026-09-30T12:30:01", dt.datetime.fromisoformat("2026-09-30T12:30:01")),
        ("zoned", "2026-09-30T12:30:00+09:00", dt.datetime(2026, 9, 30, 3, 30, tzinfo=dt.UTC)),
        ("zoned", "2026-09-30T03:30:00", dt.datetime(2026, 9, 30, 3, 30, tzinfo=dt.UTC)),
        ("clock", "23:59:01", dt.time(23, 59, 1)),
        ("span", "P2DT5S", dt.timedelta(days=2, seconds=5)),
        ("other", "00000000-0000-0000-0000-00000000004d", UUID(int=77)),
        ("text_id", "00000000-0000-0000-0000-00000000004d", str(UUID(int=77))),
        ("colour", "BLUE", "BLUE"),
        ("data", "AP8=", b"\x00\xff"),
        ("json", {"a": [1, None]}, {"a": [1, None]}),
        ("json", [1], [1]),
        ("version_", "text", "text"),
        ("model_config", "text", "text"),
        ("count", None, None),
    ],
)
def test_a_value_becomes_what_the_column_takes(name, given, taken):
    found = value(name, given)
    assert (found, type(found)) == (taken, type(taken))


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("count", "many"),
        ("count", 1.5),
        ("real", "nan"),
        ("price", "1.234"),
        ("price", 123456),
        ("price", "NaN"),
        ("cents", "much"),
        ("yes", "perhaps"),
        ("yes", None),
        ("day", "2026-02-30"),
        ("moment", "2026-09-30T12:30:01Z"),
        ("clock", "25:00"),
        ("other", "77"),
        ("colour", "GREEN"),
        ("colour", "b"),
        ("data", "not base64!"),
        ("name", "longer"),
        ("name", 7),
        ("name", "\ud83d"),
        ("name", None),
        ("home", "w2"),
        ("number", 3),
        ("nam", "x"),
        ("version", "x"),
        ("id", {}),
    ],
)
def test_what_is_no_value_is_named(name, given):
    with pytest.raises(InputError, match=f"{name}: .*Nothing was written"):
        parameters().read({name: given})


def test_absent_and_null_are_told_apart():
    own, values = parameters().read({"id": 7, "version": 3, "count": None, "day (Einzug)": "2026-09-30"})
    assert own == {"id": 7, "version": 3}
    assert values == {"count": None, "day": dt.date(2026, 9, 30)}


def test_a_name_that_no_provider_takes_gets_another():
    made = parameters()
    argument = made.arguments["입주일"]
    assert argument.startswith("field_")
    assert "입주일" in made.schema["properties"][argument]["description"]
    assert made.read({argument: "2026-09-30"})[1] == {"입주일": dt.date(2026, 9, 30)}


def test_write_rules_that_cannot_be():
    for make in (
        lambda: Writable(operations={"upsert"}),  # type: ignore[arg-type]
        lambda: Writable(operations="insert"),  # type: ignore[arg-type]
        lambda: Writable(fields="name"),
    ):
        with pytest.raises(ConfigurationError):
            make()
    with pytest.raises(ConfigurationError, match="nam"):
        resolve(Thing, workspace="home", tracked={}, writable=Writable(fields={"nam"}))
    tracked = resolve(Thing, workspace=constant("w"), tracked={}, writable=Writable(fields={Thing.name, "day"}))
    assert tracked.writable == Writable(fields={"name", "day"})
    assert as_writable(True, tracked) == Writable()
    assert as_writable(False, tracked).operations == frozenset()
    assert as_writable(Thing.count > 3, tracked).where is not None
    for answer in (None, "yes", Writable(fields={"nam"})):
        with pytest.raises(ConfigurationError):
            as_writable(answer, tracked)


def test_a_table_whose_rows_cannot_be_made_by_a_tool_has_no_create_tool(make):
    hub = make()
    hub.track(Thing, workspace="home", redact={"name"})
    assert [tool.name for tool in hub.tools(Thing)][-2:] == ["update_thing", "delete_thing"]
    named = make()
    named.track(Thing, workspace="home", redact={"name"}, writable=Writable(fields={"name"}))
    assert [tool.name for tool in named.tools(Thing)][-3:] == ["create_thing", "update_thing", "delete_thing"]
