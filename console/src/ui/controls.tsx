/** Buttons, fields and dialogs. */
import type { ComponentChildren } from "preact";
import { useEffect, useLayoutEffect, useRef, useState } from "preact/hooks";
import { asked, chosen, search } from "../route";
import { t } from "../words";
import { tellError } from "./toast";

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
      tellError(error);
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

/** A link to what is most often done on a page, which looks like its button. */
export function LinkButton({ href, children, onClick }: { href: string; children: string; onClick?: () => void }) {
  return (
    <a class="button primary" href={href} onClick={onClick}>
      {children}
    </a>
  );
}

export function CopyButton({ text }: { text: string }) {
  const [done, setDone] = useState(false);
  // Over plain HTTP to another machine the browser has no clipboard for pages.
  if (!navigator.clipboard) return null;
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

/** A long text, of which more than `most` characters are shown when that is wanted. */
export function Folded({ text, most = 4000 }: { text: string; most?: number }) {
  const [whole, setWhole] = useState(false);
  if (whole || text.length <= most) return text;
  return (
    <>
      {text.slice(0, most)} … <Button onClick={() => setWhole(true)}>{t("do.showAll")}</Button>
    </>
  );
}

/** A field with `onValue` shows `value`, whatever is typed; in a form, which reads it by its `name`, it begins with it. */
interface Typed<T extends string> {
  label: string;
  name?: string;
  value?: T;
  onValue?: ((value: T) => void) | undefined;
  hideLabel?: boolean | undefined;
}

const typed = (value: string, onValue: (value: string) => void) => ({ value, onInput: (event: { currentTarget: { value: string } }) => onValue(event.currentTarget.value) });

interface FieldProps extends Typed<string> {
  type?: "text" | "password" | "search" | "number" | "date" | "datetime-local";
  placeholder?: string;
  required?: boolean;
  autofocus?: boolean;
  autocomplete?: string;
}

function Labelled({ label, hideLabel = false, children }: Pick<Typed<string>, "label" | "hideLabel"> & { children: ComponentChildren }) {
  return (
    <label class="field">
      <span class={hideLabel ? "unseen" : "field-label"}>{label}</span>
      {children}
    </label>
  );
}

export function Field({ label, value = "", onValue, hideLabel, type = "text", ...rest }: FieldProps) {
  return (
    <Labelled label={label} hideLabel={hideLabel}>
      <input {...rest} {...(onValue ? typed(value, onValue) : { defaultValue: value })} type={type as "text"} />
    </Labelled>
  );
}

/** A field of several lines. */
export function Area({ label, value = "", onValue, rows = 4, ...rest }: Omit<Typed<string>, "hideLabel"> & { rows?: number; required?: boolean }) {
  const area = useRef<HTMLTextAreaElement>(null);
  useLayoutEffect(() => {
    // As an attribute it would be the element's text, and so a part of the label's.
    if (!onValue && area.current) area.current.value = value;
  }, []);
  return (
    <Labelled label={label}>
      <textarea {...rest} ref={area} {...(onValue ? typed(value, onValue) : {})} rows={rows} />
    </Labelled>
  );
}

/** Whether a key sends what was written. Enter that ends the composition of a character (Chinese, Japanese) does not. */
export function isSending(event: KeyboardEvent): boolean {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return false;
  event.preventDefault();
  return true;
}

type Options<T extends string> = readonly (readonly [T, string])[];

/** Things as the options of a choice; `text`: what each is called. */
export const optionsOf = <T extends string>(things: readonly T[], text: (each: T) => string = String): Options<T> => things.map((each) => [each, text(each)]);

export function Select<T extends string>({ label, name, value: current, onValue, hideLabel, options }: Typed<T> & { options: Options<T> }) {
  return (
    <Labelled label={label} hideLabel={hideLabel}>
      <select name={name} {...(onValue ? { value: current, onChange: (event) => onValue(event.currentTarget.value as T) } : {})}>
        {options.map(([value, text]) => (
          <option key={value} value={value} selected={value === current}>
            {text}
          </option>
        ))}
      </select>
    </Labelled>
  );
}

/** Milliseconds after which the typing has paused. */
const PAUSE = 350;

/** A field whose value goes into the address, under its name, when the typing pauses. `otherwise`: what holds without. */
export function SearchField({ name, type = "search", otherwise = "", ...rest }: Omit<FieldProps, "value" | "onValue"> & { name: string; otherwise?: string }) {
  const stored = asked(name) || otherwise;
  const [text, setText] = useState(stored);
  // What it has put there itself, it shows already, and more may have been typed since.
  const put = useRef(stored);
  useEffect(() => {
    if (stored !== put.current) setText(stored);
    put.current = stored;
  }, [stored]);
  useEffect(() => {
    if (text === stored) return;
    const timer = setTimeout(() => search({ [name]: (put.current = text.trim()) || null }), PAUSE);
    return () => clearTimeout(timer);
  }, [text, stored]);
  return <Field {...rest} type={type} value={text} onValue={setText} />;
}

/** A choice that stands in the address. `any`: what no choice is called. */
export function SearchSelect<T extends string>({ name, options, any, ...rest }: { name: string; label: string; options: Options<T>; any: string; hideLabel?: boolean }) {
  const value = chosen(name, options.map(([each]) => each)) ?? "";
  return <Select {...rest} value={value} options={[["", any], ...options]} onValue={(each) => search({ [name]: each || null })} />;
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

/** Tabs of a page. Each is a link, so that the browser's Back and a bookmark know it. Where not all fit, the current one is in view. */
export function Tabs({ tabs, label }: { tabs: readonly { href: string; text: string; current: boolean }[]; label: string }) {
  const nav = useRef<HTMLElement>(null);
  useEffect(() => nav.current?.querySelector("[aria-current]")?.scrollIntoView({ block: "nearest", inline: "center" }), [tabs.findIndex((each) => each.current)]);
  return (
    <nav ref={nav} class="tabs" aria-label={label}>
      {tabs.map(({ href, text, current }) => (
        <a key={href} href={href} aria-current={current ? "page" : undefined}>
          {text}
        </a>
      ))}
    </nav>
  );
}
