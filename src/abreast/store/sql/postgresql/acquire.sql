-- Takes a thread's lease if it is free: never taken, released, or expired by the database's clock. One row with the new
-- token, or none. Writes under the lease (`write.sql`) share a lock of this key, which costs them less than a lock of the
-- row: whoever takes the lease waits for those that are under way.
with waited as materialized (select pg_advisory_xact_lock(hashtextextended(:thread, 1)))
insert into {{schema}}.lease as held (thread, token, run, expires_at)
select :thread, 1, :run, clock_timestamp() + cast(:seconds as float8) * interval '1 second' from waited
on conflict (thread) do update
set token = held.token + 1, run = excluded.run, expires_at = excluded.expires_at
where held.run is null or held.expires_at <= clock_timestamp()
returning token
