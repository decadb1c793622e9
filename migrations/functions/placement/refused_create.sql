-- The outcome of a create that `place_together` does not place: an item of `judge_creates` with its refusal, null where no node
-- fits. `p_pending`: the GPUs that the list has placed for its tenant.
create or replace function refused_create(p_item record, p_pending integer) returns jsonb language plpgsql stable as $$
begin
    return jsonb_build_object('n', p_item.n, 'outcome', coalesce(p_item.refusal, 'no_room')) || case p_item.refusal
        when 'existing' then jsonb_build_object('status', p_item.status, 'body', p_item.body,
                                                'fingerprint', encode(p_item.fingerprint, 'hex'))
        when 'quota' then jsonb_build_object('gpus_limit', p_item.gpus_limit, 'gpus_used', p_item.gpus_used + p_pending)
        else '{}' end;
end $$;
