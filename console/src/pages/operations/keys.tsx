/** The API keys of the tenant. A key is shown once, when it is made. */
import { useState } from "preact/hooks";
import { api, data } from "../../api/client";
import type { Listed } from "../../api/shapes";
import { query, search } from "../../route";
import { me } from "../../session";
import { Button, CopyButton, Dialog, Field, Select } from "../../ui/controls";
import { ConfirmButton, Form } from "../../ui/form";
import { paged, useListing } from "../../ui/load";
import { Table, type Column } from "../../ui/table";
import { Time } from "../../ui/values";
import { t } from "../../words";

type Key = Listed<"/v1/keys">;
const ROLES = ["viewer", "user", "operator", "admin"] as const;

function KeyForm({ onMade }: { onMade: (key: string) => void }) {
  const [user, setUser] = useState("");
  const [name, setName] = useState("");
  const [role, setRole] = useState<(typeof ROLES)[number] | "">("user");
  const [scopes, setScopes] = useState("");
  const [days, setDays] = useState("");
  const submit = async () => {
    const all = [role, ...scopes.split(/[\s,]+/)].filter(Boolean) as never[];
    const body = { user, scopes: all, ...(name ? { name } : {}), ...(days ? { expires_in_days: Number(days) } : {}) };
    onMade((await data(api.POST("/v1/keys", { body }))).key ?? "");
  };
  return (
    <Form onSubmit={submit} submit={t("ops.makeKey")}>
      <Field label={t("ops.user")} value={user} onValue={setUser} required autofocus />
      <Field label={t("kn.name")} value={name} onValue={setName} />
      <Select label={t("ops.role")} value={role} options={[...ROLES.map((each) => [each, each] as const), ["", t("ops.noRole")]]} onValue={setRole} />
      <Field label={t("ops.scopes")} value={scopes} onValue={setScopes} placeholder="chat threads:read" />
      <Field label={t("ops.days")} value={days} onValue={setDays} />
    </Form>
  );
}

function NewKey({ onClose }: { onClose: () => void }) {
  const [made, setMade] = useState<string | null>(null);
  // Where nobody needed a key, the first one ends that: whoever has it signs in with it.
  const first = me.value?.has_key === false;
  return (
    <Dialog title={t("ops.makeKey")} onClose={onClose}>
      {made === null ? (
        <KeyForm onMade={setMade} />
      ) : (
        <div class="form">
          <p role="status">{t("ops.once")}</p>
          <div class="actions">
            <code class="text">{made}</code>
            <CopyButton text={made} />
          </div>
          {first && <p class="quiet">{t("ops.firstKey")}</p>}
        </div>
      )}
    </Dialog>
  );
}

export function Keys() {
  const [making, setMaking] = useState(false);
  const user = query.value.get("user") ?? "";
  const listing = useListing<Key>((after) => data(api.GET("/v1/keys", { params: { query: { ...paged(after), ...(user ? { user } : {}) } } })), [user]);
  const revoke = async (key: Key) => {
    await data(api.DELETE("/v1/keys/{key_id}", { params: { path: { key_id: key.id } } }));
    listing.reload();
  };
  const columns: Column<Key>[] = [
    { name: "user", head: t("ops.user"), cell: (row) => <bdi>{row.user}</bdi> },
    { name: "name", head: t("kn.name"), cell: (row) => <bdi>{row.name ?? "–"}</bdi>, wide: true },
    { name: "id", head: t("ops.id"), cell: (row) => <code>{row.id}</code>, wide: true },
    { name: "scopes", head: t("ops.scopesOf"), cell: (row) => <span title={row.scopes?.join(" ")}>{row.scopes?.join(" ")}</span>, width: "1.5fr", wide: true },
    { name: "state", head: t("kn.status"), cell: (row) => row.state && <span class={`status ${row.state === "active" ? "good" : ""}`}>{t(`ops.key.${row.state}`)}</span>, width: "6rem" },
    { name: "made", head: t("ops.made"), cell: (row) => <Time at={row.created_at} />, width: "7rem", wide: true },
    { name: "used", head: t("kn.used"), cell: (row) => <Time at={row.last_used_at} />, width: "7rem", wide: true },
    { name: "expires", head: t("kn.expires"), cell: (row) => (row.expires_at ? <Time at={row.expires_at} /> : t("kn.never")), width: "7rem", wide: true },
    {
      name: "do",
      head: "",
      width: "6rem",
      cell: (row) =>
        row.state === "active" && (
          <ConfirmButton kind="ghost" label={`${t("ops.revoke")}: ${row.id}`} title={t("ops.revoke")} text={t("ops.revokeText", { user: row.user ?? "" })} onYes={() => revoke(row)}>
            {t("ops.revoke")}
          </ConfirmButton>
        ),
    },
  ];
  return (
    <>
      <div class="filters">
        <Field label={t("ops.user")} type="search" value={user} onValue={(value) => search({ user: value || null })} />
        <Button kind="primary" onClick={() => setMaking(true)}>
          {t("ops.makeKey")}
        </Button>
      </div>
      <Table label={t("ops.keys")} columns={columns} listing={listing} />
      {making && <NewKey onClose={() => (setMaking(false), listing.reload())} />}
    </>
  );
}
