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

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence

from abreast.store.schema import literal, quote
from abreast.store.tracked import Field, TrackedTable
from abreast.types import Finding

LARGEST = 1_000_000
"""Bytes of one value that an event keeps. A larger one is named in `fields` only: an event must fit into one gigabyte."""

LONGEST = 50_000
"""Characters of JSON that are compared by value (40,000 take 6 ms, 40 ms if all of them moved); longer texts by letter."""

TRIGGERS_FOUND_SQL = "select name, tbl_name, sql from sqlite_master where type = 'trigger' order by rowid"
"""All triggers of the database, oldest first: the `rows` of `findings`."""

COLUMNS_FOUND_SQL = (
    "select m.name, c.name, c.hidden in (2, 3) from sqlite_master as m, pragma_table_xinfo(m.name) as c"
    " where m.type = 'table' and c.hidden <> 1"
)
"""All columns of the database, and whether they are generated: the `columns` of `findings`. (`table_info` hides those.)"""

Refer = Callable[[str], str]
"""A column's name in, the SQL that reads it out."""

About = Callable[[str], str]
"""An alias in, the condition out that its entity_type and entity_id are those of one entity."""

Differs = Callable[[Field], str | None]
"""The condition that a field changed; None where it certainly did."""


def install_statements(tables: Sequence[TrackedTable]) -> list[str]:
    """Statements that make the triggers anew. `tables` are all tracked tables: a parent's triggers depend on its children."""
    statements = [*DROP_SHARED, *_VIEWS, *_SHARED.values()]
    for tracked in tables:
        statements += [*uninstall_statements([tracked]), *_triggers(tracked, tables).values()]
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
    expected = {name: ("", text) for name, text in _SHARED.items()}
    result = []
    for tracked in tables:
        table, wanted = tracked.table.name, _triggers(tracked, tables)
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
        for name in _place(tracked):
            if there.get(name.lower(), ("", 0))[1] and tracked.table.columns[name].computed is None:
                say("column_generated", f"column {name} of {table} is generated: declare it as Computed and install again")
    return result


# What reading code shares.


def entity_id_sql(tracked: TrackedTable, alias: str) -> str:
    """The entity id of a row: the key as text, or the compact JSON array of a composite key's texts."""
    return _entity(tracked.key, _of(alias))


def workspace_sql(tracked: TrackedTable, alias: str) -> str:
    """The workspace of a row, NULL where it has none."""
    return _workspace(tracked, _of(alias))


def value_sql(field: Field, ref: str) -> str:
    """A column's value as JSON can hold it: blobs as hex digits, reals exact or by name, JSON as its text."""
    if field.kind == "json":
        return f"iif({ref} is null, null, {_as_text(ref, real=True)})"
    real = ref
    if field.kind in ("float", "decimal"):
        real = f"iif({_exact(ref)} is null, json(printf('%!.17g', {ref})), {ref})"
    real = f"iif(abs({ref}) < 9e999, {real}, iif({ref} > 0, 'Infinity', '-Infinity'))"  # JSON has no infinity
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


def _entity(key: Sequence[Field], refer: Refer) -> str:
    texts = [_text(field, refer(field.name)) for field in key]
    # An old SQLite table may hold NULL in its primary key; the log cannot.
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


# What all tables share.


def _last(about: About, workspace: str, prefix: str = "e.") -> str:
    """The condition that `abreast_event as e` is the last event of an entity in a workspace.

    Said by max(): for `order by revision desc limit 1` SQLite reads the whole workspace backwards.
    """
    return (
        f"{prefix}workspace = {workspace} and {prefix}revision = (select max(l.revision) from abreast_event as l"
        f" where {about('l')} and l.workspace = {workspace})"
    )


def _alive(about: About, elsewhere: str = "null") -> str:
    """The workspace where the log has an entity alive: of each that knows it, the last event is looked up."""
    known = f"(select min(e.workspace) from abreast_event as e where {about('e')}"
    return (
        f"(with recursive abreast_w(ws) as (select {known}) union all"
        f" select {known} and e.workspace > abreast_w.ws) from abreast_w where abreast_w.ws is not null)"
        f" select abreast_w.ws from abreast_w where abreast_w.ws is not null and abreast_w.ws is not {elsewhere} and"
        f" (select e.op from abreast_event as e where {_last(about, 'abreast_w.ws')}) <> 'delete' limit 1)"
    )


def _known_elsewhere(about: About, workspace: str) -> str:
    """Two lookups, however many events the entity has."""
    known = f"exists (select 1 from abreast_event as e where {about('e')} and e.workspace"
    return f"({known} < coalesce({workspace}, '')) or {known} > coalesce({workspace}, '')))"


def _trigger(name: str, time: str, on: str, when: str, statements: Iterable[str]) -> str:
    # The text is kept by SQLite as it is written here, from the name on, and compared by `findings`.
    return "\n".join(
        [f"CREATE TRIGGER {quote(name)} {time} ON {quote(on)}{' WHEN ' + when if when else ''} BEGIN"]
        + [f"  {statement};" for statement in statements]
        + ["END"]
    )


DROP_SHARED = ("drop view if exists abreast_change", "drop view if exists abreast_entry")
_VIEWS = (
    'create view abreast_change (workspace, op, entity_type, entity_id, fields, "values")'
    " as select null, null, null, null, null, null where 0",
    'create view abreast_entry (workspace, entity_type, entity_id, fields, "values")'
    " as select null, null, null, null, null where 0",
    # Where a parent was, while it is being deleted: SQLite cascades to its children before its AFTER trigger runs.
    "create table if not exists abreast_gone (entity_type text not null, entity_id text not null, workspace text not null,"
    " primary key (entity_type, entity_id)) without rowid",
)


def _told(alias: str) -> str:
    return f"{alias}.entity_type = NEW.entity_type and {alias}.entity_id = NEW.entity_id"


_THERE = f"(select e.op from abreast_event as e where {_last(_told, 'NEW.workspace')}) <> 'delete'"
# Not `in ('user', ...)`: SQLite would build a table for it at every event.
_TYPES = " ".join(f"when '{actor}' then '{actor}'" for actor in ("user", "agent", "system"))
_SHARED = {
    # One change, under the next revision of its workspace.
    "abreast_write": _trigger(
        "abreast_write", "INSTEAD OF INSERT", "abreast_change", "NEW.workspace is not null",
        [
            "update abreast_workspace set head = head + 1 where workspace = NEW.workspace",
            "insert into abreast_workspace (workspace, head) select NEW.workspace, 1 where changes() = 0",
            'insert into abreast_event (workspace, revision, op, entity_type, entity_id, fields, "values",'
            " actor_type, actor_id, thread, mutation)"
            ' select NEW.workspace, h.head, NEW.op, NEW.entity_type, NEW.entity_id, NEW.fields, NEW."values",'
            f" case c.actor_type {_TYPES} else 'unknown' end,"
            " nullif(c.actor_id, ''), nullif(c.thread, ''), nullif(c.mutation, '')"
            " from abreast_workspace as h left join abreast_context as c on c.id = 1 where h.workspace = NEW.workspace",
        ],
    ),
    "abreast_miss": _trigger(
        "abreast_miss", "INSTEAD OF INSERT", "abreast_change", "NEW.workspace is null",
        ["insert into abreast_miss (entity_type, entity_id, op) values (NEW.entity_type, NEW.entity_id, NEW.op)"],
    ),
    # A row appears. Where the log has it alive, OR REPLACE took the former one away, and no trigger saw it.
    "abreast_enter": _trigger(
        "abreast_enter", "INSTEAD OF INSERT", "abreast_entry", "",
        [
            f"insert into abreast_change values (NEW.workspace, iif({_THERE}, 'update', 'insert'),"
            f' NEW.entity_type, NEW.entity_id, iif({_THERE}, NEW.fields, null), NEW."values")'
        ],
    ),
    "abreast_elsewhere": _trigger(
        "abreast_elsewhere", "INSTEAD OF INSERT", "abreast_entry", _known_elsewhere(_told, "NEW.workspace"),
        [
            "insert into abreast_change select g.workspace, 'delete', NEW.entity_type, NEW.entity_id, null, null"
            f" from (select {_alive(_told, 'NEW.workspace')} as workspace) as g where g.workspace is not null"
        ],
    ),
}  # fmt: skip


# Conditions and contents of a table's events.


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

    The same is only what certainly is: no key twice in an object, no integer beyond 64 bits, no longer than `LONGEST`.
    The top level is compared first, and deeply only those parts of it that differ as text.
    """
    if field.kind != "json":
        return _differs(field)
    old, new = _old(field.name), _new(field.name)
    top = "select key, replace(type, 'integer', 'real') as type, value from json_each({0}) except"
    top += " select key, replace(type, 'integer', 'real'), value from json_each({1})"
    certain = "not max(type = 'integer' and typeof({0}) = 'real') and count(*) = count(distinct {1})"
    alike = (
        f"json_type({old}) = json_type({new}) and (select {certain.format('value', 'coalesce(key, 0)')}"
        f" and count(*) = (select count(*) from json_each({new})) from json_each({old}))"
        f" and not exists (select 1 from ({top.format(old, new)}) where type <> 'object' and type <> 'array')"
    )
    part = "iif(type = 'object' or type = 'array', json(value), null)"
    parts = f"(select json_group_array(json_array(key, {part})) from (select * from ({top}) order by key))"
    nodes = "select path, key, replace(type, 'integer', 'real'), atom from json_tree({0})"
    deep = (
        f"(select (select iif({certain.format('atom', 'fullkey')}, count(*), -1)"
        " from json_tree(x.o)) = (select count(*) from json_tree(x.n))"
        f" and not exists ({nodes.format('x.o')} except {nodes.format('x.n')})"
        f" from (select {parts.format(old, new)} as o, {parts.format(new, old)} as n limit 1) as x)"
    )
    readable = " and ".join(f"typeof({x}) = 'text' and length({x}) <= {LONGEST} and json_valid({x})" for x in (old, new))
    return f"({_differs(field)} and not case when {readable} then {alike} and {deep} else 0 end)"


def _every(field: Field) -> str | None:
    return None


def _fields(fields: Iterable[Field], differs: Differs = _every) -> str:
    """The JSON array of the names of changed fields."""
    terms = []
    for field in fields:
        name, condition = literal("," + json.dumps(field.name, ensure_ascii=False)), differs(field)
        terms.append(f"iif({condition}, {name}, '')" if condition else name)
    return f"'[' || substr({_chain(' || ', terms)}, 2) || ']'"


def _values(fields: Iterable[Field], old: Refer | None, new: Refer | None, differs: Differs = _every) -> str:
    """The JSON object of changed, recorded fields to `[old, new]`; NULL if there are none."""
    terms = []
    for field in fields:
        if field.recorded:
            condition = differs(field)
            skip = f"when not {condition} then '' " if condition else ""
            large = " or ".join(f"length(cast({side(field.name)} as blob)) > {LARGEST}" for side in (old, new) if side)
            pair = ", ".join(value_sql(field, side(field.name)) if side else "null" for side in (old, new))
            name = literal("," + json.dumps(field.name, ensure_ascii=False) + ":")
            terms.append(f"case {skip}when {large} then '' else {name} || json_array({pair}) end")
    return f"nullif('{{' || substr({_chain(' || ', terms)}, 2) || '}}', '{{}}')" if terms else "null"


def _is(tracked: TrackedTable, entity: str) -> About:
    return lambda alias: f"{alias}.entity_type = {literal(tracked.entity_type)} and {alias}.entity_id = {entity}"


def _home(tracked: TrackedTable, refer: Refer, workspace: str | None = None) -> str:
    """The workspace of a row that must have one, unless a missing one is to be recorded."""
    workspace = workspace or _workspace(tracked, refer)
    if tracked.without_workspace == "record" or tracked.workspace_constant is not None:
        return workspace
    what = f"{tracked.workspace_column} is NULL"
    if tracked.hop is not None:
        what = f"{', '.join(tracked.hop.columns)} leads to no row of {tracked.hop.parent.table.name} that has one"
    cure = "Set it, or track the table with without_workspace='record'."
    message = literal(f"abreast: this row of {tracked.table.name} has no workspace: {what}. {cure}")
    return f"coalesce({workspace}, raise(abort, {message}))"


def _left(tracked: TrackedTable) -> str:
    """The workspace that the OLD row was in. Where a cascade took its parent, the log knows, or the parent's trigger said."""
    here = _workspace(tracked, _old)
    if tracked.hop is None:
        return here
    parent, columns = tracked.hop.parent, dict(zip((k.name for k in tracked.hop.parent.key), tracked.hop.columns, strict=True))
    above = _is(parent, _entity(parent.key, lambda name: _old(columns[name])))
    gone = f"select g.workspace from abreast_gone as g where {above('g')}"
    last = f"select e.workspace from abreast_event as e where {above('e')}"
    held = " and ".join(f"{_old(column)} is not null" for column in tracked.hop.columns)
    return (
        f"coalesce({here}, {_alive(_is(tracked, _entity(tracked.key, _old)))}, iif({held},"
        f" coalesce(({gone}), ({last} order by e.at desc, e.op = 'delete', e.revision desc limit 1)), null))"
    )


def _place(tracked: TrackedTable) -> list[str]:
    """The columns that say which row this is, and where."""
    where = tracked.hop.columns if tracked.hop is not None else [tracked.workspace_column] if tracked.workspace_column else []
    return list(dict.fromkeys([*(k.name for k in tracked.key), *where]))


def _update_of(tracked: TrackedTable, names: Sequence[str]) -> str:
    """`UPDATE OF` these columns, where that sees every change of them: also by the names of the row id, but not if generated."""
    if any(tracked.table.columns[name].computed is not None for name in names):
        return "UPDATE"
    return f"UPDATE OF {', '.join(map(quote, names))}, rowid, oid, _rowid_"


# The triggers of one table.

_NAMES = ("version_insert", "version_update", "gone_delete", "gone_update", "insert", "replace", "move", "update", "delete")


def _name(tracked: TrackedTable, name: str) -> str:
    return f"abreast_{tracked.entity_type}_{name}"


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


def _bump(tracked: TrackedTable, column: str, version: str) -> list[str]:
    """Sets the version of the NEW row. The event that is there announces it already, and is marked by a blank meanwhile,
    so that the update trigger knows this write."""
    workspace, entity = _workspace(tracked, _new), _is(tracked, _entity(tracked.key, _new))
    key = " and ".join(f"{quote(k.name)} is {_new(k.name)}" for k in tracked.key)
    marked = f"select e.revision from abreast_event as e where {entity('e')} and e.workspace = {workspace}"
    return [
        f"update abreast_event set fields = ' ' || coalesce(fields, '') where {_last(entity, workspace, '')}",
        f"update {quote(tracked.table.name)} set {quote(column)} = {version} where {key} and {quote(column)} is {_new(column)}",
        f"update abreast_event set fields = nullif(substr(fields, 2), '') where workspace = {workspace}"
        f" and revision = ({marked} and e.fields glob ' *' order by e.revision desc limit 1)",
    ]


def _triggers(tracked: TrackedTable, tables: Sequence[TrackedTable]) -> dict[str, str]:
    """Name and text of each trigger of one table, in the order of creation, which is the reverse of the order of running."""
    result: dict[str, str] = {}

    def add(name: str, time: str, when: str, *statements: str) -> None:
        full = _name(tracked, name)
        result[full] = _trigger(full, time, tracked.table.name, when, statements)

    version, hop, type_ = tracked.version_column, tracked.hop, literal(tracked.entity_type)
    keys, place = [k.name for k in tracked.key], _place(tracked)
    old_id, new_id = _entity(tracked.key, _old), _entity(tracked.key, _new)
    here, left, workspace = _home(tracked, _new), _left(tracked), _workspace(tracked, _new)
    others = [f for f in tracked.fields if f.name not in place]
    members = list(_members(tracked, tables))

    # A version that the writer left alone is set by the version triggers below, but told by the event of the change.
    def inserted(name: str) -> str:
        return f"coalesce({_new(name)}, 1)" if name == version else _new(name)

    def updated(name: str) -> str:
        bumped = f"iif({_same([name])}, coalesce({_old(name)}, 0) + 1, {_new(name)})"
        return bumped if name == version else _new(name)

    by_value = {f: f"x.j{index}" for index, f in enumerate(others) if f.kind == "json"}
    flags = ", ".join(f"{_differs_by_value(f)} as {name[2:]}" for f, name in by_value.items())

    def differs(field: Field) -> str | None:
        return None if field.name == version else by_value.get(field) or f"({_differs(field)})"

    def update(fields: Sequence[Field], where: str) -> str:
        """The statement for an update in place. The costly comparison of JSON is made once, in x."""
        event = f"{here}, 'update', {type_}, {new_id}, {_fields(fields, differs)}, {_values(fields, _old, updated, differs)}"
        if by_value:
            any_ = _chain(" or ", [by_value.get(f) or _differs(f) for f in fields])
            return f"insert into abreast_change select {event} from (select {flags} limit 1) as x where ({any_}){where}"
        if where:
            return f"insert into abreast_change select {event} where 1{where}"
        return f"insert into abreast_change values ({event})"  # SELECT would go through a temporary table

    def members_leave(source: str, where: str) -> Iterator[str]:
        for member, rows, held in members:
            row = _of("abreast_d")
            event = f"g.workspace, 'delete', {literal(member.entity_type)}, {_entity(member.key, row)}, null"
            yield (
                f"insert into abreast_change select {event}, {_values(member.fields, row, None)} from {source} join {rows}"
                f" where {held} and {where} order by {', '.join(row(k.name) for k in member.key)}"
            )

    def members_enter(where: str) -> Iterator[str]:
        for member, rows, held in members:
            row = _of("abreast_d")
            event = f"{_home(member, row, workspace)}, 'insert', {literal(member.entity_type)}, {_entity(member.key, row)}, null"
            yield (
                f"insert into abreast_change select {event}, {_values(member.fields, None, row)} from {rows}"
                f" where {held} and {where} order by {', '.join(row(k.name) for k in member.key)}"
            )

    if version is not None:
        really = _chain(" or ", [_differs_by_value(f) for f in tracked.fields if f.name != version])
        add("version_insert", "AFTER INSERT", f"{_new(version)} is null", *_bump(tracked, version, "1"))
        bump = _bump(tracked, version, f"coalesce({_old(version)}, 0) + 1")
        add("version_update", "AFTER UPDATE", f"{_same([version])} and ({really})", *bump)

    # The rows' way out through abreast_gone: parents note where they are before they go, all by path note where they were.
    noted = _is(tracked, old_id)("g")
    forget = f"delete from abreast_gone where entity_type = {type_} and entity_id = {old_id}"
    was = f"(select {left} as workspace) as g"
    note = f"insert into abreast_gone select {type_}, {old_id}, g.workspace from {was} where g.workspace is not null"
    if members:
        add("gone_delete", "BEFORE DELETE", "", forget, note)
        add("gone_update", f"BEFORE {_update_of(tracked, keys)}", f"not ({_same(keys)})", forget, note)

    event = f"{type_}, {new_id}, {_fields(tracked.fields)}"
    values = _values(tracked.fields, None, inserted)
    add("insert", "AFTER INSERT", "", f"insert into abreast_entry values ({here}, {event}, {values})")
    if members and tracked.workspace_constant is None:
        alive, new_noted = _alive(_is(tracked, new_id), workspace), _is(tracked, new_id)("g")
        new_forget = f"delete from abreast_gone where entity_type = {type_} and entity_id = {new_id}"
        add(
            "replace", "AFTER INSERT", _known_elsewhere(_is(tracked, new_id), workspace),
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
        stays = f"({_same(keys)} and exists (select 1 from abreast_gone as g where {noted} and g.workspace is {workspace}))"
    new_row = f"{here}, {event}, {_values(tracked.fields, None, updated)}"
    gone_row = f"g.workspace, 'delete', {type_}, {old_id}, null, {_values(tracked.fields, _old, None)}"
    moved = [
        *([forget, note] if hop is not None else []),
        *members_leave(source, f"{there} and {_same(keys)} and not {stays}"),
        f"insert into abreast_change select {gone_row} from {source} where {there} and not {stays}",
        f"insert into abreast_entry select {new_row} where not {stays}",
        *([update([*others, *(f for f in tracked.fields if f.name in place)], f" and {stays}")] if hop is not None else []),
        *members_enter(f"{_same(keys)} and not {stays}"),
        *([forget] if hop is not None or members else []),
    ]
    add("move", f"AFTER {_update_of(tracked, place)}", f"not ({_same(place)})", *moved)

    if others:
        changed = "(" + _chain(" or ", [_differs(f) for f in others]) + ")"
        if version is not None:
            rest = "(" + (_chain(" or ", [_differs(f) for f in others if f.name != version]) or "0") + ")"
            last = f"select e.fields from abreast_event as e where {_last(_is(tracked, new_id), workspace)}"
            changed = f"({rest} or ({_differs(tracked.field(version))} and not coalesce(({last}), '') glob ' *'))"
        add("update", "AFTER UPDATE", f"{_same(place)} and {changed}", update(others, ""))

    lost = f"{left}, 'delete', {type_}, {old_id}, null, {_values(tracked.fields, _old, None)}"
    add("delete", "AFTER DELETE", "", f"insert into abreast_change values ({lost})", *([forget] if members else []))
    return result
