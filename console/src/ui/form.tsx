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

interface ConfirmProps {
  children: ComponentChildren;
  title: string;
  text: string;
  /** What is to be typed first, as for what takes much with it. */
  name?: string;
  kind?: "plain" | "danger" | "ghost";
  label?: string;
  onYes: () => Promise<unknown>;
}

/** A button that asks before it does what cannot be taken back. */
export function ConfirmButton({ children, title, text, name, kind = "plain", label, onYes }: ConfirmProps) {
  const [open, setOpen] = useState(false);
  const [typed, setTyped] = useState("");
  return (
    <>
      <Button kind={kind} {...(label ? { label } : {})} onClick={() => (setTyped(""), setOpen(true))}>
        {children}
      </Button>
      {open && (
        <Dialog title={title} onClose={() => setOpen(false)}>
          <Form kind="danger" submit={title} disabled={name !== undefined && typed !== name} onSubmit={() => onYes().then(() => setOpen(false))}>
            <p class="text">{text}</p>
            {name !== undefined && <Field label={t("do.type", { name })} value={typed} onValue={setTyped} autofocus />}
          </Form>
        </Dialog>
      )}
    </>
  );
}
