/** A message that was sent, to be said in other words. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { Message } from "../../api/shapes";
import { Button } from "../../ui/controls";
import { t } from "../../words";
import { isSending } from "./composer";
import { newKey, resent, rewind, say } from "./send";
import type { ThreadStore } from "./store";

export function Editor({ message, store, onClose }: { message: Message; store: ThreadStore; onClose: () => void }) {
  const [text, setText] = useState(message.content.replaceAll("[image]", "").trim());
  const key = useRef(newKey());
  const area = useRef<HTMLTextAreaElement>(null);
  useEffect(() => area.current?.focus(), []);
  const send = async () => {
    const model = store.thread.value?.team;
    if (!model || !text.trim()) return;
    // Going back to where the thread is changes nothing, so this may be tried again wherever it was cut off.
    await rewind(store, { at: message.seq });
    await say(store, model, resent(message, text), key.current);
    onClose();
  };
  return (
    <form class="editor" onSubmit={(event) => event.preventDefault()}>
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
        <Button kind="primary" onClick={send} disabled={!text.trim()}>
          {t("chat.editSend")}
        </Button>
        <Button onClick={onClose}>{t("do.cancel")}</Button>
      </div>
    </form>
  );
}
