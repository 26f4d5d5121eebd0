-- Moves the horizon and deletes events up to it, except the newest of each entity: it is the entity's version.
-- The horizon never moves back and never passes HEAD. One transaction.
update {{schema}}.workspace w
set horizon = least(cast(:horizon as bigint), w.head),
    horizon_check = coalesce(
        (select b.check_number from {{schema}}.block b
         where b.workspace = w.workspace and b.last >= least(cast(:horizon as bigint), w.head) order by b.last limit 1),
        w.horizon_check)
where w.workspace = :workspace and w.horizon < :horizon;

delete from {{schema}}.event e
using {{schema}}.block b, {{schema}}.workspace w
where w.workspace = :workspace and b.workspace = w.workspace and b.last - b.n < w.horizon
    and e.workspace = b.workspace and e.xact = b.xact and e.ord <= b.last_ord and e.ord > b.last_ord - b.n
    and b.last - b.last_ord + e.ord <= w.horizon
    and exists (
        select 1 from {{schema}}.event newer
        where newer.workspace = e.workspace and newer.entity_type = e.entity_type and newer.entity_id = e.entity_id
            and newer.seq > e.seq);

-- A block goes with the last of its events; one that holds an entity's newest event must stay to number it.
delete from {{schema}}.block b
using {{schema}}.workspace w
where w.workspace = :workspace and b.workspace = w.workspace and b.last <= w.horizon
    and not exists (
        select 1 from {{schema}}.event e
        where e.workspace = b.workspace and e.xact = b.xact and e.ord <= b.last_ord and e.ord > b.last_ord - b.n);
