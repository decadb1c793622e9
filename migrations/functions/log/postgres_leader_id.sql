-- This Postgres: its system identifier and its timeline. A promoted server names its new timeline at once; its control file has the
-- earlier one until the next checkpoint. On a standby it is the newest timeline that the standby is known to follow: a role that may
-- not read `pg_stat_wal_receiver` learns of a new one with the next restart point.
create or replace function postgres_leader_id() returns text language sql stable as $$
    select s.system_identifier::text || '-' || case
               when not pg_is_in_recovery() then substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
               else (select upper(lpad(to_hex(greatest(c.timeline_id, r.min_recovery_end_timeline, w.received_tli)), 8, '0'))
                     from pg_control_checkpoint() c, pg_control_recovery() r left join pg_stat_get_wal_receiver() w on true)
           end
    from pg_control_system() s
$$;
