-- Events, newest first.
select json_array(e.revision, e.check_number, e.op, e.entity_type, e.entity_id, json(e.fields), e."values",
                  e.actor_type, e.actor_id, e.thread, e.mutation, e.at)
from abreast_event e
where e.workspace = :workspace {{and}}
order by e.revision desc limit :limit
