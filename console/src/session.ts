/** Who asks, and what they may do. */
import { computed, signal } from "@preact/signals";
import { api, ApiError, data, refused, type Me, type Scope } from "./api";
import { forget, recall, remember } from "./api/keyring";

export const me = signal<Me | null>(null);
/** Why nobody is known: null while that is not known either, or somebody is. */
export const problem = signal<ApiError | null>(null);
const scopes = computed(() => new Set<string>(me.value?.scopes));

/** Whether whoever is signed in may do something. The server decides; this only leaves away what it would refuse. */
export function may(...needed: Scope[]): boolean {
  return needed.every((scope) => scopes.value.has(scope));
}

async function load(known?: () => Promise<void>): Promise<void> {
  try {
    const found = await data(api.GET("/v1/me"));
    await known?.();
    me.value = found;
    problem.value = refused.value = null;
  } catch (error) {
    me.value = null;
    problem.value = error as ApiError;
  }
}

/** Find out who asks: by the key of an earlier visit, the application's own login, or, on an open server, as anybody. */
export async function begin(): Promise<void> {
  await recall();
  await load();
}

/** Sign in. The key is kept only if the server knows it, and before the page says so: a reload would ask for it again. */
export async function signIn(token: string, remembered: boolean): Promise<void> {
  await remember(token, false);
  await load(() => remember(token, remembered));
  if (me.value === null) forget();
}

export function signOut(): void {
  forget();
  me.value = null;
  void load();
}
