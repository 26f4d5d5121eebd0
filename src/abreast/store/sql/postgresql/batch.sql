-- One sync batch in one statement, and so in one snapshot: where the conversation stands, HEAD, the horizon,
-- the log's check numbers there, the events after it, and CURRENT.
with place as materialized (
    select w.workspace is not null as known,
           coalesce(w.head, 0) as head,
           coalesce(w.horizon, 0) as horizon,
           coalesce(w.horizon_check, 0) as horizon_check,
           c.revision as cursor_revision,
           coalesce(c.check_number, 0) as cursor_check,
           case cast(:mode as text)
               when 'at' then cast(:revision as bigint)
               when 'lower' then least(c.revision, cast(:revision as bigint))
               when 'cursor' then coalesce(c.revision, w.head, 0)
               else coalesce(w.head, 0)
           end as start
    from (select 1) as one
    left join {{schema}}.workspace w on w.workspace = :workspace
    left join {{schema}}.cursor c on c.workspace = :workspace and c.thread = :thread
)
select p.known, p.head, p.horizon, p.horizon_check, p.cursor_revision, p.cursor_check, p.start,
       (select b.check_number from {{schema}}.block b
        where b.workspace = :workspace and b.last >= p.start and p.start > 0 order by b.last limit 1),
       (select b.check_number from {{schema}}.block b where b.workspace = :workspace and b.last = p.head),
       case when p.cursor_revision <> p.start then
           (select b.check_number from {{schema}}.block b
            where b.workspace = :workspace and b.last >= p.cursor_revision order by b.last limit 1) end,
       (select b.check_number from {{schema}}.block b
        where b.workspace = :workspace and b.last >= cast(:furthest as bigint) order by b.last limit 1),
       (select value from {{schema}}.meta where name = 'telling'),
       (select json_agg({{event}})::text  -- in the order of the subquery
        from (select b.last - b.last_ord + e.ord as revision, b.check_number, e.op, e.entity_type, e.entity_id,
                     e.fields, e."values", e.actor_type, e.actor_id, e.thread, e.mutation, e.at
              from {{schema}}.block b
              cross join lateral (
                  select * from {{schema}}.event e
                  where e.workspace = b.workspace and e.xact = b.xact and e.ord <= b.last_ord
                    and e.ord > b.last_ord - b.n + greatest(0, greatest(p.start, p.horizon) - (b.last - b.n))
                  order by e.ord limit :limit) e
              where b.workspace = :workspace and b.last > greatest(p.start, p.horizon)
              order by b.last, e.ord limit :limit) x){{rows}}
from place p
