-- Write the audit row of an operation when it is concluded, whatever statement concludes it, so that no write is without one.
-- The caller is in the operation (`operations.caller`) or, for functions that conclude one operation, in the setting
-- `berth.caller`; without either the principal is `unknown`, as of processes before revision 0016. A subject without an id gets
-- that of the object that the operation made. `user` is the subject of the caller's token; the row has it in its detail.
create or replace function audit_operation() returns trigger language plpgsql as $$
declare
    caller constant jsonb := coalesce(new.caller, nullif(current_setting('berth.caller', true), '')::jsonb, '{}');
    subject text := coalesce(caller ->> 'subject', 'operations');
begin
    if new.subject_id is not null and position('/' in subject) = 0 then
        subject := subject || '/' || new.subject_id;
    end if;
    insert into audit_pending (at, principal_kind, principal_id, role, tenant_id, source, user_agent, action, subject, status, code,
                               operation_key, request_id, correlation_id, detail)
    values (coalesce((caller ->> 'at')::timestamptz, clock_timestamp()), coalesce(caller ->> 'kind', 'unknown'), coalesce(caller ->> 'id', new.scope::text), caller ->> 'role',
            (caller ->> 'tenant')::uuid, caller ->> 'source', caller ->> 'agent', coalesce(caller ->> 'action', 'unknown'),
            subject, new.status, coalesce(new.code, 'ok'), new.key, caller ->> 'request',
            (caller ->> 'correlation')::uuid, coalesce(caller -> 'detail', '{}')
            || case when caller ? 'user' then jsonb_build_object('user', caller -> 'user') else '{}' end);
    if tg_op = 'UPDATE' then
        new.caller := null;                                  -- it is in the audit row
    end if;
    return new;
end $$;
