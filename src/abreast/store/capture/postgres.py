"""Capture on PostgreSQL: what installs the triggers, takes them away, and finds what is wrong with them.

The triggers themselves are made in `postgres_triggers`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from abreast.store.capture.postgres_triggers import (
    NOTHING,
    NUMBERING,
    SETTINGS,
    Trigger,
    Uncomparable,
    digest,
    relation,
    triggers,
)
from abreast.store.schema import literal, quote, script
from abreast.store.tracked import TrackedTable
from abreast.types import Finding


def _writes_again(schema_text: str) -> str:
    return script("postgresql", "writes_again", schema_text=schema_text)[0]


UNCOMPARABLE_SQL = script("postgresql", "uncomparable")[0]
"""(column, type) of what needs an entry in `uncomparable`. Parameter: `table`, the table's name as text."""

TRIGGERS_FOUND_SQL = script("postgresql", "triggers", writes_again=_writes_again("%(schema)s"))[0]
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
    writes_again: bool | None


def _shared(schema: str) -> list[str]:
    text = literal(quote(schema))
    return script("postgresql", "capture", writes_again=_writes_again(text), schema=quote(schema), schema_text=text)


def install_groups(
    tables: Sequence[TrackedTable],
    schema: str = "abreast",
    uncomparable: Uncomparable = NOTHING,
    default_schema: str | None = "public",
) -> list[list[str]]:
    """Statements that make or renew capture. Each group may run in a short transaction of its own, in this order."""
    own, shared = quote(schema), _shared(schema)
    groups = [[*shared, f"comment on trigger {NUMBERING} on {own}.event is {literal(digest(*shared))}"]]
    for tracked, (by_statement, by_row) in triggers(tables, schema, uncomparable, default_schema):
        group = []
        for function, body in {trigger.function: trigger.body for trigger in by_statement + by_row}.items():
            group += [
                f"create or replace function {function}() returns trigger language plpgsql security definer {SETTINGS}\n"
                f"as $abreast$\n{body}\n$abreast$",
                f"revoke execute on function {function}() from public",
            ]
        table = f"{literal(relation(tracked, default_schema))}::regclass"
        group.append(f"select {own}.attach({table}, {_array(by_statement)}, {_array(by_row)})")
        groups.append(group)
    return groups


def _array(wanted: Sequence[Trigger]) -> str:
    rows = [(t.name, f"{t.definition} execute function {t.function}()", t.note) for t in wanted]
    return "array[" + ", ".join(f"array[{', '.join(literal(text) for text in row)}]" for row in rows) + "]"


def install_statements(
    tables: Sequence[TrackedTable],
    schema: str = "abreast",
    uncomparable: Uncomparable = NOTHING,
    default_schema: str | None = "public",
) -> list[str]:
    """The statements of all groups, for one transaction."""
    return [statement for group in install_groups(tables, schema, uncomparable, default_schema) for statement in group]


def uninstall_statements(
    tables: Sequence[TrackedTable], schema: str = "abreast", default_schema: str | None = "public"
) -> list[str]:
    """Statements that remove triggers and functions and leave the log; each may run in its own transaction."""
    own = quote(schema)
    installed = f"to_regprocedure({literal(own + '.detach(regclass, text[])')}) is not null"
    removed = []
    for tracked in tables:
        name = literal(relation(tracked, default_schema))
        there = f"{installed} and to_regclass({name}) is not null"
        removed.append(f"do $$ begin if {there} then perform {own}.detach({name}, array[]::text[]); end if; end $$")
    return [*removed, script("postgresql", "uninstall", schema_text=literal(own))[0]]


def findings(
    tables: Sequence[TrackedTable],
    rows: Iterable[Sequence[object]],
    schema: str = "abreast",
    uncomparable: Uncomparable = NOTHING,
    default_schema: str | None = "public",
) -> list[Finding]:
    """What is wrong with the triggers that `TRIGGERS_FOUND_SQL` found."""
    there = [Found(*row) for row in rows]  # type: ignore[arg-type]
    wrong: list[Finding] = []
    numbering = [found for found in there if found.trigger == NUMBERING]
    wrong += _compare("", f"{quote(schema)}.event", NUMBERING, digest(*_shared(schema)), numbering[0] if numbering else None)
    for tracked, (by_statement, by_row) in triggers(tables, schema, uncomparable, default_schema):
        kind, name = tracked.entity_type, relation(tracked, default_schema)
        places = {found.relation: found for found in there if found.table == name}
        if not places:
            wrong.append(Finding("no_table", kind, f"The table {name} is not in this database. Create it, then run install."))
        names = {found.trigger for found in there if found.relation in places}
        again = any(found.writes_again for found in places.values())
        by_rows = by_row[0].name in names or (again and by_statement[0].name not in names)
        wanted = by_row if by_rows else by_statement
        if again and not by_rows:
            text = f"A trigger AFTER ROW or a foreign key to itself may write rows of {name} again; the log would have the second"
            wrong.append(Finding("trigger_unknown", kind, f"{text} change before the first. Run install again."))
        for place, about in places.items():
            by_name = {found.trigger: found for found in there if found.relation == place and found.trigger is not None}
            for trigger in wanted:
                # As `attach` has it: row triggers are PostgreSQL's to clone, TRUNCATE fires on the partitions.
                cloned = about.is_partition and "for each row" in trigger.definition
                if not cloned and not (about.kind == "p" and trigger.definition.startswith("before truncate")):
                    wrong += _compare(kind, place, trigger.name, trigger.note, by_name.get(trigger.name))
            for extra in sorted(by_name.keys() - {trigger.name for trigger in wanted}):
                text = f"The trigger {extra} on {place} is of another declaration or version. Run install again."
                wrong.append(Finding("trigger_outdated", kind, text))
    for place in sorted({found.relation for found in there if found.table is None and found.trigger != NUMBERING}):
        wrong.append(
            Finding("not_tracked", place, f"{place} has triggers of abreast but is not tracked. Track it, or drop them.")
        )
    return wrong


def _compare(entity_type: str, place: str, name: str, note: str, found: Found | None) -> Iterator[Finding]:
    if found is None:
        yield Finding(
            "no_trigger", entity_type, f"The trigger {name} on {place} is missing: changes are not captured. Run install."
        )
    elif found.enabled not in ("O", "A"):
        cure = f"alter table {place} enable trigger {quote(name)}"
        yield Finding(
            "trigger_disabled", entity_type, f"The trigger {name} on {place} is disabled: changes are not captured. {cure}"
        )
    elif found.note != note:
        text = f"The trigger {name} on {place} was made for another declaration or version. Run install again."
        yield Finding("trigger_outdated", entity_type, text)
