-- The version of each entity: the revision of its last event.
select wanted.value,
       (select max(e.revision) from abreast_event e
        where e.entity_type = :entity_type and e.entity_id = wanted.value and e.workspace = :workspace)
from json_each(:ids) as wanted
