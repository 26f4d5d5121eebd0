-- Takes a thread's lease if it is free: never taken, released, or expired by the database's clock. One row with the new
-- token, or none.
insert into {{schema}}.lease as held (thread, token, run, expires_at)
values (:thread, 1, :run, clock_timestamp() + cast(:seconds as float8) * interval '1 second')
on conflict (thread) do update
set token = held.token + 1, run = excluded.run, expires_at = excluded.expires_at
where held.run is null or held.expires_at <= clock_timestamp()
returning token
