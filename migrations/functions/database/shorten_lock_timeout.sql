-- Shorten the lock timeout of this transaction to 500 ms, for batches: a blocked item is retried alone. Longer than any lock
-- is held under load. Called by the first statement of a batch.
create or replace function shorten_lock_timeout() returns text language sql as $$
    select set_config('lock_timeout', (1000 * extract(epoch from least(
        nullif(current_setting('lock_timeout')::interval, interval '0'), interval '500 ms')))::integer::text, true)
$$;
