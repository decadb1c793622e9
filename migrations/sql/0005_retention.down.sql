drop function log_truncate(float8, bigint);
drop view log_cursors;
delete from consumer_positions where consumer = 'berth-relay';
drop table log_truncation;
drop table retention_policies;
