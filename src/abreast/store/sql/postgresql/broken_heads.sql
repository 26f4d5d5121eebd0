-- Workspaces whose log is not whole above the horizon: name, number of revisions there, head.
select w.workspace, counted.n, w.head
from {{schema}}.workspace w
cross join lateral (
    select count(*) filter (where b.last - b.last_ord + e.ord > w.horizon) as n, max(b.last - b.last_ord + e.ord) as last
    from {{schema}}.event e
    join {{schema}}.block b on b.workspace = e.workspace and b.xact = e.xact and e.ord <= b.last_ord and e.ord > b.last_ord - b.n
    where e.workspace = w.workspace) as counted
where counted.n <> w.head - w.horizon or coalesce(counted.last, w.horizon) > w.head
