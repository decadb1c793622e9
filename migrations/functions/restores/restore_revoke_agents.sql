-- Revokes agents of sites again that were revoked, suspended or enrolled again in the lost interval of the restore with this epoch:
-- their certificates count no more, and what was sealed to them is deleted. Returns how many, each once. Deletes every unused
-- enrolment token of such agents too. Raises BR001 if the restore is not open.
create or replace function restore_revoke_agents(p_epoch uuid) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    agent   uuid;
    revoked integer := 0;
    why     constant text := 'revoked in the lost interval of a restore';
begin
    perform restore_lock_open(p_epoch);
    -- One that was used in the lost interval is unused here.
    delete from site_agent_tokens t where t.used_at is null;
    for agent in
        select w.subject_id from restore_replays w
        where w.epoch = p_epoch and w.done_at is null and w.kind = 'site_agent' order by w.subject_id for update
    loop
        perform from site_agents a where a.id = agent for no key update;
        update site_agent_certificate_requests q set refusal = why
        where q.agent_id = agent and q.serial is null and q.refusal is null;
        update site_agent_certificates c set revoked_at = clock_timestamp(), revoked_reason = why
        where c.agent_id = agent and c.revoked_at is null;
        update site_agents a set state = 'retired', row_version = a.row_version + 1 where a.id = agent;
        delete from bmc_credentials b where b.recipient = agent;
        update restore_replays w set done_at = clock_timestamp(), outcome = 'done'
        where w.epoch = p_epoch and w.kind = 'site_agent' and w.subject_id = agent;
        insert into audit (principal_kind, principal_id, action, subject, detail)
        values ('system', 'berth restore', 'site.revoke_agent', 'site-agents/' || agent,
                jsonb_build_object('reason', why, 'epoch', p_epoch));
        revoked := revoked + 1;
    end loop;
    return revoked;
end $$;
