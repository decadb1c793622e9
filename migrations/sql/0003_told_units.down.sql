do $$
begin
    execute regexp_replace(pg_get_functiondef('place_together(jsonb, boolean)'::regprocedure),
                           $q$'fence', fence,\s+'units', .*?from unnest\(units\) part\)\)$q$, $q$'fence', fence)$q$);
end $$;
