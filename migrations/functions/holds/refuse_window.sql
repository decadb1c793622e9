-- The refusal of a hold whose window is over, inverted, too far away or too long, or whose tenant may not reserve; null: none.
-- Runs under the planner settings of `hold_once`: setting them again costs more than the call.
create or replace function refuse_window(
    p_tenant uuid, p_starts_at timestamptz, p_ends_at timestamptz, p_seconds_max float8, p_now timestamptz
) returns jsonb language plpgsql as $$
declare
    longest constant interval := make_interval(secs => p_seconds_max);
    starts  constant timestamptz := greatest(p_starts_at, p_now);
begin
    if p_ends_at <= p_now then
        return '{"outcome": "window", "detail": "the window is over"}';
    elsif p_ends_at <= coalesce(p_starts_at, p_now) then
        return '{"outcome": "window", "detail": "the window ends before it begins"}';
    elsif starts > p_now + longest then
        return '{"outcome": "window", "detail": "the window begins too far away"}';
    elsif p_ends_at > starts + longest then
        return '{"outcome": "window", "detail": "the window is too long; leave ends_at out for an open end"}';
    elsif not exists (select from tenants t where t.id = p_tenant and t.state = 'active' and t.depleted_at is null) then
        return jsonb_build_object('outcome', case when exists (
            select from tenants t where t.id = p_tenant and t.state = 'active') then 'depleted' else 'tenant' end);
    end if;
    return null;
end $$;
