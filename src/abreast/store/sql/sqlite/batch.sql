-- One sync batch in one statement, and so in one snapshot: where the conversation stands, HEAD, the horizon,
-- the log's check numbers there, the events after it, and CURRENT.
with place as materialized (
    select w.workspace is not null as known,
           coalesce(w.head, 0) as head,
           coalesce(w.horizon, 0) as horizon,
           coalesce(w.horizon_check, 0) as horizon_check,
           c.revision as cursor_revision,
           coalesce(c.check_number, 0) as cursor_check,
           case :mode
               when 'at' then :revision
               when 'lower' then min(coalesce(c.revision, :revision), :revision)
               when 'cursor' then coalesce(c.revision, w.head, 0)
               else coalesce(w.head, 0)
           end as start
    from (select 1) as one
    left join abreast_workspace w on w.workspace = :workspace
    left join abreast_cursor c on c.workspace = :workspace and c.thread = :thread
)
select p.known, p.head, p.horizon, p.horizon_check, p.cursor_revision, p.cursor_check, p.start,
       (select e.check_number from abreast_event e where e.workspace = :workspace and e.revision = p.start),
       (select e.check_number from abreast_event e where e.workspace = :workspace and e.revision = p.head),
       case when p.cursor_revision <> p.start then
           (select e.check_number from abreast_event e where e.workspace = :workspace and e.revision = p.cursor_revision) end,
       (select e.check_number from abreast_event e where e.workspace = :workspace and e.revision = :furthest),
       (select value from abreast_meta where name = 'telling'),
       (select '[' || group_concat({{event}}) || ']'
        from (select * from abreast_event e
              where e.workspace = :workspace and e.revision > max(p.start, p.horizon)
              order by e.revision limit :limit) x){{rows}}
from place p
