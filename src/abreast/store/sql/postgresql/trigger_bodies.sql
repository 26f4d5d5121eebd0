-- The bodies of the trigger functions of one tracked table, in sections that start with "--- name".
-- {{placeholders}} are expressions over its columns, or other sections. Tables are named in full and columns through an
-- alias, so that no column is taken for a variable, another column or another table. `old_rows` and `new_rows` are the
-- transition tables; `_old` and `_new` are rows of them.


--- inserted_or_deleted
    -- AFTER INSERT or DELETE, FOR EACH STATEMENT.
    -- One row, rows of one workspace, rows of several: each of these is written as cheaply as it can be.
    perform from {{rows}} limit 2;
    get diagnostics _rows = row_count;
    if _rows = 0 then
        return null;
    elsif _rows = 1 then
        select {{workspace}}, {{id}}, {{values}} into _workspace, _entity_id, _values from {{rows}} {{alias}};
        if _workspace is not null then
            {{place}}
            {{one}}
        end if;
        return null;
    end if;
    {{only_workspace}}
    if _workspace is not null then
        {{place}}
        {{home}}
    else
        {{many}}
    end if;
    return null;


--- row_inserted_or_deleted
    -- AFTER INSERT or DELETE, FOR EACH ROW.
    {{hold_parent}}
    _workspace := {{workspace}};
    if _workspace is not null then
        _entity_id := {{id}};
        _values := {{values}};
        {{place}}
        {{one}}
    end if;
    return null;


--- row_updated
    -- AFTER UPDATE, FOR EACH ROW.
    {{hold_parent}}
    _was := {{formerly}};
    _becomes := {{workspace_after}};
    if {{id_before}} = {{id_after}} and _was is not distinct from _becomes then
        _fields := {{changed_fields}};
        if _fields = '{}' and {{columns_there}} > {{known_count}} then
            _fields := coalesce({{own}}.unknown_changes(row_to_json(old), row_to_json(new), {{known}}), '{}');
        end if;
        if _fields <> '{}' then
            _workspace := {{home_of_update}};
            if _workspace is not null then
                _entity_id := {{id_after}};
                _values := {{changed_values}};
                {{place}}
                {{one_update}}
            end if;
        end if;
        return null;
    end if;

    {{moves}}
    -- A changed key or workspace is a delete and an insert.
    _workspace := _was;
    if _workspace is not null then
        _entity_id := {{id_before}};
        _values := {{values_before}};
        {{place}}
        {{one_delete}}
    end if;
    _workspace := {{home_of_insert}};
    if _workspace is not null then
        _entity_id := {{id_after}};
        _values := {{values_after}};
        {{place}}
        {{one_insert}}
    end if;
    return null;


--- truncated
    -- BEFORE TRUNCATE, FOR EACH STATEMENT: no transition tables, but the rows are still there.
    {{many}}
    return null;


--- updated
    -- AFTER UPDATE, FOR EACH STATEMENT.
    perform from new_rows limit 2;
    get diagnostics _rows = row_count;
    if _rows = 0 then
        return null;
    elsif _rows = 1 then
        select {{workspace_after}}, {{id_after}}, {{changed_fields}}, {{changed_values}}
        into _workspace, _entity_id, _fields, _values
        from old_rows _old cross join new_rows _new
        where {{id_before}} = {{id_after}} and {{workspace_before}} = {{workspace_after}};
        if not found then
            _rows := 2;  -- it moved, changed its key or has lost its parent: as if there were several
        elsif _fields <> '{}' then
            {{place}}
            {{one}}
            return null;
        end if;
    end if;
    if _rows > 1 then
        {{only_workspace}}
        if _workspace is not null then
            {{place}}
            {{home}}
        else
            {{moves}}
            {{many}}
        end if;
    end if;
    -- A column that was added after this was made: its change is an event too, where nothing that is known here changed.
    if {{columns_there}} > {{known_count}} then
        {{unknown}}
    end if;
    return null;


--- updated_at_home
    -- The pairs of old and new rows, by entity id. A FULL JOIN cannot become a nested loop, even if it was planned for one row.
    select p.* from (
        select
            case when {{id_before}} is null then 'insert' when {{id_after}} is null then 'delete' else 'update' end as op,
            coalesce({{id_after}}, {{id_before}}) as entity_id,
            case when {{id_before}} is not null and {{id_after}} is not null then {{changed_fields}} end as fields,
            case when {{id_before}} is null then {{values_after}} when {{id_after}} is null then {{values_before}}
                else {{changed_values}} end as "values"
        from old_rows _old full join new_rows _new on {{id_before}} = {{id_after}}
        offset 0
    ) p
    where case p.op when 'update' then p.fields <> '{}' when 'delete' then {{untold_at_home}} else true end


--- updated_anywhere
    -- A changed key or workspace is a delete and an insert.
    select p.* from old_rows _old full join new_rows _new on {{id_before}} = {{id_after}}
    cross join lateral (
        select {{changed_fields}} as fields, {{formerly}} as was, {{workspace_after}} as becomes,
            {{id_before}} is not null as before, {{id_after}} is not null as after
        offset 0
    ) d
    cross join lateral (select d.before and d.after and d.was is not distinct from d.becomes as stays offset 0) s
    cross join lateral (
        select {{home_of_update}} as workspace, 'update' as op, {{id_after}} as entity_id, d.fields, {{changed_values}} as "values"
        where s.stays and d.fields <> '{}'
        union all
        select {{home_of_delete}}, 'delete', {{id_before}}, null, {{values_before}}
        where d.before and not s.stays and (d.was is not null or not d.after) and {{untold}}
        union all
        select {{home_of_insert}}, 'insert', {{id_after}}, null, {{values_after}}
        where d.after and not s.stays
    ) p


--- updated_unknown
    select p.* from (
        select {{workspace_after}} as workspace, 'update' as op, {{id_after}} as entity_id,
            case when {{id_before}} is not null and {{id_after}} is not null and {{changed_fields}} = '{}'
                then {{own}}.unknown_changes(row_to_json(_old), row_to_json(_new), {{known}}) end as fields,
            null::jsonb as "values"
        from old_rows _old full join new_rows _new on {{id_before}} = {{id_after}}
        offset 0
    ) p
    where p.fields is not null


--- untold
    -- A row that an UPDATE moves to another partition has fired the row trigger of DELETE already.
    not coalesce((
        select e.op = 'delete' and e.xact = pg_current_xact_id() from {{event}} e
        where e.entity_type = {{entity_type}} and e.entity_id = {{entity_id}} order by e.seq desc limit 1
    ), false)


--- hold_parent
    -- As the check of the foreign key is about to do, but before the parent's workspace is read: its move is waited for.
    if {{changed}} then
        perform from {{parent}} _p where {{meets}} for key share;
    end if;


--- columns_there
    (select count(*) from pg_attribute a where a.attrelid = tg_relid and a.attnum > 0 and not a.attisdropped)


--- moves
    for _move in
        select m.* from (
            select {{keys}}, {{id_before}} as id_before, {{id_after}} as id_after, {{formerly}} as was, {{workspace_after}} as becomes
            from old_rows _old full join new_rows _new on {{id_before}} = {{id_after}}
            offset 0
        ) m
        where m.id_before is not null and m.id_after is not null and m.was is distinct from m.becomes
    loop
        {{moved_rows}}
    end loop;


--- row_moves
    if {{id_before}} = {{id_after}} then
        select {{keys}}, _was as was, _becomes as becomes into _move;
        {{moved_rows}}
    end if;


--- moved_rows
    -- A row that moved takes with it those that find their workspace through it. Who is adding or changing a child is waited
    -- for, and waits for us: its event would be left in the old workspace.
    perform from {{table}} _top where {{moved}} for update;
    {{children}}


--- child_moved
    perform from {{path}} where {{moved}} for {{strength}} of _new;
    {{many}}


--- child_moved_events
    select p.* from {{path}}
    cross join lateral (
        select _move.was as workspace, 'delete' as op, {{id}} as entity_id, null::text[] as fields, {{values_before}} as "values"
        where _move.was is not null
        union all
        select {{home}}, 'insert', {{id}}, null, {{values_after}}
    ) p
    where {{moved}}


--- place
    -- Where the next event of `_workspace` stands in this transaction. The answer is in rows, not in a setting: a savepoint
    -- takes it back like any row, and RESET ALL cannot. The event opens a block unless one is open.
    select e.ord into _last from {{event}} e
    where e.xact = pg_current_xact_id() and e.workspace = _workspace order by e.ord desc limit 1;
    _opens := _last is null;
    if not _opens then
        -- SET CONSTRAINTS may have numbered it. (Greatest: after a restore an old transaction may have had this id.)
        select b.last_ord into _covered from {{block}} b
        where b.workspace = _workspace and b.xact = pg_current_xact_id() order by b.last_ord desc limit 1;
        _opens := coalesce(_covered >= _last, false);
        _last := greatest(_last, _covered);
    end if;


--- one
    insert into {{event}} ({{columns}})
    values (
        _workspace, pg_current_xact_id(), coalesce(_last, 0) + 1, _opens, {{op}}, {{entity_type}}, _entity_id, _fields, _values,
        {{attribution}}
    );


--- home
    -- All in `_workspace`: one pass, no sort.
    insert into {{event}} ({{columns}})
    select
        _workspace, pg_current_xact_id(), coalesce(_last, 0) + row_number() over (), _opens and row_number() over () = 1,
        c.op, {{entity_type}}, c.entity_id, c.fields, c."values",
        {{attribution_once}}
    from ({{changes}}) c;


--- many
    -- In several workspaces. Deletes come first: of a row that moved, the newest event must be the insert. Windows instead of
    -- joins: a join that was planned for a few rows would be a nested loop over many.
    insert into {{event}} ({{columns}})
    select
        c.workspace, pg_current_xact_id(), c.nth + coalesce(max(greatest(c.last, c.covered)) over (partition by c.workspace), 0),
        c.nth = 1 and coalesce(c.covered >= c.last, c.last is null),
        c.op, {{entity_type}}, c.entity_id, c.fields, c."values",
        {{attribution_once}}
    from (
        select l.*, case when l.nth = 1 then (
            select b.last_ord from {{block}} b
            where b.workspace = l.workspace and b.xact = pg_current_xact_id() order by b.last_ord desc limit 1
        ) end as covered
        from (
            select n.*, case when n.nth = 1 then (
                select e.ord from {{event}} e
                where e.xact = pg_current_xact_id() and e.workspace = n.workspace order by e.ord desc limit 1
            ) end as last
            from (
                select m.*, row_number() over (partition by m.workspace order by m.op = 'insert') as nth
                from ({{changes}} offset 0) m
                where m.workspace is not null
            ) n
            offset 0
        ) l
        offset 0
    ) c
    order by c.op = 'insert';


--- only_workspace
    _workspace := (select {{workspace}} from {{rows}} r limit 1);
    if {{others}} then
        _workspace := null;
    end if;


--- only_workspace_by_path
    -- Each parent is looked up once, however many rows it has.
    _workspace := (
        select case when count(*) = count(h.workspace) and min(h.workspace) = max(h.workspace) then min(h.workspace) end
        from (select {{workspace}} as workspace from ({{parents}}) r) h
    );


--- version
    -- BEFORE INSERT or UPDATE, FOR EACH ROW: keeps the application's version right for writers that do not know it.
    if tg_op = 'INSERT' then
        new.{{version}} := coalesce(new.{{version}}, 1);
    elsif new.{{version}} is not distinct from old.{{version}} and ({{others_differ}}) then
        new.{{version}} := coalesce(old.{{version}}, 0) + 1;
    end if;
    return new;


--- formerly
    -- The workspace that a row was in. Where the path leads nowhere, a cascade has removed the parent; the log knows.
    coalesce({{workspace}}, (
        select case when e.op <> 'delete' then e.workspace end from {{event}} e
        where e.entity_type = {{entity_type}} and e.entity_id = {{id}} order by e.seq desc limit 1
    ), {{gone_parent}})


--- gone_parent
    case when exists (select from {{parent}} where {{meets}}) then {{further}} else (
        select e.workspace from {{event}} e
        where e.entity_type = {{parent_type}} and e.entity_id = {{parent_id}} order by e.seq desc limit 1
    ) end
