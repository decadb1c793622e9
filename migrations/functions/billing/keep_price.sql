-- Records every price of a SKU, whichever statement writes the SKU; a recorded price never changes.
create or replace function keep_price() returns trigger language plpgsql as $$
begin
    insert into sku_prices (sku, price_version, price_micro_per_gpu_second)
    values (new.name, new.price_version, new.price_micro_per_gpu_second) on conflict do nothing;
    return null;
end $$;
