-- Write a tenant's fault report into the history of the hardware in its slots, in the same transaction. The evidence stays in the
-- report: it is the tenant's text, and is deleted with the report.
create or replace function note_fault_report() returns trigger language plpgsql as $$
begin
    perform note_hardware(new.node_id, new.slots, 'fault_reported', new.reported_by, 'reported: ' || new.symptom, null, new.id);
    return null;
end $$;
