-- Events and messages that a consumer of the log could not handle and gave up on. One row for each place in the log and
-- consumer. The log keeps the event itself; this keeps why, how often, and what a person decided.

create table dead_letters (
    id           uuid primary key default uuidv7(),
    consumer     text not null check (length(consumer) between 1 and 100),
    version      bigint not null check (version > 0),          -- the message's stream sequence
    event_id     uuid,                                         -- null: the message could not be read
    event_type   text check (length(event_type) <= 100),
    reason       text not null check (reason in ('unreadable', 'stub', 'refused', 'handler_error')),
    detail       text not null check (length(detail) <= 1000),
    excerpt      text not null check (length(excerpt) <= 4000), -- how the message begins
    tries        integer not null check (tries > 0),
    state        text not null default 'dead' check (state in ('dead', 'retried', 'discarded')),
    first_at     timestamptz not null,
    last_at      timestamptz not null default clock_timestamp(),
    retry_asked_at timestamptz,                                -- a retry is due since then
    settled_at   timestamptz,
    row_version  bigint not null default 1,
    constraint dead_letter_once unique (consumer, version),
    constraint dead_letter_settled_has_time check ((state = 'dead') = (settled_at is null)),
    constraint dead_letter_settled_waits_for_nothing check (state = 'dead' or retry_asked_at is null)
);
create index dead_letters_dead on dead_letters (consumer, id) where state = 'dead';
create index dead_letters_due on dead_letters (consumer, retry_asked_at, id) where retry_asked_at is not null;
create index dead_letters_settled on dead_letters (settled_at) where settled_at is not null;
