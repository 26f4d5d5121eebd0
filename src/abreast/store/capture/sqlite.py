"""Capture on SQLite: the triggers that write an event for every row change, made from the tracked tables.

One writer at a time, so a revision is given when the change happens. What every trigger here obeys:

- It writes only our own tables. With `recursive_triggers` off (the default) a trigger that is running does not fire
  again, so an application's trigger that ran inside ours would change rows unseen. Only the version triggers write
  the application's table, and they stand apart for this reason.
- It provokes no conflict. `INSERT OR IGNORE` or `OR REPLACE` of the application overrides the conflict policy of
  every statement in a trigger.
- It does not say `UPDATE OF`: an update of `rowid`, and a generated column, would get past it.
- Triggers of one table and time run last created first. Ours are installed last, so that an application's
  `RAISE(IGNORE)` comes after them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from abreast.store.schema import literal, quote
from abreast.store.tracked import Field, TrackedTable
from abreast.types import Finding

LARGEST = 1_000_000
"""Bytes of one value that an event keeps; a change of a larger one is told by its field's name alone."""

TRIGGERS_FOUND_SQL = "select name, tbl_name, sql from sqlite_master where type = 'trigger' order by rowid"
"""All triggers of the database, in the order of their creation: rows for `findings`."""

COLUMNS_FOUND_SQL = (
    "select m.name, c.name from sqlite_master as m, pragma_table_xinfo(m.name) as c where m.type = 'table' and c.hidden <> 1"
)
"""All columns of the database, generated ones included (`table_info` leaves them out): columns for `findings`."""

_GONE = """create table if not exists abreast_gone (
    entity_type text not null,
    entity_id   text not null,
    workspace   text not null,
    primary key (entity_type, entity_id)
) without rowid"""
"""Workspaces of parents while they are being deleted: SQLite cascades to the children before the AFTER trigger runs."""

_NAMES = ("version_insert", "version_update", "gone_delete", "gone_update", "insert", "replace", "update", "move", "delete")
_COLUMNS = 'workspace, revision, op, entity_type, entity_id, fields, "values", actor_type, actor_id, thread, mutation'
_TYPES = " ".join(f"when '{actor}' then '{actor}'" for actor in ("user", "agent", "system"))  # IN would build a table each time
_WHO = f"case c.actor_type {_TYPES} else 'unknown' end, nullif(c.actor_id, ''), nullif(c.thread, ''), nullif(c.mutation, '')"

Refer = Callable[[str], str]
"""A column's name in, the SQL that reads it out."""


def install_statements(tables: Sequence[TrackedTable]) -> list[str]:
    """Statements that make the triggers anew. `tables` are all tracked tables: a parent's triggers depend on its children."""
    statements = [_GONE] if any(t.hop for t in tables) else []
    for tracked in tables:
        statements += uninstall_statements([tracked])
        statements += _triggers(tracked, tables).values()
    return statements


def uninstall_statements(tables: Sequence[TrackedTable]) -> list[str]:
    """Statements that remove the triggers; the log stays."""
    return [f"drop trigger if exists {quote(_name(tracked, name))}" for tracked in tables for name in _NAMES]


def findings(
    tables: Sequence[TrackedTable],
    rows: Iterable[tuple[str, str, str]],
    columns: Iterable[tuple[str, str]] | None = None,
) -> list[Finding]:
    """What is wrong with the triggers that are there; `rows` of TRIGGERS_FOUND_SQL, `columns` of COLUMNS_FOUND_SQL."""
    found = list(rows)
    by_name = {name: (position, table, text) for position, (name, table, text) in enumerate(found)}
    watched = {t.table.name.lower(): t for t in tables}
    expected: set[str] = set()
    result: list[Finding] = []
    for tracked in tables:
        table, newest = tracked.table.name, -1
        for name, text in _triggers(tracked, tables).items():
            expected.add(name)
            position, where, actual = by_name.get(name, (-1, "", ""))
            newest = max(newest, position)
            if position < 0:
                result.append(_finding("trigger_missing", tracked, f"trigger {name} of {table} is missing: install again"))
            elif where.lower() != table.lower():
                result.append(
                    _finding("trigger_foreign", tracked, f"trigger {name} is on {where}, not on {table}: install again")
                )
            elif actual != text:
                result.append(_finding("trigger_outdated", tracked, f"trigger {name} of {table} is outdated: install again"))
        for name, where, actual in found[newest + 1 :]:
            before = re.search(r"\bbefore\s+(insert|update|delete)\b", actual.partition(name)[2][:200], re.I)
            if newest >= 0 and where.lower() == table.lower() and not before:
                message = f"trigger {name} of {table} is newer than abreast's and runs before them; what it changes or stops"
                result.append(_finding("trigger_shadowing", tracked, message + " is recorded wrongly: install again"))
    for name, where, _ in found:
        if name.startswith("abreast_") and name not in expected:
            message = f"trigger {name} on {where} belongs to no tracked table: drop it"
            result.append(
                Finding("trigger_unknown", watched[where.lower()].entity_type if where.lower() in watched else where, message)
            )
    return result + (_column_findings(tables, columns) if columns is not None else [])


def _column_findings(tables: Sequence[TrackedTable], columns: Iterable[tuple[str, str]]) -> Iterator[Finding] | list[Finding]:
    actual: dict[str, dict[str, str]] = {}
    for table, column in columns:
        actual.setdefault(table.lower(), {})[column.lower()] = column
    result = []
    for tracked in tables:
        table = tracked.table.name
        there, declared = actual.get(table.lower(), {}), {f.name.lower(): f.name for f in tracked.fields}
        if not there:
            result.append(_finding("table_missing", tracked, f"table {table} is not in this database"))
            continue
        for key in there.keys() - declared.keys():
            message = f"column {there[key]} of {table} is not watched: declare it in the model and install again"
            result.append(_finding("column_unwatched", tracked, message))
        for key in declared.keys() - there.keys():
            message = (
                f"column {declared[key]} of {table} is declared but not in the database: writes will fail; migrate the table"
            )
            result.append(_finding("column_missing", tracked, message))
    return result


def _finding(code: str, tracked: TrackedTable, message: str) -> Finding:
    return Finding(code, tracked.entity_type, message)


# Expressions that reading code shares.


def entity_id_sql(tracked: TrackedTable, alias: str) -> str:
    """The entity id of a row: the key as text, or the compact JSON array of a composite key's texts."""
    return _entity_id(tracked.key, lambda name: f"{alias}.{quote(name)}")


def workspace_sql(tracked: TrackedTable, alias: str) -> str:
    """The workspace of a row, NULL where it has none."""
    return _workspace(tracked, lambda name: f"{alias}.{quote(name)}")


def value_sql(field: Field, ref: str) -> str:
    """A column's value as JSON can hold it: blobs as hex digits, reals exact or by name, JSON as its text."""
    if field.kind == "json":
        return f"iif({ref} is null, null, {_as_text(ref, real=True)})"
    # JSON has no infinity.
    named = f"when {ref} = 9e999 then 'Infinity' when {ref} = -9e999 then '-Infinity'"
    real = f"case {named} when {_exact(ref)} is null then json(printf('%!.17g', {ref})) else {ref} end"
    return f"case typeof({ref}) when 'blob' then hex({ref}) when 'real' then {real} else {ref} end"


def _exact(ref: str) -> str:
    """A real as text, NULL where the 15 digits that SQLite writes are not enough for it."""
    return f"iif(cast(cast({ref} as text) as real) = {ref}, cast({ref} as text), null)"


def _as_text(ref: str, real: bool) -> str:
    text = f"iif(typeof({ref}) = 'blob', hex({ref}), cast({ref} as text))"
    return f"iif(typeof({ref}) = 'real', coalesce({_exact(ref)}, printf('%!.17g', {ref})), {text})" if real else text


def _text(field: Field, ref: str) -> str:
    """A key's value as text. `Uuid` is stored as 32 hex digits; everywhere else it is written with dashes."""
    text = _as_text(ref, real=field.kind in ("float", "decimal"))
    if field.kind != "uuid":
        return text
    parts = " || '-' || ".join(f"substr(t, {start}, {size})" for start, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12)))
    return f"(select iif(length(t) = 32, lower({parts}), t) from (select {text} as t))"


def _entity_id(key: Sequence[Field], refer: Refer) -> str:
    texts = [_text(field, refer(field.name)) for field in key]
    # Old SQLite tables may hold NULL in a primary key; the log cannot.
    return f"coalesce({texts[0]}, '')" if len(texts) == 1 else f"json_array({', '.join(texts)})"


def _workspace(tracked: TrackedTable, refer: Refer, level: int = 1) -> str:
    if tracked.workspace_constant is not None:
        return literal(tracked.workspace_constant)
    if tracked.workspace_column is not None:
        return _text(tracked.field(tracked.workspace_column), refer(tracked.workspace_column))
    assert tracked.hop is not None
    parent, up = tracked.hop.parent, _of(f"abreast_p{level}")
    # The parent's key stands left: its collation decides, as in a foreign key.
    held = " and ".join(f"{up(k.name)} = {refer(c)}" for k, c in zip(parent.key, tracked.hop.columns, strict=True))
    return f"(select {_workspace(parent, up, level + 1)} from {quote(parent.table.name)} as abreast_p{level} where {held})"


def _of(alias: str) -> Refer:
    return lambda name: f"{alias}.{quote(name)}"


_old, _new = _of("OLD"), _of("NEW")


# Conditions and contents of events.


def _chain(operator: str, terms: Sequence[str], size: int = 50) -> str:
    """Terms joined, in groups: SQLite refuses expressions deeper than 1,000, and a table may have 2,000 columns."""
    if len(terms) <= size:
        return operator.join(terms)
    return operator.join(f"({operator.join(terms[at : at + size])})" for at in range(0, len(terms), size))


def _same(names: Iterable[str]) -> str:
    return " and ".join(f"{_old(name)} is {_new(name)} collate binary" for name in names)


def _differs(field: Field) -> str:
    return f"{_old(field.name)} is not {_new(field.name)} collate binary"


def _differs_by_value(field: Field) -> str:
    """As `_differs`, but JSON that says the same in another order or spacing is the same.

    The same is only what certainly is: no key twice in an object, no integer beyond 64 bits.
    """
    if field.kind != "json":
        return _differs(field)
    old, new = _old(field.name), _new(field.name)
    nodes = "select path, key, replace(type, 'integer', 'real'), atom from json_tree({0})"
    certain = "count(*) = count(distinct fullkey) and not max(type = 'integer' and typeof(atom) = 'real')"
    same = (
        f"(select case when {certain} then count(*) end from json_tree({old})) = (select count(*) from json_tree({new}))"
        f" and not exists ({nodes.format(old)} except {nodes.format(new)})"
    )
    readable = f"typeof({old}) = 'text' and typeof({new}) = 'text' and json_valid({old}) and json_valid({new})"
    return f"({_differs(field)} and not case when {readable} then coalesce({same}, 0) else 0 end)"


Differs = Callable[[Field], str | None]
"""The condition that a field changed; None where it certainly did."""


def _every(field: Field) -> str | None:
    return None


def _fields(tracked: TrackedTable, differs: Differs) -> str:
    """The JSON array of the names of changed fields."""
    terms = []
    for field in tracked.fields:
        name, condition = literal("," + json.dumps(field.name, ensure_ascii=False)), differs(field)
        terms.append(f"case when {condition} then {name} else '' end" if condition else name)
    return f"'[' || substr({_chain(' || ', terms)}, 2) || ']'"


def _values(tracked: TrackedTable, old: Refer | None, new: Refer | None, differs: Differs = _every) -> str:
    """The JSON object of changed, recorded fields to `[old, new]`; NULL if there are none."""
    terms = []
    for field in tracked.fields:
        if field.recorded:
            condition = differs(field)
            skip = f"when not ({condition}) then '' " if condition else ""
            large = " or ".join(f"length(cast({side(field.name)} as blob)) > {LARGEST}" for side in (old, new) if side)
            pair = ", ".join(value_sql(field, side(field.name)) if side else "null" for side in (old, new))
            name = literal("," + json.dumps(field.name, ensure_ascii=False) + ":")
            terms.append(f"case {skip}when {large} then '' else {name} || json_array({pair}) end")
    return f"nullif('{{' || substr({_chain(' || ', terms)}, 2) || '}}', '{{}}')" if terms else "null"


def _about(tracked: TrackedTable, entity: str) -> str:
    return f"e.entity_type = {literal(tracked.entity_type)} and e.entity_id = {entity}"


def _last(tracked: TrackedTable, entity: str, workspace: str, prefix: str = "e.") -> str:
    """The condition that `abreast_event as e` is the last event of an entity in a workspace.

    Said by max(): for `order by revision desc limit 1` SQLite reads the whole workspace backwards.
    """
    of = f"l.entity_type = {literal(tracked.entity_type)} and l.entity_id = {entity} and l.workspace = {workspace}"
    return f"{prefix}workspace = {workspace} and {prefix}revision = (select max(l.revision) from abreast_event as l where {of})"


def _live(tracked: TrackedTable, entity: str) -> str:
    """The workspace where the log has this entity alive: the last event in each workspace that knows it is looked up."""
    about = _about(tracked, entity)
    return (
        f"(with recursive abreast_w(ws) as (select min(e.workspace) from abreast_event as e where {about}"
        f" union all select (select min(e.workspace) from abreast_event as e where {about} and e.workspace > abreast_w.ws)"
        " from abreast_w where abreast_w.ws is not null) select abreast_w.ws from abreast_w where abreast_w.ws is not null and"
        f" (select e.op from abreast_event as e where {_last(tracked, entity, 'abreast_w.ws')}) <> 'delete' limit 1)"
    )


def _left(tracked: TrackedTable) -> str:
    """The workspace that the OLD row was in. Where a cascade took its parent, the log knows, or the parent's trigger said."""
    here = _workspace(tracked, _old)
    if tracked.hop is None:
        return here
    parent, columns = tracked.hop.parent, dict(zip((k.name for k in tracked.hop.parent.key), tracked.hop.columns, strict=True))
    entity = _entity_id(parent.key, lambda name: _old(columns[name]))
    gone = f"select g.workspace from abreast_gone as g where g.entity_type = {literal(parent.entity_type)} and g.entity_id = {entity}"
    last = f"select e.workspace from abreast_event as e where {_about(parent, entity)}"
    held = " and ".join(f"{_old(column)} is not null" for column in tracked.hop.columns)
    return (
        f"coalesce({here}, {_live(tracked, _entity_id(tracked.key, _old))}, case when {held} then"
        f" coalesce(({gone}), ({last} order by e.at desc, e.op = 'delete', e.revision desc limit 1)) end)"
    )


# Statements of the triggers.


def _ensure(workspace: str) -> str:
    """A head for a workspace that may be new."""
    return (
        f"insert into abreast_workspace (workspace) select {workspace} where {workspace} is not null"
        f" and not exists (select 1 from abreast_workspace as h where h.workspace = {workspace})"
    )


def _next(workspace: str) -> list[str]:
    """The next revision of a workspace that may be new."""
    return [
        f"update abreast_workspace set head = head + 1 where workspace = {workspace}",
        f"insert into abreast_workspace (workspace, head) select {workspace}, 1 where changes() = 0 and {workspace} is not null",
    ]


def _event(
    tracked: TrackedTable, workspace: str, op: str, entity: str, fields: str, values: str, revision: str = "h.head", source: str = "",
    where: str = "1",
) -> str:  # fmt: skip
    return (
        f"insert into abreast_event ({_COLUMNS}) select h.workspace, {revision}, {op}, {literal(tracked.entity_type)}, {entity},"
        f" {fields}, {values}, {_WHO} from abreast_workspace as h left join abreast_context as c on c.id = 1{source}"
        f" where h.workspace = {workspace} and {where}"
    )


def _without(tracked: TrackedTable, op: str, entity: str, source: str, where: str) -> str:
    """What rows without a workspace mean: an error, or a recorded miss."""
    if tracked.without_workspace == "record":
        return _miss(tracked, op, entity, source, where)
    what = f"{tracked.workspace_column} is NULL"
    if tracked.hop is not None:
        what = f"{', '.join(tracked.hop.columns)} leads to no row of {tracked.hop.parent.table.name} that has one"
    message = (
        f"abreast: this row of {tracked.table.name} has no workspace: {what}."
        " Set it, or track the table with without_workspace='record'."
    )
    return f"select raise(abort, {literal(message)}){source} where {where}"


def _miss(tracked: TrackedTable, op: str, entity: str, source: str, where: str) -> str:
    values = f"{literal(tracked.entity_type)}, {entity}, '{op}'"
    return f"insert into abreast_miss (entity_type, entity_id, op) select {values}{source} where {where}"


def _enter(tracked: TrackedTable, op: str, new: Refer) -> list[str]:
    """The NEW row appears in its workspace. If the log has it alive there, OR REPLACE took the former one away unseen."""
    workspace, entity = _workspace(tracked, _new), _entity_id(tracked.key, _new)
    alive = "case when e.op <> 'delete' then"
    fields, values = f"{alive} {_fields(tracked, _every)} end", _values(tracked, None, new)
    source = f" left join abreast_event as e on {_last(tracked, entity, workspace)}"
    return [
        _without(tracked, op, entity, "", f"{workspace} is null"),
        *_next(workspace),
        _event(tracked, workspace, f"{alive} 'update' else 'insert' end", entity, fields, values, source=source),
    ]


def _vanish(tracked: TrackedTable, where: str = "1") -> list[str]:
    """OR REPLACE took a row with the NEW key out of another workspace."""
    entity = _entity_id(tracked.key, _new)
    live = f"iif({where} and {_live(tracked, entity)} is not {_workspace(tracked, _new)}, {_live(tracked, entity)}, null)"
    return [_next(live)[0], _event(tracked, live, "'delete'", entity, "null", "null")]


def _members(tracked: TrackedTable, tables: Sequence[TrackedTable]) -> Iterator[tuple[TrackedTable, str, str]]:
    """The tables that find their workspace through this one: of each the source, and the condition, of the rows under NEW."""
    for member in tables:
        node, alias, source = member, "abreast_d", f"{quote(member.table.name)} as abreast_d"
        while node.hop is not None:
            parent, down = node.hop.parent, _of(alias)
            up = _new if parent.table is tracked.table else _of(f"{alias}p")
            held = " and ".join(f"{up(k.name)} = {down(c)}" for k, c in zip(parent.key, node.hop.columns, strict=True))
            if up is _new:
                yield member, source, held
                break
            node, alias, source = parent, f"{alias}p", f"{source} join {quote(parent.table.name)} as {alias}p on {held}"


def _move_members(tracked: TrackedTable, tables: Sequence[TrackedTable], op: str, workspace: str, unless: str) -> list[str]:
    """All rows that find their workspace through the NEW row leave one (`delete`) or enter one (`insert`)."""
    statements = []
    for member, source, held in _members(tracked, tables):
        row = _of("abreast_d")
        entity, where = _entity_id(member.key, row), f"{held} and {unless}"
        if op == "insert":
            statements.append(_without(member, "update", entity, f" from {source}", f"{where} and {workspace} is null"))
        values = _values(member, row, None) if op == "delete" else _values(member, None, row)
        revision = f"h.head + row_number() over (order by {', '.join(row(k.name) for k in member.key)})"
        last = "select max(e.revision) from abreast_event as e where e.workspace = abreast_workspace.workspace"
        statements += [
            _event(member, workspace, f"'{op}'", entity, "null", values, revision, f" join {source}", where),
            f"update abreast_workspace set head = max(head, coalesce(({last}), 0)) where workspace = {workspace}",
        ]
    return statements


def _bump(tracked: TrackedTable, column: str, version: str) -> list[str]:
    """Sets the version of the NEW row. The event that is there announces it already, and is marked by a blank meanwhile,
    so that the update trigger knows this write."""
    workspace, entity = _workspace(tracked, _new), _entity_id(tracked.key, _new)
    key = " and ".join(f"{quote(k.name)} is {_new(k.name)}" for k in tracked.key)
    marked = f"select e.revision from abreast_event as e where {_about(tracked, entity)} and e.workspace = {workspace}"
    return [
        f"update abreast_event set fields = ' ' || coalesce(fields, '') where {_last(tracked, entity, workspace, '')}",
        f"update {quote(tracked.table.name)} set {quote(column)} = {version} where {key} and {quote(column)} is {_new(column)}",
        "update abreast_event set fields = nullif(substr(fields, 2), '') where workspace = "
        f"{workspace} and revision = ({marked} and e.fields glob ' *' order by e.revision desc limit 1)",
    ]


# The triggers of one table.


def _name(tracked: TrackedTable, name: str) -> str:
    return f"abreast_{tracked.entity_type}_{name}"


def _triggers(tracked: TrackedTable, tables: Sequence[TrackedTable]) -> dict[str, str]:
    """Name and text of each trigger of one table, in the order of creation, which is the reverse of the order of running."""
    result: dict[str, str] = {}

    def add(name: str, time: str, when: str, *statements: str) -> None:
        start = (
            f"CREATE TRIGGER {quote(_name(tracked, name))} {time} ON {quote(tracked.table.name)} FOR EACH ROW WHEN {when} BEGIN"
        )
        result[_name(tracked, name)] = "\n".join([start, *(f"  {statement};" for statement in statements), "END"])

    version, hop, type_ = tracked.version_column, tracked.hop, literal(tracked.entity_type)
    key = _same(k.name for k in tracked.key)
    old_entity, new_entity = _entity_id(tracked.key, _old), _entity_id(tracked.key, _new)
    left, workspace = _left(tracked), _workspace(tracked, _new)
    stays = [key]
    if tracked.workspace_column is not None:
        stays.append(_same([tracked.workspace_column]))
    if hop is not None:
        stays.append(f"(({_same(hop.columns)}) or {left} is {workspace})")
    others = [f for f in tracked.fields if f.name != version]
    changed = "(" + _chain(" or ", [_differs(f) for f in others]) + ")"

    def inserted(name: str) -> str:
        return f"coalesce({_new(name)}, 1)" if name == version else _new(name)

    def updated(name: str) -> str:
        bumped = f"case when {_same([name])} then coalesce({_old(name)}, 0) + 1 else {_new(name)} end"
        return bumped if name == version else _new(name)

    if version is not None:
        add("version_insert", "AFTER INSERT", f"{_new(version)} is null", *_bump(tracked, version, "1"))
        really = _chain(" or ", [_differs_by_value(f) for f in others])
        bump = _bump(tracked, version, f"coalesce({_old(version)}, 0) + 1")
        add("version_update", "AFTER UPDATE", f"{_same([version])} and ({really})", *bump)

    forget = []
    if any(t.hop is not None and t.hop.parent.table is tracked.table for t in tables):
        forget = [f"delete from abreast_gone where entity_type = {type_} and entity_id = {old_entity}"]
        say = f"insert into abreast_gone (entity_type, entity_id, workspace) select {type_}, {old_entity}, {left} where {left} is not null"
        add("gone_delete", "BEFORE DELETE", "1", *forget, say)
        add("gone_update", "BEFORE UPDATE", f"not ({key})", *forget, say)

    add("insert", "AFTER INSERT", "1", *_enter(tracked, "insert", inserted))
    if tracked.workspace_constant is None:
        live = _live(tracked, new_entity)
        known = f"exists (select 1 from abreast_event as e where {_about(tracked, new_entity)})"
        add(
            "replace", "AFTER INSERT", f"{known} and {live} is not null and {live} is not {workspace}",
            _ensure(workspace),
            *_move_members(tracked, tables, "delete", live, "1"),
            *_move_members(tracked, tables, "insert", workspace, "1"),
            *_vanish(tracked),
        )  # fmt: skip

    add(
        "move", "AFTER UPDATE", f"not ({' and '.join(stays)})",
        _ensure(left),
        _ensure(workspace),
        *_move_members(tracked, tables, "delete", left, key),
        *_next(left),
        _event(tracked, left, "'delete'", old_entity, "null", _values(tracked, _old, None)),
        *_vanish(tracked, f"not ({key})"),
        *_enter(tracked, "update", updated),
        *_move_members(tracked, tables, "insert", workspace, key),
        *forget,
    )  # fmt: skip

    by_value = {f: f"x.j{index}" for index, f in enumerate(others) if f.kind == "json"}

    def differs(field: Field) -> str | None:
        return None if field.name == version else by_value.get(field, _differs(field))

    fields, values = _fields(tracked, differs), _values(tracked, _old, updated, differs)
    when = " and ".join([changed, *stays])
    if version is not None:
        last = f"select e.fields from abreast_event as e where {_last(tracked, new_entity, workspace)}"
        announced = f"coalesce(({last}), '') glob ' *'"
        when = f"({changed} or ({_differs(tracked.field(version))} and not {announced})) and {' and '.join(stays)}"
    without = _without(tracked, "update", new_entity, "", f"{workspace} is null")
    if not by_value:
        event = _event(tracked, workspace, "'update'", new_entity, fields, values)
        add("update", "AFTER UPDATE", when, without, *_next(workspace), event)
    else:
        # The costly comparison is made once, in x; whether there is an event shows only then.
        x = ", ".join(f"{_differs_by_value(f)} as {name[2:]}" for f, name in by_value.items())
        any_ = "(" + _chain(" or ", [by_value.get(f, _differs(f)) for f in tracked.fields]) + ")"
        event = _event(
            tracked, workspace, "'update'", new_entity, fields, values, "h.head + 1", f" join (select {x} limit 1) as x", any_
        )
        count = f"update abreast_workspace set head = head + 1 where changes() = 1 and workspace = {workspace}"
        add("update", "AFTER UPDATE", when, without, _ensure(workspace), event, count)

    gone = _miss(tracked, "delete", old_entity, "", f"{left} is null")
    event = _event(tracked, left, "'delete'", old_entity, "null", _values(tracked, _old, None))
    add("delete", "AFTER DELETE", "1", gone, *_next(left), event, *forget)
    return result
