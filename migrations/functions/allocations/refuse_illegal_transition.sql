-- The database refuses every transition that DESIGN §4 does not list, and every one that skips the guard.
create or replace function refuse_illegal_transition() returns trigger language plpgsql as $$
begin
    if (old.state, new.state) not in (
        ('requested', 'provisioning'), ('requested', 'failed'), ('requested', 'releasing'),
        ('provisioning', 'active'), ('provisioning', 'failed'), ('provisioning', 'releasing'),
        ('active', 'releasing'),
        ('releasing', 'released'), ('releasing', 'release_failed'),
        ('release_failed', 'releasing')
    ) then
        raise exception 'allocation % cannot go from % to %', old.id, old.state, new.state
            using errcode = 'BT001', constraint = 'allocation_transition_legal';
    end if;
    if new.row_version <> old.row_version + 1 then
        raise exception 'allocation % changed state without its guard', old.id
            using errcode = 'BT001', constraint = 'allocation_transition_guarded';
    end if;
    return new;
end $$;
