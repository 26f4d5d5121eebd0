-- Gives a conversation its place, at HEAD, if it has none.
insert into abreast_cursor (workspace, thread, revision, check_number)
select :workspace, :thread, coalesce(w.head, 0),
       coalesce((select e.check_number from abreast_event e where e.workspace = :workspace and e.revision = w.head),
                case when w.head = w.horizon then w.horizon_check end, 0)
from (select 1) as one
left join abreast_workspace w on w.workspace = :workspace
where true
on conflict (workspace, thread) do nothing
