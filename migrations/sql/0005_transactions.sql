-- Keys and values of tenants, and of the operators together, as their transactions left them (DESIGN §7, docs/kv.md).
--
-- Commits of one namespace go one at a time: whoever holds the namespace's row judges its preconditions and writes. The
-- mark of a key is the outbox id of the transaction that changed it last; as it is drawn under that lock, marks rise in the
-- order of the namespace's commits, which is the order of their versions in the log. So "changed since version V" is asked
-- of marks, also while the version of a change is not known yet: such a change is newer than any version ever told.
-- Lock order: namespaces by id, then operation keys. Who waits for a namespace holds no key, so nobody waits in a circle.

create table kv_namespaces (
    id        uuid primary key,                              -- the tenant; the nil UUID: the operators
    keys      bigint not null default 0 constraint keys_counted check (keys >= 0),   -- rows of kv_keys
    bytes     bigint not null default 0 constraint bytes_counted check (bytes >= 0), -- of their keys and values
    last_mark bigint not null default 0                      -- of its newest transaction
) with (fillfactor = 50);

create table kv_keys (
    namespace uuid not null,
    key       bytea not null constraint key_bounded check (octet_length(key) between 1 and 2048),
    value     bytea,                                         -- null: deleted; kept for preconditions to be judged by
    mark      bigint not null,
    event_id  uuid not null,                                 -- the transaction's, in the log
    constraint kv_key primary key (namespace, key)
);
create index kv_keys_by_mark on kv_keys (namespace, mark);
create index kv_keys_deleted on kv_keys (mark) where value is null;

create index log_transactions on log (coalesce(tenant_id, '00000000-0000-0000-0000-000000000000'), version)
    where event_type = 'transaction';
create index log_transaction_keys on log (operation_key) where event_type = 'transaction';

-- Raises BL001 while this Postgres is another one than the log is written by: versions that it would tell could be moved.
create function require_accepted_leader(p_leader text) returns void language plpgsql stable as $$
begin
    if p_leader <> postgres_leader_id() then
        raise exception 'nobody has accepted this Postgres as the one that the log is written by' using errcode = 'BL001';
    end if;
end $$;

-- Which of `p_preconditions` (places in the list, from 0) are not satisfied in a locked namespace; `lo` is inclusive, `hi`
-- exclusive, in base64. A version that this leader did not issue, or that is not kept any more, satisfies nothing.
create function kv_conflicts(p_namespace uuid, p_last_mark bigint, p_leader text, p_preconditions jsonb)
returns integer[] language plpgsql set enable_seqscan = off as $$
declare
    found_    integer[] := '{}';
    since     record;
    first_    record;
    one       record;
    waiting   boolean;
    bound     bigint;
    touched   boolean;
begin
    -- Before the log is looked at: what is sequenced in between is found there.
    waiting := exists (select from outbox o where o.id = p_last_mark);
    for since in
        select p.version, array_agg((p.n - 1)::integer order by p.n) as places
        from rows from (jsonb_to_recordset(p_preconditions) as (version bigint, lo text, hi text, point boolean))
             with ordinality as p(version, lo, hi, point, n)
        group by p.version
    loop
        -- In one statement: what is truncated meanwhile is not missed between two.
        select case when since.version = 0 then (select f.version = 1 from log_first f)
                    else exists (select from log l where l.version = since.version and l.leader_id = p_leader
                                 and l.event_type <> 'log.version_lost') end as known,
               (select l.outbox_id from log l
                where coalesce(l.tenant_id, '00000000-0000-0000-0000-000000000000') = p_namespace
                  and l.event_type = 'transaction' and l.version > since.version
                order by l.version limit 1) as mark
        into first_;
        if not first_.known then
            found_ := found_ || since.places;
            continue;
        end if;
        bound := first_.mark;
        if bound is null and not waiting then
            continue;                                        -- nothing at all has changed since
        end if;
        for one in
            select n, decode(p_preconditions -> n ->> 'lo', 'base64') as lo, decode(p_preconditions -> n ->> 'hi', 'base64') as hi,
                   (p_preconditions -> n ->> 'point')::boolean as point
            from unnest(since.places) n
        loop
            if bound is null then
                -- One snapshot for both: what changed is either still waiting for its version or has a newer one.
                touched := exists (
                    select from kv_keys k where k.namespace = p_namespace and k.key >= one.lo and k.key < one.hi
                    and (exists (select from outbox o where o.id = k.mark)
                         or exists (select from log l where l.event_id = k.event_id and l.version > since.version)));
            elsif one.point then
                touched := exists (select from kv_keys k
                                   where k.namespace = p_namespace and k.key = one.lo and k.mark >= bound);
            else
                -- Planned for these values: a wide range is looked up by what is new in it, a narrow one by its keys.
                execute 'select exists (select from kv_keys k where k.namespace = $1 and k.key >= $2 and k.key < $3
                                        and k.mark >= $4)'
                into touched using p_namespace, one.lo, one.hi, bound;
            end if;
            if touched then
                found_ := found_ || one.n;
            end if;
        end loop;
    end loop;
    return (select coalesce(array_agg(n order by n), '{}') from unnest(found_) n);
end $$;

-- Writes what is left of a transaction's operations when those that later ones overwrite are left out: `ranges` are deleted,
-- then each of `puts` (`[key, value or null]`, in base64) is written or deleted. Answers by how much rows and bytes grew.
create function kv_apply(p_namespace uuid, p_mark bigint, p_event uuid, p_ranges jsonb, p_puts jsonb,
                         out keys bigint, out bytes bigint) language plpgsql set enable_seqscan = off as $$
declare
    one  record;
    gone bigint;
begin
    keys := 0;
    bytes := 0;
    for one in select decode(r ->> 0, 'base64') as lo, decode(r ->> 1, 'base64') as hi from jsonb_array_elements(p_ranges) r loop
        with emptied as (
            update kv_keys k set value = null, mark = p_mark, event_id = p_event
            where k.namespace = p_namespace and k.key >= one.lo and k.key < one.hi and k.value is not null
            returning octet_length(old.value) as size
        )
        select coalesce(sum(size), 0) into gone from emptied;
        bytes := bytes - gone;
    end loop;
    if jsonb_array_length(p_puts) > 0 then
        with given as materialized (
            select decode(p ->> 0, 'base64') as key, decode(p ->> 1, 'base64') as value from jsonb_array_elements(p_puts) p
        ), before as materialized (
            select g.key, g.value, k.key is not null as known, coalesce(octet_length(k.value), 0) as size
            from given g left join kv_keys k on k.namespace = p_namespace and k.key = g.key
        ), written as (
            insert into kv_keys (namespace, key, value, mark, event_id)
            select p_namespace, b.key, b.value, p_mark, p_event from before b where b.value is not null
            on conflict (namespace, key) do update
            set value = excluded.value, mark = excluded.mark, event_id = excluded.event_id
        ), emptied as (
            update kv_keys k set value = null, mark = p_mark, event_id = p_event
            from given g where g.value is null and k.namespace = p_namespace and k.key = g.key and k.value is not null
        )
        select keys + count(*) filter (where not b.known and b.value is not null),
               bytes + coalesce(sum(octet_length(b.key)) filter (where not b.known and b.value is not null), 0)
                     + coalesce(sum(octet_length(b.value)), 0) - coalesce(sum(b.size), 0)
        into keys, bytes from before b;
    end if;
end $$;

-- What the key of a commit was told before, if it was.
create function kv_told_before(p_scope uuid, p_key text) returns jsonb language plpgsql set enable_seqscan = off as $$
declare
    stored record;
begin
    select o.fingerprint, o.status, o.body, o.subject_id into stored from operations o where o.scope = p_scope and o.key = p_key;
    if not found then
        return standing_answer(p_scope, p_key);
    end if;
    return jsonb_build_object('outcome', 'existing', 'status', stored.status, 'body', stored.body,
                              'event_id', stored.subject_id, 'fingerprint', encode(stored.fingerprint, 'hex'));
end $$;

-- Judges and applies a list of transactions, in its order within each namespace, and answers in its order, each with
-- `outcome`: committed, not_committed (body, event_id), with which everything is written, the operation included;
-- existing (status, body, fingerprint, event_id): its key was used before; version_in_future (head): it names a version that
-- nobody was told; full (keys, bytes): the namespace could come to pass its bounds, so it is for its caller to repeat alone.
-- `head` is a version that is older than whatever this writes. Raises BL001 as above, BK001 where a bound of a namespace is
-- passed, 40001 where a key was used meanwhile, and BO001 where there is no room for another operation.
create function kv_commit(p_items jsonb, out head bigint, out answers jsonb) language plpgsql set enable_seqscan = off as $$
declare
    nobody  constant uuid := '00000000-0000-0000-0000-000000000000';
    leader  text;
    item    record;
    space   record;
    told    jsonb;
    told_   jsonb[] := array_fill(null::jsonb, array[jsonb_array_length(p_items)]);
    missed  integer[];
    event   uuid;
    mark_   bigint;
    change  record;
    wanted  bigint;
begin
    insert into kv_namespaces (id)
    select distinct (i ->> 'namespace')::uuid from jsonb_array_elements(p_items) i
    where not exists (select from kv_namespaces n where n.id = (i ->> 'namespace')::uuid)
    order by 1 on conflict do nothing;
    perform from kv_namespaces n where n.id = any (select (i ->> 'namespace')::uuid from jsonb_array_elements(p_items) i)
    order by n.id for no key update;
    select h.version, h.leader_id into head, leader from log_head h;
    perform require_accepted_leader(leader);

    for item in
        select * from rows from (jsonb_to_recordset(p_items) as (scope uuid, key text, fingerprint text, request_id text,
                correlation_id uuid, namespace uuid, leader_id text, version_max bigint, preconditions jsonb, conflicts jsonb,
                ranges jsonb, puts jsonb, put_bytes bigint, payload jsonb, keys_max bigint, bytes_max bigint, alone boolean))
            with ordinality as i(scope, key, fingerprint, request_id, correlation_id, namespace, leader_id, version_max,
                preconditions, conflicts, ranges, puts, put_bytes, payload, keys_max, bytes_max, alone, n)
        order by i.namespace, i.n
    loop
        told := kv_told_before(item.scope, item.key);
        if told is null and item.version_max > head then
            told := jsonb_build_object('outcome', 'version_in_future', 'head', head);
        end if;
        if told is null then
            select * into space from kv_namespaces n where n.id = item.namespace;
            event := uuidv7();
            if item.leader_id is not null and item.leader_id <> leader then
                missed := '{}';
            elsif jsonb_array_length(item.preconditions) > 0 then
                missed := kv_conflicts(item.namespace, space.last_mark, leader, item.preconditions);
                if cardinality(missed) = 0 then
                    missed := null;
                end if;
            else
                missed := null;
            end if;
            if missed is not null then
                insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
                values (event, 'operation.refused', item.correlation_id, nullif(item.namespace, nobody),
                    'operations/' || md5(item.scope || ' ' || item.key), item.key, item.request_id,
                    jsonb_build_object('code', 'not_committed', 'status', 200, 'reason', null,
                                       'judged_at', rfc3339(clock_timestamp())));
                told := jsonb_build_object('outcome', 'not_committed', 'event_id', event, 'body', jsonb_build_object(
                    'status', 'not_committed', 'request_id', item.key, 'conflicts',
                    (select coalesce(jsonb_agg(item.conflicts -> m order by m), '[]') from unnest(missed) m)));
            elsif not item.alone and (space.keys + jsonb_array_length(item.puts) > item.keys_max
                                      or space.bytes + item.put_bytes > item.bytes_max) then
                told := '{"outcome": "full"}';
            else
                insert into outbox (event_id, event_type, correlation_id, tenant_id, subject, operation_key, request_id, payload)
                values (event, 'transaction', item.correlation_id, nullif(item.namespace, nobody),
                    'namespaces/' || item.namespace, item.key, item.request_id,
                    item.payload || jsonb_build_object('judged_at', rfc3339(clock_timestamp())))
                returning id into mark_;
                select * into change from kv_apply(item.namespace, mark_, event, item.ranges, item.puts);
                update kv_namespaces n set keys = n.keys + change.keys, bytes = n.bytes + change.bytes, last_mark = mark_
                where n.id = item.namespace;
                -- What only takes away is never refused.
                if change.keys > 0 and space.keys + change.keys > item.keys_max
                   or change.bytes > 0 and space.bytes + change.bytes > item.bytes_max then
                    raise exception 'the namespace is full' using errcode = 'BK001';
                end if;
                told := jsonb_build_object('outcome', 'committed', 'event_id', event, 'body', jsonb_build_object(
                    'status', 'committed', 'request_id', item.key, 'conflicts', '[]'::jsonb));
            end if;
        end if;
        told_[item.n] := told;
    end loop;

    with stored as (
        insert into operations (scope, key, fingerprint, status, code, body, subject_id, retire_after)
        select i.scope, i.key, decode(i.fingerprint, 'hex'), 200, i.answer ->> 'outcome', (i.answer -> 'body')::text,
               (i.answer ->> 'event_id')::uuid, clock_timestamp() + make_interval(secs => i.retention_seconds)
        from rows from (jsonb_to_recordset(p_items) as (scope uuid, key text, fingerprint text, retention_seconds float8),
                        unnest(told_)) as i(scope, key, fingerprint, retention_seconds, answer)
        where i.answer ->> 'outcome' in ('committed', 'not_committed')
        order by i.scope, i.key collate "C"
        on conflict do nothing returning 1
    )
    select (select count(*) from unnest(told_) t where t ->> 'outcome' in ('committed', 'not_committed')) - count(*)
    into wanted from stored;
    if wanted <> 0 then
        raise exception 'a key was used meanwhile' using errcode = '40001';
    end if;
    answers := to_jsonb(told_);
end $$;

-- Gives up to `p_limit` waiting events their versions; answers how many, and what of `p_events`, which are newer than
-- `p_after`, has a version by now, as `{event: [version, leader]}`. Raises BL001 as above.
create function kv_versions(p_events uuid[], p_after bigint, p_limit integer, out moved integer, out versions jsonb)
language plpgsql set enable_seqscan = off as $$
begin
    moved := log_advance(p_limit);
    perform require_accepted_leader(h.leader_id) from log_head h;
    select coalesce(jsonb_object_agg(l.event_id, jsonb_build_array(l.version, l.leader_id)), '{}') into versions
    from log l where l.version > p_after and l.event_id = any (p_events);
end $$;

-- Forgets up to `p_limit` deleted keys whose deletion is older than the log; answers how many. No precondition can be judged
-- by a version as old as that.
create function kv_forget(p_limit integer) returns integer language plpgsql set enable_seqscan = off as $$
declare
    one     record;
    removed integer := 0;
    freed   bigint;
    number  bigint;
begin
    for one in
        select c.namespace, max(c.mark) as mark from (
            select k.namespace, k.mark, k.event_id from kv_keys k where k.value is null order by k.mark limit p_limit
        ) c
        where not exists (select from outbox o where o.id = c.mark) and not exists (select from log l where l.event_id = c.event_id)
        group by c.namespace order by c.namespace
    loop
        perform from kv_namespaces n where n.id = one.namespace for no key update;
        with gone as (
            delete from kv_keys k where k.namespace = one.namespace and k.value is null and k.mark <= one.mark
            returning octet_length(k.key) as size
        )
        select count(*), coalesce(sum(size), 0) into number, freed from gone;
        update kv_namespaces n set keys = n.keys - number, bytes = n.bytes - freed where n.id = one.namespace;
        removed := removed + number;
    end loop;
    return removed;
end $$;
