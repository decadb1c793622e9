-- Revoke an API key; the time of the first revocation stays. Return how many webhooks stopped with it, null: there is no such key.
-- Operators' webhooks receive every event, so those that belong to the key are disabled (`key_revoked`) until another operator
-- enables them; a tenant's belong to the tenant, and stay.
create or replace function revoke_key(p_key uuid) returns bigint language plpgsql set enable_seqscan = off as $$
declare
    stopped bigint;
begin
    update api_keys set revoked_at = coalesce(revoked_at, clock_timestamp()) where id = p_key;
    if not found then
        return null;
    end if;
    with hooks as (
        update webhooks set state = 'disabled', disabled_reason = 'key_revoked', disabled_at = clock_timestamp(),
                            updated_at = clock_timestamp()
        where tenant_id is null and created_by = p_key and state = 'enabled' returning id
    ), deliveries as (
        update webhook_deliveries d set state = 'failed', error = 'webhook_disabled', next_attempt_at = null,
                                        ended_at = clock_timestamp()
        from hooks h where d.webhook_id = h.id and d.state = 'pending' and not d.leased
    )
    select count(*) into stopped from hooks;
    return stopped;
end $$;
