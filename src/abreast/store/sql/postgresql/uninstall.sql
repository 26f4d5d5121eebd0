-- Removes all triggers and functions of ours, on tables that are no longer tracked as well.
do $$
declare
    _found record;
begin
    for _found in
        select g.tgrelid::regclass as relation, g.tgname as name
        from pg_catalog.pg_trigger g
        join pg_catalog.pg_proc p on p.oid = g.tgfoid
        where p.pronamespace = pg_catalog.to_regnamespace({{schema_text}}) and g.tgparentid = 0
    loop
        execute 'drop trigger ' || pg_catalog.quote_ident(_found.name) || ' on ' || _found.relation;
    end loop;
    for _found in
        select p.oid::regprocedure as name from pg_catalog.pg_proc p
        where p.pronamespace = pg_catalog.to_regnamespace({{schema_text}}) and (
            p.prorettype = 'trigger'::regtype
            or p.proname in ('number_all', 'as_jsonb', 'unknown_changes', 'no_workspace', 'tree', 'attach', 'detach', 'writes_again')
        )
    loop
        execute 'drop function ' || _found.name;
    end loop;
end
$$
