"""The SQL terms that the triggers of one table on SQLite are made of: who a row is, where it is, what changed in it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence

from abreast.store.capture.sqlite_log import About, alive_in
from abreast.store.schema import literal, quote
from abreast.store.tracked import Field, TrackedTable

LARGEST = 1_000_000
"""Bytes of one value that an event keeps. A larger one is named in `fields` only: an event must fit into one gigabyte."""

LONGEST = 50_000
"""Characters of JSON that are compared by value (40,000 take 6 to 13 ms, 30 where all of them moved); longer ones by letter."""

DEEPEST = 300
"""Characters of the longest path in such a text: the time is the number of nodes times the length of their paths."""

Refer = Callable[[str], str]
"""A column's name in, the SQL that reads it out."""

Differs = Callable[[Field], str | None]
"""The condition that a field changed; None where it certainly did."""


def entity_id_sql(tracked: TrackedTable, alias: str) -> str:
    """The entity id of a row: the key as text, or the compact JSON array of a composite key's texts."""
    return entity_of(tracked.key, row_of(alias))


def workspace_sql(tracked: TrackedTable, alias: str) -> str:
    """The workspace of a row, NULL where it has none."""
    return workspace_of(tracked, row_of(alias))


def value_sql(field: Field, ref: str) -> str:
    """A column's value as JSON can hold it: blobs as hex digits, reals exact or by name, JSON as its text."""
    if field.kind == "json":
        return f"iif({ref} is null, null, {_as_text(ref, real=True)})"
    real = ref
    if field.kind in ("float", "decimal"):
        real = f"iif({exact(ref)} is null, json(printf('%!.17g', {ref})), {ref})"
    real = f"iif(abs({ref}) < 9e999, {real}, iif({ref} > 0, 'Infinity', '-Infinity'))"  # JSON has no infinity
    return f"case typeof({ref}) when 'blob' then hex({ref}) when 'real' then {real} else {ref} end"


def exact(ref: str) -> str:
    """A real as text, NULL where the 15 digits that SQLite writes are not enough for it."""
    return f"iif(cast(cast({ref} as text) as real) = {ref}, cast({ref} as text), null)"


def _as_text(ref: str, real: bool) -> str:
    text = f"iif(typeof({ref}) = 'blob', hex({ref}), cast({ref} as text))"
    return f"iif(typeof({ref}) = 'real', coalesce({exact(ref)}, printf('%!.17g', {ref})), {text})" if real else text


def text_of(field: Field, ref: str) -> str:
    """A key's value as text. `Uuid` is stored as 32 hex digits; everywhere else it is written with dashes."""
    text = _as_text(ref, real=field.kind in ("float", "decimal"))
    if field.kind != "uuid":
        return text
    parts = " || '-' || ".join(f"substr(t, {start}, {size})" for start, size in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12)))
    return f"(select iif(length(t) = 32, lower({parts}), t) from (select {text} as t))"


def entity_of(key: Sequence[Field], refer: Refer) -> str:
    texts = [text_of(field, refer(field.name)) for field in key]
    # An old SQLite table may hold NULL in its primary key; the log cannot.
    return f"coalesce({texts[0]}, '')" if len(texts) == 1 else f"json_array({', '.join(texts)})"


def workspace_of(tracked: TrackedTable, refer: Refer, level: int = 1) -> str:
    if tracked.workspace_constant is not None:
        return literal(tracked.workspace_constant)
    if tracked.workspace_column is not None:
        return text_of(tracked.field(tracked.workspace_column), refer(tracked.workspace_column))
    assert tracked.hop is not None
    parent, up = tracked.hop.parent, row_of(f"abreast_p{level}")
    # The parent's key stands left: its collation decides, as in a foreign key.
    held = " and ".join(f"{up(k.name)} = {refer(c)}" for k, c in zip(parent.key, tracked.hop.columns, strict=True))
    return f"(select {workspace_of(parent, up, level + 1)} from {quote(parent.table.name)} as abreast_p{level} where {held})"


def row_of(alias: str) -> Refer:
    return lambda name: f"{alias}.{quote(name)}"


old_of, new_of = row_of("OLD"), row_of("NEW")


def chain(operator: str, terms: Sequence[str], size: int = 50) -> str:
    """Terms joined, in groups: SQLite refuses expressions deeper than 1,000, and a table may have 2,000 columns."""
    if len(terms) <= size:
        return operator.join(terms)
    return operator.join(f"({operator.join(terms[at : at + size])})" for at in range(0, len(terms), size))


def same(names: Iterable[str]) -> str:
    return " and ".join(f"{old_of(name)} is {new_of(name)} collate binary" for name in names)


def is_changed(field: Field) -> str:
    return f"{old_of(field.name)} is not {new_of(field.name)} collate binary"


def differs_by_value(field: Field) -> str:
    """As `is_changed`, but JSON that says the same in another order or spacing is the same.

    The same is only what certainly is: no key twice in an object, no integer beyond 64 bits, nothing behind a NUL, not
    longer than `LONGEST` or deeper than `DEEPEST`; numbers are compared as SQLite reads them, 1 is 1.0.
    The top level is compared first, and deeply only those parts of it that differ as text.
    """
    if field.kind != "json":
        return is_changed(field)
    old, new = old_of(field.name), new_of(field.name)
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
    # The parts lie two levels deeper than in the document: SQLite may not read what it could write.
    shallow = "json_valid({0}) and not exists (select 1 from json_tree({0}) where length(path) > {1})"
    deep = (
        f"(select case when {shallow.format('x.o', DEEPEST)} and {shallow.format('x.n', DEEPEST)} then"
        f" (select iif({certain.format('atom', 'fullkey')}, count(*), -1) from json_tree(x.o))"
        " = (select count(*) from json_tree(x.n))"
        f" and not exists ({nodes.format('x.o')} except {nodes.format('x.n')}) else 0 end"
        f" from (select {parts.format(old, new)} as o, {parts.format(new, old)} as n limit 1) as x)"
    )
    proper = "typeof({0}) = 'text' and length({0}) <= {1} and instr({0}, char(0)) = 0 and json_valid({0})"
    readable = " and ".join(proper.format(side, LONGEST) for side in (old, new))
    return f"({is_changed(field)} and not case when {readable} then {alike} and {deep} else 0 end)"


def every(field: Field) -> str | None:
    return None


def fields_sql(fields: Iterable[Field], differs: Differs = every) -> str:
    """The JSON array of the names of changed fields."""
    terms = []
    for field in fields:
        name, condition = literal("," + json.dumps(field.name, ensure_ascii=False)), differs(field)
        terms.append(f"iif({condition}, {name}, '')" if condition else name)
    return f"'[' || substr({chain(' || ', terms)}, 2) || ']'"


def values_sql(fields: Iterable[Field], old: Refer | None, new: Refer | None, differs: Differs = every) -> str:
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
    return f"nullif('{{' || substr({chain(' || ', terms)}, 2) || '}}', '{{}}')" if terms else "null"


def is_entity(tracked: TrackedTable, entity: str) -> About:
    return lambda alias: f"{alias}.entity_type = {literal(tracked.entity_type)} and {alias}.entity_id = {entity}"


def home_of(tracked: TrackedTable, refer: Refer, workspace: str | None = None) -> str:
    """The workspace of a row that must have one, unless a missing one is to be recorded."""
    workspace = workspace or workspace_of(tracked, refer)
    if tracked.without_workspace == "record" or tracked.workspace_constant is not None:
        return workspace
    what = f"{tracked.workspace_column} is NULL"
    if tracked.hop is not None:
        what = f"{', '.join(tracked.hop.columns)} leads to no row of {tracked.hop.parent.table.name} that has one"
    cure = "Set it, or track the table with without_workspace='record'."
    message = literal(f"abreast: this row of {tracked.table.name} has no workspace: {what}. {cure}")
    return f"coalesce({workspace}, raise(abort, {message}))"


def left_of(tracked: TrackedTable) -> str:
    """The workspace that the OLD row was in. Where a cascade took its parent, the log knows, or the parent's trigger said."""
    here = workspace_of(tracked, old_of)
    if tracked.hop is None:
        return here
    parent, columns = tracked.hop.parent, dict(zip((k.name for k in tracked.hop.parent.key), tracked.hop.columns, strict=True))
    above = is_entity(parent, entity_of(parent.key, lambda name: old_of(columns[name])))
    gone = f"select g.workspace from abreast_gone as g where {above('g')}"
    last = f"select e.workspace from abreast_event as e where {above('e')}"
    held = " and ".join(f"{old_of(column)} is not null" for column in tracked.hop.columns)
    return (
        f"coalesce({here}, {alive_in(is_entity(tracked, entity_of(tracked.key, old_of)))}, iif({held},"
        f" coalesce(({gone}), ({last} order by e.at desc, e.op = 'delete', e.revision desc limit 1)), null))"
    )


def place_of(tracked: TrackedTable) -> list[str]:
    """The columns that say which row this is, and where."""
    where = tracked.hop.columns if tracked.hop is not None else [tracked.workspace_column] if tracked.workspace_column else []
    return list(dict.fromkeys([*(k.name for k in tracked.key), *where]))


def generated_of(tracked: TrackedTable) -> set[str]:
    return {column.name for column in tracked.table.columns if column.computed is not None}


def update_of(tracked: TrackedTable, names: Sequence[str]) -> str:
    """`UPDATE OF` these columns, where that sees every change of them: also by the names of the row id, but not if generated."""
    if generated_of(tracked) & set(names):
        return "UPDATE"
    return f"UPDATE OF {', '.join(map(quote, names))}, rowid, oid, _rowid_"
