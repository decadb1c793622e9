-- Expire holds past their deadline inline, for a rival that has locked them and their nodes, with the event that a sweeper
-- writes, by the actor kind `system`.
-- Return what their tenants use less, in the order of the ids; the caller settles the quotas.
-- It runs as the owner, because they are of any tenant (decision 0025), so it checks the deadlines itself.
create or replace function expire_holds(
    p_ids uuid[], p_judged_at timestamptz, p_retention_seconds float8, out tenants uuid[], out changes integer[]
) language plpgsql security definer set search_path = public, pg_temp set enable_seqscan = off as $$
declare
    held reservations;
begin
    tenants := '{}';
    changes := '{}';
    for held in
        select r.* from reservations r
        where r.id = any (p_ids) and r.state = 'hold' and r.expires_at <= least(p_judged_at, clock_timestamp()) order by r.id
    loop
        -- Null: it has ended or was confirmed since it was read. Its claims are not this function's then.
        continue when advance_reservation(held.id, 'hold', held.row_version, 'expired', 'reservation.expired',
            jsonb_build_object('deadline', rfc3339(held.expires_at), 'actor_kind', 'system'), p_judged_at,
            p_retention_seconds, null, null) is null;
        perform close_reservation_claims(held.id);
        tenants := tenants || held.tenant_id;
        changes := changes || -held.gpus_held;
    end loop;
end $$;
