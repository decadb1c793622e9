-- Refuse to move the anchor of the audit, unless to the last row of the recorded segment of the archive that begins behind it, with
-- the hash that the chain has there. The newest row stays, and so do rows that are younger than 30 days: a stolen
-- credential that may write segments cannot remove the record of its use. Rows that an enabled stream has not sent stay as well.
create or replace function require_segment() returns trigger language plpgsql as $$
begin
    if not exists (
        select from archive_segments s join audit_chain c on c.sequence = s.audit_last and c.hash = s.audit_hash
             cross join audit_head h
        where s.kind = 'audit' and s.audit_first = old.sequence + 1 and s.audit_last = new.sequence
          and s.audit_hash = new.hash and s.audit_last < h.sequence
          and c.recorded_at < clock_timestamp() - interval '30 days')
       or exists (select from audit_streams t where t.sequence < new.sequence)
    then
        raise exception 'no segment of the archive contains the rows % to % of the audit, or they must stay',
            old.sequence + 1, new.sequence using errcode = 'BB002', table = tg_table_name;
    end if;
    return new;
end $$;
