-- Counts operations in `live_rows` and refuses one beyond the bound, whatever statement writes it. Sessions state the bound in
-- `berth.operations_max`; those that do not only count. One statement counts: a call of count_live costs a third more.
create or replace function count_operations() returns trigger language plpgsql as $$
declare
    bound bigint := nullif(current_setting('berth.operations_max', true), '');
begin
    if tg_op = 'INSERT' then
        insert into live_rows (kind, stripe, number)
        select 'operations', pg_backend_pid(), count(*) from fresh having count(*) > 0
        on conflict (kind, stripe) do update set number = live_rows.number + excluded.number;
        if bound is not null and exists (select from fresh where not ending) and room_left('operations', bound) < 0 then
            raise exception 'there is no room for another operation' using errcode = 'BO001';
        end if;
    else
        insert into live_rows (kind, stripe, number)
        select 'operations', pg_backend_pid(), -count(*) from gone having count(*) > 0
        on conflict (kind, stripe) do update set number = live_rows.number + excluded.number;
    end if;
    return null;
end $$;
