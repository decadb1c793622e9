-- The same with the versions that its events have in the log by now. Not in SQL: that would be planned at each call, for
-- every partition of the log (docs/reference/performance.md).
create or replace function reservation_answer(r reservations, p_result text) returns json language plpgsql stable as $$
declare
    created  bigint;
    released bigint;
begin
    select l.version into created from log l where l.event_id = r.held_event;
    if r.ended_event is not null then
        select l.version into released from log l where l.event_id = r.ended_event;
    end if;
    return reservation_body(r, created, released, p_result);
end $$;
