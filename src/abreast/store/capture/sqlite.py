"""Capture on SQLite: the triggers that write an event for every row change, made from the tracked tables.

One writer at a time, so a revision is given when the change happens. A table's triggers say what happened by inserting
into a view; the view's triggers, the same for all tables, write the log. Every statement that touches a tracked table
compiles its triggers, and every connection parses them all: what all tables share, and what is rare, stands apart.

- They provoke no conflict: `INSERT OR IGNORE` or `OR REPLACE` of the application overrides every policy in a trigger.
- They write our own tables alone. With `recursive_triggers` off (the default) a trigger that runs does not fire again,
  so an application's trigger that ran inside ours would change rows unseen. Only the version triggers write the
  application's table, and they stand apart for this reason.
- Of one table's triggers the youngest runs first. Ours must be younger than the application's AFTER triggers: those may
  write tracked rows (then their event would come first), or end the row's work by RAISE(IGNORE).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

from abreast.store.capture.sqlite_log import DROP_SHARED, SHARED, VIEWS, alive_in, known_elsewhere, last_event, trigger
from abreast.store.capture.sqlite_terms import (
    chain,
    differs_by_value,
    entity_of,
    fields_sql,
    generated_of,
    home_of,
    is_changed,
    is_entity,
    left_of,
    new_of,
    old_of,
    place_of,
    row_of,
    same,
    update_of,
    values_sql,
    workspace_of,
)
from abreast.store.schema import literal, quote
from abreast.store.tracked import Field, TrackedTable
from abreast.types import Finding

TRIGGERS_FOUND_SQL = "select name, tbl_name, sql from sqlite_master where type = 'trigger' order by rowid"
"""All triggers of the database, oldest first: the `rows` of `findings`."""

COLUMNS_FOUND_SQL = (
    "select m.name, c.name, c.hidden in (2, 3) from sqlite_master as m, pragma_table_xinfo(m.name) as c"
    " where m.type = 'table' and m.sql not like 'create virtual%' and c.hidden <> 1"  # a module may not be loaded here
)
"""All columns of the database, and whether they are generated: the `columns` of `findings`. (`table_info` hides those.)"""


def install_statements(tables: Sequence[TrackedTable]) -> list[str]:
    """Statements that make the triggers anew. `tables` are all tracked tables: a parent's triggers depend on its children."""
    statements = [*DROP_SHARED, *VIEWS, *SHARED.values()]
    for tracked in tables:
        statements += [*uninstall_statements([tracked]), *triggers_of(tracked, tables).values()]
    return statements


def uninstall_statements(tables: Sequence[TrackedTable]) -> list[str]:
    """Statements that remove the triggers of these tables. The log stays, and what tables share: others may use it."""
    return [f"drop trigger if exists {quote(_name(tracked, name))}" for tracked in tables for name in _NAMES]


def findings(
    tables: Sequence[TrackedTable],
    rows: Iterable[tuple[str, str, str]],
    columns: Iterable[tuple[str, str, int]] | None = None,
) -> list[Finding]:
    """What is wrong with the triggers that are there."""
    found = list(rows)
    place = {name: position for position, (name, _, _) in enumerate(found)}
    expected = {name: ("", text) for name, text in SHARED.items()}
    result = []
    for tracked in tables:
        table, wanted = tracked.table.name, triggers_of(tracked, tables)
        expected |= {name: (table, text) for name, text in wanted.items()}
        youngest = max((place.get(name, -1) for name in wanted), default=-1)
        for name, where, text in found[youngest + 1 :] if youngest >= 0 else []:
            if where.lower() == table.lower() and not re.match(r"\W*\bbefore\b", text.split(name, 1)[-1].lstrip("\"]`'"), re.I):
                message = f"The trigger {name} on {table} is younger than ours and runs before them. Run install again."
                result.append(Finding("trigger_order", tracked.entity_type, message))
    types = {t.table.name: t.entity_type for t in tables}
    for name, (table, text) in expected.items():
        where, actual = found[place[name]][1:] if name in place else ("", "")
        if not actual:
            message = f"The trigger {name} on {table or 'our view'} is missing: changes are not captured. Run install."
            result.append(Finding("no_trigger", types.get(table, ""), message))
        elif table and where.lower() != table.lower():
            message = f"The trigger {name} is on {where}, not on {table}: changes are not captured. Run install again."
            result.append(Finding("trigger_outdated", types.get(table, ""), message))
        elif actual != text:
            message = f"The trigger {name} on {where} was made for another declaration or version. Run install again."
            result.append(Finding("trigger_outdated", types.get(table, ""), message))
    for name, where, _ in found:
        if name.startswith("abreast_") and name not in expected:
            message = f"The trigger {name} on {where} is of abreast, but no tracked table has it. Track the table, or drop it."
            result.append(Finding("not_tracked", where, message))
    return result + (_column_findings(tables, columns) if columns is not None else [])


def _column_findings(tables: Sequence[TrackedTable], columns: Iterable[tuple[str, str, int]]) -> list[Finding]:
    actual: dict[str, dict[str, tuple[str, int]]] = {}
    for table, column, generated in columns:
        actual.setdefault(table.lower(), {})[column.lower()] = column, generated
    result = []
    for tracked in tables:
        table = tracked.table.name
        there, declared = actual.get(table.lower(), {}), {f.name.lower(): f.name for f in tracked.fields}

        def say(code: str, message: str, kind: str = tracked.entity_type) -> None:
            result.append(Finding(code, kind, message))

        if not there:
            say("no_table", f"The table {table} is not in this database. Create it, then run install.")
            continue
        for key in there.keys() - declared.keys():
            name = there[key][0]
            say("column_unwatched", f"column {name} of {table} is not watched: declare it in the model and install again")
        for key in declared.keys() - there.keys():
            say("column_missing", f"column {declared[key]} of {table} is declared but not there: writes fail until it is added")
        for name in place_of(tracked):
            if there.get(name.lower(), ("", 0))[1] and name not in generated_of(tracked):
                say("column_generated", f"column {name} of {table} is generated: declare it as Computed and install again")
    return result


# The triggers of one table.

# Without an underscore, so that no two tables can come to the same name.
_NAMES = ("first", "bump", "rebump", "leave", "rekey", "insert", "replace", "move", "update", "revise", "delete")


def _name(tracked: TrackedTable, name: str) -> str:
    return f"abreast_{tracked.entity_type}_{name}"


def _members(tracked: TrackedTable, tables: Sequence[TrackedTable]) -> Iterator[tuple[TrackedTable, str, str]]:
    """The tables that find their workspace through this one: of each the source, and the condition, of the rows under NEW."""
    for member in tables:
        node, alias, source = member, "abreast_d", f"{quote(member.table.name)} as abreast_d"
        while node.hop is not None:
            parent, down = node.hop.parent, row_of(alias)
            up = new_of if parent.table is tracked.table else row_of(f"{alias}p")
            held = " and ".join(f"{up(k.name)} = {down(c)}" for k, c in zip(parent.key, node.hop.columns, strict=True))
            if up is new_of:
                yield member, source, held
                break
            node, alias, source = parent, f"{alias}p", f"{source} join {quote(parent.table.name)} as {alias}p on {held}"


def _bump(tracked: TrackedTable, column: str, version: str) -> list[str]:
    """Sets the version of the NEW row. The event that is there announces it already, and is marked by a blank meanwhile,
    so that the update trigger knows this write."""
    workspace, entity = workspace_of(tracked, new_of), is_entity(tracked, entity_of(tracked.key, new_of))
    key = " and ".join(f"{quote(k.name)} is {new_of(k.name)}" for k in tracked.key)
    marked = f"select e.revision from abreast_event as e where {entity('e')} and e.workspace = {workspace}"
    return [
        f"update abreast_event set fields = ' ' || coalesce(fields, '') where {last_event(entity, workspace, '')}",
        f"update {quote(tracked.table.name)} set {quote(column)} = {version} where {key} and {quote(column)} is {new_of(column)}",
        f"update abreast_event set fields = nullif(substr(fields, 2), '') where workspace = {workspace}"
        f" and revision = ({marked} and e.fields glob ' *' order by e.revision desc limit 1)",
    ]


def triggers_of(tracked: TrackedTable, tables: Sequence[TrackedTable]) -> dict[str, str]:
    """Name and text of each trigger of one table, in the order of creation, which is the reverse of the order of running."""
    result: dict[str, str] = {}

    def add(name: str, time: str, when: str, *statements: str) -> None:
        full = _name(tracked, name)
        result[full] = trigger(full, time, tracked.table.name, when, statements)

    version, hop, type_ = tracked.version_column, tracked.hop, literal(tracked.entity_type)
    keys, place = [k.name for k in tracked.key], place_of(tracked)
    old_id, new_id = entity_of(tracked.key, old_of), entity_of(tracked.key, new_of)
    here, left, workspace = home_of(tracked, new_of), left_of(tracked), workspace_of(tracked, new_of)
    others = [f for f in tracked.fields if f.name not in place]
    members = list(_members(tracked, tables))

    # A version that the writer left alone is set by the version triggers below, but told by the event of the change.
    def inserted(name: str) -> str:
        return f"coalesce({new_of(name)}, 1)" if name == version else new_of(name)

    def updated(name: str) -> str:
        bumped = f"iif({same([name])}, coalesce({old_of(name)}, 0) + 1, {new_of(name)})"
        return bumped if name == version else new_of(name)

    by_value = {f: f"x.j{index}" for index, f in enumerate(others) if f.kind == "json"}
    documents = [f.name for f in by_value]  # these apart: the room a trigger takes is made for every row, and JSON takes much
    flags = ", ".join(f"{differs_by_value(f)} as {name[2:]}" for f, name in by_value.items())

    def differs(field: Field) -> str | None:
        return None if field.name == version else by_value.get(field) or f"({is_changed(field)})"

    def update(fields: Sequence[Field], where: str) -> str:
        """The statement for an update in place. The costly comparison of JSON is made once, in x."""
        event = (
            f"{here}, 'update', {type_}, {new_id}, {fields_sql(fields, differs)}, {values_sql(fields, old_of, updated, differs)}"
        )
        if any(f in by_value for f in fields):
            any_ = chain(" or ", [by_value.get(f) or is_changed(f) for f in fields])
            return f"insert into abreast_change select {event} from (select {flags} limit 1) as x where ({any_}){where}"
        if where:
            return f"insert into abreast_change select {event} where 1{where}"
        return f"insert into abreast_change values ({event})"  # SELECT would go through a temporary table

    def members_leave(source: str, where: str) -> Iterator[str]:
        for member, rows, held in members:
            row = row_of("abreast_d")
            event = f"g.workspace, 'delete', {literal(member.entity_type)}, {entity_of(member.key, row)}, null"
            yield (
                f"insert into abreast_change select {event}, {values_sql(member.fields, row, None)} from {source} join {rows}"
                f" where {held} and {where} order by {', '.join(row(k.name) for k in member.key)}"
            )

    def members_enter(where: str) -> Iterator[str]:
        for member, rows, held in members:
            row = row_of("abreast_d")
            event = (
                f"{home_of(member, row, workspace)}, 'insert', {literal(member.entity_type)}, {entity_of(member.key, row)}, null"
            )
            yield (
                f"insert into abreast_change select {event}, {values_sql(member.fields, None, row)} from {rows}"
                f" where {held} and {where} order by {', '.join(row(k.name) for k in member.key)}"
            )

    if version is not None:
        add("first", "AFTER INSERT", f"{new_of(version)} is null", *_bump(tracked, version, "1"))
        bump = _bump(tracked, version, f"coalesce({old_of(version)}, 0) + 1")
        rest = f"({chain(' or ', [is_changed(f) for f in tracked.fields if f.name != version and f not in by_value])})"
        add("bump", "AFTER UPDATE", f"{same([version])} and {rest}", *bump)
        if documents:
            really = chain(" or ", [differs_by_value(f) for f in by_value])
            when = f"{same([version])} and not {rest} and ({really})"
            add("rebump", f"AFTER {update_of(tracked, documents)}", when, *bump)

    # The rows' way out through abreast_gone: parents note where they are before they go, all by path note where they were.
    noted = is_entity(tracked, old_id)("g")
    forget = f"delete from abreast_gone where entity_type = {type_} and entity_id = {old_id}"
    was = f"(select {left} as workspace) as g"
    note = f"insert into abreast_gone select {type_}, {old_id}, g.workspace from {was} where g.workspace is not null"
    if members:
        add("leave", "BEFORE DELETE", "", forget, note)
        add("rekey", f"BEFORE {update_of(tracked, keys)}", f"not ({same(keys)})", forget, note)

    event = f"{type_}, {new_id}, {fields_sql(tracked.fields)}"
    values = values_sql(tracked.fields, None, inserted)
    add("insert", "AFTER INSERT", "", f"insert into abreast_entry values ({here}, {event}, {values})")
    if members and tracked.workspace_constant is None:
        alive, new_noted = alive_in(is_entity(tracked, new_id), workspace), is_entity(tracked, new_id)("g")
        new_forget = f"delete from abreast_gone where entity_type = {type_} and entity_id = {new_id}"
        add(
            "replace", "AFTER INSERT", known_elsewhere(is_entity(tracked, new_id), workspace),
            new_forget,
            f"insert into abreast_gone select {type_}, {new_id}, g.workspace from (select {alive} as workspace) as g"
            " where g.workspace is not null",
            *members_leave("abreast_gone as g", new_noted),
            *members_enter(f"exists (select 1 from abreast_gone as g where {new_noted})"),
            new_forget,
        )  # fmt: skip

    if hop is None:
        source, there, stays = was, "g.workspace is not null", "0"
    else:
        source, there = "abreast_gone as g", noted
        stays = f"({same(keys)} and exists (select 1 from abreast_gone as g where {noted} and g.workspace is {workspace}))"
    new_row = f"{here}, {event}, {values_sql(tracked.fields, None, updated)}"
    gone_row = f"g.workspace, 'delete', {type_}, {old_id}, null, {values_sql(tracked.fields, old_of, None)}"
    moved = [
        *([forget, note] if hop is not None else []),
        *members_leave(source, f"{there} and {same(keys)} and not {stays}"),
        f"insert into abreast_change select {gone_row} from {source} where {there} and not {stays}",
        f"insert into abreast_entry select {new_row} where not {stays}",
        *([update([*others, *(f for f in tracked.fields if f.name in place)], f" and {stays}")] if hop is not None else []),
        *members_enter(f"{same(keys)} and not {stays}"),
        *([forget] if hop is not None or members else []),
    ]
    add("move", f"AFTER {update_of(tracked, place)}", f"not ({same(place)})", *moved)

    plain = [f for f in others if f not in by_value]
    if plain:
        changed = f"({chain(' or ', [is_changed(f) for f in plain])})"
        if version is not None:
            rest = f"({chain(' or ', [is_changed(f) for f in plain if f.name != version]) or '0'})"
            last = f"select e.fields from abreast_event as e where {last_event(is_entity(tracked, new_id), workspace)}"
            changed = f"({rest} or ({is_changed(tracked.field(version))} and not coalesce(({last}), '') glob ' *'))"
        add("update", "AFTER UPDATE", f"{same([*place, *documents])} and {changed}", update(plain, ""))
    if documents:
        when = f"{same(place)} and not ({same(documents)})"
        add("revise", f"AFTER {update_of(tracked, documents)}", when, update(others, ""))

    lost = f"{left}, 'delete', {type_}, {old_id}, null, {values_sql(tracked.fields, old_of, None)}"
    add("delete", "AFTER DELETE", "", f"insert into abreast_change values ({lost})", *([forget] if members else []))
    return result
