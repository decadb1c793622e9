-- Insert into the view `audit`, for statements that name few columns: those of parts of Berth that act without a request, and
-- of processes before revision 0016.
create or replace function audit_insert() returns trigger language plpgsql as $$
begin
    insert into audit_pending (at, principal_kind, principal_id, role, tenant_id, source, user_agent, action, subject, status,
                               code, operation_key, request_id, correlation_id, detail)
    values (coalesce(new.at, clock_timestamp()), new.principal_kind, new.principal_id, new.role, new.tenant_id, new.source,
            new.user_agent, new.action, new.subject, new.status, coalesce(new.code, 'ok'), new.operation_key, new.request_id,
            new.correlation_id, coalesce(new.detail, '{}'))
    returning id into new.id;
    return new;
end $$;
