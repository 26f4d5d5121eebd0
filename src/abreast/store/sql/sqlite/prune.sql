-- Moves the horizon and deletes events up to it, except the newest of each entity: it is the entity's version.
-- The horizon never moves back and never passes HEAD. One transaction.
update abreast_workspace
set horizon = min(:horizon, head),
    horizon_check = coalesce(
        (select e.check_number from abreast_event e where e.workspace = :workspace and e.revision = min(:horizon, head)),
        horizon_check)
where workspace = :workspace and horizon < :horizon;

delete from abreast_event
where workspace = :workspace
    and revision <= (select horizon from abreast_workspace where workspace = :workspace)
    and exists (
        select 1 from abreast_event newer
        where newer.workspace = abreast_event.workspace and newer.entity_type = abreast_event.entity_type
            and newer.entity_id = abreast_event.entity_id and newer.revision > abreast_event.revision);
