-- The canonical form of a row of the chain, over which its hash is computed: one text for one row, whatever the settings of the
-- session. Times are microseconds since 1970; the text form of a row quotes its members, so no two rows have the same one.
create or replace function audit_canonical(p_sequence bigint, p_recorded_at timestamptz, p_row audit_pending) returns text
language sql stable as $$
select row(p_sequence, (extract(epoch from p_recorded_at) * 1000000)::bigint, (p_row).id,
           (extract(epoch from (p_row).at) * 1000000)::bigint, (p_row).principal_kind, (p_row).principal_id, (p_row).role,
           (p_row).tenant_id, (p_row).source, (p_row).user_agent, (p_row).action, (p_row).subject, (p_row).status, (p_row).code,
           (p_row).operation_key, (p_row).request_id, (p_row).correlation_id, (p_row).detail)::text
$$;
