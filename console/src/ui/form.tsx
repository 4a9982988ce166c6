/** Forms in dialogs, and the question before what cannot be taken back. */
import type { ComponentChildren } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import { asked, query, search } from "../route";
import { t } from "../words";
import { Button, Dialog, Field } from "./controls";
import { Problem } from "./state";

/** What was filled in, by the names of the fields. */
export type Given = Readonly<Record<string, string>>;

/** The number that was filled in. Throws where it is none: sent as such, it would be nothing, and lift a bound. */
export function numberOf(text: string): number {
  const value = Number(text);
  if (Number.isNaN(value)) throw new Error(t("do.number", { text }));
  return value;
}

interface FormProps {
  children?: ComponentChildren;
  onSubmit: (given: Given) => Promise<unknown>;
  submit?: string | undefined;
  kind?: "plain" | "primary" | "danger";
  disabled?: boolean;
}

/** A form. What the server refuses is said in it, and what was filled in stays. */
export function Form({ children, onSubmit, submit = t("do.save"), kind = "primary", disabled = false }: FormProps) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const send = async (event: { preventDefault: () => void; currentTarget: HTMLFormElement }) => {
    event.preventDefault();
    const given = Object.fromEntries(new FormData(event.currentTarget)) as Given;
    setBusy(true);
    setError(null);
    try {
      await onSubmit(given);
    } catch (failed) {
      setError(failed);
    } finally {
      setBusy(false);
    }
  };
  return (
    <form class="form" onSubmit={(event) => void send(event)}>
      {children}
      {error !== null && <Problem error={error} />}
      <Button kind={kind} type="submit" disabled={disabled || busy}>{submit}</Button>
    </form>
  );
}

/** A form whose fields stand in the address once it is sent, or one is emptied. They begin with what `asked` says of
 * them, also when the address changes by itself. */
export function SearchForm({ children, onSearch }: { children: ComponentChildren; onSearch?: () => void }) {
  const form = useRef<HTMLFormElement>(null);
  const put = () => search(Object.fromEntries(new FormData(form.current!)) as Given);
  const shown = useRef(query.value);
  useEffect(() => {
    // What is typed and not sent yet stays, whatever else is chosen.
    for (const field of form.current?.elements ?? [])
      if (field instanceof HTMLInputElement && field.name && shown.current.get(field.name) !== query.value.get(field.name)) field.value = asked(field.name);
    shown.current = query.value;
  }, [query.value]);
  return (
    <form
      ref={form}
      class="filters search"
      role="search"
      onSubmit={(event) => (event.preventDefault(), put(), onSearch?.())}
      onInput={({ target }) => target instanceof HTMLInputElement && target.name && !target.value && put()}
    >
      {children}
      <Button kind="primary" type="submit">{t("do.search")}</Button>
    </form>
  );
}

interface DialogButtonProps {
  /** What is in the dialog; `close` closes it. */
  children: (close: () => void) => ComponentChildren;
  title: string;
  /** On the button, where that is not the title. */
  text?: string;
  kind?: "plain" | "primary" | "danger" | "ghost";
  /** Which of the things below each other it is about. */
  of?: string | number;
  wide?: boolean;
  /** It opens by itself, once. */
  opened?: boolean;
  onClosed?: () => void;
}

/** A button that opens a dialog. */
export function DialogButton({ children, title, text = title, of, kind = of === undefined ? "plain" : "ghost", wide = false, opened = false, onClosed }: DialogButtonProps) {
  const [open, setOpen] = useState(opened);
  const close = () => (setOpen(false), onClosed?.());
  return (
    <>
      <Button kind={kind} {...(of === undefined ? {} : { label: `${text === "×" ? title : text}: ${of}` })} onClick={() => setOpen(true)}>{text}</Button>
      {open && (
        <Dialog title={title} onClose={close} wide={wide}>
          {children(close)}
        </Dialog>
      )}
    </>
  );
}

/** A button that opens a form in a dialog, which closes once what was filled in is taken. `danger`: it takes something away. */
export function FormButton({ children, onSubmit, submit, danger = false, ...button }: Omit<DialogButtonProps, "children"> & Pick<FormProps, "children" | "onSubmit" | "submit"> & { danger?: boolean }) {
  return (
    <DialogButton {...button}>
      {(close) => (
        <Form submit={submit} kind={danger ? "danger" : "primary"} onSubmit={(given) => onSubmit(given).then(close)}>
          {children}
        </Form>
      )}
    </DialogButton>
  );
}

interface SureProps {
  title: string;
  text: string;
  /** What is to be typed first, as for what takes much with it. */
  name?: string | undefined;
  onYes: () => Promise<unknown>;
}

function Sure({ title, text, name, onYes }: SureProps) {
  const [typed, setTyped] = useState("");
  return (
    <Form kind="danger" submit={title} disabled={name !== undefined && typed !== name} onSubmit={onYes}>
      <p class="text">{text}</p>
      {name !== undefined && <Field label={t("do.type", { name })} value={typed} onValue={setTyped} autofocus />}
    </Form>
  );
}

/** A button that asks before it does what cannot be taken back. `on`: what is on it, where that is not the title. */
export function ConfirmButton({ on, text, name, onYes, ...button }: SureProps & Omit<DialogButtonProps, "children" | "text"> & { on?: string }) {
  return (
    <DialogButton {...button} {...(on ? { text: on } : {})}>
      {(close) => <Sure title={button.title} text={text} name={name} onYes={() => onYes().then(close)} />}
    </DialogButton>
  );
}
