drop index log_starts;
drop table allocation_absences;
drop index tasks_expiring, one_live_task_of_orphan, tasks_by_orphan;
alter table node_tasks drop constraint task_for_one, drop column orphan_id;
drop table node_orphans;
alter table nodes drop constraint inventory_has_time, drop column inventory_after, drop column inventory;
