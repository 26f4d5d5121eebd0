-- Governed writes: what all tracked tables share. A whole write is one call: lease, mutation, rows, revision, outcome.

-- The row function of a tracked table.
create or replace function {{schema}}.write_row(
    _workspace text, _change jsonb, _stage text,
    out kind text, out entity_id text, out version bigint, out "position" integer, out "row" json
)
language plpgsql as $$
begin
    case _change ->> 'type'
        {{tables}}
        else
            -- Of a table that another program has installed.
            execute 'select (r.kind), (r.entity_id), (r.version), (r."position"), (r."row") from ' || {{schema_text}} || '.'
                || quote_ident(_change ->> 'function') || '($1, $2, $3) r'
            into kind, entity_id, version, "position", "row" using _workspace, _change, _stage;
    end case;
end
$$;

-- One write. `kind`: 'rows', or why nothing was written: 'lost' (the lease), 'reused' (the mutation id), 'repeated' (with
-- its outcome), 'absent' (with the position of the change) or 'conflict'.
create or replace function {{schema}}.apply_one(_workspace text, _job jsonb, out kind text, out body json)
language plpgsql as $$
declare
    _changes jsonb := _job -> 'changes';
    _lease jsonb := _job -> 'lease';
    _known record;
    _one record;
    _index integer;
    _rows json[] := '{}';
begin
    if jsonb_typeof(_lease) = 'array' then
        -- Until the end of this transaction nobody can take the lease over.
        perform from {{schema}}.lease l
        where l.thread = _lease ->> 0 and l.token = (_lease ->> 1)::bigint and l.run is not null for share;
        if not found then
            kind := 'lost';
            return;
        end if;
    end if;

    if _job ->> 'mutation' is not null then
        -- Two calls with one mutation id come one after the other, and the later one finds what the first has stored.
        perform pg_advisory_xact_lock(hashtextextended(_job ->> 'mutation', hashtextextended(_workspace, 0)));
        select m.digest, m.outcome into _known from {{schema}}.mutation m
        where m.workspace = _workspace and m.mutation = _job ->> 'mutation';
        if found then
            kind := case when _known.digest = _job ->> 'digest' then 'repeated' else 'reused' end;
            body := _known.outcome::json;
            return;
        end if;
    end if;

    perform set_config('abreast.actor_type', _job ->> 'actor_type', true),
        set_config('abreast.actor_id', coalesce(_job ->> 'actor_id', ''), true),
        set_config('abreast.thread', coalesce(_job ->> 'thread', ''), true),
        set_config('abreast.mutation', coalesce(_job ->> 'mutation', ''), true);

    if jsonb_array_length(_changes) = 1 then
        _one := {{schema}}.write_row(_workspace, _changes -> 0, 'all');
        if _one.kind in ('absent', 'conflict') then
            kind := _one.kind;
            body := json_build_array(0, _one.version, _one."position", _one."row");
            return;
        end if;
        _rows := array[json_build_array(_one.entity_id, _one.version, _one."position", _one."row")];
    else
        -- Everything is locked, in key order, and compared before anything is written.
        for _index in select o.value::integer from jsonb_array_elements_text(_job -> 'order') o(value) loop
            _one := {{schema}}.write_row(_workspace, _changes -> _index, 'check');
            if _one.kind is not null then
                kind := _one.kind;
                body := json_build_array(_index, _one.version, _one."position", _one."row");
                return;
            end if;
        end loop;
        for _index in 0 .. jsonb_array_length(_changes) - 1 loop
            _one := {{schema}}.write_row(_workspace, _changes -> _index, 'write');
            _rows := _rows || json_build_array(_one.entity_id, _one.version, _one."position", _one."row");
        end loop;
    end if;
    kind := 'rows';
    body := array_to_json(_rows);
end
$$;

-- One write, or several of one workspace, each with an outcome of its own. A list of [kind, base, revision, body], where
-- `base` plus an event's position in this transaction is its revision.
create or replace function {{schema}}.apply(_workspace text, _jobs jsonb, _locks jsonb) returns json
language plpgsql as $$
declare
    _number integer := jsonb_array_length(_jobs);
    _job jsonb;
    _one record;
    _block record;
    _base bigint;
    _head bigint;
    _kinds text[] := '{}';
    _bodies json[] := '{}';
    _places integer[] := '{}';
    _place integer;
    _revision bigint;
    _answers json[] := '{}';
    _state text;
    _message text;
begin
    if _number = 1 then
        _one := {{schema}}.apply_one(_workspace, _jobs -> 0);
        _kinds := array[_one.kind];
        _bodies := array[_one.body];
    else
        -- First every row that is to be written, in key order: jobs that each wait for the next one's rows would be a deadlock.
        -- Who holds one of them for long must not hold up the jobs that do not need it: they are then done one by one.
        perform set_config('lock_timeout', '100ms', true);
        for _job in select l.value from jsonb_array_elements(_locks) l(value) loop
            perform {{schema}}.write_row(_workspace, _job, 'lock');
        end loop;
        for _job in select j.value from jsonb_array_elements(_jobs) j(value) loop
            begin
                _one := {{schema}}.apply_one(_workspace, _job);
            exception when others then
                get stacked diagnostics _state = returned_sqlstate, _message = message_text;
                -- Deadlocks, lost connections, missing resources: of all of them, not of this one.
                if left(_state, 2) in ('08', '40', '53', '55', '57', '58', 'XX') then
                    raise;
                end if;
                select 'failed'::text as kind, json_build_array(_state, _message) as body into _one;
            end;
            _kinds := _kinds || _one.kind;
            _bodies := _bodies || coalesce(_one.body, 'null'::json);
            _place := null;
            select e.ord into _place from {{schema}}.event e
            where e.xact = pg_current_xact_id_if_assigned() and e.workspace = _workspace order by e.ord desc limit 1;
            _places := _places || _place;
        end loop;
    end if;

    -- The events of this transaction get their revisions now, so that the answer can say them.
    set constraints {{schema}}.abreast_number immediate;
    select b.last, b.last_ord, b.n into _block from {{schema}}.block b
    where b.workspace = _workspace and b.xact = pg_current_xact_id_if_assigned() order by b.last_ord desc limit 1;
    if found then
        _base := _block.last - _block.last_ord;
        _head := _block.last - _block.n;
    else
        select w.head into _head from {{schema}}.workspace w where w.workspace = _workspace;
        _head := coalesce(_head, 0);
    end if;

    for _index in 1 .. _number loop
        _revision := case when _number > 1 then coalesce(_base + _places[_index], _head) else coalesce(_block.last, _head) end;
        _job := _jobs -> _index - 1;
        if _kinds[_index] in ('rows', 'conflict') and _job ->> 'mutation' is not null then
            insert into {{schema}}.mutation (workspace, mutation, digest, outcome)
            values (
                _workspace, _job ->> 'mutation', _job ->> 'digest',
                json_build_array(_kinds[_index], _base, _revision, _bodies[_index])::text
            );
        end if;
        _answers := _answers || json_build_array(_kinds[_index], _base, _revision, _bodies[_index]);
    end loop;
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
