import type { Words } from ".";

export const agents = {} as const satisfies Words;
