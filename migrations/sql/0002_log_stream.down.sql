drop function log_accept_timeline(bigint, bigint);
drop table log_stream;
