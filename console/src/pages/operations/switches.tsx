/** What is off, and to switch it off and on. */
import { useState } from "preact/hooks";
import { api, data } from "../../api/client";
import type { Listed } from "../../api/shapes";
import { Area, Field, Select } from "../../ui/controls";
import { ConfirmButton, DialogButton, Form } from "../../ui/form";
import { paged, useListing } from "../../ui/load";
import { Empty } from "../../ui/state";
import { Table, type Column } from "../../ui/table";
import { Time } from "../../ui/values";
import { t } from "../../words";

type Switch = Listed<"/v1/switches">;
const KINDS = ["team", "model", "tool", "tenant"] as const;
type Kind = (typeof KINDS)[number];

function OffForm({ onDone }: { onDone: () => void }) {
  const [kind, setKind] = useState<Kind>("team");
  const [name, setName] = useState("");
  const [message, setMessage] = useState("");
  const [until, setUntil] = useState("");
  const submit = async () => {
    const body = { kind, message, ...(kind === "tenant" ? {} : { name }), ...(until ? { until: Math.round(Date.parse(until) / 1000) } : {}) };
    await data(api.PUT("/v1/switches", { body }));
    onDone();
  };
  return (
    <Form onSubmit={submit} submit={t("ops.off.do")} kind="danger">
      <Select label={t("mem.kind")} value={kind} options={KINDS.map((each) => [each, t(`ops.kind.${each}`)] as const)} onValue={setKind} />
      {kind === "tenant" ? <p class="quiet">{t("ops.tenantOff")}</p> : <Field label={t("kn.name")} value={name} onValue={setName} required autofocus />}
      <Area label={t("ops.message")} value={message} onValue={setMessage} rows={2} required />
      <Field label={t("ops.until")} type="datetime-local" value={until} onValue={setUntil} />
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
    {
      name: "what",
      head: t("ops.what"),
      cell: (row) => (
        <>
          <span class="badge">{t(`ops.kind.${row.kind as Kind}`)}</span> <bdi>{row.name}</bdi>
        </>
      ),
    },
    { name: "message", head: t("ops.message"), cell: (row) => <bdi title={row.message}>{row.message}</bdi>, width: "2fr", wide: true },
    { name: "since", head: t("mem.since"), cell: (row) => <Time at={row.set_at} />, width: "8rem", wide: true },
    { name: "until", head: t("mem.until"), cell: (row) => (row.until ? <Time at={row.until} /> : t("ops.untilOn")), width: "10rem", wide: true },
    {
      name: "do",
      head: "",
      width: "7rem",
      cell: (row) => (
        <ConfirmButton kind="ghost" label={`${t("ops.on")}: ${row.name}`} title={t("ops.on")} text={row.message} onYes={() => on(row)}>
          {t("ops.on")}
        </ConfirmButton>
      ),
    },
  ];
  return (
    <>
      <div class="actions">
        <DialogButton kind="primary" title={t("ops.off.do")}>
          {(close) => <OffForm onDone={() => (close(), listing.reload())} />}
        </DialogButton>
        <span class="quiet">{t("ops.switchHow")}</span>
      </div>
      <Table label={t("ops.switches")} columns={columns} listing={listing} empty={<Empty title={t("ops.allOn")} />} />
    </>
  );
}
