/** The choice of who is asked. */
import { api, data } from "../../api";
import { may } from "../../session";
import { Field, Select, useLoaded } from "../../ui";
import { t } from "../../words";

export interface Team {
  id: string;
  name?: string;
  description?: string | null;
}

/** The teams that are served; null while they are not known, or may not be. */
export function useTeams() {
  return useLoaded(async () => (may("agents:read") ? ((await data(api.GET("/v1/models"))) as { data: Team[] }).data : null), []);
}

/** Without the right to list them, one is named. `kept`: one that is chosen whether it is served or not. */
export function TeamChoice({ teams, value, onValue }: { teams: readonly Team[] | null; value: string; onValue: (team: string) => void }) {
  if (teams === null) return <Field label={t("chat.team")} hideLabel placeholder={t("chat.team")} value={value} onValue={onValue} />;
  const names = teams.map((each) => each.id);
  const all = value && !names.includes(value) ? [value, ...names] : names;
  return <Select label={t("chat.team")} hideLabel value={value} options={all.map((each) => [each, each] as const)} onValue={onValue} />;
}
