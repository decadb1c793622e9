-- Adopts sealed passwords of BMCs that were stored in the lost interval of the restore with this epoch, in the order in which they
-- were: one that a BMC had received is its present one, one that it may have received is tried beside the present one. Of BMCs that
-- the restored database has at the same site, with an older password; no copy of an agent that is retired. Returns how many. Raises BR001 if the restore is not open.
create or replace function restore_adopt_passwords(p_epoch uuid) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    left_   record;
    stored  record;
    adopts  boolean;
    adopted integer := 0;
begin
    perform restore_lock_open(p_epoch);
    for left_ in
        select w.* from restore_replays w
        where w.epoch = p_epoch and w.kind = 'bmc_password' and w.done_at is null order by w.version for update
    loop
        select * into stored from jsonb_to_record(left_.detail) as d (
            node_id uuid, site_id uuid, generation bigint, given boolean, sealed jsonb);
        perform from node_bmcs b
        where b.node_id = stored.node_id and b.site_id = stored.site_id and b.generation < stored.generation
        for no key update;
        adopts := found;
        if adopts then
            insert into bmc_credentials (node_id, generation, recipient, sealed)
            select stored.node_id, stored.generation, s.key::uuid, s.value from jsonb_each_text(stored.sealed) s
            where s.key::uuid = stored.site_id
               or exists (select from site_agents a where a.id = s.key::uuid and a.site_id = stored.site_id and a.state <> 'retired')
            on conflict (node_id, generation, recipient) do nothing;
            update node_bmcs b set
                generation = case when stored.given then stored.generation else b.generation end,
                pending_generation = case when not stored.given then stored.generation end,
                row_version = b.row_version + 1
            where b.node_id = stored.node_id;
            delete from bmc_credentials c using node_bmcs b
            where b.node_id = stored.node_id and c.node_id = b.node_id
              and c.generation not in (b.generation, coalesce(b.pending_generation, b.generation));
            insert into audit (principal_kind, principal_id, action, subject, detail)
            values ('system', 'berth restore', 'node.bmc_adopt_password', 'nodes/' || stored.node_id,
                    jsonb_build_object('generation', stored.generation, 'given', stored.given, 'restore', p_epoch));
            adopted := adopted + 1;
        end if;
        update restore_replays w set done_at = clock_timestamp(), outcome = case when adopts then 'done' else 'noop' end,
            detail = w.detail - 'sealed'
        where w.epoch = p_epoch and w.kind = 'bmc_password' and w.subject_id = left_.subject_id;
    end loop;
    return adopted;
end $$;
