-- Gives a conversation its place, at HEAD, if it has none.
insert into {{schema}}.cursor (workspace, thread, revision, check_number)
select :workspace, :thread, coalesce(w.head, 0),
       coalesce((select b.check_number from {{schema}}.block b where b.workspace = :workspace and b.last = w.head),
                case when w.head = w.horizon then w.horizon_check end, 0)
from (select 1) as one
left join {{schema}}.workspace w on w.workspace = :workspace
on conflict (workspace, thread) do nothing
