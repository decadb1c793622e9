-- Move up to `p_limit` rows of `audit_pending` into the chain, in the order of their ids, and return how many. The head is locked
-- first, and all visible rows are candidates: a row whose transaction commits late is chained late, and none is skipped.
create or replace function audit_advance(p_limit integer) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    head   record;
    item   record;
    stamp  timestamptz;
    last   bytea;
    taken  bigint[] := '{}';
    hashes bytea[] := '{}';
begin
    if not exists (select from audit_pending) then
        return 0;
    end if;
    select * into strict head from audit_head for no key update;
    stamp := greatest(clock_timestamp(), head.recorded_at);
    last := head.hash;
    for item in
        select (t.one).id as id,
               audit_canonical(head.sequence + row_number() over (order by (t.one).id), stamp, t.one) as canonical
        from (select p as one from audit_pending p order by p.id limit p_limit) t order by (t.one).id
    loop
        last := sha256(last || convert_to(item.canonical, 'UTF8'));
        taken := taken || item.id;
        hashes := hashes || last;
    end loop;
    insert into audit_chain (sequence, recorded_at, id, at, principal_kind, principal_id, role, tenant_id, source, user_agent,
                             action, subject, status, code, operation_key, request_id, correlation_id, detail, hash)
    select head.sequence + t.n, stamp, p.id, p.at, p.principal_kind, p.principal_id, p.role, p.tenant_id, p.source, p.user_agent,
           p.action, p.subject, p.status, p.code, p.operation_key, p.request_id, p.correlation_id, p.detail, t.hash
    from unnest(taken, hashes) with ordinality as t(id, hash, n) join audit_pending p on p.id = t.id order by t.n;
    update audit_head set sequence = head.sequence + cardinality(taken), recorded_at = stamp, hash = last;
    delete from audit_pending where id = any (taken);
    return cardinality(taken);
end $$;
