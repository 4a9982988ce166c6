/** Who asks, and what they may do. */
import { computed, signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { admit, api, ApiError, data, sendOnce, type Me, type Scope } from "./api";
import { forget, recall, remember } from "./api/keyring";
import { path } from "./route";
import type { Word } from "./words";

export const me = signal<Me | null>(null);
/** Why nobody is known: null while that is not known either, or somebody is. */
export const problem = signal<ApiError | null>(null);
const scopes = computed(() => new Set<string>(me.value?.scopes));

/** Whether whoever is signed in may do something. The server decides; this only leaves away what it would refuse. */
export function may(...needed: Scope[]): boolean {
  return needed.every((scope) => scopes.value.has(scope));
}

/** A page, or a tab of one, that has a name in the address. */
export interface Place {
  name: string;
  word: Word;
  /** One of these is enough. */
  needs: readonly Scope[];
  Page: ComponentType;
}

/** The places that whoever is signed in may see, and which of them the address names in its part `at`: where it names
 * none, the first. */
export function placed(all: readonly Place[], at: number) {
  const places = all.filter(({ needs }) => needs.some((each) => may(each)));
  const name = path.value[at];
  return { places, current: name === undefined ? places[0] : places.find((each) => each.name === name) };
}

/** Whether two are the same person: what one of them has begun, the other may continue. */
export const nameOf = (of: Me | null) => JSON.stringify([of?.tenant, of?.user]);

async function load(token?: string, remembered = false): Promise<void> {
  try {
    const headers = token === undefined ? {} : { authorization: `Bearer ${token}` };
    const found = await data(api.GET("/v1/me", { headers, fetch: sendOnce }));
    if (token !== undefined) {
      forget();
      await remember(token, remembered);
    }
    const isSame = nameOf(found) === nameOf(me.value);
    me.value = found;
    problem.value = null;
    admit(isSame);
  } catch (error) {
    problem.value = error as ApiError;
  }
}

/** Find out who asks: by the key of an earlier visit, the application's own login, or, on an open server, as anybody. */
export async function begin(): Promise<void> {
  await recall();
  await load();
}

/** Sign in, or again: by a key, or by the application's own login. The key is kept only if the server knows it, and
 * before the page says so: a reload would ask for it again. */
export const signIn = load;

export function signOut(): void {
  forget();
  me.value = null;
  admit(false);
  void load();
}
