-- The newest token that was announced for each thread, kept beside the checkpoints, and the function that refuses a
-- checkpoint of any other. It runs in the transaction of each write: whoever announces waits for those under way.
create table if not exists abreast_fence (thread text primary key, token bigint not null);

create or replace function abreast_check_fence(thread_id text, writer bigint) returns void language plpgsql as $$
begin
    perform from abreast_fence where thread = thread_id and token = writer for share;
    if not found then
        raise exception using errcode = 'AB001', message = 'abreast: this run does not hold the thread';
    end if;
end
$$;
