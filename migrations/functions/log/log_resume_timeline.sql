-- Makes this Postgres, on its present timeline, the writer of the log if its continuity is proven, and returns null; otherwise
-- changes nothing and returns the word for what is missing. `p_version` is the stream's last sequence (0: nothing is published)
-- and `p_event_id` the event that it holds there. Proven is: the same database system, the same event at that version, and
-- quorum commit, under which no acknowledged commit is lost by the promotion of a standby. No version is given
-- twice, so nothing moves. An epoch is opened, and fences jump, as when an operator accepts a timeline. Idempotent.
create or replace function log_resume_timeline(p_version bigint, p_event_id text) returns text
language plpgsql security definer set search_path = public, pg_temp as $$
declare
    head record;
    here text := postgres_leader_id();
begin
    -- Without a lock: a refusal then writes nothing, so it needs no standby that confirms it.
    select version, leader_id into head from log_head;
    if head.leader_id = here then
        return null;
    end if;
    if split_part(head.leader_id, '-', 1) <> split_part(here, '-', 1) then
        return 'system';
    elsif current_setting('synchronous_standby_names') = '' then
        return 'asynchronous';
    elsif p_version > head.version then
        return 'behind';
    elsif p_version > 0 and not exists (select from log where version = p_version and event_id::text = p_event_id) then
        return 'differs';
    end if;
    update log_head set leader_id = here, waits_for_standbys = true where leader_id = head.leader_id;
    if not found then
        return null;
    end if;
    perform log_open_epoch();
    perform setval('fences', nextval('fences') + 1000000);
    insert into audit (principal_kind, principal_id, action, subject, detail)
    values ('system', 'relay', 'events.resume_timeline', 'log',
            jsonb_build_object('was', head.leader_id, 'now', here, 'version', p_version));
    return null;
end $$;
