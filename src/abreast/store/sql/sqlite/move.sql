-- Moves a cursor forward, never back. One exception: a place that the log does not know (it lies beyond a restore from a
-- backup) counts as no place.
insert into abreast_cursor (workspace, thread, revision, check_number, run)
values (:workspace, :thread, :revision, :check_number, :run)
on conflict (workspace, thread) do update
set revision = excluded.revision, check_number = excluded.check_number, run = excluded.run,
    updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now')
where abreast_cursor.revision < excluded.revision
    or abreast_cursor.revision > coalesce((select w.head from abreast_workspace w where w.workspace = excluded.workspace), 0)
    or (abreast_cursor.revision > 0 and abreast_cursor.check_number <>
        (select e.check_number from abreast_event e
         where e.workspace = excluded.workspace and e.revision = abreast_cursor.revision))
