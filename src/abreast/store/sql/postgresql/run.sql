-- Where a run of changes of one kind ends that goes on behind a revision: its last revision, and the check number there.
with other as (
    select b.last - b.last_ord + e.ord as revision
    from {{schema}}.block b
    cross join lateral (
        select e.ord from {{schema}}.event e
        where e.workspace = b.workspace and e.xact = b.xact and e.ord <= b.last_ord
          and e.ord > b.last_ord - b.n + greatest(0, cast(:after as bigint) - (b.last - b.n))
          and not (e.entity_type = :entity_type and e.op = :op and e.actor_type = :actor_type
                   and e.actor_id is not distinct from cast(:actor_id as text)
                   and coalesce(e.actor_type = 'agent' and e.thread = cast(:thread as text), false) = cast(:own as boolean))
        order by e.ord limit 1) e
    where b.workspace = :workspace and b.last > cast(:after as bigint)
    order by b.last limit 1
), ends as (
    select coalesce((select revision - 1 from other), w.head) as revision from {{schema}}.workspace w where w.workspace = :workspace
)
select ends.revision,
       (select b.check_number from {{schema}}.block b
        where b.workspace = :workspace and b.last >= ends.revision order by b.last limit 1)
from ends
