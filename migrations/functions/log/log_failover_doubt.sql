-- Why this Postgres, which is not the accepted leader, may be something else than a standby that was promoted when the leader was
-- lost: the word for what is missing; null if nothing is. `unconfirmed`: the leader's commits waited for no standby. `timelines`: this
-- timeline does not follow the leader's. `targeted`: recovery was to end at a target, as that of a restore. `unstreamed`: what was
-- replayed last did not come from a primary by streaming, as with a restore or a copied data directory, or the server was restarted
-- since its promotion. A standby replays all that it has received before it is promoted, so both positions are the same then.
create or replace function log_failover_doubt() returns text language sql stable as $$
    select case
        when not h.waits_for_standbys then 'unconfirmed'
        when split_part(postgres_leader_id(), '-', 1) <> split_part(h.leader_id, '-', 1)
             or ('x' || split_part(postgres_leader_id(), '-', 2))::bit(32)::bigint
                <> ('x' || split_part(h.leader_id, '-', 2))::bit(32)::bigint + 1 then 'timelines'
        when concat(current_setting('recovery_target'), current_setting('recovery_target_lsn'),
                    current_setting('recovery_target_name'), current_setting('recovery_target_time'),
                    current_setting('recovery_target_xid')) <> '' then 'targeted'
        -- A receiver that never connected claims the beginning of a segment as received.
        when coalesce(pg_last_wal_receive_lsn() < pg_last_wal_replay_lsn()
                      or (pg_last_wal_receive_lsn() - '0/0') % pg_size_bytes(current_setting('wal_segment_size')) = 0, true)
             then 'unstreamed'
    end
    from log_head h
$$;
