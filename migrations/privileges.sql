-- Gives `berth_process`, the role of every running process, the rights on rows that it needs, and no others: it owns nothing, so
-- it cannot change the schema or a function, or switch a trigger off. Only what differs is granted or revoked, so that a
-- repetition touches no row of the catalogue that running processes change (`log_extend`).
do $$
declare
    item record;
begin
    for item in
        with narrower (relation, rights) as (values
            ('alembic_version', array['select']), ('sql_functions', array['select']), ('function_generation', array['select']),
            ('audit_pending', array['select', 'insert']), ('audit_chain', array['select']), ('audit_head', array['select']),
            ('ledger', array['select', 'insert']), ('log', array['select', 'insert'])
        ), wanted as (
            select c.oid::regclass as relation, r.name as right_name,
                   not c.relispartition
                   and r.name = any (coalesce(n.rights, array['select', 'insert', 'update', 'delete'])) as granted
            from pg_class c left join narrower n on n.relation = c.relname
                 cross join unnest(array['select', 'insert', 'update', 'delete', 'truncate', 'references', 'trigger']) r(name)
            where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p', 'v')
        )
        select format(case when w.granted then 'grant %s on %s to berth_process' else 'revoke %s on %s from berth_process' end,
                      w.right_name, w.relation) as statement
        from wanted w where w.granted <> has_table_privilege('berth_process', w.relation, w.right_name)
        union all
        select format('grant usage on sequence %s to berth_process', c.oid::regclass) from pg_class c
        where c.relnamespace = 'public'::regnamespace
          and case when c.relkind = 'S' then not has_sequence_privilege('berth_process', c.oid, 'usage') else false end
        union all
        -- These four run as the owner of the schema, so no other role may call them.
        select format('grant execute on function %s to berth_process', p.oid::regprocedure) from pg_proc p
        where p.pronamespace = 'public'::regnamespace and p.prosecdef
          and not exists (select from aclexplode(p.proacl) a where a.grantee = 'berth_process'::regrole)
        union all
        select format('revoke execute on function %s from public', p.oid::regprocedure) from pg_proc p
        where p.pronamespace = 'public'::regnamespace and p.prosecdef and has_function_privilege('public', p.oid, 'execute')
    loop
        execute item.statement;
    end loop;
end $$;
