drop function log_sequence(integer);
drop table log_first;
