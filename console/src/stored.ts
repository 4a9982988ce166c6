/** What the browser keeps for the page. Where it keeps nothing (blocked storage), the page works without. */

/** What was kept under a name; null: nothing. */
export function kept(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

/** Keep a value under a name; null: none any more. */
export function keep(name: string, value: string | null): void {
  try {
    if (value === null) localStorage.removeItem(name);
    else localStorage.setItem(name, value);
  } catch {
    // It holds until the reload.
  }
}
