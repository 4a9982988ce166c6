import type { Words } from ".";

export const runs = {} as const satisfies Words;
