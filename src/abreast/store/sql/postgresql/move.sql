-- Moves a cursor forward, never back. One exception: a place that the log does not know (it lies beyond a restore from a
-- backup) counts as no place.
insert into {{schema}}.cursor as place (workspace, thread, revision, check_number, run)
values (:workspace, :thread, :revision, :check_number, :run)
on conflict (workspace, thread) do update
set revision = excluded.revision, check_number = excluded.check_number, run = excluded.run, updated_at = now()
where place.revision < excluded.revision
    or place.revision > coalesce((select w.head from {{schema}}.workspace w where w.workspace = excluded.workspace), 0)
    or (place.revision > 0 and place.check_number <>
        (select b.check_number from {{schema}}.block b
         where b.workspace = excluded.workspace and b.last >= place.revision and b.last - b.n < place.revision
         order by b.last limit 1))
