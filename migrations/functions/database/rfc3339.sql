create or replace function rfc3339(p_time timestamptz) returns text language sql stable strict as $$
    select to_char(p_time at time zone 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
$$;
