-- A claim that draws a fence no longer accepts the tasks of the claim that it succeeded (P7).
create or replace function drop_inherited_fence() returns trigger language plpgsql as $$
begin
    new.inherited_fence := null;
    return new;
end $$;
