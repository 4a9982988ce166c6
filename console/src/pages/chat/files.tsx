/** Files of messages: those that tools have made and users have sent, and pictures. */
import { useEffect, useState } from "preact/hooks";
import { blob, type Message } from "../../api";
import { may } from "../../session";
import { Button, bytes, save } from "../../ui";
import { t } from "../../words";
import type { File } from "./blocks";
import { imageUrl, PICTURE } from "./send";

const content = (id: string) => `/v1/files/${encodeURIComponent(id)}/content`;
/** Pictures larger than this are shown when they are asked for. */
const SHOWN = 8_000_000;

/** Give a file to the browser to keep. */
export async function saveFile(id: string, name: string): Promise<void> {
  save(name, await blob(content(id)));
}

/** A picture of the server's. It is fetched with the key, which an address in the page could not have. */
function Picture({ file }: { file: File }) {
  const [url, setUrl] = useState<string | null>(null);
  useEffect(() => {
    const stop = new AbortController();
    let made: string | null = null;
    blob(content(file.id), { signal: stop.signal })
      .then((got) => setUrl((made = URL.createObjectURL(new Blob([got], { type: file.media_type })))))
      .catch(() => undefined); // It may be deleted; the chip beside it says what happens when it is asked for.
    return () => {
      stop.abort();
      if (made) URL.revokeObjectURL(made);
    };
  }, [file.id]);
  return url && <img class="picture" src={url} alt={file.filename} />;
}

export function FileChips({ files }: { files: readonly File[] }) {
  if (!files.length) return null;
  return (
    <ul class="chips" aria-label={t("is.files")}>
      {files.map((file) => (
        <li key={file.id}>
          {may("files:read") && PICTURE.test(file.media_type) && file.bytes < SHOWN && <Picture file={file} />}
          <Button kind="ghost" disabled={!may("files:read")} onClick={() => saveFile(file.id, file.filename)}>
            <bdi>{file.filename}</bdi> <span class="quiet">{bytes(file.bytes)}</span>
          </Button>
        </li>
      ))}
    </ul>
  );
}

/** The pictures within a message. */
export function Pictures({ message }: { message: Message }) {
  const parts = message.message["content"];
  const images = Array.isArray(parts) ? parts.flatMap((each: { data?: unknown } | string) => (typeof each === "object" && typeof each?.data === "string" ? [each.data] : [])) : [];
  return (
    <>
      {images.map((each, n) => (
        <img key={n} class="picture" src={imageUrl(each)} alt={t("chat.image")} />
      ))}
    </>
  );
}
