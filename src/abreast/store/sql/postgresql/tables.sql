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

-- One conversation of one person of one tenant. `leaf` is the newest message of the branch that is shown; `events` and
-- `messages` count what the thread has, and their lock puts its events and messages in order.
create table if not exists {{schema}}.thread (
    thread          text collate "C" primary key,
    tenant          text not null,
    user_id         text not null,
    workspace       text collate "C" not null,
    agent           text not null,
    title           text not null default '',
    leaf            text,
    checkpoint      text,                            -- where the engine stands
    memory          text,                            -- JSON
    events          bigint not null default 0,
    messages        bigint not null default 0,
    created_at      timestamptz not null default clock_timestamp(),
    last_message_at timestamptz
);
do $$
begin
    if to_regclass('{{schema}}.thread_owner') is null then
        create index thread_owner on {{schema}}.thread (tenant, user_id, created_at, thread);
    end if;
end
$$;

-- What a person sees of a conversation, apart from what the engine keeps of it. `parent` makes branches a tree; `body` is
-- JSON in ASCII: content, citations, tools, basis, memory. `checkpoint` is where the engine stood with this answer.
create table if not exists {{schema}}.message (
    thread     text collate "C" not null,
    message    text collate "C" not null,
    number     bigint not null,
    parent     text collate "C",
    role       text not null,
    status     text not null,
    run        text,
    checkpoint text,
    body       text not null,
    created_at timestamptz not null default clock_timestamp(),
    primary key (thread, message)
);

-- One invocation of an agent, with all its attempts. `message` is the one it answers; it begins at `checkpoint`. `wanted`
-- is how somebody wants it to end. `holder` names the attempt that has it, as its lease does. `told` is what the reader's
-- receipt confirms. At most one run of a thread is running or waiting for an approval.
create table if not exists {{schema}}.run (
    thread      text collate "C" not null,
    run         text collate "C" not null,
    number      bigint not null,
    user_id     text not null,
    status      text not null,
    message     text,
    answer      text,
    checkpoint  text,
    attempts    integer not null default 0,
    holder      text,
    wanted      text,
    told        text,                                -- JSON
    error       text,                                -- JSON
    created_at  timestamptz not null default clock_timestamp(),
    claimed_at  timestamptz,
    started_at  timestamptz,
    ended_at    timestamptz,
    primary key (thread, run)
);
do $$
begin
    if to_regclass('{{schema}}.run_active') is null then
        create unique index run_active on {{schema}}.run (thread) where status in ('running', 'awaiting_approval');
    end if;
    if to_regclass('{{schema}}.run_open') is null then
        create index run_open on {{schema}}.run (status, created_at) where status in ('queued', 'running');
    end if;
end
$$;

-- The durable events of a thread's stream, numbered without gaps.
create table if not exists {{schema}}.run_event (
    thread text collate "C" not null,
    event  bigint not null,
    run    text,
    type   text not null,
    data   text not null,                            -- JSON
    at     timestamptz not null default clock_timestamp(),
    primary key (thread, event)
);

-- A request to let one tool call run, and what came of it. Its id is made of what the call means, so that a call that is made
-- again after a crash finds it. `body` is JSON: arguments, digest, policy, what it touches and was proposed on; so is
-- `decision`.
create table if not exists {{schema}}.approval (
    thread     text collate "C" not null,
    approval   text collate "C" not null,
    run        text not null,
    tenant     text,
    user_id    text,
    kind       text not null,
    tool       text not null,
    status     text not null,
    body       text not null,
    decision   text,
    used       integer not null default 0,           -- the answer was handed to the graph that asked
    created_at timestamptz not null default clock_timestamp(),
    expires_at timestamptz,
    decided_at timestamptz,
    primary key (thread, approval)
);
do $$
begin
    if to_regclass('{{schema}}.approval_open') is null then
        create index approval_open on {{schema}}.approval (tenant, created_at) where status = 'open';
    end if;
    if to_regclass('{{schema}}.approval_tool') is null then
        create index approval_tool on {{schema}}.approval (tool, created_at);
    end if;
end
$$;

-- The answer to a request that named an Idempotency-Key: a repeat of it gets the same. Without `status` it is being made.
create table if not exists {{schema}}.reply (
    tenant  text not null,
    user_id text not null,
    key     text not null,
    digest  text not null,
    status  integer,
    body    text,
    at      timestamptz not null default clock_timestamp(),
    primary key (tenant, user_id, key)
);
