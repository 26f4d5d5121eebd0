"""Capture on PostgreSQL: the triggers that write a change event for every change of a tracked row.

Statement triggers with transition tables write the events of a statement at once, under the transaction's id; their
revisions are given at commit. The SQL is in `sql/postgresql/`: `capture.sql` is what all tables share,
`trigger_bodies.sql` what each has of its own. Here it is filled with the expressions of one table. Needs PostgreSQL 14.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from abreast.store.schema import literal, quote
from abreast.store.tracked import Field, TrackedTable

Uncomparable = Mapping[tuple[str, str], str]
"""(entity type, column) -> the column's actual type, where pg_catalog cannot tell its values apart; `VIRTUAL` for a
generated column that is not stored: the rows that a trigger sees have no value of it."""

NOTHING: Uncomparable = {}
VIRTUAL = "virtual"
OLD, NEW = "_old", "_new"
NUMBERING = "abreast_number"
CHUNK = 45  # fields: jsonb_build_object takes 100 arguments, two a field
COLUMNS = 'workspace, xact, ord, opens, op, entity_type, entity_id, fields, "values", actor_type, actor_id, thread, mutation'
VARIABLES = """
    _rows integer;
    _workspace text;
    _entity_id text;
    _fields text[];
    _values jsonb;
    _last integer;
    _covered integer;
    _opens boolean;
    _was text;
    _becomes text;
    _move record;"""
SETTINGS = "set search_path = pg_catalog, pg_temp set enable_seqscan = off set enable_bitmapscan = off set jit = off"
"""Of every trigger function. Look-ups take the first row of an index even where a plan was made while the log was small; a
write must not start the JIT compiler for a statement that is planned for thousands of rows and sees ten."""


# --- expressions, for triggers and for reading code ----------------------------------------------------------------


def relation(tracked: TrackedTable, default_schema: str | None = None) -> str:
    """The table's name as SQL, qualified by its own schema or by `default_schema`."""
    schema = tracked.table.schema or default_schema
    return f"{quote(schema)}.{quote(tracked.table.name)}" if schema else quote(tracked.table.name)


def entity_id_sql(tracked: TrackedTable, alias: str) -> str:
    """SQL for the entity id of a row: its key as text; a composite key as a compact JSON array of texts."""
    return _id_of(tracked, [f"{alias}.{quote(key.name)}" for key in tracked.key])


def workspace_sql(tracked: TrackedTable, alias: str, default_schema: str | None = None, *, depth: int = 1) -> str:
    """SQL for the workspace of a row: its column, a lookup through its parents, or the constant."""
    if tracked.workspace_constant is not None:
        return f"{literal(tracked.workspace_constant)}::text"
    if tracked.workspace_column is not None:
        return _text(tracked, tracked.field(tracked.workspace_column), f"{alias}.{quote(tracked.workspace_column)}")
    parent, above = _parent(tracked), f"_p{depth}"
    inner = workspace_sql(parent, above, default_schema, depth=depth + 1)
    return f"(select {inner} from {relation(parent, default_schema)} {above} where {_meets(tracked, alias, above)})"


def _id_of(tracked: TrackedTable, values: Iterable[str]) -> str:
    texts = [_text(tracked, key, value) for key, value in zip(tracked.key, values, strict=True)]
    if len(texts) == 1:
        return texts[0]
    return "('[' || " + " || ',' || ".join(f"to_json({text})::text" for text in texts) + " || ']')"


def _text(tracked: TrackedTable, of: Field, value: str) -> str:
    """SQL for the text by which the log knows a key value, the same under every setting of the session."""
    if of.kind in ("text", "integer", "uuid"):
        return f'{value}::text collate "C"'
    if of.kind == "bytes":
        return f"('\\x' || encode({value}, 'hex'))"
    if of.kind == "datetime" and getattr(_column(tracked, of).type, "timezone", False):
        value = f"({value} at time zone 'UTC')"
    return f"(to_jsonb({value}) #>> '{{}}')"


def _column(tracked: TrackedTable, of: Field) -> sa.Column[Any]:
    return next(column for column in tracked.table.columns if column.name == of.name)  # its key may be another


def _parent(tracked: TrackedTable) -> TrackedTable:
    assert tracked.hop is not None
    return tracked.hop.parent


def _meets(tracked: TrackedTable, child: str, parent: str) -> str:
    """The condition that joins a row to its parent."""
    assert tracked.hop is not None
    pairs = zip(tracked.hop.parent.key, tracked.hop.columns, strict=True)
    return " and ".join(f"{parent}.{quote(key.name)} = {child}.{quote(column)}" for key, column in pairs)


def _attribution() -> list[str]:
    """Who and why, out of transaction-local settings; a type that we do not know is unknown, not an error."""
    actor = "current_setting('abreast.actor_type', true)"
    known = f"case when {actor} in ('user', 'agent', 'system') then {actor} else 'unknown' end"
    return [known, *(f"nullif(current_setting('abreast.{name}', true), '')" for name in ("actor_id", "thread", "mutation"))]


# --- the triggers of one table -------------------------------------------------------------------------------------


@cache
def _sections() -> dict[str, str]:
    text = files("abreast.store").joinpath("sql", "postgresql", "trigger_bodies.sql").read_text(encoding="utf-8")
    parts = re.split(r"^--- (\w+)\n", text, flags=re.MULTILINE)
    return {name: body.strip() for name, body in zip(parts[1::2], parts[2::2], strict=True)}


class Trigger(NamedTuple):
    """One trigger and its function. `definition` is what stands between the trigger's name and `execute function`."""

    name: str
    definition: str
    function: str
    body: str

    @property
    def note(self) -> str:
        """What the trigger's comment says: a digest, by which `findings` knows an outdated trigger."""
        return digest(*self, SETTINGS)


def digest(*texts: str) -> str:
    return "abreast:" + hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Writer:
    """Fills the trigger bodies for one table. `children` find their workspace through it, directly or not."""

    tracked: TrackedTable
    children: tuple[TrackedTable, ...]
    schema: str
    default_schema: str | None
    uncomparable: Uncomparable

    def fill(self, section: str, **values: str) -> str:
        """A section, its placeholders filled from `values` and from what every section may use."""
        known = {
            "own": quote(self.schema),
            "event": f"{quote(self.schema)}.event",
            "block": f"{quote(self.schema)}.block",
            "columns": COLUMNS,
            "entity_type": literal(self.tracked.entity_type),
            "attribution": ", ".join(_attribution()),
            "attribution_once": ", ".join(f"(select {setting})" for setting in _attribution()),  # not once a row
            **values,
        }
        if "place" not in known and section != "place":
            known["place"] = self.fill("place")
        return re.sub(r"\{\{(\w+)\}\}", lambda match: known[match.group(1)], _sections()[section])

    # -- where a row is

    def id(self, alias: str) -> str:
        return entity_id_sql(self.tracked, alias)

    def workspace(self, alias: str) -> str:
        return workspace_sql(self.tracked, alias, self.default_schema)

    def formerly(self, alias: str) -> str:
        """The workspace that a row was in, also if a cascade has removed its parents."""
        if self.tracked.hop is None:
            return self.workspace(alias)
        gone = self.gone_parent(self.tracked, alias, 1)
        return self.fill("formerly", workspace=self.workspace(alias), id=self.id(alias), gone_parent=gone)

    def gone_parent(self, tracked: TrackedTable, alias: str, depth: int) -> str:
        parent, above = _parent(tracked), f"_g{depth}"
        assert tracked.hop is not None
        table, meets = f"{relation(parent, self.default_schema)} {above}", _meets(tracked, alias, above)
        further = "null"
        if parent.hop is not None:
            further = f"(select {self.gone_parent(parent, above, depth + 1)} from {table} where {meets})"
        key = _id_of(parent, [f"{alias}.{quote(column)}" for column in tracked.hop.columns])
        kind = literal(parent.entity_type)
        return self.fill("gone_parent", parent=table, meets=meets, further=further, parent_type=kind, parent_id=key)

    def home(self, op: str, workspace: str, alias: str) -> str:
        """`workspace`, or where that is NULL an error or a recorded miss.

        No one heard of a row that had no workspace, so its end is never an error: it could not even be cleaned away.
        """
        tracked = self.tracked
        if tracked.workspace_constant is not None:
            return workspace
        cure = f"Set {tracked.workspace_column}"
        if tracked.hop is not None:
            cure = f"Write the row of {_parent(tracked).table.name} first and set {', '.join(tracked.hop.columns)} to it"
        hint = f'{cure}, or track the table with without_workspace="record".'
        how = "record" if op == "delete" else tracked.without_workspace
        given = ", ".join([literal(tracked.entity_type), self.id(alias), literal(op), literal(how), literal(hint)])
        return f"coalesce({workspace}, {quote(self.schema)}.no_workspace({given}))"

    # -- what has changed

    @property
    def fields(self) -> list[Field]:
        """The fields that a trigger can read."""

        def stored(of: Field) -> bool:
            computed = _column(self.tracked, of).computed
            actual = self.uncomparable.get((self.tracked.entity_type, of.name))
            return actual != VIRTUAL and (computed is None or computed.persisted is not False)

        return [of for of in self.tracked.fields if stored(of)]

    def as_json(self, of: Field) -> bool:
        """Whether the column's type is json, which has no equality."""
        actual = self.uncomparable.get((self.tracked.entity_type, of.name))
        declared = type(_column(self.tracked, of).type)
        return actual == "json" or (actual is None and declared in (sa.JSON, postgresql.JSON))

    def differs(self, of: Field, before: str = OLD, after: str = NEW) -> str:
        old, new = f"{before}.{quote(of.name)}", f"{after}.{quote(of.name)}"
        if self.as_json(of):
            of_json = f"{quote(self.schema)}.as_jsonb"
            return (
                f"({old}::text is distinct from {new}::text and {of_json}({old}::text) is distinct from {of_json}({new}::text))"
            )
        if (self.tracked.entity_type, of.name) in self.uncomparable:
            return f'({old}::text collate "C" is distinct from {new}::text collate "C")'
        return f"{old} is distinct from {new}"

    def value(self, of: Field, alias: str) -> str:
        value = f"{alias}.{quote(of.name)}"
        if self.as_json(of):
            return f"{quote(self.schema)}.as_jsonb({value}::text)"
        if (self.tracked.entity_type, of.name) in self.uncomparable:
            return f"{quote(self.schema)}.as_jsonb(to_json({value})::text)"
        return value

    def changed_fields(self, old: str = OLD, new: str = NEW) -> str:
        cases = ", ".join(f"case when {self.differs(f, old, new)} then {literal(f.name)} end" for f in self.fields)
        return f"array_remove(array[{cases}], null)"

    def changed_values(self, old: str = OLD, new: str = NEW) -> str:
        pairs = [
            f"case when {self.differs(f, old, new)} then jsonb_build_object({literal(f.name)}, "
            f"jsonb_build_array({self.value(f, old)}, {self.value(f, new)})) else '{{}}' end"
            for f in self.fields
            if f.recorded
        ]
        return f"nullif({' || '.join(pairs)}, '{{}}')" if pairs else "null::jsonb"

    def values(self, alias: str, pair: str) -> str:
        """All recorded values of an inserted (`null, {}`) or deleted (`{}, null`) row."""
        recorded = [f for f in self.fields if f.recorded]
        pairs = [f"{literal(f.name)}, jsonb_build_array({pair.format(self.value(f, alias))})" for f in recorded]
        chunks = [pairs[start : start + CHUNK] for start in range(0, len(pairs), CHUNK)]
        return " || ".join(f"jsonb_build_object({', '.join(chunk)})" for chunk in chunks) or "null::jsonb"

    # -- functions

    def rows(self, workspace: str, op: str, alias: str, source: str) -> str:
        """A query for the inserts or deletes of a source."""
        values = self.values(alias, "null, {}" if op == "insert" else "{}, null")
        return (
            f"select {workspace} as workspace, {literal(op)} as op, {self.id(alias)} as entity_id,"
            f' null::text[] as fields, {values} as "values" from {source}'
        )

    def only_workspace(self, *sides: str) -> str:
        """Sets `_workspace` to the one workspace of all rows, or to NULL."""
        if self.tracked.workspace_constant is not None:
            return f"_workspace := {self.workspace('r')};"
        if self.tracked.hop is not None:
            columns = ", ".join(quote(column) for column in self.tracked.hop.columns)
            parents = " union ".join(f"select {columns} from {side}" for side in sides)
            return self.fill("only_workspace_by_path", workspace=self.workspace("r"), parents=parents)
        elsewhere = f"{self.workspace('r')} is distinct from _workspace"
        others = " or ".join(f"exists (select from {side} r where {elsewhere})" for side in sides)
        return self.fill("only_workspace", workspace=self.workspace("r"), rows=sides[0], others=others)

    def inserted_or_deleted(self, op: str, alias: str, source: str) -> str:
        workspace = self.home(op, self.workspace(alias) if op == "insert" else self.formerly(alias), alias)
        return self.fill(
            "inserted_or_deleted",
            rows=source,
            alias=alias,
            workspace=workspace,
            id=self.id(alias),
            values=self.values(alias, "null, {}" if op == "insert" else "{}, null"),
            only_workspace=self.only_workspace(source),
            one=self.fill("one", op=literal(op)),
            home=self.fill("home", changes=self.rows("_workspace", op, alias, f"{source} {alias}")),
            many=self.fill("many", changes=self.rows(workspace, op, alias, f"{source} {alias}")),
        )

    def row_inserted_or_deleted(self, op: str, alias: str) -> str:
        return self.fill(
            "row_inserted_or_deleted",
            hold_parent=self.hold_parent("true") if op == "insert" else "",
            workspace=self.home(op, self.workspace(alias) if op == "insert" else self.formerly(alias), alias),
            id=self.id(alias),
            values=self.values(alias, "null, {}" if op == "insert" else "{}, null"),
            one=self.fill("one", op=literal(op)),
        )

    def truncated(self) -> str:
        # Every partition has this trigger and fires it, so each reads only its own rows.
        source = f"{relation(self.tracked, self.default_schema)} {OLD} where {OLD}.tableoid = tg_relid"
        workspace = self.home("delete", self.formerly(OLD), OLD)
        return self.fill("truncated", many=self.fill("many", changes=self.rows(workspace, "delete", OLD, source)))

    def of_update(self, old: str, new: str, was: str, becomes: str) -> dict[str, str]:
        """What the sections about an UPDATE are filled with."""
        return {
            "id_before": self.id(old),
            "id_after": self.id(new),
            "workspace_before": self.workspace(old),
            "workspace_after": self.workspace(new),
            "formerly": self.formerly(old),
            "changed_fields": self.changed_fields(old, new),
            "changed_values": self.changed_values(old, new),
            "values_before": self.values(old, "{}, null"),
            "values_after": self.values(new, "null, {}"),
            "home_of_update": self.home("update", becomes, new),
            "home_of_delete": self.home("delete", was, old),
            "home_of_insert": self.home("insert", becomes, new),
            "columns_there": self.fill("columns_there", place=""),
            "known": "array[" + ", ".join(literal(f.name) for f in self.tracked.fields) + "]",
            "known_count": str(len(self.tracked.fields)),
            "keys": ", ".join(f"{new}.{quote(key.name)}" for key in self.tracked.key),
            "moved_rows": self.moved_rows(),
        }

    def updated(self) -> str:
        parts = self.of_update(OLD, NEW, "d.was", "d.becomes")
        parts["untold"] = self.fill("untold", entity_id=self.id(OLD)) if self.children else "true"
        parts["untold_at_home"] = self.fill("untold", entity_id="p.entity_id") if self.children else "true"
        return self.fill(
            "updated",
            **parts,
            only_workspace=self.only_workspace("new_rows", "old_rows"),
            one=self.fill("one", op="'update'"),
            home=self.fill("home", changes=self.fill("updated_at_home", **parts)),
            many=self.fill("many", changes=self.fill("updated_anywhere", **parts)),
            unknown=self.fill("many", changes=self.fill("updated_unknown", **parts)),
            moves=self.fill("moves", **parts) if self.children else "",
        )

    def row_updated(self) -> str:
        parts = self.of_update("old", "new", "_was", "_becomes")
        moves = self.fill("row_moves", **parts) if self.children else ""
        one = {f"one_{op}": self.fill("one", op=literal(op)) for op in ("insert", "update", "delete")}
        columns = self.tracked.hop.columns if self.tracked.hop else ()
        hold = self.hold_parent(" or ".join(f"new.{quote(c)} is distinct from old.{quote(c)}" for c in columns))
        return self.fill("row_updated", **parts, **one, moves=moves, hold_parent=hold)

    def hold_parent(self, changed: str) -> str:
        if self.tracked.hop is None:
            return ""
        parent = relation(_parent(self.tracked), self.default_schema)
        return self.fill("hold_parent", changed=changed, parent=parent, meets=_meets(self.tracked, "new", "_p"))

    def moved_rows(self) -> str:
        moved = " and ".join(f"_top.{quote(key.name)} = _move.{quote(key.name)}" for key in self.tracked.key)
        events = []
        for child in self.children:
            writer = _Writer(child, (), self.schema, self.default_schema, self.uncomparable)
            path, step, alias = f"{relation(child, self.default_schema)} {NEW}", child, NEW
            while step is not self.tracked:
                above = "_top" if _parent(step) is self.tracked else f"_up_from{alias}"
                path += f" join {relation(_parent(step), self.default_schema)} {above} on {_meets(step, alias, above)}"
                step, alias = _parent(step), above
            changes = writer.fill(
                "child_moved_events",
                path=path,
                moved=moved,
                id=writer.id(NEW),
                home=writer.home("insert", "_move.becomes", NEW),
                values_before=writer.values(NEW, "{}, null"),
                values_after=writer.values(NEW, "null, {}"),
            )
            # A child that is a parent itself is locked against new children of its own.
            strength = "update" if any(child in _ancestors(other) for other in self.children) else "no key update"
            many = writer.fill("many", changes=changes)
            events.append(self.fill("child_moved", path=path, moved=moved, strength=strength, many=many))
        return self.fill("moved_rows", table=relation(self.tracked, self.default_schema), moved=moved, children="\n".join(events))

    def version(self) -> str:
        # Generated columns are not computed yet when this fires.
        version = self.tracked.version_column
        others = [f for f in self.tracked.fields if f.name != version and _column(self.tracked, f).computed is None]
        differ = " or ".join(self.differs(f, "old", "new") for f in others)
        return self.fill("version", version=quote(str(version)), others_differ=differ)

    def triggers(self) -> tuple[list[Trigger], list[Trigger]]:
        """The triggers of this table: those for statements, and those for a table whose rows are written again."""

        def made(op: str, name: str, definition: str, body: str) -> Trigger:
            # A column of a transition table may be called as a variable is.
            return Trigger(
                name, definition, self.function(op), f"#variable_conflict use_variable\ndeclare{VARIABLES}\nbegin\n{body}\nend"
            )

        # Triggers fire in the order of their names: before those of an application, and the row triggers before
        # "RI_ConstraintTrigger", PostgreSQL's own, so that children find the event of a parent that a cascade removed.
        statement, row = "for each statement", "for each row"
        old, new = "old table as old_rows", "new table as new_rows"
        inserted, deleted = (
            self.inserted_or_deleted("insert", NEW, "new_rows"),
            self.inserted_or_deleted("delete", OLD, "old_rows"),
        )
        insert_row, delete_row = self.row_inserted_or_deleted("insert", "new"), self.row_inserted_or_deleted("delete", "old")
        by_statement = [
            made("insert", "ABREAST_insert", f"after insert on {{table}} referencing {new} {statement}", inserted),
            made("update", "ABREAST_update", f"after update on {{table}} referencing {old} {new} {statement}", self.updated()),
            made("delete", "ABREAST_delete", f"after delete on {{table}} referencing {old} {statement}", deleted),
        ]
        by_row = [
            made("insert_row", "ABREAST_insert_row", f"after insert on {{table}} {row}", insert_row),
            made("update_row", "ABREAST_update_row", f"after update on {{table}} {row}", self.row_updated()),
            made("delete_row", "ABREAST_delete_row", f"after delete on {{table}} {row}", delete_row),
        ]
        if self.children:
            by_statement[2] = by_row[2]
        always = [made("truncate", "ABREAST_truncate", f"before truncate on {{table}} {statement}", self.truncated())]
        if self.tracked.version_column:  # last by name: another trigger may still change the row
            always.append(made("version", "zz_abreast_version", f"before insert or update on {{table}} {row}", self.version()))
        return by_statement + always, by_row + always

    def function(self, op: str) -> str:
        """Name of a trigger function, within PostgreSQL's 63 bytes."""
        table = self.tracked.table
        name = f"{table.schema}.{table.name}" if table.schema else table.name
        if len(name.encode()) > 50:
            name = name.encode()[:40].decode(errors="ignore") + "~" + hashlib.sha256(name.encode()).hexdigest()[:8]
        return f"{quote(self.schema)}.{quote(f'{name}_{op}')}"


def triggers(
    tables: Sequence[TrackedTable], schema: str, uncomparable: Uncomparable, default_schema: str | None
) -> Iterator[tuple[TrackedTable, tuple[list[Trigger], list[Trigger]]]]:
    """Every tracked table with the triggers that it should have: for statements, or for rows."""
    for tracked in tables:
        children = tuple(table for table in tables if tracked in _ancestors(table))
        yield tracked, _Writer(tracked, children, schema, default_schema, uncomparable).triggers()


def _ancestors(tracked: TrackedTable) -> list[TrackedTable]:
    found = []
    while tracked.hop is not None:
        tracked = tracked.hop.parent
        found.append(tracked)
    return found
