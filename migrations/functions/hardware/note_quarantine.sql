-- Write the beginning and the end of a slot's quarantine into the history of its hardware, in the same transaction.
create or replace function note_quarantine() returns trigger language plpgsql as $$
begin
    if tg_op = 'INSERT' then
        perform note_hardware(
            new.node_id, array[new.slot_index], 'quarantined', new.quarantined_by, new.reason, new.evidence, new.id);
    elsif old.returned_at is null and new.returned_at is not null then
        perform note_hardware(new.node_id, array[new.slot_index], 'returned', new.returned_by, new.note, null, new.id);
    end if;
    return null;
end $$;
