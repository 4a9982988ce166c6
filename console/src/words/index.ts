/** The words of the page, in both languages, side by side: an entry cannot lack one. */
import { effect, signal } from "@preact/signals";
import { keep, kept } from "../stored";
import { agents } from "./agents";
import { chat } from "./chat";
import { common } from "./common";
import { knowledge } from "./knowledge";
import { operations } from "./operations";
import { runs } from "./runs";

export type Language = "en" | "zh";
/** English, Chinese. `{name}` stands for a value. */
export type Words = Record<string, readonly [string, string]>;

const all = { ...common, ...chat, ...runs, ...agents, ...knowledge, ...operations };
export type Word = keyof typeof all;

const STORED = "drsai.language";

function first(): Language {
  const stored = kept(STORED);
  if (stored === "en" || stored === "zh") return stored;
  return navigator.language.toLowerCase().startsWith("zh") ? "zh" : "en";
}

export const language = signal<Language>(first());

effect(() => {
  document.documentElement.lang = language.value === "zh" ? "zh-CN" : "en";
});

export function choose(chosen: Language): void {
  language.value = chosen;
  keep(STORED, chosen);
}

/** The text of `word` in the language that was chosen. */
export function t(word: Word, values: Record<string, string | number> = {}): string {
  const text = all[word][language.value === "zh" ? 1 : 0];
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => String(values[name] ?? whole));
}

/** The text of a word that has a name of the API's in it (`status.running`); `otherwise` where there is none. */
export function wordFor(word: string, otherwise: string): string {
  return word in all ? t(word as Word) : otherwise;
}
