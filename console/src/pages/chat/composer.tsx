/** Where a message is written: Enter sends, files are dropped, pasted or chosen. */
import { useEffect, useRef, useState } from "preact/hooks";
import { root, send } from "../../api/client";
import { may } from "../../session";
import { Button } from "../../ui/controls";
import { Problem } from "../../ui/state";
import { tell } from "../../ui/toast";
import { t } from "../../words";
import { contentOf, newKey, type Content, type ContentPart } from "./send";

/** Whether a key sends what was written. Enter that ends the composition of a character (Chinese, Japanese) does not. */
export function isSending(event: KeyboardEvent): boolean {
  if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return false;
  event.preventDefault();
  return true;
}

interface Attachment {
  id: string;
  name: string;
  /** null: on its way. */
  part: ContentPart | null;
}

const IMAGE = /^image\/(png|jpeg|gif|webp)$/;

function dataUrl(file: Blob): Promise<string> {
  return new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(reader.result as string);
    reader.onerror = () => reject(reader.error ?? new Error("unreadable"));
    reader.readAsDataURL(file);
  });
}

async function upload(file: File, key: string): Promise<ContentPart> {
  if (IMAGE.test(file.type)) return { type: "image_url", image_url: { url: await dataUrl(file) } };
  const body = new FormData();
  body.set("purpose", "user_data");
  body.set("file", file, file.name);
  const made = (await (await send(new Request(`${root}/v1/files`, { method: "POST", body, headers: { "idempotency-key": key } }))).json()) as { id: string };
  return { type: "file", file: { file_id: made.id } };
}

function useAttachments() {
  const [list, setList] = useState<readonly Attachment[]>([]);
  const drop = (id: string) => setList((old) => old.filter((each) => each.id !== id));
  const add = (files: Iterable<File>) => {
    for (const file of files) {
      if (!IMAGE.test(file.type) && !may("files:write")) continue;
      const id = newKey();
      setList((old) => [...old, { id, name: file.name, part: null }]);
      upload(file, id).then(
        (part) => setList((old) => old.map((each) => (each.id === id ? { ...each, part } : each))),
        (error: unknown) => (drop(id), tell(`${file.name}: ${error instanceof Error ? error.message : String(error)}`, "problem")),
      );
    }
  };
  return { list, add, drop, clear: () => setList([]) };
}

interface ComposerProps {
  /** Sends it; what it throws is told, and what was written stays. */
  onSend: (content: Content, key: string) => Promise<void>;
  disabled?: boolean;
  stop?: (() => Promise<void>) | null;
  children?: preact.ComponentChildren;
}

/** `children`: what stands beside the buttons, as the choice of a team. */
export function Composer({ onSend, disabled = false, stop = null, children }: ComposerProps) {
  const [text, setText] = useState("");
  const [sending, setSending] = useState(false);
  const [error, setError] = useState<unknown>(null);
  const files = useAttachments();
  const area = useRef<HTMLTextAreaElement>(null);
  const chooser = useRef<HTMLInputElement>(null);
  // One name for a message until it is taken: a second try after a lost answer makes no second run.
  const key = useRef<{ said: string; name: string } | null>(null);
  useEffect(() => area.current?.focus(), []);
  const isReady = !disabled && !sending && files.list.every((each) => each.part !== null) && (text.trim() !== "" || files.list.length > 0);
  const submit = async () => {
    if (!isReady) return;
    const content = contentOf(text.trim(), files.list.flatMap((each) => each.part ?? []));
    const said = JSON.stringify(content);
    if (key.current?.said !== said) key.current = { said, name: newKey() };
    setSending(true);
    setError(null);
    setText("");
    try {
      await onSend(content, key.current.name);
      key.current = null;
      files.clear();
    } catch (failed) {
      setText((now) => now || text);
      setError(failed);
    } finally {
      setSending(false);
      area.current?.focus();
    }
  };
  return (
    <form
      class="composer"
      aria-label={t("chat.message")}
      onSubmit={(event) => (event.preventDefault(), void submit())}
      onDragOver={(event) => event.preventDefault()}
      onDrop={(event) => (event.preventDefault(), files.add(event.dataTransfer?.files ?? []))}
    >
      {error !== null && <Problem error={error} />}
      {files.list.length > 0 && (
        <ul class="chips" aria-label={t("chat.files")}>
          {files.list.map(({ id, name, part }) => (
            <li key={id} class="chip">
              <bdi>{part ? name : t("chat.uploading", { name })}</bdi>
              <Button kind="ghost" label={t("chat.remove", { name })} onClick={() => files.drop(id)}>
                ×
              </Button>
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={area}
        rows={2}
        aria-label={t("chat.message")}
        placeholder={t("chat.placeholder")}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onPaste={(event) => {
          const pasted = [...(event.clipboardData?.files ?? [])];
          if (pasted.length) (event.preventDefault(), files.add(pasted));
        }}
        onKeyDown={(event) => isSending(event) && void submit()}
      />
      <div class="row">
        {children}
        <input ref={chooser} type="file" multiple hidden aria-label={t("chat.attach")} onChange={(event) => (files.add([...(event.currentTarget.files ?? [])]), (event.currentTarget.value = ""))} />
        <Button label={t("chat.attach")} onClick={() => chooser.current?.click()}>
          +
        </Button>
        {stop && (
          <Button kind="danger" onClick={stop}>
            {t("chat.stop")}
          </Button>
        )}
        <Button kind="primary" type="submit" disabled={!isReady}>
          {t("chat.send")}
        </Button>
      </div>
    </form>
  );
}
