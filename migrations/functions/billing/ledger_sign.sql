-- What a line adds to the balance.
create or replace function ledger_sign(p_kind text) returns integer language sql immutable as $$
    select case p_kind when 'top_up' then 1 else -1 end
$$;
