import type { Words } from ".";

export const chat = {} as const satisfies Words;
