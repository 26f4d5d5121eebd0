-- The version of each entity: the revision of its last event.
select wanted.id,
       (select b.last - b.last_ord + e.ord
        from {{schema}}.event e
        join {{schema}}.block b on b.workspace = e.workspace and b.xact = e.xact
            and e.ord <= b.last_ord and e.ord > b.last_ord - b.n
        where e.workspace = :workspace and e.entity_type = :entity_type and e.entity_id = wanted.id
        order by e.seq desc limit 1)
from json_array_elements_text(cast(:ids as json)) as wanted(id)
