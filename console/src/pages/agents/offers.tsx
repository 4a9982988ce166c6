/** What there is to choose from, beside what is stored: cards, with a search of their names. */
import { useState } from "preact/hooks";
import { api, data } from "../../api";
import { may } from "../../session";
import { Empty, Field, Show, useLoaded, type Known } from "../../ui";
import { t } from "../../words";

export interface Offer {
  id: string;
  description?: string;
}

/** The agents and teams that are served; null while they are not known, or may not be. */
export function useTeams() {
  return useLoaded(async () => (may("agents:read") ? ((await data(api.GET("/v1/models"))) as { data: Offer[] }).data : null), []);
}

/** The tools of the server, and those that the tenant has registered; none where they may not be known. */
export async function toolsOf(): Promise<Offer[]> {
  if (!may("chat")) return [];
  const { tools } = await data(api.GET("/api/v1/agent/tools"));
  return (tools as unknown as { name: string; description?: string }[]).map((each) => ({ ...each, id: each.name }));
}

/** Cards that are shown at once. */
const MOST = 200;

/** `href`: where a card leads, if it does. */
export function Offers({ title, of, href }: { title: string; of: Known<readonly Offer[]>; href?: (id: string) => string }) {
  const [wanted, setWanted] = useState("");
  const fits = ({ id, description = "" }: Offer) => `${id} ${description}`.toLowerCase().includes(wanted.toLowerCase());
  const cards = (offers: readonly Offer[]) => {
    const shown = offers.filter(fits).slice(0, MOST);
    if (shown.length === 0) return <Empty />;
    return (
      <ul class="cards offers">
        {shown.map(({ id, description }) => {
          const name = <strong dir="auto">{id}</strong>;
          return (
            <li class="card" key={id}>
              {href ? <a href={href(id)}>{name}</a> : name}
              <p class="quiet clamp" title={description}>
                <bdi>{description}</bdi>
              </p>
            </li>
          );
        })}
      </ul>
    );
  };
  return (
    <section aria-labelledby="offered" class="offered">
      <header class="section-head">
        <h2 id="offered">{title}</h2>
        <Field label={t("do.search")} hideLabel type="search" placeholder={t("do.search")} value={wanted} onValue={setWanted} />
      </header>
      <Show of={of}>{cards}</Show>
    </section>
  );
}
