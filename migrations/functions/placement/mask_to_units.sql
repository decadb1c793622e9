-- The units of a mask, as ranges over the node's block.
create or replace function mask_to_units(p_base bigint, p_mask bigint) returns int8multirange language plpgsql immutable strict as $$
declare
    units int8multirange := '{}';
    rest  bigint := p_mask;
    unit  bigint := p_base;
begin
    while rest <> 0 loop
        if rest & 1 = 1 then
            units := units + int8multirange(int8range(unit, unit + 1));
        end if;
        rest := rest >> 1;
        unit := unit + 1;
    end loop;
    return units;
end $$;
