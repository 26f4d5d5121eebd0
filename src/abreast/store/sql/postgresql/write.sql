-- Governed writes: what all tracked tables share. A whole write is one call: lease, mutation, rows, revision, outcome.
-- {{write_row}} calls the row function of the table that `_change` is about, with `_stage`, and puts the answer into `_one`;
-- {{write_single}} calls the function of the table that the only change of `_job` is about.
-- What becomes of a write, `kind`: 'rows', or why nothing was written: 'lost' (the lease), 'reused' (the mutation id),
-- 'repeated' (with its outcome), 'absent' (with the position of the change) or 'conflict'.

-- A write of several changes: as the function of one table does one.
create or replace function {{schema}}.apply_several(_workspace text, _job jsonb, _alone boolean, out kind text, out place bigint, out body json)
language plpgsql as $$
declare
    _lease jsonb := _job -> 'lease';
    _mutation text := _job ->> 'mutation';
    _done text;
    _change jsonb;
    _stage text;
    _one record;
    _index integer;
    _rows json[];
    _base bigint;
begin
    {{begin}}
    -- Everything is locked, in key order, and compared before anything is written.
    foreach _stage in array case when _alone then array['lock', 'check'] else array['check'] end loop
        for _index in select o.value::integer from jsonb_array_elements_text(_job -> 'order') o(value) loop
            _change := _job -> 'changes' -> _index;
            {{write_row}}
            if _one.kind is not null then
                kind := _one.kind;
                body := json_build_array(_index, _one.version, _one."position", _one."row");
                if kind = 'conflict' and _alone then
                    {{numbered}}
                    {{stored}}
                end if;
                return;
            end if;
        end loop;
    end loop;
    _stage := 'write';
    for _change in select c.value from jsonb_array_elements(_job -> 'changes') c(value) loop
        {{write_row}}
        _rows := _rows || json_build_array(_one.entity_id, _one.version, _one."position", _one."row");
    end loop;
    kind := 'rows';
    body := array_to_json(_rows);
    {{last_place}}
    if _alone then
        {{numbered}}
        {{stored}}
    end if;
end
$$;

-- One write of several changes, or several writes of one workspace, each with an outcome of its own. Where one of several
-- fails, they all do, unless they are done carefully: in a savepoint each, which costs more than the write (measured). A list
-- of [kind, base, revision, body], where `base` plus an event's position in this transaction is its revision.
-- Plans are kept, and those that were made while mutation and log were empty would read all of them for ever.
create or replace function {{schema}}.apply(_workspace text, _jobs jsonb, _locks jsonb, _careful boolean) returns json
language plpgsql
set enable_seqscan = off as $$
declare
    _number integer := jsonb_array_length(_jobs);
    _job jsonb;
    _change jsonb;
    _stage text := 'lock_all';
    _one record;
    _base bigint;
    _before bigint;
    _kinds text[];
    _bodies json[];
    _places bigint[];
    _place bigint;
    _lease jsonb;
    _held jsonb[] := '{}';
    _answers json[];
    _state text;
    _message text;
begin
    if _number = 1 then
        _one := {{schema}}.apply_several(_workspace, _jobs -> 0, true);
        return json_build_array(
            case when _one.kind in ('rows', 'conflict') then _one.body else json_build_array(_one.kind, null, null, _one.body) end
        );
    end if;

    -- First every row that is to be written, in key order: jobs that each wait for the next one's rows would be a deadlock.
    -- Who holds one of them for long must not hold up the jobs that do not need it: they are then done one by one.
    perform set_config('lock_timeout', '100ms', true);
    for _change in select l.value from jsonb_array_elements(_locks) l(value) loop
        {{write_row}}
    end loop;
    for _job in select j.value from jsonb_array_elements(_jobs) j(value) loop
        _lease := _job -> 'lease';
        if _lease = any (_held) then
            _job := _job - 'lease';  -- another job of the same run has found it and holds it to the end of this transaction
        end if;
        if _careful then
            begin
                {{write_single}}
            exception when others then
                get stacked diagnostics _state = returned_sqlstate, _message = message_text;
                -- Deadlocks, lost connections, missing resources: of all of them, not of this one.
                if left(_state, 2) in ('08', '40', '53', '55', '57', '58', 'XX') then
                    raise;
                end if;
                select 'failed'::text as kind, json_build_array(_state, _message) as body, null::bigint as place into _one;
            end;
        else
            {{write_single}}
        end if;
        if _one.kind = 'rows' and _job -> 'lease' <> 'null' then
            _held := _held || _lease;
        end if;
        _place := coalesce(_one.place, _place);
        _kinds := _kinds || _one.kind;
        _bodies := _bodies || coalesce(_one.body, 'null'::json);
        _places := _places || _place;
    end loop;

    set constraints {{schema}}.abreast_number immediate;
    select b.last - b.last_ord, b.last - b.n into _base, _before from {{schema}}.block b
    where b.workspace = _workspace and b.xact = pg_current_xact_id_if_assigned() order by b.last_ord desc limit 1;
    if not found then
        select coalesce(max(w.head), 0) into _before from {{schema}}.workspace w where w.workspace = _workspace;
    end if;
    select array_agg(json_build_array(_kinds[i], _base, coalesce(_base + _places[i], _before), _bodies[i]) order by i)
    into _answers from generate_series(1, _number) i;
    insert into {{schema}}.mutation (workspace, mutation, digest, outcome)
    select _workspace, j.value ->> 'mutation', j.value ->> 'digest', _answers[j.i]::text
    from jsonb_array_elements(_jobs) with ordinality j(value, i)
    where _kinds[j.i] in ('rows', 'conflict') and j.value ->> 'mutation' is not null;
    return array_to_json(_answers);
end
$$;

-- The end of a write that the caller has made statement by statement.
create or replace function {{schema}}.settle(_workspace text, _mutation text, _digest text, _kind text, _body json) returns bigint
language plpgsql as $$
declare
    _revision bigint;
begin
    if exists (
        select from {{schema}}.event e where e.xact = pg_current_xact_id_if_assigned() and e.workspace <> _workspace
    ) then
        raise exception using errcode = 'AB006', message = 'abreast: a row of another workspace was written.';
    end if;
    set constraints {{schema}}.abreast_number immediate;
    select w.head into _revision from {{schema}}.workspace w where w.workspace = _workspace;
    _revision := coalesce(_revision, 0);
    if _mutation is not null then
        insert into {{schema}}.mutation (workspace, mutation, digest, outcome)
        values (_workspace, _mutation, _digest, json_build_array(_kind, null, _revision, _body)::text);
    end if;
    return _revision;
end
$$;
