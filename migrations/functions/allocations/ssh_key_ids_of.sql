-- Return the ids of those of the tenant's SSH keys whose public keys these are. A key that the tenant removed is left out.
create or replace function ssh_key_ids_of(p_tenant uuid, p_public_keys text[]) returns uuid[] language sql stable as $$
    select coalesce(array_agg(k.id order by k.id), '{}')
    from unnest(p_public_keys) as own(line) join ssh_keys k on k.public_key = own.line and k.tenant_id = p_tenant
$$;
