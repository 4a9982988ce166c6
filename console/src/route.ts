/** The address: which page is shown, of what. */
import { computed, signal } from "@preact/signals";

const base = new URL(document.baseURI).pathname;

function here(): string {
  return location.pathname.startsWith(base) ? location.pathname.slice(base.length) : "";
}

/** A part of the path. What no browser has encoded so (`%E0`) stands for itself. */
function decoded(part: string): string {
  try {
    return decodeURIComponent(part);
  } catch {
    return part;
  }
}

const address = signal(here() + location.search);

/** The parts of the path below `/console/`: `["runs", "run_1"]`. */
export const path = computed(() => (address.value.split("?")[0] ?? "").split("/").filter(Boolean).map(decoded));
/** What stands after the `?`. */
export const query = computed(() => new URLSearchParams(address.value.split("?")[1] ?? ""));

/** What the address says of something; "": nothing. */
export const asked = (name: string): string => query.value.get(name) ?? "";

/** The same where it is one of those that there are. */
export const chosen = <T extends string>(name: string, of: readonly T[]): T | undefined => of.find((each) => each === asked(name));

/** The address of a page. Each part is one segment, whatever it holds. */
export function to(parts: readonly string[], search: Record<string, string | null | undefined> = {}): string {
  const given = Object.entries(search).filter((each): each is [string, string] => !!each[1]);
  const tail = given.length ? `?${new URLSearchParams(given)}` : "";
  return parts.map(encodeURIComponent).join("/") + tail;
}

export function go(target: string, { replace = false } = {}): void {
  if (target === address.value) return;
  history[replace ? "replaceState" : "pushState"](null, "", base + target);
  address.value = target;
}

/** Change what stands after the `?`, without a step in the browser's history. */
export function search(change: Record<string, string | null>): void {
  const next = Object.fromEntries(query.value);
  go(to(path.value, { ...next, ...change }), { replace: true });
}

addEventListener("popstate", () => (address.value = here() + location.search));

/** Links below the <base> change the page without loading it anew. */
addEventListener("click", (event) => {
  const link = (event.target as Element | null)?.closest?.("a[href]");
  if (!(link instanceof HTMLAnchorElement) || link.target || link.hasAttribute("download")) return;
  if (event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey || event.defaultPrevented) return;
  if (link.origin !== location.origin || !link.pathname.startsWith(base)) return;
  event.preventDefault();
  // A place in the page: with the <base>, the browser would take it for the address of another one.
  const place = link.getAttribute("href") ?? "";
  if (place.startsWith("#")) return document.getElementById(place.slice(1))?.focus();
  go(link.pathname.slice(base.length) + link.search);
  document.querySelector("main")?.scrollTo(0, 0);
});
