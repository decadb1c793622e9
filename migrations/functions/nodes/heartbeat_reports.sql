-- The parameter of `note_heartbeats` as rows.
create or replace function heartbeat_reports(p_reports jsonb) returns table (
    node_id uuid, serial text, agent_version text, driver text, is_allowed boolean, is_sandbox boolean, features text[],
    key_set_serial bigint, key_set_refusal text, agent_run uuid, connects boolean, underlay inet, etag text,
    allocations jsonb, inventory jsonb, gathered_after timestamptz
) language sql immutable as $$
select * from jsonb_to_recordset(p_reports) as i (
    node_id uuid, serial text, agent_version text, driver text, is_allowed boolean, is_sandbox boolean, features text[],
    key_set_serial bigint, key_set_refusal text, agent_run uuid, connects boolean, underlay inet, etag text,
    allocations jsonb, inventory jsonb, gathered_after timestamptz)
$$;
