-- Notes ends and revocations of the lost interval, `p_ends` (kind, subject_id, version, ended_at, detail), whose object exists here
-- and has not ended: they are replayed; certificates that were issued to nodes and agents of sites which have the same epoch
-- here; and passwords of BMCs that are older here. Returns kind and id of those. The first event that ended an object counts; a repetition changes nothing. Raises BR001 if the restore with this epoch is not open.
create or replace function restore_note_ends(p_epoch uuid, p_ends jsonb) returns table (kind text, subject_id uuid)
language plpgsql security definer set search_path = public, pg_temp as $$
#variable_conflict use_column
begin
    perform restore_lock_open(p_epoch);
    return query
    with named as (
        select distinct on (e.kind, e.subject_id) e.*
        from jsonb_to_recordset(p_ends) as e (kind text, subject_id uuid, version bigint, ended_at timestamptz, detail jsonb)
        order by e.kind, e.subject_id, e.version
    ), here as (
        select n.* from named n where case n.kind
            when 'release' then exists (select from allocations a where a.id = n.subject_id
                                        and a.state in ('requested', 'provisioning', 'active', 'release_failed'))
            when 'cancel' then exists (select from reservations r where r.id = n.subject_id and r.state in ('hold', 'confirmed'))
            when 'api_key' then exists (select from api_keys k where k.id = n.subject_id and k.revoked_at is null)
            when 'certificates' then exists (select from node_certificates c where c.node_id = n.subject_id and c.revoked_at is null)
            when 'adopt' then exists (select from nodes x where x.id = (n.detail ->> 'node_id')::uuid
                                      and x.epoch = (n.detail ->> 'epoch')::bigint)
            when 'site_agent' then exists (select from site_agents g where g.id = n.subject_id and g.state <> 'retired')
            when 'adopt_agent' then exists (select from site_agents g where g.id = (n.detail ->> 'agent_id')::uuid
                                            and g.epoch = (n.detail ->> 'epoch')::bigint)
            when 'bmc_password' then exists (select from node_bmcs b where b.node_id = (n.detail ->> 'node_id')::uuid
                                             and b.site_id = (n.detail ->> 'site_id')::uuid
                                             and b.generation < (n.detail ->> 'generation')::bigint)
            when 'member' then exists (select from tenant_members m where m.id = n.subject_id)
            when 'invitation' then exists (select from tenant_invitations i where i.id = n.subject_id
                                           and num_nonnulls(i.accepted_at, i.revoked_at) = 0)
            else false end
    ), noted as (
        insert into restore_replays as w (epoch, kind, subject_id, version, ended_at, detail)
        select p_epoch, h.kind, h.subject_id, h.version, h.ended_at, h.detail from here h order by h.kind, h.subject_id
        on conflict (epoch, kind, subject_id) do nothing
    )
    select h.kind, h.subject_id from here h order by h.kind, h.subject_id;
end $$;
