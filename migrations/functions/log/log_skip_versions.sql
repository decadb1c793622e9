-- Makes this Postgres, on its present timeline, the writer of the log, as an operator accepts it. `p_diverged` is the first version
-- whose event is not, or not for certain, the one published under that number (the head's + 1 if all are); `p_lost_through` the
-- highest published number, `p_spare` how many versions above it readers may have got from a feed without NATS. None of those
-- numbers is given to another event: one event `log.versions_skipped` replaces them, at the last of them, and what the log holds
-- from `p_diverged` on moves behind it, in its order. A stream that holds earlier versions cannot go on: it begins with that event
-- (`log_stream.skipped_to`). An epoch is opened, which moved events carry. Fences jump ahead of all that a node may have seen. Returns how many events moved, and how many versions
-- are skipped; nothing is skipped if nothing was published from `p_diverged` on and `p_spare` is 0.
create or replace function log_skip_versions(p_diverged bigint, p_lost_through bigint, p_spare bigint)
returns table (moved bigint, skipped bigint) language plpgsql security definer set search_path = public, pg_temp as $$
declare
    head  record;
    last  bigint;
    stamp text;
begin
    select version into head from log_head for update;
    if p_diverged < 1 or p_diverged > head.version + 1 then
        raise exception 'the log has no version % to diverge at; its head is %', p_diverged, head.version;
    end if;
    stamp := postgres_leader_id() || '-' || log_open_epoch();
    moved := 0;
    skipped := 0;
    if p_lost_through >= p_diverged or p_spare > 0 then
        last := greatest(p_lost_through, head.version) + p_spare;
        skipped := last - p_diverged + 1;
        -- Partitions from there on only: those of a jump over days would be thousands that stay empty.
        update log_head set version = last;
        perform log_extend(head.version + skipped + 1);
        create temp table moving on commit drop as select * from log where version >= p_diverged;
        delete from log where version >= p_diverged;
        insert into log (version, prev_version, outbox_id, event_id, event_type, occurred_at, correlation_id, subject,
                         leader_id, payload)
        values (last, p_diverged - 1, 0, uuidv7(), 'log.versions_skipped', clock_timestamp(), uuidv7(), 'log/' || last,
                stamp, jsonb_build_object('first', p_diverged, 'last', last));
        insert into log (version, prev_version, outbox_id, event_id, event_type, occurred_at, correlation_id, tenant_id,
                         subject, operation_key, request_id, leader_id, payload)
        select version + skipped, case when prev_version >= p_diverged then prev_version + skipped else prev_version end,
               outbox_id, event_id, event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id,
               stamp, payload
        from moving;
        get diagnostics moved = row_count;
        update log_tenants set version = version + skipped where version >= p_diverged;
        update log_stream set skipped_to = last;
        drop table moving;
    end if;
    update log_head set version = case when skipped = 0 then head.version else last + moved end, leader_id = postgres_leader_id(),
                        waits_for_standbys = current_setting('synchronous_standby_names') <> '';
    perform setval('fences', nextval('fences') + 1000000);
    return next;
end $$;
