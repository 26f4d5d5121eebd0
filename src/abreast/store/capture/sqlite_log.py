"""What all tables share on SQLite: the views that a table's triggers insert into, and the views' triggers, which write
the log."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from abreast.store.schema import quote

About = Callable[[str], str]
"""An alias in, the condition out that its entity_type and entity_id are those of one entity."""


def last_event(about: About, workspace: str, prefix: str = "e.") -> str:
    """The condition that `abreast_event as e` is the last event of an entity in a workspace.

    Said by max(): for `order by revision desc limit 1` SQLite reads the whole workspace backwards.
    """
    return (
        f"{prefix}workspace = {workspace} and {prefix}revision = (select max(l.revision) from abreast_event as l"
        f" where {about('l')} and l.workspace = {workspace})"
    )


def alive_in(about: About, elsewhere: str = "null") -> str:
    """The workspace where the log has an entity alive: of each that knows it, the last event is looked up."""
    known = f"(select min(e.workspace) from abreast_event as e where {about('e')}"
    return (
        f"(with recursive abreast_w(ws) as (select {known}) union all"
        f" select {known} and e.workspace > abreast_w.ws) from abreast_w where abreast_w.ws is not null)"
        f" select abreast_w.ws from abreast_w where abreast_w.ws is not null and abreast_w.ws is not {elsewhere} and"
        f" (select e.op from abreast_event as e where {last_event(about, 'abreast_w.ws')}) <> 'delete' limit 1)"
    )


def known_elsewhere(about: About, workspace: str) -> str:
    """Two lookups, however many events the entity has."""
    known = f"exists (select 1 from abreast_event as e where {about('e')} and e.workspace"
    return f"({known} < coalesce({workspace}, '')) or {known} > coalesce({workspace}, '')))"


def trigger(name: str, time: str, on: str, when: str, statements: Iterable[str]) -> str:
    # The text is kept by SQLite as it is written here, from the name on, and compared by `findings`.
    return "\n".join(
        [f"CREATE TRIGGER {quote(name)} {time} ON {quote(on)}{' WHEN ' + when if when else ''} BEGIN"]
        + [f"  {statement};" for statement in statements]
        + ["END"]
    )


DROP_SHARED = ("drop view if exists abreast_change", "drop view if exists abreast_entry")
VIEWS = (
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


_THERE = f"(select e.op from abreast_event as e where {last_event(_told, 'NEW.workspace')}) <> 'delete'"
# Not `in ('user', ...)`: SQLite would build a table for it at every event.
_TYPES = " ".join(f"when '{actor}' then '{actor}'" for actor in ("user", "agent", "system"))
SHARED = {
    # One change, under the next revision of its workspace.
    "abreast_write": trigger(
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
    "abreast_miss": trigger(
        "abreast_miss", "INSTEAD OF INSERT", "abreast_change", "NEW.workspace is null",
        ["insert into abreast_miss (entity_type, entity_id, op) values (NEW.entity_type, NEW.entity_id, NEW.op)"],
    ),
    # A row appears. Where the log has it alive, OR REPLACE took the former one away, and no trigger saw it.
    "abreast_enter": trigger(
        "abreast_enter", "INSTEAD OF INSERT", "abreast_entry", "",
        [
            f"insert into abreast_change values (NEW.workspace, iif({_THERE}, 'update', 'insert'),"
            f' NEW.entity_type, NEW.entity_id, iif({_THERE}, NEW.fields, null), NEW."values")'
        ],
    ),
    "abreast_elsewhere": trigger(
        "abreast_elsewhere", "INSTEAD OF INSERT", "abreast_entry", known_elsewhere(_told, "NEW.workspace"),
        [
            "insert into abreast_change select g.workspace, 'delete', NEW.entity_type, NEW.entity_id, null, null"
            f" from (select {alive_in(_told, 'NEW.workspace')} as workspace) as g where g.workspace is not null"
        ],
    ),
}  # fmt: skip
