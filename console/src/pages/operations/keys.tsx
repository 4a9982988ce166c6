/** The users of the tenant, and their API keys. A key is shown once, when it is made. */
import { useState } from "preact/hooks";
import { api, data, filled, type Listed } from "../../api";
import { asked, to } from "../../route";
import { me } from "../../session";
import { acts, ConfirmButton, CopyButton, count, DialogButton, Field, Form, numberOf, optionsOf, paged, SearchField, Select, Table, tell, Time, useListing, type Column, type Given } from "../../ui";
import { t } from "../../words";

type Key = Listed<"/v1/keys">;
const ROLES = ["viewer", "user", "operator", "admin", ""] as const;

function KeyForm({ onMade }: { onMade: (key: string) => void }) {
  const submit = async ({ user = "", name, role, scopes, days }: Given) => {
    const all = `${role} ${scopes}`.split(/[\s,]+/).filter(Boolean) as never[];
    const body = { user, scopes: all, ...filled({ name, expires_in_days: days && numberOf(days) }) };
    onMade((await data(api.POST("/v1/keys", { body }))).key ?? "");
  };
  return (
    <Form onSubmit={submit} submit={t("ops.makeKey")}>
      <Field label={t("is.user")} name="user" required autofocus />
      <Field label={t("is.name")} name="name" />
      <Select label={t("ops.role")} name="role" value="user" options={optionsOf(ROLES, (each) => each || t("ops.noRole"))} />
      <Field label={t("ops.scopes")} name="scopes" placeholder="chat threads:read" />
      <Field label={t("ops.days")} name="days" />
    </Form>
  );
}

function NewKey() {
  const [made, setMade] = useState<string | null>(null);
  if (made === null) return <KeyForm onMade={setMade} />;
  return (
    <div class="form">
      <p role="status">{t("ops.once")}</p>
      <div class="actions">
        <code class="text">{made}</code>
        <CopyButton text={made} />
      </div>
      {/* Where nobody needed a key, the first one ends that: whoever has it signs in with it. */}
      {me.value?.has_key === false && <p class="quiet">{t("ops.firstKey")}</p>}
    </div>
  );
}

export function Keys() {
  const user = asked("user");
  const listing = useListing<Key>((after) => data(api.GET("/v1/keys", { params: { query: { ...paged(after), ...filled({ user }) } } })), [user]);
  const revoke = async (key: Key) => {
    await data(api.DELETE("/v1/keys/{key_id}", { params: { path: { key_id: key.id } } }));
    listing.reload();
  };
  const columns: Column<Key>[] = [
    { head: t("is.user"), cell: (row) => <bdi>{row.user}</bdi> },
    { head: t("is.name"), cell: (row) => <bdi>{row.name ?? "–"}</bdi>, wide: true },
    { head: t("ops.id"), cell: (row) => <code>{row.id}</code>, wide: true },
    { head: t("ops.scopesOf"), cell: (row) => <span title={row.scopes?.join(" ")}>{row.scopes?.join(" ")}</span>, width: "1.5fr", wide: true },
    { head: t("is.status"), cell: (row) => row.state && <span class={`status ${row.state === "active" ? "good" : ""}`}>{t(`ops.key.${row.state}`)}</span>, width: "6rem" },
    { head: t("ops.made"), cell: (row) => <Time at={row.created_at} />, width: "7rem", wide: true },
    { head: t("kn.used"), cell: (row) => <Time at={row.last_used_at} />, width: "7rem", wide: true },
    { head: t("kn.expires"), cell: (row) => (row.expires_at ? <Time at={row.expires_at} /> : t("kn.never")), width: "7rem", wide: true },
    acts("6rem", (row) => row.state === "active" && <ConfirmButton of={row.id} title={t("ops.revoke")} text={t("ops.revokeText", { user: row.user ?? "" })} onYes={() => revoke(row)} />),
  ];
  return (
    <>
      <div class="filters">
        <SearchField label={t("is.user")} name="user" />
        <DialogButton kind="primary" title={t("ops.makeKey")} onClosed={listing.reload}>
          {() => <NewKey />}
        </DialogButton>
      </div>
      <Table label={t("ops.keys")} columns={columns} listing={listing} />
    </>
  );
}

type User = Listed<"/v1/users">;

export function Users() {
  const listing = useListing<User>((after) => data(api.GET("/v1/users", { params: { query: paged(after) } })), []);
  const remove = async (user: User) => {
    const { counts } = await data(api.DELETE("/v1/users/{user_id}", { params: { path: { user_id: user.id } } }));
    const gone = Object.entries(counts).filter(([, n]) => n > 0);
    tell(`${t("ops.deleted", { name: user.id })} ${gone.map(([name, n]) => `${name}: ${n}`).join(", ")}`);
    listing.reload();
  };
  const links = (user: User) => (
    <span class="actions">
      <a href={to(["operations", "keys"], { user: user.id })}>{t("ops.keys")}</a>
      <a href={to(["operations", "audit"], { user: user.id })}>{t("ops.audit")}</a>
    </span>
  );
  const columns: Column<User>[] = [
    { head: t("is.user"), cell: (row) => <bdi>{row.id}</bdi>, width: "2fr" },
    { head: t("ops.threads"), cell: (row) => count(row.threads), numeric: true, width: "8rem" },
    { ...acts("16rem", links), wide: true },
    acts("7rem", (row) => row.id !== me.value?.user && <ConfirmButton of={row.id} on={t("do.delete")} title={t("ops.deleteUser")} text={t("ops.deleteUserText")} name={row.id} onYes={() => remove(row)} />),
  ];
  return <Table label={t("ops.users")} columns={columns} listing={listing} />;
}
