-- The bound on operations is judged here, so that no way of writing one passes it by. Sessions say what it is in
-- `berth.operations_max`; those that do not say count only.
create or replace function count_operations() returns trigger language plpgsql as $$
declare
    bound    bigint := nullif(current_setting('berth.operations_max', true), '');
    changed  bigint;
    ordinary boolean;
begin
    if tg_op = 'INSERT' then
        select count(*), coalesce(bool_or(not ending), false) into changed, ordinary from fresh;
        perform count_live('operations', changed);
        if ordinary and bound is not null and room_left('operations', bound) < 0 then
            raise exception 'there is no room for another operation' using errcode = 'BO001';
        end if;
    else
        select -count(*) into changed from gone;
        perform count_live('operations', changed);
    end if;
    return null;
end $$;
