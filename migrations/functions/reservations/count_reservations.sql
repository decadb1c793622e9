-- Two kinds: live reservations, and among them the holds, which wait for their deadline.
create or replace function count_reservations() returns trigger language plpgsql as $$
declare
    live  bigint := 0;
    holds bigint := 0;
    more  record;
begin
    if tg_op in ('INSERT', 'UPDATE') then
        select count(*) filter (where state in ('hold', 'confirmed')) as live, count(*) filter (where state = 'hold') as holds
        into more from fresh;
        live := more.live;
        holds := more.holds;
    end if;
    if tg_op in ('UPDATE', 'DELETE') then
        select count(*) filter (where state in ('hold', 'confirmed')) as live, count(*) filter (where state = 'hold') as holds
        into more from gone;
        live := live - more.live;
        holds := holds - more.holds;
    end if;
    perform count_live('reservations', live);
    perform count_live('holds', holds);
    return null;
end $$;
