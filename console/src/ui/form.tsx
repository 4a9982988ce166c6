/** Forms in dialogs, and the question before what cannot be taken back. */
import type { ComponentChildren } from "preact";
import { useState } from "preact/hooks";
import { t } from "../words";
import { Button, Dialog, Field } from "./controls";
import { Problem } from "./state";

interface FormProps {
  children: ComponentChildren;
  onSubmit: () => Promise<unknown>;
  submit?: string;
  kind?: "primary" | "danger";
  disabled?: boolean;
}

/** A form. What the server refuses is said in it, and what was filled in stays. */
export function Form({ children, onSubmit, submit = t("do.save"), kind = "primary", disabled = false }: FormProps) {
  const [busy, setBusy] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const send = async (event: Event) => {
    event.preventDefault();
    setBusy(true);
    setError(null);
    try {
      await onSubmit();
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
      <Button kind={kind} type="submit" disabled={disabled || busy}>
        {submit}
      </Button>
    </form>
  );
}

interface DialogButtonProps {
  /** What is in the dialog; `close` closes it. */
  children: (close: () => void) => ComponentChildren;
  title: string;
  /** On the button, where that is not the title. */
  text?: ComponentChildren;
  kind?: "plain" | "primary" | "danger" | "ghost";
  label?: string;
  wide?: boolean;
}

/** A button that opens a dialog. */
export function DialogButton({ children, title, text = title, kind = "plain", label, wide = false }: DialogButtonProps) {
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <>
      <Button kind={kind} {...(label ? { label } : {})} onClick={() => setOpen(true)}>
        {text}
      </Button>
      {open && (
        <Dialog title={title} onClose={close} wide={wide}>
          {children(close)}
        </Dialog>
      )}
    </>
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

/** A button that asks before it does what cannot be taken back. */
export function ConfirmButton({ children, text, name, onYes, ...button }: SureProps & Omit<DialogButtonProps, "children" | "text"> & { children: ComponentChildren }) {
  return (
    <DialogButton {...button} text={children}>
      {(close) => <Sure title={button.title} text={text} name={name} onYes={() => onYes().then(close)} />}
    </DialogButton>
  );
}
