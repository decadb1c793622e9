create or replace function postgres_leader_id() returns text language sql stable as $$
    select s.system_identifier::text || '-' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8)
    from pg_control_system() s
$$;
