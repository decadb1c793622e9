-- What the creation that was made under a key, and still stands, was told first.
create or replace function standing_answer(p_scope uuid, p_key text) returns jsonb language plpgsql stable set enable_seqscan = off as $$
declare
    stored record;
begin
    select s.fingerprint, s.status, s.body into stored from standing_creation(p_scope, p_key) s;
    if not found then
        return null;
    end if;
    return jsonb_build_object('outcome', 'existing', 'status', stored.status, 'body', stored.body,
                              'fingerprint', encode(stored.fingerprint, 'hex'));
end $$;
