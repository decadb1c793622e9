-- Gives allocations without a task, as far as is known here, new fences, and starts their provisioning again: in the lost
-- interval their nodes may have carried out a task under the old fence, and would refuse another. Sequences are raised before.
-- One whose release is replayed waits for it. Returns how many allocations that are, each once. Raises BR001 if the restore with
-- this epoch is not open, or its sequences are not raised.
create or replace function restore_renew_fences(p_epoch uuid) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    raised  timestamptz;
    waiting record;
    fence_  bigint;
    renewed integer := 0;
begin
    raised := (restore_lock_open(p_epoch)).raised_at;
    if raised is null then
        raise exception 'its sequences are not raised: restore %', p_epoch using errcode = 'BR001';
    end if;
    for waiting in
        select a.* from allocations a join claims c on c.id = a.claim_id
        where a.state = 'requested' and a.waits_for = 'worker' and a.waits_since <= raised and c.closed_at is null
          and not exists (select from restore_replays w where w.kind = 'release' and w.subject_id = a.id and w.done_at is null)
        order by a.id for no key update of a, c
    loop
        update claims set fence = nextval('fences') where id = waiting.claim_id returning fence into fence_;
        update allocations set row_version = row_version + 1, waits_since = clock_timestamp(),
                               waits_until = clock_timestamp() + (waits_until - waits_since)
        where id = waiting.id;
        insert into allocation_timeline (allocation_id, at, kind, code, detail, actor_kind, actor_id, fence)
        values (waiting.id, clock_timestamp(), 'note', 'restored',
                'it is provisioned anew, whatever its node did in the lost interval', 'system', 'restore', fence_);
        insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
        values ('provisioning.requested', clock_timestamp(), waiting.correlation_id, waiting.tenant_id,
                'allocations/' || waiting.id, requested_payload(waiting.id, fence_, false));
        renewed := renewed + 1;
    end loop;
    return renewed;
end $$;
