-- Delete the rows of the audit that a recorded segment of the archive contains, and return how many. Its last row becomes the anchor
-- that the chain continues. Triggers refuse (BB002) any other rows, the newest one and those of the last 30 days.
create or replace function audit_forget(p_segment bigint) returns bigint
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    segment record;
    removed bigint;
begin
    select s.audit_first, s.audit_last, s.audit_hash into segment from archive_segments s
    where s.sequence = p_segment and s.kind = 'audit';
    if not found then
        raise exception 'segment % of the archive contains no rows of the audit', p_segment
            using errcode = 'BB002', table = 'audit_chain';
    end if;
    update audit_anchor set sequence = segment.audit_last, hash = segment.audit_hash;
    delete from audit_chain where sequence between segment.audit_first and segment.audit_last;
    get diagnostics removed = row_count;
    if removed <> segment.audit_last - segment.audit_first + 1 then
        raise exception 'the audit has % of the rows % to %', removed, segment.audit_first, segment.audit_last
            using errcode = 'BB002', table = 'audit_chain';
    end if;
    return removed;
end $$;
