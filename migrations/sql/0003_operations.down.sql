drop function standing_creation(uuid, text);
drop trigger reservations_emptied on reservations;
drop trigger resources_emptied on resources;
drop trigger operations_emptied on operations;
drop trigger reservations_gone on reservations;
drop trigger reservations_changed on reservations;
drop trigger reservations_added on reservations;
drop trigger resources_gone on resources;
drop trigger resources_added on resources;
drop trigger operations_gone on operations;
drop trigger operations_added on operations;
drop function forget_live_rows();
drop function count_reservations();
drop function count_resources();
drop function count_operations();
drop function gather_live_rows();
drop function room_left(text, bigint);
drop function count_live(text, bigint);
drop table live_rows;
delete from operations where fingerprint is null;
alter table operations
    drop constraint tombstone_is_fenced,
    drop column ending,
    alter column fingerprint set not null;
