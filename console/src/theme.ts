/** Light or dark. */
import { effect, signal } from "@preact/signals";
import { keep, kept } from "./stored";
import { t } from "./words";

export type Theme = "auto" | "light" | "dark";
const STORED = "drsai.theme";
const stored = kept(STORED);

export const theme = signal<Theme>(stored === "light" || stored === "dark" ? stored : "auto");

effect(() => {
  const chosen = theme.value;
  document.documentElement.style.colorScheme = chosen === "auto" ? "light dark" : chosen;
  keep(STORED, chosen);
});

export const themes = () => (["auto", "light", "dark"] as const).map((each) => [each, t(`theme.${each}`)] as const);
