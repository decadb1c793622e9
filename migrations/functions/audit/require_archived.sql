-- Refuse to delete rows of `audit_chain` that are behind the anchor: only those up to it are in a recorded segment of the archive.
create or replace function require_archived() returns trigger language plpgsql as $$
begin
    if exists (select from gone g where g.sequence > coalesce((select a.sequence from audit_anchor a), 0)) then
        raise exception 'delete of % is refused: its rows are not in the archive', tg_table_name
            using errcode = 'BB002', table = tg_table_name;
    end if;
    return null;
end $$;
