-- Leaves an event for each certificate of an agent of a site, in the transaction that records it: a restore to an earlier moment
-- adopts from these events what it has lost. It runs as the owner of the schema, since the issuer has no right to write events.
create or replace function note_site_certificate() returns trigger
language plpgsql security definer set search_path = public, pg_temp as $$
begin
    insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
    values ('site.certificate_issued', clock_timestamp(), gen_random_uuid(), null, 'site-agents/' || new.agent_id, jsonb_build_object(
        'agent_id', new.agent_id, 'epoch', new.agent_epoch, 'serial', new.serial, 'predecessor', new.predecessor,
        'key_sha256', encode(new.key_sha256, 'hex'), 'authority_key_sha256', encode(new.authority_key_sha256, 'hex'),
        'not_before', rfc3339(new.not_before), 'not_after', rfc3339(new.not_after), 'pem', new.pem));
    return new;
end $$;
