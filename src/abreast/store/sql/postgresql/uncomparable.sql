-- Columns of one table whose values pg_catalog cannot tell apart: types without an equality there (json, xml, point,
-- those of extensions), and collations that call different texts equal. Domains and arrays count as what is in them.
-- A virtual generated column has no value in the rows that a trigger sees, and is given as 'virtual'.
with recursive columns as (
    select a.attname as name, a.atttypid as type, a.attcollation as collation
    from pg_catalog.pg_attribute a
    where a.attrelid = pg_catalog.to_regclass(%(table)s) and a.attnum > 0 and not a.attisdropped and a.attgenerated <> 'v'
), inside as (
    select c.name, c.type, c.collation, c.type as inner_type, false as is_leaf from columns c
    union all
    select i.name, i.type, i.collation, next.type, next.type is null
    from inside i
    join pg_catalog.pg_type t on t.oid = i.inner_type
    left join pg_catalog.pg_range r on t.oid in (r.rngtypid, r.rngmultitypid)
    cross join lateral (
        select case
            when t.typtype = 'd' then t.typbasetype
            when t.typtype in ('r', 'm') then r.rngsubtype
            when t.typsubscript = 'pg_catalog.array_subscript_handler'::pg_catalog.regproc then t.typelem
        end as type
    ) next
    where next.type is not null
), leaf as (
    select i.name, i.type, i.collation, t.oid as inner_type, t.typtype, t.typnamespace
    from inside i
    join pg_catalog.pg_type t on t.oid = i.inner_type
    where t.typtype not in ('d', 'r', 'm') and t.typsubscript <> 'pg_catalog.array_subscript_handler'::pg_catalog.regproc
)
select l.name, pg_catalog.format_type(case t.typtype when 'd' then t.typbasetype else t.oid end, null) as type
from leaf l
join pg_catalog.pg_type t on t.oid = l.type
left join pg_catalog.pg_collation c on c.oid = l.collation
where not coalesce(c.collisdeterministic, true)
    or l.typtype <> 'e' and (
        l.typnamespace <> 'pg_catalog'::pg_catalog.regnamespace
        or not exists (
            select from pg_catalog.pg_opclass k
            join pg_catalog.pg_am m on m.oid = k.opcmethod
            where k.opcdefault and m.amname in ('btree', 'hash')
                and k.opcintype in (l.inner_type, case l.inner_type
                    when 'varchar'::pg_catalog.regtype then 'text'::pg_catalog.regtype
                    when 'cidr'::pg_catalog.regtype then 'inet'::pg_catalog.regtype end)
        )
    )
union all
select a.attname, 'virtual' from pg_catalog.pg_attribute a
where a.attrelid = pg_catalog.to_regclass(%(table)s) and a.attnum > 0 and not a.attisdropped and a.attgenerated = 'v'
