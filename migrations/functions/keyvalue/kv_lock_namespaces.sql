-- Create the namespaces of a list of transactions where they are missing, and lock them in the order of their ids.
create or replace function kv_lock_namespaces(p_items jsonb) returns void language plpgsql set enable_seqscan = off as $$
begin
    insert into kv_namespaces (id)
    select distinct (i ->> 'namespace')::uuid from jsonb_array_elements(p_items) i
    where not exists (select from kv_namespaces n where n.id = (i ->> 'namespace')::uuid)
    order by 1 on conflict do nothing;
    perform from kv_namespaces n where n.id = any (select (i ->> 'namespace')::uuid from jsonb_array_elements(p_items) i)
    order by n.id for no key update;
end $$;
