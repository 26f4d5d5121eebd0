"""What `hub.track` declares, resolved against SQLAlchemy metadata, and what it refuses."""

from __future__ import annotations

import enum

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import postgresql
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

from abreast import ConfigurationError, NotTrackedError, constant, via
from abreast.store.tracked import Readable, kind_of, resolve


class Base(DeclarativeBase):
    pass


class Plan(Base):
    __tablename__ = "plan"
    id: Mapped[str] = mapped_column(primary_key=True)
    workspace: Mapped[str] = mapped_column("workspace_id")
    phone: Mapped[str | None]
    budget: Mapped[object] = mapped_column(sa.Numeric(10, 2))


class Part(Base):
    __tablename__ = "part"
    a: Mapped[str] = mapped_column(primary_key=True)
    b: Mapped[int] = mapped_column(primary_key=True)
    plan_id: Mapped[str]


def test_names_may_be_columns_or_mapped_attributes_or_the_attributes_themselves():
    for given in ("workspace_id", "workspace", Plan.workspace, Plan.__table__.c.workspace_id):
        assert resolve(Plan, workspace=given, tracked={}).workspace_column == "workspace_id"
    made = resolve(Plan, workspace="workspace", tracked={}, record={Plan.workspace, "id"}, labels={"workspace": "where"})
    assert {f.name for f in made.fields if f.recorded} == {"workspace_id", "id"}
    assert made.field("workspace_id").label == "where"


def test_without_a_noun_a_row_is_called_by_its_entity_type():
    assert resolve(Plan, workspace="workspace", tracked={}, noun="move").noun == "move"
    assert resolve(Plan, workspace="workspace", tracked={}, name="moving_plan").noun == "moving plan"
    assert resolve(Plan, workspace="workspace", tracked={}, labels={}).field("phone").label is None


def test_a_table_without_a_class_can_be_tracked():
    table = sa.Table("t", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("w", sa.Text))
    made = resolve(table, workspace="w", tracked={}, name="thing")
    assert (made.entity_type, made.table, [f.name for f in made.key], [f.name for f in made.fields]) == (
        "thing",
        table,
        ["id"],
        ["id", "w"],
    )


def test_all_is_recorded_but_what_is_redacted():
    made = resolve(Plan, workspace="workspace", tracked={}, record="all", redact={"phone"})
    assert {f.name for f in made.fields if f.recorded} == {"id", "workspace_id", "budget"}
    assert [f.name for f in made.fields if f.redacted] == ["phone"]


def test_redacted_wins_over_recorded():
    made = resolve(Plan, workspace="workspace", tracked={}, record={"phone"}, redact={"phone"})
    assert not made.field("phone").recorded


def test_a_path_takes_the_columns_of_the_parents_whole_key():
    part = resolve(Part, workspace=constant("w"), tracked={})
    below = sa.Table(
        "below", sa.MetaData(), sa.Column("id", sa.Integer, primary_key=True), sa.Column("x", sa.Text), sa.Column("y", sa.Integer)
    )
    made = resolve(below, workspace=via(["x", "y"], Part), tracked={part.table: part})
    assert made.hop is not None
    assert (made.hop.columns, made.hop.parent) == (("x", "y"), part)
    assert (made.workspace_column, made.workspace_constant) == (None, None)
    with pytest.raises(ConfigurationError, match="2 key column"):
        resolve(below, workspace=via("x", Part), tracked={part.table: part})


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"workspace": "nowhere"}, "no column 'nowhere'"),
        ({"workspace": None}, "no column"),
        ({"record": {"nothing"}}, "no column 'nothing'"),
        ({"redact": {"nothing"}}, "no column 'nothing'"),
        ({"labels": {"nothing": "x"}}, "no column 'nothing'"),
        ({"version": "nothing"}, "no column 'nothing'"),
        ({"redact": {"id"}}, "primary key"),
        ({"redact": {"workspace"}}, "workspace"),
        ({"without_workspace": "ignore"}, "without_workspace"),
        ({"noun": ""}, "noun .* a text, not ''"),
        ({"noun": " "}, "noun .* a text, not ' '"),
        ({"noun": 7}, "noun .* a text, not 7"),
        ({"labels": {"phone": ""}}, "call phone is a text, not ''"),
        ({"labels": {Plan.phone: "\n"}}, "call phone is a text"),
        ({"labels": {"phone": None}}, "call phone is a text, not None"),
        ({"labels": ["phone"]}, r"labels takes .* not \['phone'\]"),
        ({"labels": ""}, "labels takes"),
    ],
)
def test_what_cannot_work_is_refused_with_a_reason(options, said):
    with pytest.raises(ConfigurationError, match=said):
        resolve(Plan, tracked={}, **{"workspace": "workspace", **options})


def test_a_parent_must_be_tracked_and_a_model_must_be_a_table():
    with pytest.raises(NotTrackedError, match="plan, which is not tracked"):
        resolve(Part, workspace=via("plan_id", Plan), tracked={})
    for model in (object(), int, "plan"):
        with pytest.raises(NotTrackedError):
            resolve(model, workspace="w", tracked={})


def test_a_table_without_a_primary_key_is_refused():
    table = sa.Table("t", sa.MetaData(), sa.Column("w", sa.Text))
    with pytest.raises(ConfigurationError, match="no primary key"):
        resolve(table, workspace="w", tracked={})


class Text(sa.types.TypeDecorator):
    impl = sa.JSON
    cache_ok = True


class Grade(enum.Enum):
    low = "L"


@pytest.mark.parametrize(
    ("declared", "kind"),
    [
        (sa.String(5), "text"),
        (sa.Text(), "text"),
        (sa.Enum(Grade), "text"),
        (sa.Interval(), "text"),
        (postgresql.INET(), "text"),
        (sa.Integer(), "integer"),
        (sa.BigInteger(), "integer"),
        (sa.Float(), "float"),
        (sa.Double(), "float"),
        (sa.Numeric(5, 2), "decimal"),
        (sa.Boolean(), "boolean"),
        (sa.Date(), "date"),
        (sa.DateTime(timezone=True), "datetime"),
        (sa.Time(), "time"),
        (sa.Uuid(), "uuid"),
        (postgresql.UUID(), "uuid"),
        (sa.LargeBinary(), "bytes"),
        (postgresql.BYTEA(), "bytes"),
        (sa.JSON(), "json"),
        (postgresql.JSONB(), "json"),
        (sa.ARRAY(sa.Integer), "json"),
        (Text(), "json"),
    ],
    ids=repr,
)
def test_every_type_has_a_kind(declared, kind):
    assert kind_of(declared) == kind


def test_the_scale_of_a_decimal_is_kept():
    assert resolve(Plan, workspace="workspace", tracked={}).field("budget").scale == 2


def test_what_may_be_read_holds_its_hidden_fields_as_a_set():
    assert Readable(hide=["phone", "phone"]).hide == frozenset({"phone"})
    assert Readable() == Readable(None, ())
