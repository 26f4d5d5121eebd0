-- The tables of abreast on SQLite. One writer at a time: revisions are given when the change happens.

create table if not exists abreast_meta (
    name  text primary key,
    value text not null
) without rowid;

create table if not exists abreast_workspace (
    workspace     text primary key,
    head          integer not null default 0,
    horizon       integer not null default 0,      -- revisions up to here may have been pruned
    horizon_check integer not null default 0,
    tenant        text,
    created_at    text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
) without rowid;

-- Who and why, for the transaction that is open now. Written and cleared inside it; empty means unknown.
create table if not exists abreast_context (
    id         integer primary key check (id = 1),
    actor_type text not null,
    actor_id   text,
    thread     text,
    mutation   text
);

create table if not exists abreast_event (
    workspace    text not null,
    revision     integer not null,
    op           text not null,
    entity_type  text not null,
    entity_id    text not null,
    fields       text,                              -- JSON array of names
    "values"     text,                              -- JSON object: field to [old, new]
    actor_type   text not null,
    actor_id     text,
    thread       text,
    mutation     text,
    at           text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    check_number integer not null default (abs(random() % 9007199254740991)),
    primary key (workspace, revision)
) without rowid;
create index if not exists abreast_event_entity on abreast_event (entity_type, entity_id, workspace, revision);

create table if not exists abreast_cursor (
    workspace    text not null,
    thread       text not null,
    revision     integer not null,
    check_number integer not null default 0,
    run          text,
    updated_at   text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    primary key (workspace, thread)
) without rowid;
create index if not exists abreast_cursor_thread on abreast_cursor (thread);

create table if not exists abreast_delivery (
    thread        text not null,
    run           text not null,
    call          text not null,
    workspace     text not null,
    from_revision integer not null,
    to_revision   integer not null,
    head          integer not null,
    tokens        integer not null,
    digest        text not null,
    told          integer not null,
    at            text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    primary key (thread, run, call, workspace)
) without rowid;

create table if not exists abreast_miss (
    id          integer primary key,
    entity_type text not null,
    entity_id   text not null,
    op          text not null,
    at          text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now'))
);

-- The right to run one thread. A row is never deleted: its token only grows, and whoever still holds an older one is
-- refused. `run` is null once it was released; `expires_at` is in seconds since 1970, by the database's clock.
create table if not exists abreast_lease (
    thread     text primary key,
    token      integer not null,
    run        text,
    expires_at real not null
) without rowid;

-- One intended write and its outcome: a repeat of the same one gets this back.
create table if not exists abreast_mutation (
    workspace text not null,
    mutation  text not null,
    digest    text not null,
    outcome   text not null,
    at        text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    primary key (workspace, mutation)
) without rowid;
