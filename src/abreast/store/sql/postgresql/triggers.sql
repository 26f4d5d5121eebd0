-- The triggers of ours that are there, on the tracked tables, their partitions and elsewhere; one row without a trigger
-- for a table that has none.
with recursive tree as (
    select n.name, c.oid, c.relkind, false as is_partition
    from pg_catalog.unnest(%(tables)s::text[]) n(name)
    join pg_catalog.pg_class c on c.oid = pg_catalog.to_regclass(n.name)
    union all
    select t.name, c.oid, c.relkind, c.relispartition
    from tree t
    join pg_catalog.pg_inherits i on i.inhparent = t.oid
    join pg_catalog.pg_class c on c.oid = i.inhrelid
), ours as (
    select g.tgrelid, g.tgname, g.tgenabled, pg_catalog.obj_description(g.oid, 'pg_trigger') as note
    from pg_catalog.pg_trigger g
    join pg_catalog.pg_proc p on p.oid = g.tgfoid
    where p.pronamespace = pg_catalog.to_regnamespace(%(schema)s) and g.tgparentid = 0
)
select t.name, coalesce(t.oid, o.tgrelid)::pg_catalog.regclass::text as relation, t.relkind::text as kind, t.is_partition,
    o.tgname::text as trigger, o.note, o.tgenabled::text as enabled,
    (select {{writes_again}} from (select pg_catalog.to_regclass(t.name)::oid as oid) root) as writes_again
from tree t
full join ours o on o.tgrelid = t.oid
