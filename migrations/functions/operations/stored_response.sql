-- The response that is stored under a key, or that of the creation that was made under it; null: none.
create or replace function stored_response(p_scope uuid, p_key text) returns jsonb language plpgsql stable set enable_seqscan = off as $$
declare
    stored record;
begin
    select o.fingerprint, o.status, o.body into stored from operations o where o.scope = p_scope and o.key = p_key;
    if not found then
        return standing_answer(p_scope, p_key);
    end if;
    return jsonb_build_object('outcome', 'existing', 'status', stored.status, 'body', stored.body,
                              'fingerprint', encode(stored.fingerprint, 'hex'));
end $$;
