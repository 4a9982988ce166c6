/** Times, durations, counts, money and statuses, as they are written everywhere. */
import { computed, signal } from "@preact/signals";
import { useMemo } from "preact/hooks";
import type { Status as RunStatus } from "../api/shapes";
import { language, t } from "../words";

const locale = () => (language.value === "zh" ? "zh-CN" : "en");

const formats = new Map<string, unknown>();

/** A formatter of the language that was chosen. To make one takes longer than a hundred uses of it. */
function format<T>(kind: string, make: (locale: string) => T): T {
  const key = `${kind} ${locale()}`;
  if (!formats.has(key)) formats.set(key, make(locale()));
  return formats.get(key) as T;
}

/** Now, in Unix seconds, as far as what is shown needs it: every second. */
export const now = signal(Date.now() / 1000);
setInterval(() => document.hidden || (now.value = Date.now() / 1000), 1000);

const STEPS = [
  ["year", 31_557_600],
  ["month", 2_629_800],
  ["day", 86_400],
  ["hour", 3_600],
  ["minute", 60],
] as const;

/** Now, as far as what is told in minutes needs it: thousands of times may stand on a page. */
const lately = computed(() => Math.floor(now.value / 10) * 10);

function ago(at: number): string {
  const gone = lately.value - at;
  for (const [unit, long] of STEPS)
    if (Math.abs(gone) >= long) return format("ago", (of) => new Intl.RelativeTimeFormat(of, { numeric: "auto", style: "short" })).format(-Math.trunc(gone / long), unit);
  return t("time.now");
}

/** A moment as Unix seconds, or as ISO 8601: how long ago; its date is the tooltip. */
export function Time({ at }: { at: number | string | null | undefined }) {
  const seconds = typeof at === "string" ? Date.parse(at) / 1000 : at;
  // A signal of its own, which changes the text alone, and only where it has become another.
  const told = useMemo(() => computed(() => ago(seconds ?? 0)), [seconds]);
  if (seconds === null || seconds === undefined) return <span class="quiet">–</span>;
  const date = new Date(seconds * 1000);
  return (
    <time dateTime={date.toISOString()} title={format("date", (of) => new Intl.DateTimeFormat(of, { dateStyle: "medium", timeStyle: "medium" })).format(date)}>
      {told}
    </time>
  );
}

/** Seconds, as people read them: `840 ms`, `12.4 s`, `3 m 10 s`, `2 h 5 m`. */
export function duration(seconds: number): string {
  if (seconds < 1) return `${Math.round(seconds * 1000)} ms`;
  if (seconds < 60) return `${seconds.toFixed(1)} s`;
  const whole = Math.round(seconds);
  if (whole < 3600) return `${Math.floor(whole / 60)} m ${whole % 60} s`;
  return `${Math.floor(whole / 3600)} h ${Math.floor((whole % 3600) / 60)} m`;
}

/** A moment as Unix milliseconds, to the millisecond. */
export function clock(at: number): string {
  const parts = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit", fractionalSecondDigits: 3, hour12: false } as const;
  return format("clock", (of) => new Intl.DateTimeFormat(of, parts)).format(at);
}

/** How long something has taken, or takes by now where it is not over. */
export function Lasting({ from, until }: { from: number | null | undefined; until: number | null | undefined }) {
  if (from === null || from === undefined) return <span class="quiet">–</span>;
  return <span>{duration(Math.max(0, (until ?? now.value) - from))}</span>;
}

export function count(value: number | null | undefined): string {
  if (value === null || value === undefined) return "–";
  const short = value >= 10_000;
  return format(short ? "short" : "count", (of) => new Intl.NumberFormat(of, short ? { notation: "compact", maximumFractionDigits: 1 } : {})).format(value);
}

export function bytes(value: number): string {
  const units = ["B", "KB", "MB", "GB"];
  let unit = 0;
  for (; value >= 1000 && unit < units.length - 1; unit++) value /= 1000;
  return `${value >= 100 || unit === 0 ? Math.round(value) : value.toFixed(1)} ${units[unit]}`;
}

/** What costs less is not shown as nothing. */
const LEAST = 0.0001;

/** An amount; null: not known, which is not nothing. */
export function money(value: number | null | undefined, currency = "USD"): string {
  if (value === null || value === undefined) return "–";
  const places = value < 1 ? 4 : 2;
  const shown = (amount: number) => format(`${currency} ${places}`, (of) => new Intl.NumberFormat(of, { style: "currency", currency, maximumFractionDigits: places })).format(amount);
  return value > 0 && value < LEAST ? `< ${shown(LEAST)}` : shown(value);
}

export function Status({ status }: { status: RunStatus }) {
  return <span class={`status ${status}`}>{t(`status.${status}`)}</span>;
}
