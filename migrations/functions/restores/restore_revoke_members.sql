-- Removes again members that were removed in the lost interval of the restore with this epoch, with what they had invited, and ends
-- invitations that were revoked in it. One that became a member again in the interval is invited again. Returns how many
-- members and invitations that are, each once. Raises BR001 if the restore is not open.
create or replace function restore_revoke_members(p_epoch uuid) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    left_   record;
    revoked integer := 0;
    why     constant text := 'ended in the lost interval of a restore';
begin
    perform restore_lock_open(p_epoch);
    for left_ in
        select w.kind, w.subject_id from restore_replays w
        where w.epoch = p_epoch and w.done_at is null and w.kind in ('member', 'invitation') order by w.kind, w.subject_id for update
    loop
        if left_.kind = 'member' then
            update tenant_invitations i set revoked_at = clock_timestamp()
            where i.created_by = left_.subject_id::text and i.accepted_at is null and i.revoked_at is null;
            delete from tenant_members m where m.id = left_.subject_id;
        else
            update tenant_invitations i set revoked_at = clock_timestamp()
            where i.id = left_.subject_id and i.accepted_at is null and i.revoked_at is null;
        end if;
        update restore_replays w set done_at = clock_timestamp(), outcome = 'done'
        where w.epoch = p_epoch and w.kind = left_.kind and w.subject_id = left_.subject_id;
        insert into audit (principal_kind, principal_id, action, subject, detail)
        values ('system', 'berth restore', case left_.kind when 'member' then 'member.remove' else 'invitation.revoke' end,
                left_.kind || 's/' || left_.subject_id, jsonb_build_object('reason', why, 'epoch', p_epoch));
        revoked := revoked + 1;
    end loop;
    return revoked;
end $$;
