-- What all tracked tables share on PostgreSQL. {{schema}} is replaced by the quoted schema name.
-- Everything runs with the owner's rights and a fixed search path: an application role needs no right on the log,
-- and a schema of its own in front of pg_catalog changes nothing here.

-- JSON text as jsonb. What jsonb cannot hold (a \u0000 escape, half a surrogate pair, a number without end) comes
-- back as a JSON string of the text: the application's write must not fail because of us.
create or replace function {{schema}}.as_jsonb(_text text) returns jsonb
language plpgsql immutable strict
set search_path = pg_catalog, pg_temp as $$
begin
    return _text::jsonb;
exception when others then
    return to_jsonb(_text);
end
$$;

-- Names of columns that are not in `_known` and differ. NULL if there is none. Asked only where a table has more
-- columns than its trigger was made for, so it may be slow.
create or replace function {{schema}}.unknown_changes(_old json, _new json, _known text[]) returns text[]
language plpgsql immutable
set search_path = pg_catalog, pg_temp as $$
declare
    _before jsonb := {{schema}}.as_jsonb(regexp_replace(_old::text, '\\u(0000|[dD][89a-fA-F]..)', '\\u0001', 'g'));
    _after  jsonb := {{schema}}.as_jsonb(regexp_replace(_new::text, '\\u(0000|[dD][89a-fA-F]..)', '\\u0001', 'g'));
begin
    if jsonb_typeof(_before) <> 'object' or jsonb_typeof(_after) <> 'object' then
        return null;
    end if;
    return (
        select array_agg(n.key order by n.key)
        from jsonb_each(_after) n
        where n.key <> all (_known) and n.value is distinct from _before -> n.key
    );
end
$$;

-- A changed row that belongs to no workspace: an error, or a line in `miss`. Returns NULL, so that it can stand in a
-- coalesce and cost nothing where there is a workspace.
create or replace function {{schema}}.no_workspace(_entity_type text, _entity_id text, _op text, _how text, _hint text)
returns text
language plpgsql volatile
set search_path = pg_catalog, pg_temp as $$
begin
    if _how = 'error' then
        raise exception using
            message = 'abreast: ' || _op || ' of ' || quote_ident(_entity_type) || ' (' || _entity_id || '): the row has no workspace.',
            errcode = 'AB002',
            hint = _hint;
    end if;
    insert into {{schema}}.miss (entity_type, entity_id, op) values (_entity_type, _entity_id, _op);
    return null;
end
$$;

-- Gives revisions to all blocks of a transaction. The join must not be a nested loop: it may be planned for two workspaces
-- and meet twenty thousand.
create or replace function {{schema}}.number_all(_xact xid8) returns void
language plpgsql
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off
set enable_nestloop = off as $$
begin
    with todo as materialized (
        select e.workspace, e.ord, (
            select l.ord from {{schema}}.event l where l.xact = _xact and l.workspace = e.workspace order by l.ord desc limit 1
        ) as last
        from {{schema}}.event e
        where e.xact = _xact and e.opens and (
            select b.last_ord from {{schema}}.block b
            where b.workspace = e.workspace and b.xact = _xact and b.last_ord >= e.ord order by b.last_ord limit 1
        ) is null
    ), head as (
        insert into {{schema}}.workspace as w (workspace, head)
        select t.workspace, t.last - t.ord + 1 from todo t order by t.workspace
        on conflict (workspace) do update set head = w.head + excluded.head
        returning w.workspace, w.head
    )
    insert into {{schema}}.block (workspace, last, n, xact, last_ord, check_number)
    select t.workspace, h.head, t.last - t.ord + 1, _xact, t.last, 1 + (hashfloat8extended(date_part('epoch', clock_timestamp()), (random() * 4503599627370496)::bigint) & 9007199254740990)
    from head h join todo t on t.workspace = h.workspace;
end
$$;

-- Gives the events of this transaction their revisions. Called once for each event that opens a block, at commit or
-- when SET CONSTRAINTS asks for it; the first call numbers all blocks, the others find theirs numbered.
-- The heads are locked here, last, once and in one order: two transactions can then not deadlock on them.
-- Plans outlive the statistics they were made with, so every look-up is one that an index answers whatever these say:
-- the first rows by an index, or a scalar subquery, which is never turned into a join; a bitmap would be made of all rows for
-- the first two. Small statements, because starting one costs by its size (measured: one for all of this takes longer).
create or replace function {{schema}}.number() returns trigger
language plpgsql security definer
set search_path = pg_catalog, pg_temp
set enable_seqscan = off
set enable_bitmapscan = off as $$
declare
    _found integer;
    _last integer;
    _head bigint;
    _other text;
begin
    -- Mostly this is the only event of its transaction, or its workspace is the only one and nothing of it is numbered yet.
    perform from {{schema}}.event e where e.xact = new.xact limit 2;
    get diagnostics _found = row_count;
    if _found = 1 then
        _last := new.ord;
    else
        perform from {{schema}}.event e where e.xact = new.xact and e.opens limit 2;
        get diagnostics _found = row_count;
        if _found > 1 then
            perform from {{schema}}.block b
            where b.workspace = new.workspace and b.xact = new.xact and b.last_ord >= new.ord limit 1;
            if found then
                return null;
            end if;
            -- If another workspace is numbered but this one is not, the transaction wrote on after SET CONSTRAINTS ALL
            -- IMMEDIATE. Then each block is numbered by itself: a search through all of them at every statement would not end.
            select e.workspace into _other from {{schema}}.event e
            where e.xact = new.xact and e.workspace < new.workspace order by e.workspace limit 1;
            if _other is null then
                select e.workspace into _other from {{schema}}.event e
                where e.xact = new.xact and e.workspace > new.workspace order by e.workspace limit 1;
            end if;
            perform from {{schema}}.block b where b.workspace = coalesce(_other, new.workspace) and b.xact = new.xact limit 1;
            if found then
                _found := 1;
            end if;
        end if;
        if _found = 1 then
            select e.ord into _last from {{schema}}.event e
            where e.xact = new.xact and e.workspace = new.workspace order by e.ord desc limit 1;
        end if;
    end if;

    if _last is not null then
        update {{schema}}.workspace w set head = w.head + _last - new.ord + 1 where w.workspace = new.workspace returning w.head into _head;
        if not found then
            insert into {{schema}}.workspace as w (workspace, head) values (new.workspace, _last - new.ord + 1)
            on conflict (workspace) do update set head = w.head + excluded.head
            returning w.head into _head;
        end if;
        insert into {{schema}}.block (workspace, last, n, xact, last_ord, check_number)
        values (new.workspace, _head, _last - new.ord + 1, new.xact, _last, 1 + (hashfloat8extended(date_part('epoch', new.at), (random() * 4503599627370496)::bigint) & 9007199254740990));
        return null;
    end if;

    perform {{schema}}.number_all(new.xact);
    return null;
end
$$;

-- The check number is a hash of the time and of random(): random() alone could repeat itself after a restore, where an
-- application calls setseed(). 53 bits, so that it is exact in JSON numbers.
--
-- WHEN is looked at when the event is written, so 20,000 events of one statement queue one call.
-- Dropped and made again only if it is missing: both lock the log.
do $$
begin
    if not exists (
        select from pg_trigger t
        where t.tgrelid = to_regclass({{schema_text}} || '.event') and t.tgname = 'abreast_number'
    ) then
        create constraint trigger abreast_number after insert on {{schema}}.event
            deferrable initially deferred for each row when (new.opens) execute function {{schema}}.number();
    end if;
end
$$;

-- A table and its partitions (or inheriting tables): a statement that names a partition fires only its triggers.
create or replace function {{schema}}.tree(_table regclass)
returns table (relation regclass, kind "char", is_partition boolean)
language sql stable
set search_path = pg_catalog, pg_temp as $$
    with recursive tree as (
        select _table::oid as oid
        union all
        select i.inhrelid from tree t join pg_inherits i on i.inhparent = t.oid
    )
    select c.oid::regclass, c.relkind, c.relispartition from tree t join pg_class c on c.oid = t.oid where c.relkind in ('r', 'p')
$$;

-- Whether something of the application may write a row again while the statement that wrote it is not done: a trigger
-- AFTER ROW, or a foreign key of the table to itself. Then our statement trigger would come too late, and the log would have
-- the second change before the first.
create or replace function {{schema}}.writes_again(_table regclass) returns boolean
language sql stable
set search_path = pg_catalog, pg_temp as $$
    select {{writes_again}} from (select _table::oid as oid) root
$$;

-- Makes the triggers of a table and its partitions: for statements, or for rows where something writes them again. What is
-- there already is left alone, so that a second install locks nothing; what is of another kind or version goes. A row trigger
-- is made on a partitioned table and cloned by PostgreSQL; TRUNCATE fires the triggers of the partitions, too.
-- The arrays hold (name, definition, note) of each trigger.
create or replace function {{schema}}.attach(_table regclass, _for_statements text[], _for_rows text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    _wanted text[] := case when {{schema}}.writes_again(_table) then _for_rows else _for_statements end;
    _relation regclass;
begin
    perform {{schema}}.detach(_table, array(select _wanted[n][1] from generate_subscripts(_wanted, 1) n));
    for _at in 1 .. array_length(_wanted, 1) loop
        for _relation in
            select t.relation from {{schema}}.tree(_table) t
            where not (t.is_partition and strpos(_wanted[_at][2], 'for each row') > 0)
                and not (t.kind = 'p' and starts_with(_wanted[_at][2], 'before truncate'))
                and not exists (
                    select from pg_trigger g
                    where g.tgrelid = t.relation and g.tgname = _wanted[_at][1] and g.tgenabled <> 'D'
                        and obj_description(g.oid, 'pg_trigger') = _wanted[_at][3]
                )
        loop
            execute 'create or replace trigger ' || quote_ident(_wanted[_at][1]) || ' ' || replace(_wanted[_at][2], '{table}', _relation::text);
            execute 'comment on trigger ' || quote_ident(_wanted[_at][1]) || ' on ' || _relation || ' is ' || quote_literal(_wanted[_at][3]);
            execute 'alter table ' || _relation || ' enable trigger ' || quote_ident(_wanted[_at][1]);
        end loop;
    end loop;
end
$$;

-- Removes our triggers from a table and its partitions, except those named.
create or replace function {{schema}}.detach(_table regclass, _keep text[]) returns void
language plpgsql
set search_path = pg_catalog, pg_temp as $$
declare
    _trigger record;
begin
    for _trigger in
        select t.relation, g.tgname from {{schema}}.tree(_table) t
        join pg_trigger g on g.tgrelid = t.relation and g.tgparentid = 0
        join pg_proc p on p.oid = g.tgfoid and p.pronamespace = to_regnamespace({{schema_text}})
        where g.tgname <> all (_keep)
    loop
        execute 'drop trigger ' || quote_ident(_trigger.tgname) || ' on ' || _trigger.relation;
    end loop;
end
$$;

-- CREATE TRIGGER asks for this right, firing does not: nobody else hangs our functions on a table of his own and forges events.
revoke execute on function {{schema}}.number() from public;
