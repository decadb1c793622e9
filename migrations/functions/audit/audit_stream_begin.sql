-- Enable a stream of the audit, unless it is: it begins with the oldest row that is not archived. The lock of the anchor is
-- held until the commit, so that the rows behind it stay.
create or replace function audit_stream_begin(p_name text) returns void
language plpgsql security definer set search_path = public, pg_temp as $$
begin
    if exists (select from audit_streams s where s.name = p_name) then
        return;
    end if;
    perform from audit_anchor for share;
    insert into audit_streams (name, sequence) select p_name, a.sequence from audit_anchor a on conflict do nothing;
end $$;
