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

-- One conversation of one person of one tenant. `leaf` is the newest message of the branch that is shown; `events` and
-- `messages` count what the thread has, and their lock puts its events and messages in order.
create table if not exists abreast_thread (
    thread          text primary key,
    tenant          text not null,
    user_id         text not null,
    workspace       text not null,
    agent           text not null,
    title           text not null default '',
    leaf            text,
    checkpoint      text,                            -- where the engine stands
    memory          text,                            -- JSON
    events          integer not null default 0,
    messages        integer not null default 0,
    created_at      text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    last_message_at text
) without rowid;
create index if not exists abreast_thread_owner on abreast_thread (tenant, user_id, created_at, thread);

-- What a person sees of a conversation, apart from what the engine keeps of it. `parent` makes branches a tree; `body` is
-- JSON in ASCII: content, citations, tools, basis, memory. `checkpoint` is where the engine stood with this answer.
create table if not exists abreast_message (
    thread     text not null,
    message    text not null,
    number     integer not null,
    parent     text,
    role       text not null,
    status     text not null,
    run        text,
    checkpoint text,
    body       text not null,
    created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    primary key (thread, message)
) without rowid;

-- One invocation of an agent, with all its attempts. `message` is the one it answers; it begins at `checkpoint`. `wanted`
-- is how somebody wants it to end. `holder` names the attempt that has it, as its lease does. `told` is what the reader's
-- receipt confirms. At most one run of a thread is running or waiting for an approval.
create table if not exists abreast_run (
    thread      text not null,
    run         text not null,
    number      integer not null,
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
    created_at  text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    claimed_at  text,
    started_at  text,
    ended_at    text,
    primary key (thread, run)
) without rowid;
create unique index if not exists abreast_run_active on abreast_run (thread) where status in ('running', 'awaiting_approval');
create index if not exists abreast_run_open on abreast_run (status, created_at) where status in ('queued', 'running');

-- The durable events of a thread's stream, numbered without gaps.
create table if not exists abreast_run_event (
    thread text not null,
    event  integer not null,
    run    text,
    type   text not null,
    data   text not null,                            -- JSON
    at     text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    primary key (thread, event)
) without rowid;

-- A request to let one tool call run, and what came of it. Its id is made of what the call means, so that a call that is made
-- again after a crash finds it. `body` is JSON: arguments, digest, policy, what it touches and was proposed on; so is
-- `decision`.
create table if not exists abreast_approval (
    thread     text not null,
    approval   text not null,
    run        text not null,
    tenant     text,
    user_id    text,
    kind       text not null,
    tool       text not null,
    status     text not null,
    body       text not null,
    decision   text,
    used       integer not null default 0,           -- the answer was handed to the graph that asked
    created_at text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    expires_at text,
    decided_at text,
    primary key (thread, approval)
) without rowid;
create index if not exists abreast_approval_open on abreast_approval (tenant, created_at) where status = 'open';
create index if not exists abreast_approval_tool on abreast_approval (tool, created_at);

-- The answer to a request that named an Idempotency-Key: a repeat of it gets the same. Without `status` it is being made.
create table if not exists abreast_reply (
    tenant  text not null,
    user_id text not null,
    key     text not null,
    digest  text not null,
    status  integer,
    body    text,
    at      text not null default (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    primary key (tenant, user_id, key)
) without rowid;
