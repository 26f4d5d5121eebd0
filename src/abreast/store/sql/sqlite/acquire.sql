-- Takes a thread's lease if it is free: never taken, released, or expired by the database's clock. One row with the new
-- token, or none.
insert into abreast_lease (thread, token, run, expires_at)
values (:thread, 1, :run, (julianday('now') - 2440587.5) * 86400.0 + :seconds)
on conflict (thread) do update
set token = abreast_lease.token + 1, run = excluded.run, expires_at = excluded.expires_at
where abreast_lease.run is null or abreast_lease.expires_at <= (julianday('now') - 2440587.5) * 86400.0
    or abreast_lease.run in (excluded.run, :left)
returning token
