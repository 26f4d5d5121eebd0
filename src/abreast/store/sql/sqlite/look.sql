-- Where a workspace and a conversation stand now, for a batch that was read before: has anything moved since?
select w.head, (select e.check_number from abreast_event e where e.workspace = :workspace and e.revision = w.head),
       w.horizon, w.horizon_check, c.revision, coalesce(c.check_number, 0),
       (select value from abreast_meta where name = 'telling')
from abreast_workspace w
left join abreast_cursor c on c.workspace = :workspace and c.thread = :thread
where w.workspace = :workspace
