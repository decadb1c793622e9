-- Which of `p_preconditions` (places in the list, from 0) are not satisfied in a locked namespace; `lo` is inclusive, `hi`
-- exclusive, in base64. A version that this leader did not issue in this epoch, or that is not kept any more, satisfies nothing; rows
-- of before revision 0072 have no epoch (nine characters less).
create or replace function kv_conflicts(p_namespace uuid, p_last_mark bigint, p_leader text, p_preconditions jsonb)
returns integer[] language plpgsql set enable_seqscan = off as $$
declare
    found_    integer[] := '{}';
    since     record;
    first_    record;
    one       record;
    waiting   boolean;
    bound     bigint;
    touched   boolean;
begin
    -- Before the log is read: an event that is sequenced in between is found in the log.
    waiting := exists (select from outbox o where o.id = p_last_mark);
    for since in
        select p.version, array_agg((p.n - 1)::integer order by p.n) as places
        from rows from (jsonb_to_recordset(p_preconditions) as (version bigint, lo text, hi text, point boolean))
             with ordinality as p(version, lo, hi, point, n)
        group by p.version
    loop
        -- One statement, so that a truncation between two reads hides no version.
        select case when since.version = 0 then (select f.version = 1 from log_first f)
                    else exists (select from log l where l.version = since.version and l.leader_id in (p_leader, left(p_leader, -9))
                                 and l.event_type not in ('log.version_lost', 'log.versions_skipped')) end as known,
               (select l.outbox_id from log l
                where coalesce(l.tenant_id, '00000000-0000-0000-0000-000000000000') = p_namespace
                  and l.event_type = 'transaction' and l.version > since.version
                order by l.version limit 1) as mark
        into first_;
        if not first_.known then
            found_ := found_ || since.places;
            continue;
        end if;
        bound := first_.mark;
        if bound is null and not waiting then
            continue;                                        -- nothing at all has changed since
        end if;
        for one in
            select n, decode(p_preconditions -> n ->> 'lo', 'base64') as lo, decode(p_preconditions -> n ->> 'hi', 'base64') as hi,
                   (p_preconditions -> n ->> 'point')::boolean as point
            from unnest(since.places) n
        loop
            if bound is null then
                -- One snapshot for both: what changed is either still waiting for its version or has a newer one.
                touched := exists (
                    select from kv_keys k where k.namespace = p_namespace and k.key >= one.lo and k.key < one.hi
                    and (exists (select from outbox o where o.id = k.mark)
                         or exists (select from log l where l.event_id = k.event_id and l.version > since.version)));
            elsif one.point then
                touched := exists (select from kv_keys k
                                   where k.namespace = p_namespace and k.key = one.lo and k.mark >= bound);
            else
                -- Planned for these values: a wide range is looked up by what is new in it, a narrow one by its keys.
                execute 'select exists (select from kv_keys k where k.namespace = $1 and k.key >= $2 and k.key < $3
                                        and k.mark >= $4)'
                into touched using p_namespace, one.lo, one.hi, bound;
            end if;
            if touched then
                found_ := found_ || one.n;
            end if;
        end loop;
    end loop;
    return (select coalesce(array_agg(n order by n), '{}') from unnest(found_) n);
end $$;
