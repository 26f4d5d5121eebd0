"""Capture on PostgreSQL: the triggers that write a change event for every change of a tracked row.

AFTER statement triggers with transition tables write the events of a statement at once, under the transaction's id.
Their revisions are given at commit (`sql/postgresql/capture.sql`). Every expression here names its columns through an
alias, so that no column can be taken for a variable or for another column. Needs PostgreSQL 14.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql

from abreast.store.schema import literal, quote, script
from abreast.store.tracked import Field, TrackedTable
from abreast.types import Finding

Uncomparable = Mapping[tuple[str, str], str]
"""(entity type, column) -> the column's actual type, where pg_catalog cannot tell its values apart."""

OLD, NEW = "_old", "_new"
VARIABLES = (
    "_rows integer",
    "_workspace text",
    "_op text",
    "_entity_id text",
    "_fields text[]",
    "_values jsonb",
    "_last integer",
    "_covered integer",
    "_opens boolean",
    "_move record",
)
CHUNK = 45  # fields: jsonb_build_object takes 100 arguments, two a field


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
    if of.kind == "datetime" and getattr(tracked.table.c[of.name].type, "timezone", False):
        value = f"({value} at time zone 'UTC')"
    return f"(to_jsonb({value}) #>> '{{}}')"


def _parent(tracked: TrackedTable) -> TrackedTable:
    assert tracked.hop is not None
    return tracked.hop.parent


def _meets(tracked: TrackedTable, child: str, parent: str) -> str:
    """The condition that joins a row to its parent."""
    assert tracked.hop is not None
    pairs = zip(tracked.hop.parent.key, tracked.hop.columns, strict=True)
    return " and ".join(f"{parent}.{quote(key.name)} = {child}.{quote(column)}" for key, column in pairs)


# --- the triggers of one table -------------------------------------------------------------------------------------


class Trigger(NamedTuple):
    """One trigger and its function. `definition` is what stands between the trigger's name and `execute function`."""

    name: str
    definition: str
    function: str
    body: str

    @property
    def note(self) -> str:
        """What the trigger's comment says: a digest, by which `check` knows an outdated trigger."""
        return "abreast:" + hashlib.sha256("\n".join(self).encode()).hexdigest()[:16]


@dataclass(frozen=True)
class _Writer:
    """Makes the SQL of one table's triggers."""

    tracked: TrackedTable
    children: tuple[TrackedTable, ...]
    """Tables that find their workspace through this one, directly or not."""
    schema: str
    default_schema: str | None
    uncomparable: Uncomparable

    # -- pieces

    def own(self, name: str) -> str:
        return f"{quote(self.schema)}.{name}"

    def at(self, tracked: TrackedTable) -> str:
        return relation(tracked, self.default_schema)

    def workspace(self, alias: str) -> str:
        return workspace_sql(self.tracked, alias, self.default_schema)

    def id(self, alias: str) -> str:
        return entity_id_sql(self.tracked, alias)

    def formerly(self, alias: str) -> str:
        """The workspace that a row was in. Where its parents are gone, the log knows: a cascade has removed them."""
        if self.tracked.hop is None:
            return self.workspace(alias)
        last = (
            f"(select case when e.op <> 'delete' then e.workspace end from {self.own('event')} e"
            f" where e.entity_type = {literal(self.tracked.entity_type)} and e.entity_id = {self.id(alias)}"
            f" order by e.seq desc limit 1)"
        )
        return f"coalesce({self.workspace(alias)}, {last}, {self._gone_parent(self.tracked, alias, 1)})"

    def _gone_parent(self, tracked: TrackedTable, alias: str, depth: int) -> str:
        parent, above = _parent(tracked), f"_g{depth}"
        assert tracked.hop is not None
        key = _id_of(parent, [f"{alias}.{quote(column)}" for column in tracked.hop.columns])
        found = f"from {self.at(parent)} {above} where {_meets(tracked, alias, above)}"
        further = "null" if parent.hop is None else f"(select {self._gone_parent(parent, above, depth + 1)} {found})"
        return (
            f"case when exists (select {found}) then {further} else (select e.workspace from {self.own('event')} e"
            f" where e.entity_type = {literal(parent.entity_type)} and e.entity_id = {key} order by e.seq desc limit 1) end"
        )

    def nowhere(self, op: str, alias: str, how: str) -> str:
        """What stands for a workspace that is NULL: an error or a recorded miss."""
        tracked = self.tracked
        cure = f"Set {tracked.workspace_column}"
        if tracked.hop is not None:
            cure = f"Write the row of {_parent(tracked).table.name} first and set {', '.join(tracked.hop.columns)} to it"
        hint = f'{cure}, or track the table with without_workspace="record".'
        arguments = [literal(tracked.entity_type), self.id(alias), literal(op), literal(how), literal(hint)]
        return f"{self.own('no_workspace')}({', '.join(arguments)})"

    def home(self, op: str, workspace: str, alias: str, how: str | None = None) -> str:
        """`workspace`, or what `nowhere` makes of NULL."""
        if self.tracked.workspace_constant is not None:
            return workspace
        return f"coalesce({workspace}, {self.nowhere(op, alias, how or self.tracked.without_workspace)})"

    def as_json(self, of: Field) -> bool:
        """Whether the column's type is json, which has no equality."""
        actual = self.uncomparable.get((self.tracked.entity_type, of.name))
        declared = self.tracked.table.c[of.name].type
        return actual == "json" or (actual is None and type(declared) in (sa.JSON, postgresql.JSON))

    def differs(self, of: Field, before: str = OLD, after: str = NEW) -> str:
        old, new = f"{before}.{quote(of.name)}", f"{after}.{quote(of.name)}"
        if self.as_json(of):
            by_text = f"{old}::text is distinct from {new}::text"
            return f"({by_text} and {self.own('as_jsonb')}({old}::text) is distinct from {self.own('as_jsonb')}({new}::text))"
        if (self.tracked.entity_type, of.name) in self.uncomparable:
            return f'({old}::text collate "C" is distinct from {new}::text collate "C")'
        return f"{old} is distinct from {new}"

    def value(self, of: Field, alias: str) -> str:
        value = f"{alias}.{quote(of.name)}"
        if self.as_json(of):
            return f"{self.own('as_jsonb')}({value}::text)"
        if (self.tracked.entity_type, of.name) in self.uncomparable:
            return f"{self.own('as_jsonb')}(to_json({value})::text)"
        return value

    def changed_fields(self) -> str:
        cases = ", ".join(f"case when {self.differs(f)} then {literal(f.name)} end" for f in self.tracked.fields)
        return f"array_remove(array[{cases}], null)"

    def changed_values(self) -> str:
        pairs = [
            f"case when {self.differs(f)} then jsonb_build_object({literal(f.name)}, "
            f"jsonb_build_array({self.value(f, OLD)}, {self.value(f, NEW)})) else '{{}}' end"
            for f in self.tracked.fields
            if f.recorded
        ]
        return f"nullif({' || '.join(pairs)}, '{{}}')" if pairs else "null::jsonb"

    def all_values(self, alias: str, *, new: bool) -> str:
        pairs = [
            f"{literal(f.name)}, jsonb_build_array({f'null, {self.value(f, alias)}' if new else f'{self.value(f, alias)}, null'})"
            for f in self.tracked.fields
            if f.recorded
        ]
        chunks = [pairs[start : start + CHUNK] for start in range(0, len(pairs), CHUNK)]
        return " || ".join(f"jsonb_build_object({', '.join(chunk)})" for chunk in chunks) or "null::jsonb"

    # -- statements that write events

    def record(self, workspace: str, ord: str, opens: str, changes: str = "") -> str:
        """Writes events: of the variables `_entity_id`, `_fields`, `_values`, or of the query `changes` c."""
        settings = [f"nullif(current_setting('abreast.{name}', true), '')" for name in ("actor_id", "thread", "mutation")]
        actor = "current_setting('abreast.actor_type', true)"
        settings.insert(0, f"case when {actor} in ('user', 'agent', 'system') then {actor} else 'unknown' end")
        into = f"""
    insert into {self.own("event")} (
        workspace, xact, ord, opens, op, entity_type, entity_id, fields, "values", actor_type, actor_id, thread, mutation
    )"""
        head = f"{workspace}, pg_current_xact_id(), {ord}, {opens}"
        name = literal(self.tracked.entity_type)
        if not changes:
            return f"{into} values ({head}, _op, {name}, _entity_id, _fields, _values, {', '.join(settings)});"
        once = ", ".join(f"(select {setting})" for setting in settings)  # once for the statement, not for each row
        return f"""{into}
    select {head}, c.op, {name}, c.entity_id, c.fields, c."values", {once}
    from {changes};"""

    def last(self, workspace: str) -> str:
        """The last event of this transaction in a workspace: it is in rows, so a savepoint takes it back like any row."""
        return (
            f"select e.ord from {self.own('event')} e where e.xact = pg_current_xact_id() and e.workspace = {workspace}"
            f" order by e.ord desc limit 1"
        )

    def covered(self, workspace: str) -> str:
        """To where the events of this transaction in a workspace have their revisions, which SET CONSTRAINTS may have given."""
        return (
            f"select b.last_ord from {self.own('block')} b where b.workspace = {workspace} and b.xact = pg_current_xact_id()"
            f" order by b.last_ord desc limit 1"
        )

    def place(self) -> str:
        """Sets `_last` and `_opens` for the workspace `_workspace`: the next event opens a block if none is open."""
        return f"""
        _last := ({self.last("_workspace")});
        _opens := _last is null;
        if not _opens then
            _covered := ({self.covered("_workspace")});
            _opens := coalesce(_covered >= _last, false);
            _last := greatest(_last, _covered);  -- after a restore an old transaction may have had this id
        end if;"""

    def record_one(self) -> str:
        return self.place() + self.record("_workspace", "coalesce(_last, 0) + 1", "_opens")

    def record_home(self, changes: str) -> str:
        """All changes are in the workspace `_workspace`: one pass, no sort."""
        number = "row_number() over ()"
        return self.place() + self.record(
            "_workspace", f"coalesce(_last, 0) + {number}", f"_opens and {number} = 1", f"({changes}) c"
        )

    def record_many(self, changes: str) -> str:
        """Changes in several workspaces. Deletes come first: of a row that moved, the newest event must be the insert."""
        numbered = f"""(
        select p.*, case when p.nth = 1 then ({self.covered("p.workspace")}) end as covered from (
            select n.*, case when n.nth = 1 then ({self.last("n.workspace")}) end as last from (
                select c.*, row_number() over (partition by c.workspace order by c.op = 'insert') as nth
                from ({changes} offset 0) c where c.workspace is not null
            ) n offset 0
        ) p offset 0
    ) c order by c.op = 'insert'"""
        base = "coalesce(max(greatest(c.last, c.covered)) over (partition by c.workspace), 0)"
        return self.record(
            "c.workspace", f"c.nth + {base}", "c.nth = 1 and coalesce(c.covered >= c.last, c.last is null)", numbered
        )

    def count(self, rows: str) -> str:
        return f"""
    perform from {rows} limit 2;
    get diagnostics _rows = row_count;
    if _rows = 0 then
        return null;
    end if;"""

    def only_home(self, *sides: str) -> str:
        """Sets `_workspace` to the one workspace of all rows, or to NULL."""
        if self.tracked.workspace_constant is not None:
            return f"_workspace := {self.workspace(NEW)};"
        if self.tracked.hop is None:
            others = " or ".join(
                f"exists (select from {side} r where {self.workspace('r')} is distinct from _workspace)" for side in sides
            )
            return f"""
    _workspace := (select {self.workspace("r")} from {sides[0]} r limit 1);
    if {others} then
        _workspace := null;
    end if;"""
        columns = ", ".join(quote(column) for column in self.tracked.hop.columns)
        parents = " union ".join(f"select {columns} from {side}" for side in sides)
        return f"""
    _workspace := (
        select case when count(*) = count(h.workspace) and min(h.workspace) = max(h.workspace) then min(h.workspace) end
        from (select {self.workspace("r")} as workspace from ({parents}) r) h
    );"""

    # -- functions

    def changes(self, workspace: str, op: str, alias: str, source: str) -> str:
        """A query for the inserts or deletes of `source`."""
        values = self.all_values(alias, new=op == "insert")
        return (
            f"select {workspace} as workspace, {literal(op)} as op, {self.id(alias)} as entity_id,"
            f' null::text[] as fields, {values} as "values" from {source} {alias}'
        )

    def insert_or_delete(self, op: str, alias: str, rows: str) -> str:
        # No workspace heard of a row that had none, so its end is no error: else it could not even be cleaned away.
        workspace = (
            self.home(op, self.workspace(alias), alias)
            if op == "insert"
            else self.home(op, self.formerly(alias), alias, "record")
        )
        return f"""{self.count(rows)}
    if _rows = 1 then
        select {workspace}, {self.id(alias)}, {self.all_values(alias, new=op == "insert")}
        into _workspace, _entity_id, _values from {rows} {alias};
        if _workspace is not null then
            _op := {literal(op)};{self.record_one()}
        end if;
        return null;
    end if;
    {self.only_home(rows)}
    if _workspace is not null then
    {self.record_home(self.changes("_workspace", op, alias, rows))}
    else
    {self.record_many(self.changes(workspace, op, alias, rows))}
    end if;"""

    def delete_row(self) -> str:
        """For a parent: the row trigger fires before a foreign key's cascade, so that the children find this event."""
        return f"""
    _workspace := {self.home("delete", self.formerly("old"), "old", "record")};
    if _workspace is null then
        return null;
    end if;
    _op := 'delete';
    _entity_id := {self.id("old")};
    _values := {self.all_values("old", new=False)};{self.record_one()}"""

    def unless_told(self, condition: str, entity_id: str) -> str:
        """For a parent: a row that an UPDATE moves to another partition has fired the row trigger of DELETE already."""
        if not self.children:
            return ""
        return f""" and not ({condition} and coalesce((
            select e.op = 'delete' and e.xact = pg_current_xact_id() from {self.own("event")} e
            where e.entity_type = {literal(self.tracked.entity_type)} and e.entity_id = {entity_id} order by e.seq desc limit 1
        ), false))"""

    def truncate(self) -> str:
        """Every partition's own trigger fires, so each reads only its own rows."""
        workspace = self.home("delete", self.formerly(OLD), OLD, "record")
        return self.record_many(
            self.changes(workspace, "delete", OLD, self.at(self.tracked)) + f" where {OLD}.tableoid = tg_relid"
        )

    def pairs(self) -> str:
        """Old and new rows by entity id. A FULL JOIN cannot become a nested loop, even if planned for one row."""
        return f"old_rows {OLD} full join new_rows {NEW} on {self.id(OLD)} = {self.id(NEW)}"

    def update(self) -> str:
        both = f"{self.id(OLD)} is not null and {self.id(NEW)} is not null"
        fields = f"cross join lateral (select {self.changed_fields()} as fields offset 0) d"
        op = f"case when {self.id(OLD)} is null then 'insert' when {self.id(NEW)} is null then 'delete' else 'update' end"
        home = f"""
        select p.* from (
            select {op} as op, coalesce({self.id(NEW)}, {self.id(OLD)}) as entity_id,
                case when {both} then {self.changed_fields()} end as fields,
                case {op} when 'update' then {self.changed_values()} when 'insert' then {self.all_values(NEW, new=True)}
                    else {self.all_values(OLD, new=False)} end as "values"
            from {self.pairs()} offset 0
        ) p where (p.op <> 'update' or p.fields <> '{{}}'){self.unless_told("p.op = 'delete'", "p.entity_id")}"""
        places = f"cross join lateral (select {self.formerly(OLD)} as was, {self.workspace(NEW)} as becomes offset 0) w"
        stays = f"({both} and w.was is not distinct from w.becomes)"
        many = f"""
        select p.* from {self.pairs()} {fields} {places}
        cross join lateral (
            select {self.home("update", "w.becomes", NEW)} as workspace, 'update' as op, {self.id(NEW)} as entity_id,
                d.fields, {self.changed_values()} as "values"
            where {stays} and d.fields <> '{{}}'
            union all
            select {self.home("delete", "w.was", OLD, "record")}, 'delete', {self.id(OLD)}, null, {self.all_values(OLD, new=False)}
            where {self.id(OLD)} is not null and not {stays} and (w.was is not null or {self.id(NEW)} is null)
                {self.unless_told("true", self.id(OLD))}
            union all
            select {self.home("insert", "w.becomes", NEW)}, 'insert', {self.id(NEW)}, null, {self.all_values(NEW, new=True)}
            where {self.id(NEW)} is not null and not {stays}
        ) p"""
        known = "array[" + ", ".join(literal(f.name) for f in self.tracked.fields) + "]"
        unknown = f"""
        select p.* from (
            select {self.workspace(NEW)} as workspace, 'update' as op, {self.id(NEW)} as entity_id, case when d.fields = '{{}}' and {both}
                then {self.own("unknown_changes")}(row_to_json({OLD}), row_to_json({NEW}), {known}) end as fields, null::jsonb as "values"
            from {self.pairs()} {fields} offset 0
        ) p where p.fields is not null"""
        return f"""{self.count("new_rows")}
    if _rows = 1 then
        select {self.workspace(NEW)}, {self.id(NEW)}, {self.changed_fields()}, {self.changed_values()}
        into _workspace, _entity_id, _fields, _values
        from old_rows {OLD} cross join new_rows {NEW}
        where {self.id(OLD)} = {self.id(NEW)} and {self.workspace(OLD)} = {self.workspace(NEW)};
        if not found then
            _rows := 2;  -- the row moved, changed its key or has lost its parent: see below
        elsif _fields <> '{{}}' then
            _op := 'update';{self.record_one()}
            return null;
        end if;
    end if;
    if _rows > 1 then
    {self.only_home("new_rows", "old_rows")}
        if _workspace is not null then
    {self.record_home(home)}
        else
    {self.moves(places)}
    {self.record_many(many)}
        end if;
    end if;
    -- A column that was added after the triggers were made: its change is an event too, though nothing else changed.
    if (select count(*) from pg_attribute a where a.attrelid = tg_relid and a.attnum > 0 and not a.attisdropped)
        > {len(self.tracked.fields)} then
    {self.record_many(unknown)}
    end if;"""

    def moves(self, places: str) -> str:
        """Rows that find their workspace through a row that moved have moved too."""
        if not self.children:
            return ""
        keys = [quote(key.name) for key in self.tracked.key]
        mine = " and ".join(f"_top.{key} = _move.{key}" for key in keys)
        parts = [
            f"""
    for _move in
        select m.* from (
            select {", ".join(f"{NEW}.{key}" for key in keys)}, w.was, w.becomes, {self.id(OLD)} as _from, {self.id(NEW)} as _to
            from {self.pairs()} {places} offset 0
        ) m where m._from is not null and m._to is not null and m.was is distinct from m.becomes
    loop
        -- Who is about to add or change a child waits, or is waited for: else its event could be left behind in the old workspace.
        perform from {self.at(self.tracked)} _top where {mine} for update;"""
        ]
        for child in self.children:
            writer = _Writer(child, (), self.schema, self.default_schema, self.uncomparable)
            steps, step, alias = [], child, NEW
            while step is not self.tracked:
                above = "_top" if _parent(step) is self.tracked else f"_up{len(steps) + 1}"
                steps.append(f"join {self.at(_parent(step))} {above} on {_meets(step, alias, above)}")
                step, alias = _parent(step), above
            rows = f"from {self.at(child)} {NEW} {' '.join(steps)} where {mine}"
            changes = f"""
        select p.* {
                rows.replace(
                    " where ",
                    f''' cross join lateral (
            select _move.was as workspace, 'delete' as op, {writer.id(NEW)} as entity_id, null::text[] as fields,
                {writer.all_values(NEW, new=False)} as "values" where _move.was is not null
            union all
            select {writer.home("insert", "_move.becomes", NEW)}, 'insert', {writer.id(NEW)}, null, {writer.all_values(NEW, new=True)}
        ) p where ''',
                )
            }"""
            parts.append(f"\n        perform {rows} for no key update of {NEW};{writer.record_many(changes)}")
        parts.append("\n    end loop;")
        return "".join(parts)

    def version(self) -> str:
        """Keeps the application's version column right for writers that do not know it."""
        version = quote(str(self.tracked.version_column))
        others = [
            self.differs(f, "old", "new")
            for f in self.tracked.fields
            if f.name != self.tracked.version_column and self.tracked.table.c[f.name].computed is None
        ]
        return f"""
    if tg_op = 'INSERT' then
        new.{version} := coalesce(new.{version}, 1);
    elsif new.{version} is not distinct from old.{version} and ({" or ".join(others)}) then
        new.{version} := coalesce(old.{version}, 0) + 1;
    end if;
    return new;"""

    # -- all of them

    def triggers(self) -> Iterator[Trigger]:
        """The triggers of this table."""

        def made(op: str, name: str, definition: str, body: str) -> Trigger:
            declared = "".join(f"\n    {variable};" for variable in VARIABLES)
            conflict = "#variable_conflict use_variable"
            text = f"{conflict}\ndeclare{declared}\nbegin{body}\n{'' if op == 'version' else '    return null;'}\nend"
            return Trigger(name, definition, self.function(op), text)

        each = "for each statement"
        yield made(
            "insert",
            "abreast_insert",
            f"after insert on {{table}} referencing new table as new_rows {each}",
            self.insert_or_delete("insert", NEW, "new_rows"),
        )
        yield made(
            "update",
            "abreast_update",
            f"after update on {{table}} referencing old table as old_rows new table as new_rows {each}",
            self.update(),
        )
        if self.children:
            # The name sorts before "RI_ConstraintTrigger", PostgreSQL's own: triggers fire by name.
            yield made("delete", "ABREAST_delete", "after delete on {table} for each row", self.delete_row())
        else:
            yield made(
                "delete",
                "abreast_delete",
                f"after delete on {{table}} referencing old table as old_rows {each}",
                self.insert_or_delete("delete", OLD, "old_rows"),
            )
        yield made("truncate", "abreast_truncate", f"before truncate on {{table}} {each}", self.truncate())
        if self.tracked.version_column:
            yield made("version", "zz_abreast_version", "before insert or update on {table} for each row", self.version())

    def function(self, op: str) -> str:
        """Name of a trigger function, within PostgreSQL's 63 bytes."""
        table = self.tracked.table
        name = f"{table.schema}.{table.name}" if table.schema else table.name
        if len(name.encode()) > 50:
            name = name.encode()[:40].decode(errors="ignore") + "~" + hashlib.sha256(name.encode()).hexdigest()[:8]
        return self.own(quote(f"{name}_{op}"))


# --- install, uninstall, check -------------------------------------------------------------------------------------

UNCOMPARABLE_SQL = script("postgresql", "uncomparable")[0]
"""(column, type) of what needs an entry in `uncomparable`. Parameter: `table`, the table's name as text."""

TRIGGERS_FOUND_SQL = script("postgresql", "triggers")[0]
"""Rows of `Found`. Parameters: `tables`, the names that `relation` gives, and `schema`, quoted."""


class Found(NamedTuple):
    """One trigger of ours on one relation, or one relation without any."""

    table: str | None
    relation: str
    kind: str | None
    is_partition: bool | None
    trigger: str | None
    note: str | None
    enabled: str | None


def triggers(
    tables: Sequence[TrackedTable], schema: str, uncomparable: Uncomparable, default_schema: str | None
) -> Iterator[tuple[TrackedTable, list[Trigger]]]:
    """Every tracked table with the triggers that it should have."""
    for tracked in tables:
        children = tuple(t for t in tables if tracked in _ancestors(t))
        yield tracked, list(_Writer(tracked, children, schema, default_schema, uncomparable).triggers())


def _ancestors(tracked: TrackedTable) -> list[TrackedTable]:
    found = []
    while tracked.hop is not None:
        tracked = tracked.hop.parent
        found.append(tracked)
    return found


def install_groups(
    tables: Sequence[TrackedTable],
    schema: str = "abreast",
    uncomparable: Uncomparable = {},
    default_schema: str | None = "public",
) -> list[list[str]]:
    """Statements that make or renew capture. Each group may run in a short transaction of its own, in this order."""
    own = quote(schema)
    groups = [script("postgresql", "capture", schema=own)]
    for tracked, wanted in triggers(tables, schema, uncomparable, default_schema):
        table = f"{literal(relation(tracked, default_schema))}::regclass"
        names = ", ".join(literal(trigger.name) for trigger in wanted)
        group = [f"select {own}.detach({table}, array[{names}])"]
        for trigger in wanted:
            group.append(
                f"create or replace function {trigger.function}() returns trigger language plpgsql security definer\n"
                f"set search_path = pg_catalog, pg_temp set enable_seqscan = off set jit = off as $abreast$\n{trigger.body}\n$abreast$"
            )
            definition = literal(f"{trigger.definition} execute function {trigger.function}()")
            group.append(f"select {own}.attach({table}, {literal(trigger.name)}, {definition}, {literal(trigger.note)})")
        groups.append(group)
    return groups


def install_statements(
    tables: Sequence[TrackedTable],
    schema: str = "abreast",
    uncomparable: Uncomparable = {},
    default_schema: str | None = "public",
) -> list[str]:
    """The statements of all groups, for one transaction."""
    return [statement for group in install_groups(tables, schema, uncomparable, default_schema) for statement in group]


def uninstall_statements(
    tables: Sequence[TrackedTable], schema: str = "abreast", default_schema: str | None = "public"
) -> list[str]:
    """Statements that remove triggers and functions and leave the log; each may run in its own transaction."""
    own = quote(schema)
    found = f"to_regclass({{}}) is not null and to_regprocedure({literal(own + '.detach(regclass, text[])')}) is not null"
    removed = []
    for tracked in tables:
        name = literal(relation(tracked, default_schema))
        removed.append(f"do $$ begin if {found.format(name)} then perform {own}.detach({name}, array[]::text[]); end if; end $$")
    return [*removed, script("postgresql", "uninstall", schema=own)[0]]


def findings(
    tables: Sequence[TrackedTable],
    rows: Iterable[Sequence[object]],
    schema: str = "abreast",
    uncomparable: Uncomparable = {},
    default_schema: str | None = "public",
) -> list[Finding]:
    """What is wrong with the triggers that `TRIGGERS_FOUND_SQL` found."""
    there = [Found(*row) for row in rows]  # type: ignore[arg-type]
    wrong = []
    for tracked, wanted in triggers(tables, schema, uncomparable, default_schema):
        name = relation(tracked, default_schema)
        relations = {found.relation: found for found in there if found.table == name}
        if not relations:
            wrong.append(
                Finding(
                    "no_table", tracked.entity_type, f"The table {name} is not in this database. Create it, then run install."
                )
            )
        for place, about in relations.items():
            by_name = {found.trigger: found for found in there if found.relation == place}
            for trigger in wanted:
                if ("for each row" in trigger.definition and about.is_partition) or (
                    trigger.definition.startswith("before truncate") and about.kind == "p"
                ):
                    continue
                one = by_name.get(trigger.name)
                if one is None:
                    code, text = "no_trigger", "is missing: changes are not captured. Run install."
                elif one.enabled not in ("O", "A"):
                    code, text = (
                        "trigger_disabled",
                        f"is disabled: changes are not captured. alter table {place} enable trigger ...",
                    )
                elif one.note != trigger.note:
                    code, text = "trigger_outdated", "was made for another declaration or version. Run install again."
                else:
                    continue
                wrong.append(Finding(code, tracked.entity_type, f"The trigger {trigger.name} on {place} {text}"))
            for extra in by_name.keys() - {trigger.name for trigger in wanted} - {None}:
                wrong.append(
                    Finding(
                        "trigger_outdated",
                        tracked.entity_type,
                        f"The trigger {extra} on {place} is of another version. Run install.",
                    )
                )
    for place in sorted({found.relation for found in there if found.table is None}):
        wrong.append(
            Finding("not_tracked", place, f"{place} has triggers of abreast but is not tracked. Track it, or drop them.")
        )
    return wrong
