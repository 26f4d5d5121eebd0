-- Where a run of changes of one kind ends that goes on behind a revision: its last revision, and the check number there.
with other as (
    select o.revision from abreast_event o
    where o.workspace = :workspace and o.revision > :after
      and not (o.entity_type = :entity_type and o.op = :op and o.actor_type = :actor_type and o.actor_id is :actor_id
               and coalesce(o.actor_type = 'agent' and o.thread = :thread, 0) = :own)
    order by o.revision limit 1
)
select e.revision, e.check_number from abreast_event e
where e.workspace = :workspace
  and e.revision = coalesce((select revision - 1 from other), (select head from abreast_workspace where workspace = :workspace))
