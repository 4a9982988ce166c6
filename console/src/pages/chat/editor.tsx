/** A message that was sent, to be said in other words. */
import { useEffect, useRef, useState } from "preact/hooks";
import { Button } from "../../ui";
import { t } from "../../words";
import { isSending } from "./composer";
import { sayAgain, type Made } from "./send";
import type { ThreadStore } from "./store";

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
      {files.length > 0 && (
        <ul class="chips" aria-label={t("chat.files")}>
          {files.map((each) => (
            <li key={each.id} class="chip">
              <bdi>{each.filename}</bdi>
              <Button kind="ghost" label={t("chat.remove", { name: each.filename })} onClick={() => setFiles(files.filter((other) => other !== each))}>
                ×
              </Button>
            </li>
          ))}
        </ul>
      )}
      <textarea
        ref={area}
        aria-label={t("chat.message")}
        value={text}
        onInput={(event) => setText(event.currentTarget.value)}
        onKeyDown={(event) => {
          if (event.key === "Escape") onClose();
          else if (isSending(event)) event.currentTarget.form?.querySelector<HTMLButtonElement>("button.primary")?.click();
        }}
      />
      <p class="quiet">{t("chat.editHint")}</p>
      <div class="row">
        <Button kind="primary" onClick={send} disabled={isEmpty}>{t("chat.editSend")}</Button>
        <Button onClick={onClose}>{t("do.cancel")}</Button>
      </div>
    </form>
  );
}
