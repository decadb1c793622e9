-- Adopts certificates that were issued to agents of sites in the lost interval of the restore with this epoch, by the rule of
-- `restore_adopt`: of the epoch that the restored database has of an agent, each behind a predecessor that is known and not revoked,
-- none of an agent that is retired, as those are that were revoked in the interval (`restore_revoke_agents`), or suspended. Returns
-- how many. Raises BR001 if the restore is not open.
create or replace function restore_adopt_agents(p_epoch uuid) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    left_   record;
    issued  record;
    adopts  boolean;
    adopted integer := 0;
begin
    perform restore_lock_open(p_epoch);
    for left_ in
        select w.* from restore_replays w
        where w.epoch = p_epoch and w.kind = 'adopt_agent' and w.done_at is null order by w.version for update
    loop
        select * into issued from jsonb_to_record(left_.detail) as d (
            agent_id uuid, epoch bigint, serial text, predecessor text, key_sha256 text, authority_key_sha256 text,
            not_before timestamptz, not_after timestamptz, pem text);
        perform from site_agents a
        where a.id = issued.agent_id and a.epoch = issued.epoch and a.state <> 'retired' and a.identity_conflict_at is null
          and case when issued.predecessor is null
                   then not exists (select from site_agent_certificates c where c.agent_id = a.id and c.agent_epoch = a.epoch)
                   else exists (select from site_agent_certificates c where c.serial = issued.predecessor and c.agent_id = a.id
                                and c.agent_epoch = a.epoch and c.revoked_at is null)
                    and not exists (select from site_agent_certificates s where s.predecessor = issued.predecessor) end
        for no key update;
        adopts := found;
        if adopts then
            insert into site_agent_certificates (serial, agent_id, agent_epoch, key_sha256, not_before, not_after, predecessor, pem,
                                                 authority_key_sha256)
            values (issued.serial, issued.agent_id, issued.epoch, decode(issued.key_sha256, 'hex'), issued.not_before,
                    issued.not_after, issued.predecessor, issued.pem, decode(issued.authority_key_sha256, 'hex'));
            update site_agent_certificate_requests q set serial = issued.serial
            where q.agent_id = issued.agent_id and q.agent_epoch = issued.epoch and q.serial is null and q.refusal is null
              and q.predecessor is not distinct from issued.predecessor and q.key_sha256 = decode(issued.key_sha256, 'hex');
            insert into audit (principal_kind, principal_id, action, subject, detail)
            values ('system', 'berth restore', 'site.adopt_certificate', 'site-agents/' || issued.agent_id,
                    jsonb_build_object('serial', issued.serial, 'restore', p_epoch));
            adopted := adopted + 1;
        end if;
        update restore_replays w set done_at = clock_timestamp(), outcome = case when adopts then 'done' else 'noop' end
        where w.epoch = p_epoch and w.kind = 'adopt_agent' and w.subject_id = left_.subject_id;
    end loop;
    return adopted;
end $$;
