/** Buttons, fields and dialogs. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { t } from "../words";
import { tell } from "./toast";

interface ButtonProps {
  children: ComponentChildren;
  onClick?: () => unknown;
  kind?: "plain" | "primary" | "danger" | "ghost";
  label?: string;
  disabled?: boolean;
  pressed?: boolean;
  type?: "button" | "submit";
}

/** A button. While what it began is under way it takes no second click; what that throws is told. */
export function Button({ children, onClick, kind = "plain", label, disabled = false, pressed, type = "button" }: ButtonProps) {
  const [busy, setBusy] = useState(false);
  const click = async () => {
    setBusy(true);
    try {
      await onClick?.();
    } catch (error) {
      tell(error instanceof Error ? error.message : String(error), "problem");
    } finally {
      setBusy(false);
    }
  };
  return (
    <button type={type} class={`button ${kind}`} aria-label={label} title={label} aria-pressed={pressed} aria-busy={busy} disabled={disabled || busy} onClick={onClick && click}>
      {children}
    </button>
  );
}

export function CopyButton({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(text);
    setDone(true);
    setTimeout(() => setDone(false), 1500);
  };
  return (
    <Button kind="ghost" onClick={copy}>
      {done ? t("do.copied") : t("do.copy")}
    </Button>
  );
}

interface FieldProps {
  label: string;
  value: string;
  onValue: (value: string) => void;
  hideLabel?: boolean;
  type?: "text" | "password" | "search" | "number" | "date" | "datetime-local";
  placeholder?: string;
  required?: boolean;
  autofocus?: boolean;
  autocomplete?: string;
}

export function Field({ label, value, onValue, hideLabel = false, type = "text", ...rest }: FieldProps) {
  return (
    <label class="field">
      <span class={hideLabel ? "unseen" : "field-label"}>{label}</span>
      <input {...rest} type={type as "text"} value={value} onInput={(event) => onValue(event.currentTarget.value)} />
    </label>
  );
}

/** A field of several lines. */
export function Area({ label, value, onValue, rows = 4, ...rest }: { label: string; value: string; onValue: (value: string) => void; rows?: number; required?: boolean }) {
  return (
    <label class="field">
      <span class="field-label">{label}</span>
      <textarea {...rest} rows={rows} value={value} onInput={(event) => onValue(event.currentTarget.value)} />
    </label>
  );
}

export function Select<T extends string>(props: { label: string; value: T; options: readonly (readonly [T, string])[]; onValue: (value: T) => void; hideLabel?: boolean }) {
  return (
    <label class="field">
      <span class={props.hideLabel ? "unseen" : "field-label"}>{props.label}</span>
      <select value={props.value} onChange={(event) => props.onValue(event.currentTarget.value as T)}>
        {props.options.map(([value, text]) => (
          <option key={value} value={value}>
            {text}
          </option>
        ))}
      </select>
    </label>
  );
}

/** A dialog over the page: Escape and the button close it, and the focus returns to where it was. */
export function Dialog({ title, children, onClose, wide = false }: { title: string; children: ComponentChildren; onClose: () => void; wide?: boolean }) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement;
    dialog.current?.showModal();
    // Once it is out of the page: while it is there, nothing else takes the focus.
    return () => queueMicrotask(() => before instanceof HTMLElement && before.focus());
  }, []);
  return (
    <dialog ref={dialog} class={wide ? "wide" : ""} aria-label={title} onClose={onClose}>
      <header class="dialog-head">
        <h2>{title}</h2>
        <Button kind="ghost" label={t("do.close")} onClick={() => dialog.current?.close()}>
          ×
        </Button>
      </header>
      {children}
    </dialog>
  );
}

/** Tabs of a page. Each is a link, so that the browser's Back and a bookmark know it. */
export function Tabs({ tabs, label }: { tabs: readonly { href: string; text: string; current: boolean }[]; label: string }) {
  return (
    <nav class="tabs" aria-label={label}>
      {tabs.map(({ href, text, current }) => (
        <a key={href} href={href} aria-current={current ? "page" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}
