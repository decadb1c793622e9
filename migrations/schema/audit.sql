-- What operators did.

create table audit (
    id             bigint primary key generated always as identity,
    at             timestamptz not null default clock_timestamp(),
    principal_kind text not null,
    principal_id   text not null,
    action         text not null,
    subject        text not null,
    detail         jsonb not null default '{}',
    request_id     text
);
comment on table audit is 'One row for each action of an operator.';
comment on column audit.subject is 'Kind and id of the changed object, as in nodes/<id>.';
-- Page through the actions on a subject.
create index audit_by_subject on audit (subject, id);
