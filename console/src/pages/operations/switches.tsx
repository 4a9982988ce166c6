/** What is off, and to switch it off and on. */
import { useState } from "preact/hooks";
import { api, data, type Listed } from "../../api";
import { acts, Area, ConfirmButton, DialogButton, Field, Form, optionsOf, paged, Select, Table, Time, useListing, type Column, type Given } from "../../ui";
import { t } from "../../words";

type Switch = Listed<"/v1/switches">;
const KINDS = ["team", "model", "tool", "tenant"] as const;
type Kind = (typeof KINDS)[number];

function OffForm({ onDone }: { onDone: () => void }) {
  const [kind, setKind] = useState<Kind>("team");
  const submit = async ({ name, message = "", until }: Given) => {
    const body = { kind, message, ...(name ? { name } : {}), ...(until ? { until: Math.round(Date.parse(until) / 1000) } : {}) };
    await data(api.PUT("/v1/switches", { body }));
    onDone();
  };
  return (
    <Form onSubmit={submit} submit={t("ops.off.do")} kind="danger">
      <Select label={t("is.kind")} value={kind} options={optionsOf(KINDS, (each) => t(`is.${each}`))} onValue={setKind} />
      {kind === "tenant" ? <p class="quiet">{t("ops.tenantOff")}</p> : <Field label={t("is.name")} name="name" required autofocus />}
      <Area label={t("ops.message")} name="message" rows={2} required />
      <Field label={t("ops.until")} name="until" type="datetime-local" />
    </Form>
  );
}

export function Switches() {
  const listing = useListing<Switch>((after) => data(api.GET("/v1/switches", { params: { query: paged(after) } })), [], 10);
  const on = async (row: Switch) => {
    const query = { kind: row.kind as Kind, ...(row.kind === "tenant" ? {} : { name: row.name }) };
    await data(api.DELETE("/v1/switches", { params: { query } }));
    listing.reload();
  };
  const columns: Column<Switch>[] = [
    { head: t("ops.what"), cell: (row) => [<span class="badge">{t(`is.${row.kind as Kind}`)}</span>, " ", <bdi>{row.name}</bdi>] },
    { head: t("ops.message"), cell: (row) => <bdi title={row.message}>{row.message}</bdi>, width: "2fr", wide: true },
    { head: t("mem.since"), cell: (row) => <Time at={row.set_at} />, width: "8rem", wide: true },
    { head: t("mem.until"), cell: (row) => (row.until ? <Time at={row.until} /> : t("ops.untilOn")), width: "10rem", wide: true },
    acts("7rem", (row) => <ConfirmButton of={row.name} title={t("ops.on")} text={row.message} onYes={() => on(row)} />),
  ];
  return (
    <>
      <div class="actions">
        <DialogButton kind="primary" title={t("ops.off.do")}>
          {(close) => <OffForm onDone={() => (close(), listing.reload())} />}
        </DialogButton>
        <span class="quiet">{t("ops.switchHow")}</span>
      </div>
      <Table label={t("ops.switches")} columns={columns} listing={listing} empty={t("ops.allOn")} />
    </>
  );
}
