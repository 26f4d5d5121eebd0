-- Events, newest first.
select cast(json_build_array(b.last - b.last_ord + e.ord, b.check_number, e.op, e.entity_type, e.entity_id, e.fields, e."values"::text,
                             e.actor_type, e.actor_id, e.thread, e.mutation, e.at at time zone 'UTC') as text)
from {{schema}}.event e
join {{schema}}.block b on b.workspace = e.workspace and b.xact = e.xact and e.ord <= b.last_ord and e.ord > b.last_ord - b.n
where e.workspace = :workspace {{and}}
order by b.last desc, e.ord desc limit :limit
