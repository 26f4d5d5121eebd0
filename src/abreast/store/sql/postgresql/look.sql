-- Where a workspace and a conversation stand now, for a batch that was read before: has anything moved since?
select w.head, (select b.check_number from {{schema}}.block b where b.workspace = :workspace and b.last = w.head),
       w.horizon, w.horizon_check, c.revision, coalesce(c.check_number, 0),
       (select value from {{schema}}.meta where name = 'telling')
from {{schema}}.workspace w
left join {{schema}}.cursor c on c.workspace = :workspace and c.thread = :thread
where w.workspace = :workspace
