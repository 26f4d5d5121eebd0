-- The tables of abreast on PostgreSQL. {{schema}} is replaced by the quoted schema name.
-- Every table is keyed by workspace or thread first, so that it can be partitioned or sharded by it; `event` by the
-- transaction before it, because numbering looks for all events of a transaction. Names that the log compares and sorts
-- are of collation "C": that is faster, the same on every server, and what the triggers' expressions have.

create schema if not exists {{schema}};

create table if not exists {{schema}}.meta (
    name  text primary key,
    value text not null
);

-- One row a workspace. Its lock, taken at commit and held until the end of it, is what makes revisions gapless
-- and visible in order. fillfactor leaves room for HOT updates: the head moves with every transaction.
create table if not exists {{schema}}.workspace (
    workspace     text collate "C" primary key,
    head          bigint not null default 0,
    horizon       bigint not null default 0,       -- revisions up to here may have been pruned
    horizon_check bigint not null default 0,
    tenant        text,
    created_at    timestamptz not null default now()
) with (fillfactor = 50);

-- One change. It is written once, when it happens, under its transaction and workspace; `ord` counts inside these.
-- Its revision is given at commit, by the block that covers it.
create table if not exists {{schema}}.event (
    workspace   text collate "C" not null,
    xact        xid8 not null,
    ord         integer not null,
    opens       boolean not null,                   -- first of its block: queues the numbering
    op          text not null,
    entity_type text collate "C" not null,
    entity_id   text collate "C" not null,
    fields      text[],
    "values"    jsonb,
    actor_type  text not null,
    actor_id    text,
    thread      text,
    mutation    text,
    at          timestamptz not null default clock_timestamp(),
    seq         bigint generated always as identity, -- for one entity: commit order, because its row was locked
    primary key (xact, workspace, ord)
);
-- Asked first: `create index if not exists` locks out every writer before it looks, and waits for those that are at work.
do $$
begin
    if to_regclass('{{schema}}.event_entity') is null then
        create index event_entity on {{schema}}.event (entity_id, entity_type, seq);
    end if;
end
$$;

-- A stretch of the log: the events of one transaction in one workspace, `last_ord - n < ord <= last_ord`,
-- have the revisions `last - n < revision <= last`. `check_number` is random: it tells a restored log from this one.
create table if not exists {{schema}}.block (
    workspace    text collate "C" not null,
    last         bigint not null,
    n            integer not null,
    xact         xid8 not null,
    last_ord     integer not null,
    check_number bigint not null,
    primary key (workspace, last),
    unique (workspace, xact, last_ord)
);

-- Where each conversation stands: the last revision it has dealt with.
create table if not exists {{schema}}.cursor (
    workspace    text collate "C" not null,
    thread       text not null,
    revision     bigint not null,
    check_number bigint not null default 0,
    run          text,                              -- the run that told it
    updated_at   timestamptz not null default now(),
    primary key (workspace, thread)
);
do $$
begin
    if to_regclass('{{schema}}.cursor_thread') is null then
        create index cursor_thread on {{schema}}.cursor (thread);
    end if;
end
$$;

-- One row for each model call that returned, and workspace: what stood in its request.
create table if not exists {{schema}}.delivery (
    thread        text not null,
    run           text not null,
    call          text not null,
    workspace     text collate "C" not null,
    from_revision bigint not null,
    to_revision   bigint not null,
    head          bigint not null,
    tokens        integer not null,
    digest        text not null,
    told          boolean not null,                 -- false in shadow mode: rendered, not put into the request
    at            timestamptz not null default now(),
    primary key (thread, run, call, workspace)
);

-- Rows that had no workspace, of tables declared with without_workspace="record".
create table if not exists {{schema}}.miss (
    id          bigint generated always as identity primary key,
    entity_type text collate "C" not null,
    entity_id   text collate "C" not null,
    op          text not null,
    at          timestamptz not null default clock_timestamp()
);

-- The right to run one thread. A row is never deleted: its token only grows, and whoever still holds an older one is
-- refused. `run` is null once it was released; `expires_at` is by the database's clock.
create table if not exists {{schema}}.lease (
    thread     text primary key,
    token      bigint not null,
    run        text,
    expires_at timestamptz not null
);

-- One intended write and its outcome: a repeat of the same one gets this back.
create table if not exists {{schema}}.mutation (
    workspace text collate "C" not null,
    mutation  text not null,
    digest    text not null,
    outcome   text not null,
    at        timestamptz not null default clock_timestamp(),
    primary key (workspace, mutation)
);
