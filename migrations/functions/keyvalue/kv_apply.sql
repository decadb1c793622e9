-- Apply the operations of a transaction, without those that later ones overwrite: delete the ranges `p_ranges` (`[first, end)`),
-- then write or delete each of `p_puts` (`[key, value or null]`), all in base64. Return by how much keys and bytes grew.
create or replace function kv_apply(p_namespace uuid, p_mark bigint, p_event uuid, p_ranges jsonb, p_puts jsonb,
                         out keys bigint, out bytes bigint) language plpgsql set enable_seqscan = off as $$
declare
    one  record;
    gone bigint;
begin
    keys := 0;
    bytes := 0;
    for one in select decode(r ->> 0, 'base64') as lo, decode(r ->> 1, 'base64') as hi from jsonb_array_elements(p_ranges) r loop
        with emptied as (
            update kv_keys k set value = null, mark = p_mark, event_id = p_event
            where k.namespace = p_namespace and k.key >= one.lo and k.key < one.hi and k.value is not null
            returning octet_length(old.value) as size
        )
        select coalesce(sum(size), 0) into gone from emptied;
        bytes := bytes - gone;
    end loop;
    if jsonb_array_length(p_puts) > 0 then
        with given as materialized (
            select decode(p ->> 0, 'base64') as key, decode(p ->> 1, 'base64') as value from jsonb_array_elements(p_puts) p
        ), before as materialized (
            select g.key, g.value, k.key is not null as known, coalesce(octet_length(k.value), 0) as size
            from given g left join kv_keys k on k.namespace = p_namespace and k.key = g.key
        ), written as (
            insert into kv_keys (namespace, key, value, mark, event_id)
            select p_namespace, b.key, b.value, p_mark, p_event from before b where b.value is not null
            on conflict (namespace, key) do update
            set value = excluded.value, mark = excluded.mark, event_id = excluded.event_id
        ), emptied as (
            update kv_keys k set value = null, mark = p_mark, event_id = p_event
            from given g where g.value is null and k.namespace = p_namespace and k.key = g.key and k.value is not null
        )
        select keys + count(*) filter (where not b.known and b.value is not null),
               bytes + coalesce(sum(octet_length(b.key)) filter (where not b.known and b.value is not null), 0)
                     + coalesce(sum(octet_length(b.value)), 0) - coalesce(sum(b.size), 0)
        into keys, bytes from before b;
    end if;
end $$;
