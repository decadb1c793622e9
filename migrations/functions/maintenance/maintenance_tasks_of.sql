-- What a maintenance window runs, one task for all of its nodes, and what became of it on each. A page of windows leaves out
-- the evidence.
create or replace function maintenance_tasks_of(p_window uuid, p_evidence boolean, out task jsonb, out tasks jsonb)
language sql stable as $$
    select (array_agg(jsonb_build_object('kind', k.kind, 'plugin', k.plugin, 'timeout_seconds', k.seconds_max,
                                             'firmware', k.firmware)))[1],
           coalesce(jsonb_agg(jsonb_build_object(
               'node_id', k.node_id, 'state', k.state, 'begun_at', k.begun_at, 'ended_at', k.ended_at, 'failure', k.failure,
               'evidence', case when p_evidence then k.evidence end, 'waits_for', k.waits_for, 'waits_since', k.waits_since,
               'waits_until', k.waits_until) order by k.node_id), '[]')
    from maintenance_tasks k where k.window_id = p_window
$$;
