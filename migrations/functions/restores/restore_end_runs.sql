-- Ends every run and task of a deploy system or a BMC that was open at the moment of the restore with this epoch: nothing goes on by
-- itself on a machine whose occupant is unknown since. No machine is touched. A task of an allocation waits for its run again.
-- Returns how many runs that are. Repeating it changes nothing. Raises BR001 if the restore is not open.
create or replace function restore_end_runs(p_epoch uuid) returns integer
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    why   constant text := 'restored: it was open at the moment that was restored to, and nothing was done about its machine since';
    ended integer;
begin
    perform restore_lock_open(p_epoch);
    update bmc_tasks set outcome = case when issued_at is null then 'failed' else 'unknown' end, failure = why,
        ended_at = clock_timestamp(), waits_for = null, waits_since = null, waits_until = null
    where ended_at is null;
    update deploy_systems set ended_at = clock_timestamp(), ended_by = 'revoked' where ended_at is null;
    update node_tasks set state = 'superseded', finished_at = clock_timestamp(),
        envelope = case when type in ('metal.deploy', 'metal.rescue') then '{}' else envelope end
    where deploy_epoch > 0 and state in ('queued', 'dispatched');
    update deploy_tasks set outcome = 'not_run', failure = why, ended_at = clock_timestamp(), waits_for = null, waits_since = null,
        waits_until = null, parameters = parameters - 'config_drive' - 'ssh_public_keys'
    where ended_at is null;
    with ended_ as (
        update deploy_runs set outcome = 'failed', failure = why || coalesce('; of allocation ' || allocation_id, ''),
            ended_at = clock_timestamp(), waits_for = null, waits_since = null, waits_until = null,
            parameters = parameters - 'config_drive' - 'ssh_public_keys', task_id = null, allocation_id = null, claim_id = null
        where ended_at is null returning *
    ), sent as (
        insert into outbox (event_type, occurred_at, correlation_id, tenant_id, subject, payload)
        select 'node.deploy_run_ended', e.ended_at, p_epoch, null, 'nodes/' || e.node_id,
               jsonb_build_object('node_id', e.node_id, 'deploy_run_id', e.id, 'kind', e.kind, 'outcome', e.outcome,
                                  'failure', e.failure)
        from ended_ e order by e.id
    )
    select count(*) into ended from ended_;
    return ended;
end $$;
