/** Short notices at the edge of the page. */
import { signal } from "@preact/signals";

interface Notice {
  id: number;
  text: string;
  kind: "done" | "problem";
}

const notices = signal<readonly Notice[]>([]);
const LONG = 6000;
let made = 0;

/** Tell something for some seconds. */
export function tell(text: string, kind: Notice["kind"] = "done"): void {
  const id = ++made;
  notices.value = [...notices.value.slice(-3), { id, text, kind }];
  setTimeout(() => (notices.value = notices.value.filter((each) => each.id !== id)), LONG);
}

/** What went wrong, in words. */
export const messageOf = (error: unknown) => (error instanceof Error ? error.message : String(error));

export function tellError(error: unknown): void {
  tell(messageOf(error), "problem");
}

export function Toasts() {
  return (
    <div class="toasts" aria-live="polite" role="status">
      {notices.value.map(({ id, text, kind }) => (
        <p key={id} class={`toast ${kind}`}>
          {text}
        </p>
      ))}
    </div>
  );
}
