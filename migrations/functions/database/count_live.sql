create or replace function count_live(p_kind text, p_change bigint) returns void language plpgsql
set enable_seqscan = off as $$
begin
    if p_change <> 0 then
        insert into live_rows (kind, stripe, number) values (p_kind, pg_backend_pid(), p_change)
        on conflict (kind, stripe) do update set number = live_rows.number + excluded.number;
    end if;
end $$;
