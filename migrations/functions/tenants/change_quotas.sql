-- What tenants use more or less, in the order in which quotas are locked. Raises BQ001 if one would be passed.
create or replace function change_quotas(p_tenants uuid[], p_changes integer[]) returns void language plpgsql set enable_seqscan = off as $$
declare
    one record;
begin
    for one in select t.id, sum(t.gpus)::integer as gpus from unnest(p_tenants, p_changes) t(id, gpus)
               group by t.id order by t.id loop
        if one.gpus <> 0 then
            update tenant_quotas q set gpus_used = q.gpus_used + one.gpus, row_version = q.row_version + 1
            where q.tenant_id = one.id
              and (one.gpus < 0 or q.gpus_limit is null or q.gpus_used + one.gpus <= q.gpus_limit);
            if not found then
                raise exception 'the quota of % moved meanwhile', one.id using errcode = 'BQ001';
            end if;
        end if;
    end loop;
end $$;
