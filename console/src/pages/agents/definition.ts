/** Stored definitions, as the pages read and name them. */
import { stringify } from "yaml";
import { api, data, filled, type Definition } from "../../api";
import { chosen, to } from "../../route";
import { may } from "../../session";
import type { Data } from "../../ui/editor/places";

export type Visibility = Definition["visibility"];
export const VISIBILITIES = ["user", "tenant", "all"] as const;

/** For whom the definitions are that the address asks for; null: whoever they are for. */
export function chosenVisibility(): Visibility | null {
  return chosen("for", VISIBILITIES) ?? null;
}

export function agentPath(name: string, visibility: Visibility | null, tab?: string): string {
  return to(["agents", name], { for: visibility, tab });
}

/** Whether whoever is signed in may change definitions for these. */
export function mayChange(visibility: Visibility): boolean {
  return visibility === "user" ? may("agents:write") : visibility === "tenant" && may("agents:write", "admin");
}

export const contentOf = ({ definition }: Definition): Data => definition as Data;

/** Whether two definitions say the same, in whatever order. */
export function same(one: unknown, other: unknown): boolean {
  const text = (value: unknown) => stringify(value, { sortMapEntries: true });
  return text(one) === text(other);
}

/** What a definition serves by its name: an agent, or a team. */
export function servedPart(definition: Data, name: string): { section: "agents" | "teams"; part: Data } | null {
  for (const section of ["teams", "agents"] as const) {
    const part = (definition[section] as Record<string, Data> | null | undefined)?.[name];
    if (part) return { section, part };
  }
  return null;
}

/** How an agent works, or what kind of team it is. */
export function kindOf(part: Data, section: "agents" | "teams"): string {
  const given = section === "teams" ? part["kind"] : part["strategy"];
  return String((typeof given === "object" && given !== null ? (given as Data)["kind"] : given) ?? "tools");
}

export function agent(name: string, visibility: Visibility | null, version?: number): Promise<Definition> {
  return data(api.GET("/v1/agents/{name}", { params: { path: { name }, query: filled({ visibility, version }) } }));
}
