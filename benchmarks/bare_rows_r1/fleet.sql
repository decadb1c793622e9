-- Online nodes of eight slots, spread over pools as benchmarks/seeding.py does it.
insert into pools (region, gpu_model, shape)
select r, m.model, m.shape from unnest(array['ap-1', 'eu-1', 'eu-2', 'us-1', 'us-2']) r
cross join (values ('H100', 'gpu_slice'), ('H200', 'gpu_slice'), ('H100', 'baremetal')) m(model, shape);
insert into nodes (name, pool_id, region, gpu_model, shape, slot_count, half_slots, unit_base, state, online, free_mask,
                   fit_class, epoch, enrolled_at, last_seen_at)
select 'node-' || k, p.id, p.region, p.gpu_model, p.shape, 8, 4, k::bigint * 8, 'active', true, (1::bigint << 8) - 1,
       4 * 64 + 4, 1, clock_timestamp(), clock_timestamp()
from generate_series(1, %(nodes)s) k
join (select *, row_number() over (order by shape desc, id) - 1 as place from pools) p
     on p.place = case when k %% 10 = 0 then 10 + k / 10 %% 5 else (k + k / 10) %% 10 end;
