-- The only transitions of a node's stored state (orchestrator/nodes/states.py).
create or replace function refuse_illegal_node_state() returns trigger language plpgsql as $$
begin
    if (old.state, new.state) not in (
        ('registered', 'active'), ('registered', 'cordoned'), ('registered', 'retired'),
        ('active', 'cordoned'), ('active', 'draining'), ('active', 'retired'),
        ('cordoned', 'active'), ('cordoned', 'draining'), ('cordoned', 'retired'),
        ('draining', 'active'), ('draining', 'retired')
    ) then
        raise exception 'node % cannot go from % to %', old.id, old.state, new.state
            using errcode = 'BT001', constraint = 'node_transition_legal';
    end if;
    return new;
end $$;
