-- Store the operations of a list of transactions with their answers. Raises 40001 if a key was used meanwhile.
create or replace function kv_store_operations(p_items jsonb, p_answers jsonb[]) returns void language plpgsql
set enable_seqscan = off as $$
declare
    missing bigint;
begin
    with stored as (
        insert into operations (scope, key, fingerprint, caller, status, code, body, subject_id, event_id, retire_after)
        select i.scope, i.key, decode(i.fingerprint, 'hex'), i.caller, 200, i.answer ->> 'outcome', (i.answer -> 'body')::text,
               (i.answer ->> 'event_id')::uuid, (i.answer ->> 'event_id')::uuid, clock_timestamp() + make_interval(secs => i.retention_seconds)
        from rows from (jsonb_to_recordset(p_items) as (scope uuid, key text, fingerprint text, caller jsonb, retention_seconds float8),
                        unnest(p_answers)) as i(scope, key, fingerprint, caller, retention_seconds, answer)
        where i.answer ->> 'outcome' in ('committed', 'not_committed')
        order by i.scope, i.key collate "C"
        on conflict do nothing returning 1
    )
    select (select count(*) from unnest(p_answers) t where t ->> 'outcome' in ('committed', 'not_committed')) - count(*)
    into missing from stored;
    if missing <> 0 then
        raise exception 'a key was used meanwhile' using errcode = '40001';
    end if;
end $$;
