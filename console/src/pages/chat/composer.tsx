/** Where a message is written, and one that was sent in other words: Enter sends, files are dropped, pasted or chosen. */
import type { Signal } from "@preact/signals";
import { useEffect, useRef, useState } from "preact/hooks";
import { upload } from "../../api";
import { may } from "../../session";
import { Button, Field, isSending, messageOf, optionsOf, Problem, Select, tell } from "../../ui";
import { t } from "../../words";
import type { Offer } from "../agents/offers";
import { contentOf, keyOf, newKey, PICTURE, sayAgain, type Attachment, type Content, type ContentPart, type Made, type Written } from "./send";
import type { ThreadStore } from "./store";

/** Without the right to list them, one is named. `kept`: one that is chosen whether it is served or not. */
export function TeamChoice({ teams, value, onValue }: { teams: readonly Offer[] | null; value: string; onValue: (team: string) => void }) {
  if (teams === null) return <Field label={t("is.team")} hideLabel placeholder={t("is.team")} value={value} onValue={onValue} />;
  const names = teams.map((each) => each.id);
  const all = value && !names.includes(value) ? [value, ...names] : names;
  return <Select label={t("is.team")} hideLabel value={value} options={optionsOf(all)} onValue={onValue} />;
}

function dataUrl(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error ?? new Error("unreadable"));
    reader.readAsDataURL(file);
  });
}

async function partOf(file: File, key: string): Promise<ContentPart> {
  if (PICTURE.test(file.type)) return { type: "image_url", image_url: { url: await dataUrl(file) } };
  return { type: "file", file: { file_id: await upload(file, "user_data", key) } };
}

function attachmentsOf(written: Signal<Written>) {
  const change = (files: (old: readonly Attachment[]) => readonly Attachment[]) => (written.value = { ...written.value, files: files(written.value.files) });
  const drop = (id: string) => change((old) => old.filter((each) => each.id !== id));
  const add = (files: Iterable<File>) => {
    for (const file of files) {
      if (!PICTURE.test(file.type) && !may("files:write")) continue;
      const id = newKey();
      change((old) => [...old, { id, name: file.name, part: null }]);
      partOf(file, id).then(
        (part) => change((old) => old.map((each) => (each.id === id ? { ...each, part } : each))),
        (error: unknown) => (drop(id), tell(`${file.name}: ${messageOf(error)}`, "problem")),
      );
    }
  };
  return { add, drop };
}

/** Files of a message that is written, each with a button that takes it out. `text`: what it is called while it is on its way. */
function Chips({ of, onRemove }: { of: readonly { id: string; name: string; text?: string }[]; onRemove: (id: string) => void }) {
  if (!of.length) return null;
  return (
    <ul class="chips" aria-label={t("is.files")}>
      {of.map(({ id, name, text = name }) => (
        <li key={id} class="chip">
          <bdi>{text}</bdi>
          <Button kind="ghost" label={t("chat.remove", { name })} onClick={() => onRemove(id)}>×</Button>
        </li>
      ))}
    </ul>
  );
}

interface ComposerProps {
  /** It outlives the form, in whose place a question may stand for a while. */
  written: Signal<Written>;
  /** Sends it; what it throws is told, and what was written stays. */
  onSend: (content: Content, key: string) => Promise<void>;
  disabled?: boolean;
  stop?: (() => Promise<void>) | null;
  focused?: boolean | undefined;
  children?: preact.ComponentChildren;
}

/** `children`: what stands beside the buttons, as the choice of a team. */
export function Composer({ written, onSend, disabled = false, stop = null, focused = true, children }: ComposerProps) {
  const { text, files } = written.value;
  const { add, drop } = attachmentsOf(written);
  const [sending, setSending] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const area = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  useEffect(() => {
    if (focused) area.current?.focus();
  }, []);
  const isReady = !disabled && !sending && files.every((each) => each.part !== null) && (text.trim() !== "" || files.length > 0);
  const submit = async () => {
    if (!isReady) return;
    const content = contentOf(text.trim(), files.flatMap((each) => each.part ?? []));
    const key = keyOf(written.value, content);
    setSending(true);
    setError(null);
    written.value = { text: "", files, key };
    try {
      await onSend(content, key.name);
      written.value = { ...written.value, files: written.value.files.filter((each) => !files.includes(each)), key: null };
    } catch (failed) {
      written.value = { ...written.value, text: written.value.text || text };
      setError(failed);
    } finally {
      setSending(false);
      area.current?.focus();
    }
  };
  return (
    <form
      class="composer"
      aria-label={t("is.message")}
      onSubmit={(event) => (event.preventDefault(), void submit())}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => (event.preventDefault(), add(event.dataTransfer?.files ?? []))}
    >
      {error !== null && <Problem error={error} />}
      <Chips of={files.map(({ id, name, part }) => ({ id, name, text: part ? name : t("chat.uploading", { name }) }))} onRemove={drop} />
      <textarea
        ref={area}
        rows={2}
        aria-label={t("is.message")}
        placeholder={t("chat.placeholder")}
        value={text}
        onInput={(event) => (written.value = { ...written.value, text: event.currentTarget.value })}
        onPaste={(event) => {
          const pasted = [...(event.clipboardData?.files ?? [])];
          if (pasted.length) (event.preventDefault(), add(pasted));
        }}
        onKeyDown={(event) => isSending(event) && void submit()}
      />
      <div class="row">
        {children}
        <input ref={chooser} type="file" multiple hidden aria-label={t("do.addFiles")} onChange={(event) => (add([...(event.currentTarget.files ?? [])]), (event.currentTarget.value = ""))} />
        <Button label={t("do.addFiles")} onClick={() => chooser.current?.click()}>+</Button>
        {stop && (
          <Button kind="danger" onClick={stop}>{t("do.stop")}</Button>
        )}
        <Button kind="primary" type="submit" disabled={!isReady}>{t("do.send")}</Button>
      </div>
    </form>
  );
}

/** `seq`: of the message that was `made` so. */
export function Editor({ seq, made, store, onClose }: { seq: number; made: Made; store: ThreadStore; onClose: () => void }) {
  const [text, setText] = useState(made.text);
  const [files, setFiles] = useState(made.files);
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => area.current?.focus(), []);
  const isEmpty = !text.trim() && !files.length && !made.images.length;
  const send = async () => {
    if (isEmpty) return;
    await sayAgain(store, seq, { ...made, text, files });
    onClose();
  };
  return (
    <form class="editor" onSubmit={(event) => event.preventDefault()}>
      <Chips of={files.map(({ id, filename }) => ({ id, name: filename }))} onRemove={(id) => setFiles(files.filter((each) => each.id !== id))} />
      <textarea
        ref={area}
        aria-label={t("is.message")}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onClose();
          else if (isSending(event)) event.currentTarget.form?.querySelector<HTMLButtonElement>("button.primary")?.click();
        }}
      />
      <p class="quiet">{t("chat.editHint")}</p>
      <div class="row">
        <Button kind="primary" onClick={send} disabled={isEmpty}>{t("do.sendAgain")}</Button>
        <Button onClick={onClose}>{t("do.cancel")}</Button>
      </div>
    </form>
  );
}
