-- Parts of the functions of governed writes, in sections that start with "--- name".
-- What needs no statement is an expression, and small statements are better than one that does it all: to start a statement
-- costs more than most of them do, and the more the larger it is (measured).


--- begin
    -- The lease is held and the mutation is new, or this is the end. `_done` takes answers that nobody wants.
    if _lease <> 'null' then
        -- Until the end of this transaction nobody can take the lease over: who does waits for this lock first.
        _done := pg_advisory_xact_lock_shared(hashtextextended(_lease ->> 0, 1))::text;
        perform from {{schema}}.lease l
        where l.thread = _lease ->> 0 and l.token = (_lease ->> 1)::bigint and l.run is not null;
        if not found then
            kind := 'lost';
            return;
        end if;
    end if;
    if _mutation is not null then
        -- Two calls with one mutation id come one after the other, and the later one finds what the first has stored.
        _done := pg_advisory_xact_lock(hashtextextended(_mutation, hashtextextended(_workspace, 0)))::text;
        select case when m.digest = _job ->> 'digest' then 'repeated' else 'reused' end, m.outcome into kind, _done
        from {{schema}}.mutation m where m.workspace = _workspace and m.mutation = _mutation;
        if found then
            body := _done::json;
            return;
        end if;
    end if;
    _done := set_config('abreast.actor_type', _job ->> 'actor_type', true)
        || set_config('abreast.actor_id', coalesce(_job ->> 'actor_id', ''), true)
        || set_config('abreast.thread', coalesce(_job ->> 'thread', ''), true)
        || set_config('abreast.mutation', coalesce(_mutation, ''), true);


--- numbered
    -- The events of this transaction get their revisions now, so that the answer can say them. What the application has
    -- deferred to the end of it comes now too: that is here, and to name one constraint costs a tenth of the call (measured).
    set constraints all immediate;
    select b.last - b.last_ord, b.last into _base, place from {{schema}}.block b
    where b.workspace = _workspace and b.xact = pg_current_xact_id_if_assigned() order by b.last_ord desc limit 1;
    if not found then
        select coalesce(max(w.head), 0) into place from {{schema}}.workspace w where w.workspace = _workspace;
    end if;


--- stored
    body := json_build_array(kind, _base, place, body);
    if _mutation is not null then
        insert into {{schema}}.mutation (workspace, mutation, digest, outcome)
        values (_workspace, _mutation, _job ->> 'digest', body::text);
    end if;


--- last_place
    select e.ord into place from {{schema}}.event e
    where e.xact = pg_current_xact_id_if_assigned() and e.workspace = _workspace order by e.ord desc limit 1;


--- version_of_event
    select e.workspace, e.xact, e.ord into _where, _xact, _ord from {{schema}}.event e
    where e.entity_type = {{entity_type}} and e.entity_id = entity_id order by e.seq desc limit 1;
    if _xact = pg_current_xact_id_if_assigned() then
        "position" := _ord;
    else
        select b.last - b.last_ord + _ord into version from {{schema}}.block b
        where b.workspace = _where and b.xact = _xact and b.last_ord >= _ord order by b.last_ord limit 1;
    end if;


--- place_of_event
    -- Mostly the row's event is the last one. Before the revisions are given: what the application has deferred may write the
    -- row again, and `row` does not show that.
    select e.ord, e.entity_type = {{entity_type}} and e.entity_id = entity_id into place, _found from {{schema}}.event e
    where e.xact = pg_current_xact_id_if_assigned() and e.workspace = _workspace order by e.ord desc limit 1;
    if _found then
        "position" := place;
    elsif not _found then
        select case when e.xact = pg_current_xact_id_if_assigned() then e.ord end into "position" from {{schema}}.event e
        where e.entity_type = {{entity_type}} and e.entity_id = entity_id order by e.seq desc limit 1;
    end if;


--- write
    if _op = 'insert' then
        execute 'insert into ' || {{table_text}} || ' (' || (_change ->> 'columns') || ') values (' || (_change ->> 'set') || ') returning ' || {{returning_text}}
        into {{returned}} using _new, _workspace;
    elsif _op = 'delete' then
        delete from {{table}} where {{key}};
        _home := true;
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
