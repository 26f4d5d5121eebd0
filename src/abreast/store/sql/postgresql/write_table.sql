-- Locks, checks and writes one row of one tracked table, with the rights of the caller. `_stage` is how much of it:
-- 'lock', 'lock_all' (several rows, in key order), 'check' (compare the version of a locked row), 'write' (what was checked), 'locked' (both of these) or 'all'.
-- `kind` says what came of it: 'absent', 'conflict', 'gone' (deleted), 'kept' (there is a row) or null.
-- The row is locked first and its version read after that, in a statement of its own: in one statement, a writer that has
-- waited for the lock would still see the version from before, and two writers would both win.
-- `position` is the place of the row's last event in this transaction, which has no revision yet.
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
        if _stage in ('lock', 'all') then
            if _op = 'delete' then
                perform from {{table}} where {{key}} and {{home}} for update of {{source}};
            else
                perform from {{table}} where {{key}} and {{home}} for no key update of {{source}};
            end if;
        end if;
        if _stage in ('check', 'locked') or found and _stage = 'all' then
            {{version_before}}
        end if;
        if not found then
            kind := 'absent';
            return;
        elsif _stage = 'lock' then
            return;
        elsif _change ? 'version' and ("position" is not null or coalesce(version, 0) <> (_change ->> 'version')::bigint) then
            kind := 'conflict';
            select {{row}} into "row" from {{table}} where {{key}};
            return;
        elsif _stage = 'check' then
            return;
        end if;
    end if;

    if _op = 'insert' then
        execute 'insert into ' || {{table_text}} || ' (' || (_change ->> 'columns') || ') values (' || (_change ->> 'set') || ') returning ' || {{returning_text}}
        into {{returned}} using _new, _workspace;
    elsif _op = 'delete' then
        delete from {{table}} where {{key}};
        kind := 'gone';
        return;
    else
        -- Updates of one field are planned once a session; others are planned when they come. Only the columns that were
        -- given are set: the application's triggers and rights may look at that.
        case _change ->> 'set'
            {{updates}}
            else
                execute 'update ' || {{table_text}} || ' set ' || (_change ->> 'set') || ' where ' || {{key_text}} || ' returning ' || {{returning_text}}
                into {{returned}} using _new, _workspace;
        end case;
    end if;
    if _home is not true then
        raise exception using errcode = 'AB006', message = 'abreast: the row would belong to another workspace.';
    end if;
    kind := 'kept';
    {{version_after}}
end
$$;
