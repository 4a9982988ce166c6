/** The key of whoever is signed in.
 *
 * It is in memory in clear, and stored as ciphertext only, under a key of the browser's that no script can read
 * (a non-extractable CryptoKey in IndexedDB). Where the browser offers no such keys (plain HTTP to another machine),
 * nothing is stored, and a reload asks again. */
import { signal } from "@preact/signals";
import { createStore, get, set } from "idb-keyval";
import { keep, kept } from "../stored";

/** The API key or token; null: nobody is signed in. */
export const key = signal<string | null>(null);

const STORED = "drsai.key";

/** The browser's key; made at its first use. */
async function sealing(): Promise<CryptoKey | null> {
  if (!globalThis.crypto?.subtle) return null;
  const keys = createStore("drsai", "keys");
  const found = await get<CryptoKey>(STORED, keys);
  if (found) return found;
  const made = await crypto.subtle.generateKey({ name: "AES-GCM", length: 256 }, false, ["encrypt", "decrypt"]);
  await set(STORED, made, keys);
  return made;
}

/** Sign in with a key, until `forget`; `remembered`: also after a reload. */
export async function remember(token: string, remembered = true): Promise<void> {
  key.value = token;
  try {
    const sealed = remembered ? await sealing() : null;
    if (!sealed) return;
    const iv = crypto.getRandomValues(new Uint8Array(12));
    const box = await crypto.subtle.encrypt({ name: "AES-GCM", iv }, sealed, new TextEncoder().encode(token));
    keep(STORED, JSON.stringify([[...iv], [...new Uint8Array(box)]]));
  } catch {
    // A browser that stores nothing (private windows) still works until the reload.
  }
}

/** Take up the key that an earlier page stored, if there is one. */
export async function recall(): Promise<void> {
  try {
    const stored = kept(STORED);
    const sealed = stored === null ? null : await sealing();
    if (stored === null || !sealed) return;
    const [iv, box] = JSON.parse(stored) as [number[], number[]];
    const opened = await crypto.subtle.decrypt({ name: "AES-GCM", iv: new Uint8Array(iv) }, sealed, new Uint8Array(box));
    key.value = new TextDecoder().decode(opened);
  } catch {
    forget();
  }
}

/** Sign out. */
export function forget(): void {
  key.value = null;
  keep(STORED, null);
}
