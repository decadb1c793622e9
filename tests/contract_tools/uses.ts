// What a client's author writes with the generated code: tsc compiles it with the rest, and refuses what the document forbids.
import type { paths } from "./generated/public";
import { createAllocation, getOperation } from "./generated/hey-public";

type Create = paths["/api/v1/allocations"]["post"]["requestBody"]["content"]["application/json"];

export const wanted: Create = {
  sku: "h100.slice",
  gpus: 1,
  region: "eu-1",
  ssh_key_ids: ["0198c1f2-5d10-7b6f-b1a2-3c4d5e6f7081"],
  labels: { team: "vision" },
};

// @ts-expect-error: a number is no label
export const refused: Create = { ...wanted, labels: { team: 1 } };

export async function create(): Promise<number | null | undefined> {
  await createAllocation({ body: wanted, headers: { "Idempotency-Key": "key-1" } });
  const operation = await getOperation({ path: { key: "key-1" } });
  return operation.data?.version;
}
