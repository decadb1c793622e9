-- The lowest `p_count` set bits of a mask.
create or replace function lowest_bits(p_mask bigint, p_count integer) returns bigint language plpgsql immutable strict as $$
declare
    rest  bigint := p_mask;
    taken bigint := 0;
begin
    for i in 1..p_count loop
        taken := taken | (rest & -rest);
        rest := rest & (rest - 1);
    end loop;
    return taken;
end $$;
