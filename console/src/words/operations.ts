import type { Words } from ".";

export const operations = {} as const satisfies Words;
