-- Remove user data and SSH keys from an allocation whose cleanup is proven and from its tasks. The payload of a provisioning task
-- keeps its other members and gets the SHA-256 of the payload that was signed. The caller holds the allocation's lock.
create or replace function remove_login_data(p_allocation uuid) returns void language sql set enable_seqscan = off as $$
    update allocations set user_data = null, ssh_public_keys = '{}' where id = p_allocation;
    with signed as materialized (
        select t.id, decode(t.envelope ->> 'payload', 'base64') as payload from node_tasks t
        where t.allocation_id = p_allocation and t.type in ('slice.vm_provision', 'allocation.provision_user')
          and t.envelope ? 'payload' and not t.envelope ? 'payload_sha256'
    )
    update node_tasks t set envelope = t.envelope || jsonb_build_object(
        'payload', translate(encode(convert_to((convert_from(s.payload, 'UTF8')::jsonb
            #- '{parameters,user_data}' #- '{parameters,ssh_public_keys}')::text, 'UTF8'), 'base64'), E'\n', ''),
        'payload_sha256', encode(sha256(s.payload), 'hex'))
    from signed s where t.id = s.id;
$$;
