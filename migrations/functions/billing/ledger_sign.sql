-- What a line adds to the balance.
create or replace function ledger_sign(p_kind text) returns integer language sql immutable as $$
    select case when p_kind in ('top_up', 'credit') then 1 else -1 end
$$;
