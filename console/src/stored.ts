/** What the browser keeps for the page. Where it keeps nothing (blocked storage), the page works without. */

/** What was kept under a name; null: nothing. */
export function kept(name: string): string | null {
  try {
    return localStorage.getItem(name);
  } catch {
    return null;
  }
}

export function keep(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // It holds until the reload.
  }
}
