-- A condition on `root.oid`, a table: see the function of this name. Triggers of ours and of PostgreSQL do not count.
(
    exists (
        with recursive tree as (
            select root.oid
            union all
            select i.inhrelid from tree t join pg_catalog.pg_inherits i on i.inhparent = t.oid
        )
        select from tree t
        join pg_catalog.pg_trigger g on g.tgrelid = t.oid
        join pg_catalog.pg_proc p on p.oid = g.tgfoid
        where not g.tgisinternal and g.tgtype & 1 = 1 and g.tgtype & 66 = 0
            and p.pronamespace is distinct from pg_catalog.to_regnamespace({{schema_text}})
    )
    or exists (
        select from pg_catalog.pg_constraint k
        where k.contype = 'f' and k.conrelid = root.oid and k.confrelid = root.oid and k.confupdtype not in ('a', 'r')
    )
)
