-- Adopts certificates that were issued in the lost interval of the restore with this epoch: those of the epoch that the restored
-- database has of a node, in the order of their issuance, each behind a predecessor that is known and not revoked. None of a node
-- that is retired or suspended, or whose certificates were revoked in the interval. Returns how many. Raises BR001 if the restore is
-- not open.
create or replace function restore_adopt(p_epoch uuid) returns integer
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
        where w.epoch = p_epoch and w.kind = 'adopt' and w.done_at is null order by w.version for update
    loop
        select * into issued from jsonb_to_record(left_.detail) as d (
            node_id uuid, epoch bigint, serial text, predecessor text, key_sha256 text, authority_key_sha256 text,
            not_before timestamptz, not_after timestamptz, pem text);
        perform from nodes n
        where n.id = issued.node_id and n.epoch = issued.epoch and n.state <> 'retired' and n.identity_conflict_at is null
          and not exists (select from restore_replays v
                          where v.epoch = p_epoch and v.kind = 'certificates' and v.subject_id = n.id)
          and case when issued.predecessor is null
                   then not exists (select from node_certificates c where c.node_id = n.id and c.node_epoch = n.epoch)
                   else exists (select from node_certificates c where c.serial = issued.predecessor and c.node_id = n.id
                                and c.node_epoch = n.epoch and c.revoked_at is null)
                    and not exists (select from node_certificates s where s.predecessor = issued.predecessor) end
        for no key update;
        adopts := found;
        if adopts then
            insert into node_certificates (serial, node_id, node_epoch, key_sha256, not_before, not_after, predecessor, pem,
                                           authority_key_sha256)
            values (issued.serial, issued.node_id, issued.epoch, decode(issued.key_sha256, 'hex'), issued.not_before,
                    issued.not_after, issued.predecessor, issued.pem, decode(issued.authority_key_sha256, 'hex'));
            update certificate_requests q set serial = issued.serial
            where q.node_id = issued.node_id and q.node_epoch = issued.epoch and q.serial is null and q.refusal is null
              and q.predecessor is not distinct from issued.predecessor and q.key_sha256 = decode(issued.key_sha256, 'hex');
            insert into audit (principal_kind, principal_id, action, subject, detail)
            values ('system', 'berth restore', 'node.adopt_certificate', 'nodes/' || issued.node_id,
                    jsonb_build_object('serial', issued.serial, 'restore', p_epoch));
            adopted := adopted + 1;
        end if;
        update restore_replays w set done_at = clock_timestamp(), outcome = case when adopts then 'done' else 'noop' end
        where w.epoch = p_epoch and w.kind = 'adopt' and w.subject_id = left_.subject_id;
    end loop;
    return adopted;
end $$;
