import type { Words } from ".";

export const knowledge = {} as const satisfies Words;
