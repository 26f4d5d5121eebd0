-- What governed writes do with one tracked table, with the rights of the caller.
-- A row is locked first and its version read after that, in a statement of its own: in one statement, a writer that has
-- waited for the lock would still see the version from before, and two writers would both win.
-- `position` is the place of the row's last event in this transaction, which has no revision yet.

-- Locks, checks and writes one row. `_stage` is how much of it: 'lock', 'lock_all' (several rows, in key order), 'check'
-- (compare the version of a locked row) or 'write' (what was checked).
-- `kind` says what came of it: 'absent', 'conflict', 'gone' (deleted), 'kept' (there is a row) or null.
create or replace function {{schema}}.{{function}}(
    _workspace text, _change jsonb, _stage text,
    out kind text, out entity_id text, out version bigint, out "position" integer, out "row" json
)
language plpgsql as $$
#variable_conflict use_variable
declare
    _op text := _change ->> 'op';
    _new {{table}};
    _home boolean;
    _where text;
    _xact xid8;
    _ord integer;
begin
    if _stage = 'lock_all' then
        perform from {{table}} join jsonb_populate_recordset(null::{{table}}, _change -> 'rows') _given on {{given_key}}
        where {{home}} order by {{key_columns}} for no key update of {{source}};
        return;
    end if;
    _new := jsonb_populate_record(null::{{table}}, _change -> 'values');
    {{json_columns}}
    entity_id := _change ->> 'id';

    if _stage <> 'write' and _op <> 'insert' then
        if _stage = 'check' then
            perform from {{table}} where {{key}} and {{home}};
        elsif _op = 'delete' then
            perform from {{table}} where {{key}} and {{home}} for update of {{source}};
        else
            perform from {{table}} where {{key}} and {{home}} for no key update of {{source}};
        end if;
        if not found then
            kind := 'absent';
        elsif _stage = 'check' then
            {{version_before}}
            if _change ? 'version' and ("position" is not null or coalesce(version, 0) <> (_change ->> 'version')::bigint) then
                kind := 'conflict';
                select {{row}} into "row" from {{table}} where {{key}};
            end if;
        end if;
        return;
    end if;

    {{write}}
    kind := case _op when 'delete' then 'gone' else 'kept' end;
    {{version_after}}
end
$$;

-- A whole write of one change. `_alone`: nothing else is in this transaction, and of `rows` and `conflict` the `body` is the
-- outcome, stored if there is a mutation. Otherwise the row has been locked, and `place` is where the last event stands so far.
create or replace function {{schema}}.{{single}}(_workspace text, _job jsonb, _alone boolean, out kind text, out place bigint, out body json)
language plpgsql
set enable_seqscan = off as $$
#variable_conflict use_variable
declare
    _lease jsonb := _job -> 'lease';
    _mutation text := _job ->> 'mutation';
    _change jsonb := _job #> '{changes,0}';
    _op text := _change ->> 'op';
    entity_id text := _change ->> 'id';
    _new {{table}};
    version bigint;
    "position" integer;
    "row" json;
    _home boolean;
    _done text;
    _where text;
    _xact xid8;
    _ord integer;
    _found boolean;
    _base bigint;
begin
    {{begin}}
    _new := jsonb_populate_record(null::{{table}}, _change -> 'values');
    {{json_columns}}
    if _op <> 'insert' then
        if not _alone then
            perform from {{table}} where {{key}} and {{home}};
        elsif _op = 'delete' then
            perform from {{table}} where {{key}} and {{home}} for update of {{source}};
        else
            perform from {{table}} where {{key}} and {{home}} for no key update of {{source}};
        end if;
        if not found then
            kind := 'absent';
            body := '[0,null,null,null]';
            return;
        end if;
        {{version_before}}
        if _change ? 'version' and ("position" is not null or coalesce(version, 0) <> (_change ->> 'version')::bigint) then
            kind := 'conflict';
            select json_build_array(0, version, "position", {{row}}) into body from {{table}} where {{key}};
            if _alone then
                {{numbered}}
                {{stored}}
            end if;
            return;
        end if;
    end if;

    {{write}}
    {{place_after}}
    kind := 'rows';
    body := json_build_array(json_build_array(entity_id, version, "position", "row"));
    if _alone then
        {{numbered}}
        {{stored}}
    end if;
end
$$;
