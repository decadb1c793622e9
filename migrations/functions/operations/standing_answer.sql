-- The first response to the creation of an existing allocation or reservation, by its key.
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
