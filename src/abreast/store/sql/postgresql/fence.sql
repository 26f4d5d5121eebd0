-- The newest token of each thread, beside the checkpoints, and the check that a saver makes in the transaction of each
-- write. FOR SHARE: who announces a newer token waits for the write that is under way, and the next one is refused.
create table if not exists abreast_fence (
    thread text primary key,
    token  bigint not null
);

create or replace function abreast_check_fence(_thread text, _token bigint) returns void
language plpgsql as $$
begin
    perform from abreast_fence f where f.thread = _thread and f.token = _token for share;
    if not found then
        raise exception 'abreast: this run does not hold the thread' using errcode = 'AB001';
    end if;
end
$$;
