-- Makes this Postgres, on its present timeline, the writer of the log. `p_diverged` is the first version whose event is not,
-- or not for certain, the one published under that number (the head's + 1 if all are); `p_lost_through` the highest
-- published number. Those numbers are never given to another event: `log.version_lost` takes their places, and what the log
-- holds from `p_diverged` on moves behind them, in its order. None of it is published yet, as the relay does not publish on
-- a timeline that is not accepted. Fences jump ahead of all that a node may have seen. Returns how many events moved and
-- how many places were lost. Repeating it changes nothing but the fences.
create or replace function log_accept_timeline(p_diverged bigint, p_lost_through bigint)
returns table (moved bigint, lost bigint) language plpgsql security definer set search_path = public, pg_temp as $$
declare
    head  record;
    shift bigint;
    stamp text;
begin
    select version into head from log_head for update;
    if p_diverged < 1 or p_diverged > head.version + 1 then
        raise exception 'the log has no version % to diverge at; its head is %', p_diverged, head.version;
    end if;
    shift := greatest(0, p_lost_through - p_diverged + 1);
    stamp := postgres_leader_id() || '-' || log_open_epoch();
    moved := 0;
    lost := shift;
    if shift > 0 then
        perform log_extend(head.version + shift);
        create temp table moving on commit drop as select * from log where version >= p_diverged;
        delete from log where version >= p_diverged;
        insert into log (version, prev_version, outbox_id, event_id, event_type, occurred_at, correlation_id, tenant_id,
                         subject, operation_key, request_id, leader_id, payload)
        select version + shift, case when prev_version >= p_diverged then prev_version + shift else prev_version end,
               outbox_id, event_id, event_type, occurred_at, correlation_id, tenant_id, subject, operation_key, request_id,
               stamp, payload
        from moving;
        get diagnostics moved = row_count;
        insert into log (version, prev_version, outbox_id, event_id, event_type, occurred_at, correlation_id, subject,
                         leader_id, payload)
        select n, 0, 0, uuidv7(), 'log.version_lost', clock_timestamp(), uuidv7(), 'log/' || n, stamp,
               jsonb_build_object('reason', 'timeline')
        from generate_series(p_diverged, p_diverged + shift - 1) n;
        update log_tenants set version = version + shift where version >= p_diverged;
        drop table moving;
    end if;
    update log_head set version = head.version + shift, leader_id = postgres_leader_id();
    perform setval('fences', nextval('fences') + 1000000);
    return next;
end $$;
