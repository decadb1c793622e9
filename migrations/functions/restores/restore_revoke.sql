-- Revokes again what was revoked in the lost interval of the restore with this epoch: API keys, with the webhooks that end with them;
-- all certificates that the restored database has of a node; members of tenants, with what they had invited; and invitations. A
-- member that joined again in the interval is invited again. Returns how many those are, each once. Deletes every unused enrolment
-- token of nodes too. Raises BR001 if the restore is not open.
create or replace function restore_revoke(p_epoch uuid) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    left_   record;
    audited text[];
    revoked integer := 0;
    why     constant text := 'revoked in the lost interval of a restore';
begin
    perform restore_lock_open(p_epoch);
    -- One that was used in the lost interval is unused here, and NATS does not say of every node that it enrolled.
    delete from enrolment_tokens t where t.used_at is null;
    for left_ in
        select w.kind, w.subject_id from restore_replays w
        where w.epoch = p_epoch and w.done_at is null and w.kind in ('api_key', 'certificates', 'member', 'invitation')
        order by w.kind, w.subject_id for update
    loop
        case left_.kind
            when 'api_key' then
                perform revoke_key(left_.subject_id);
                audited := array['api_key.revoke', 'api-keys/'];
            when 'certificates' then
                perform from nodes n where n.id = left_.subject_id for no key update;
                update certificate_requests q set refusal = why
                where q.node_id = left_.subject_id and q.serial is null and q.refusal is null;
                update node_certificates c set revoked_at = clock_timestamp(), revoked_reason = why
                where c.node_id = left_.subject_id and c.revoked_at is null;
                update nodes n set online = false, row_version = n.row_version + 1 where n.id = left_.subject_id and n.online;
                audited := array['node.revoke_certificates', 'nodes/'];
            when 'member' then
                update tenant_invitations i set revoked_at = clock_timestamp()
                where i.created_by = left_.subject_id::text and i.accepted_at is null and i.revoked_at is null;
                delete from tenant_members m where m.id = left_.subject_id;
                audited := array['member.remove', 'members/'];
            when 'invitation' then
                update tenant_invitations i set revoked_at = clock_timestamp()
                where i.id = left_.subject_id and i.accepted_at is null and i.revoked_at is null;
                audited := array['invitation.revoke', 'invitations/'];
        end case;
        update restore_replays w set done_at = clock_timestamp(), outcome = 'done'
        where w.epoch = p_epoch and w.kind = left_.kind and w.subject_id = left_.subject_id;
        insert into audit (principal_kind, principal_id, action, subject, detail)
        values ('system', 'berth restore', audited[1], audited[2] || left_.subject_id,
                jsonb_build_object('reason', why, 'epoch', p_epoch));
        revoked := revoked + 1;
    end loop;
    return revoked;
end $$;
