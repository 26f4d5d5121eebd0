-- Takes a thread's lease if it is free: never taken, released, or expired by the database's clock. One row with the new
-- token, or none. Writes under the lease (`write.sql`) share a lock of this key, which costs them less than a lock of the
-- row: whoever takes the lease waits for those that are under way, but not for ever: their process may have stopped for good.
-- Who cannot have it anyway does not wait, and so keeps no write waiting behind itself.
with patience as materialized (
    select set_config('lock_timeout', case given when '0' then '10s' else given end, true)
    from current_setting('lock_timeout') as given
),
waited as materialized (
    select pg_advisory_xact_lock(hashtextextended(:thread, 1)) from patience where not exists (
        select from {{schema}}.lease l
        where l.thread = :thread and l.expires_at > clock_timestamp() and l.run not in (:run, coalesce(:left, ''))
    )
)
insert into {{schema}}.lease as held (thread, token, run, expires_at)
select :thread, 1, :run, clock_timestamp() + cast(:seconds as float8) * interval '1 second' from waited
on conflict (thread) do update
set token = held.token + 1, run = excluded.run, expires_at = excluded.expires_at
where held.run is null or held.expires_at <= clock_timestamp() or held.run in (excluded.run, cast(:left as text))
returning token
