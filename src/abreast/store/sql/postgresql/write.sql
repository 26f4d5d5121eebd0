-- Governed writes: what all tracked tables share. A whole write is one call: lease, mutation, rows, revision, outcome.
-- {{write_row}} calls the row function of the table that `_change` is about, with `_stage`, and puts the answer into `_one`.

-- One write. `kind`: 'rows', or why nothing was written: 'lost' (the lease), 'reused' (the mutation id), 'repeated' (with
-- its outcome), 'absent' (with the position of the change) or 'conflict'. `_locked`: its rows have been locked before.
create or replace function {{schema}}.apply_one(_workspace text, _job jsonb, _locked boolean, out kind text, out body json)
language plpgsql as $$
declare
    _changes jsonb := _job -> 'changes';
    _lease jsonb := _job -> 'lease';
    _mutation text := _job ->> 'mutation';
    _change jsonb;
    _stage text;
    _one record;
    _index integer;
    _rows json[];
begin
    if _lease <> 'null' then
        -- Until the end of this transaction nobody can take the lease over: who does waits for this lock first.
        perform pg_advisory_xact_lock_shared(hashtextextended(_lease ->> 0, 1));
        perform from {{schema}}.lease l
        where l.thread = _lease ->> 0 and l.token = (_lease ->> 1)::bigint and l.run is not null;
        if not found then
            kind := 'lost';
            return;
        end if;
    end if;

    if _mutation is not null then
        -- Two calls with one mutation id come one after the other, and the later one finds what the first has stored.
        perform pg_advisory_xact_lock(hashtextextended(_mutation, hashtextextended(_workspace, 0)));
        select case when m.digest = _job ->> 'digest' then 'repeated' else 'reused' end, m.outcome::json into kind, body
        from {{schema}}.mutation m where m.workspace = _workspace and m.mutation = _mutation;
        if found then
            return;
        end if;
    end if;

    perform set_config('abreast.actor_type', _job ->> 'actor_type', true),
        set_config('abreast.actor_id', coalesce(_job ->> 'actor_id', ''), true),
        set_config('abreast.thread', coalesce(_job ->> 'thread', ''), true),
        set_config('abreast.mutation', coalesce(_mutation, ''), true);

    if jsonb_array_length(_changes) = 1 then
        _change := _changes -> 0;
        _stage := case when _locked then 'locked' else 'all' end;
        {{write_row}}
        if _one.kind in ('absent', 'conflict') then
            kind := _one.kind;
            body := json_build_array(0, _one.version, _one."position", _one."row");
        else
            kind := 'rows';
            body := json_build_array(json_build_array(_one.entity_id, _one.version, _one."position", _one."row"));
        end if;
        return;
    end if;

    -- Everything is locked, in key order, and compared before anything is written.
    foreach _stage in array case when _locked then array['check'] else array['lock', 'check'] end loop
        for _index in select o.value::integer from jsonb_array_elements_text(_job -> 'order') o(value) loop
            _change := _changes -> _index;
            {{write_row}}
            if _one.kind is not null then
                kind := _one.kind;
                body := json_build_array(_index, _one.version, _one."position", _one."row");
                return;
            end if;
        end loop;
    end loop;
    _stage := 'write';
    for _change in select c.value from jsonb_array_elements(_changes) c(value) loop
        {{write_row}}
        _rows := _rows || json_build_array(_one.entity_id, _one.version, _one."position", _one."row");
    end loop;
    kind := 'rows';
    body := array_to_json(_rows);
end
$$;

-- One write, or several of one workspace, each with an outcome of its own. Where one of several fails, they all do, unless
-- they are done carefully: in a savepoint each, which costs more than the write (measured). A list
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
    _answer json;
    _block record;
    _base bigint;
    _before bigint;
    _kinds text[];
    _bodies json[];
    _places integer[];
    _place integer;
    _answers json[];
    _state text;
    _message text;
begin
    if _number = 1 then
        _job := _jobs -> 0;
        _one := {{schema}}.apply_one(_workspace, _job, false);
        if _one.kind = 'rows' then
            -- The events of this transaction get their revisions now, so that the answer can say them.
            set constraints {{schema}}.abreast_number immediate;
            select b.last - b.last_ord as base, b.last as head into _block from {{schema}}.block b
            where b.workspace = _workspace and b.xact = pg_current_xact_id_if_assigned() order by b.last_ord desc limit 1;
        end if;
        if _one.kind <> 'rows' or not found then
            select null::bigint as base, coalesce(max(w.head), 0) as head into _block
            from {{schema}}.workspace w where w.workspace = _workspace;
        end if;
        _answer := json_build_array(_one.kind, _block.base, _block.head, _one.body);
        if _one.kind in ('rows', 'conflict') and _job ->> 'mutation' is not null then
            insert into {{schema}}.mutation (workspace, mutation, digest, outcome)
            values (_workspace, _job ->> 'mutation', _job ->> 'digest', _answer::text);
        end if;
        return json_build_array(_answer);
    end if;

    -- First every row that is to be written, in key order: jobs that each wait for the next one's rows would be a deadlock.
    -- Who holds one of them for long must not hold up the jobs that do not need it: they are then done one by one.
    perform set_config('lock_timeout', '100ms', true);
    for _change in select l.value from jsonb_array_elements(_locks) l(value) loop
        {{write_row}}
    end loop;
    for _job in select j.value from jsonb_array_elements(_jobs) j(value) loop
        if _careful then
            begin
                _one := {{schema}}.apply_one(_workspace, _job, true);
            exception when others then
                get stacked diagnostics _state = returned_sqlstate, _message = message_text;
                -- Deadlocks, lost connections, missing resources: of all of them, not of this one.
                if left(_state, 2) in ('08', '40', '53', '55', '57', '58', 'XX') then
                    raise;
                end if;
                select 'failed'::text as kind, json_build_array(_state, _message) as body into _one;
            end;
        else
            _one := {{schema}}.apply_one(_workspace, _job, true);
        end if;
        select e.ord into _place from {{schema}}.event e
        where e.xact = pg_current_xact_id_if_assigned() and e.workspace = _workspace order by e.ord desc limit 1;
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
