-- Workspaces whose log is not whole above the horizon: name, number of revisions there, head.
select w.workspace, counted.n, w.head
from abreast_workspace w
join (select w.workspace,
             (select count(*) from abreast_event e where e.workspace = w.workspace and e.revision > w.horizon) as n,
             (select max(e.revision) from abreast_event e where e.workspace = w.workspace) as last
      from abreast_workspace w) as counted on counted.workspace = w.workspace
where counted.n <> w.head - w.horizon or coalesce(counted.last, w.horizon) > w.head
