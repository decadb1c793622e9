-- `provisioning.requested` tells which units it took, as `reservation.held` does, so that the log alone says who had which
-- when. The placement function stays as it is but for this.
do $$
declare
    told constant text := $q$'node_id', node_id, 'fence', fence)$q$;
    body text := pg_get_functiondef('place_together(jsonb, boolean)'::regprocedure);
begin
    if strpos(body, told) = 0 then
        raise exception 'place_together does not tell what it was expected to';
    end if;
    execute replace(body, told, $q$'node_id', node_id, 'fence', fence,
                                       'units', (select jsonb_agg(jsonb_build_array(lower(part), upper(part)) order by part)
                                                 from unnest(units) part))$q$);
end $$;
