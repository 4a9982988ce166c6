/** What a model was shown of the memory for an answer, and how it is forgotten. */
import { useState } from "preact/hooks";
import { api, data } from "../../api";
import { may } from "../../session";
import { Button, Loading, Problem, useLoaded } from "../../ui";
import { t } from "../../words";

const MOST = 100;

function Memories({ versions }: { versions: readonly string[] }) {
  const query = { "version_id[]": versions.slice(0, MOST) as string[], limit: MOST };
  const found = useLoaded(() => data(api.GET("/v1/memories", { params: { query } })), [versions]);
  const [forgotten, setForgotten] = useState<ReadonlySet<string>>(new Set());
  if (found.error !== null) return <Problem error={found.error} retry={found.reload} />;
  if (found.value === null) return <Loading lines={1} />;
  if (!found.value.data.length) return <p class="quiet">{t("chat.noMemory")}</p>;
  const forget = async (id: string) => {
    await data(api.DELETE("/v1/memories/{memory_id}", { params: { path: { memory_id: id } } }));
    setForgotten((old) => new Set(old).add(id));
  };
  return (
    <ul>
      {found.value.data.map(({ id, text }) => (
        <li key={id}>
          <bdi>{text}</bdi> {forgotten.has(id) ? <span class="badge">{t("chat.forgotten")}</span> : may("memory:delete") && <Button onClick={() => forget(id)}>{t("chat.forget")}</Button>}
        </li>
      ))}
    </ul>
  );
}

export function Recalled({ versions }: { versions: readonly string[] }) {
  const [open, setOpen] = useState(false);
  return (
    <details class="thought" onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{t("chat.recalled", { n: versions.length })}</summary>
      {open && <Memories versions={versions} />}
    </details>
  );
}
