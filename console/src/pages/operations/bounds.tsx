/** What keys, users and threads may have in a minute and at once (limits), and spend in a day and a month (budgets); and
 * what nobody may use (switches). */
import { useState } from "preact/hooks";
import { api, data, filled, type Listed, type Page } from "../../api";
import { acts, Area, ConfirmButton, count, Field, FormButton, numberOf, optionsOf, paged, Select, Table, Time, useListing, type After, type Column, type Given } from "../../ui";
import { t } from "../../words";

type Rule = Listed<"/v1/limits"> | Listed<"/v1/budgets">;
const MEASURES = { limits: ["requests", "tokens", "runs", "streams"], budgets: ["tokens_day", "tokens_month", "cost_day", "cost_month"] } as const;
type Measure = (typeof MEASURES)["limits" | "budgets"][number];
type Amounts = Partial<Record<Measure, number | null>>;
type Whom = "user" | "key" | "thread";
/** One of the two: for whom it may be, and its calls. */
const boundOf = (name: "limits" | "budgets", whom: readonly Whom[]) => ({
  name,
  whom,
  list: (after: After): Promise<Page<Rule>> => data(api.GET(`/v1/${name}`, { params: { query: paged(after) } })),
  put: (body: Partial<Record<Whom, string> & Record<Measure, number>>) => data(api.PUT(`/v1/${name}`, { body })),
  remove: (query: Partial<Record<`of_${Whom}`, string>>) => data(api.DELETE(`/v1/${name}`, { params: { query } })),
});
const LIMITS = boundOf("limits", ["user", "key"]);
const BUDGETS = boundOf("budgets", ["user", "key", "thread"]);
type Bound = ReturnType<typeof boundOf>;

const amount = (value: number) => (Number.isInteger(value) ? count(value) : value.toFixed(2));

/** How much may be used, and how much is: as a bar and as a text. */
function Used({ most, used }: { most: number | null | undefined; used: number | null | undefined }) {
  if (most === null || most === undefined) return <span class="quiet">{used ? t("ops.usedOnly", { used: amount(used) }) : "–"}</span>;
  if (most === 0) return <span>{t("ops.unbounded")}</span>;
  if (used === null || used === undefined) return <span>{amount(most)}</span>;
  const text = t("ops.usedOf", { used: amount(used), most: amount(most) });
  return (
    <span class="used" title={text}>
      <meter min={0} max={most} high={0.8 * most} optimum={0} value={Math.min(used, most)} aria-label={text} />
      {text}
    </span>
  );
}

function WhomFields({ of }: { of: readonly Whom[] }) {
  const [kind, setKind] = useState<Whom>("user");
  return (
    <>
      <Select label={t("ops.whom")} name="kind" value={kind} options={optionsOf(of, (each) => t(`is.${each}`))} onValue={setKind} />
      <Field label={t(`ops.whom.${kind}How`)} name="name" required autofocus />
    </>
  );
}

/** The button and form to set a rule, or to change one. */
function RuleButton({ bound, rule, onDone }: { bound: Bound; rule?: Rule; onDone: () => void }) {
  const measures: readonly Measure[] = MEASURES[bound.name];
  const submit = async ({ kind = rule?.kind ?? "", name = rule?.name, ...given }: Given) => {
    const amounts = measures.filter((each) => given[each]).map((each) => [each, numberOf(given[each] ?? "")] as const);
    await bound.put({ [kind]: name, ...Object.fromEntries(amounts) });
    onDone();
  };
  return (
    <FormButton {...(rule ? { of: rule.name, text: t("do.edit") } : {})} title={t(bound.name === "limits" ? "ops.limit" : "ops.budget")} onSubmit={submit}>
      {rule ? <p class="text">{rule.name}</p> : <WhomFields of={bound.whom} />}
      <p class="quiet">{t("ops.boundHow")}</p>
      {measures.map((each) => (
        <Field key={each} label={t(`ops.of.${each}`)} name={each} value={String((rule as Amounts | undefined)?.[each] ?? "")} />
      ))}
    </FormButton>
  );
}

function Rules({ bound }: { bound: Bound }) {
  const listing = useListing<Rule>(bound.list, [bound], 30);
  const title = t(bound.name === "limits" ? "ops.limits" : "ops.budgets");
  const remove = async (rule: Rule) => {
    await bound.remove({ [`of_${rule.kind}`]: rule.name });
    listing.reload();
  };
  // What a tenant may have, the command line sets alone.
  const change = (rule: Rule) =>
    rule.kind !== "tenant" && (
      <>
        <RuleButton bound={bound} rule={rule} onDone={listing.reload} />
        <ConfirmButton of={rule.name} title={t("ops.remove")} on="×" text={t("ops.removeText", { name: rule.name })} onYes={() => remove(rule)} />
      </>
    );
  // Where the page is narrow, the first of which there is something.
  const first = MEASURES[bound.name].find((each) => listing.rows.some((row) => (row as Amounts)[each]));
  const columns: Column<Rule>[] = [
    { head: t("ops.whom"), width: "1.6fr", cell: (row) => [<span class="badge">{t(`is.${row.kind as Whom | "tenant"}`)}</span>, " ", <bdi>{row.name}</bdi>] },
    ...MEASURES[bound.name].map((each): Column<Rule> => ({ head: t(`ops.of.${each}`), cell: (row) => <Used most={(row as Amounts)[each]} used={(row as { used?: Amounts }).used?.[each]} />, wide: each !== first })),
    { head: t("ops.setAt"), cell: (row) => <Time at={row.set_at} />, width: "7rem", wide: true },
    acts("9rem", change),
  ];
  return (
    <section class="half" aria-label={title}>
      <div class="page-head">
        <h2>{title}</h2>
        <RuleButton bound={bound} onDone={listing.reload} />
      </div>
      <Table label={title} columns={columns} listing={listing} empty={t("ops.noBounds")} />
    </section>
  );
}

export function Bounds() {
  return (
    <>
      <Rules bound={LIMITS} />
      <Rules bound={BUDGETS} />
    </>
  );
}

type Switch = Listed<"/v1/switches">;
const KINDS = ["team", "model", "tool", "tenant"] as const;
type Kind = (typeof KINDS)[number];

function WhatFields() {
  const [kind, setKind] = useState<Kind>("team");
  return (
    <>
      <Select label={t("is.kind")} name="kind" value={kind} options={optionsOf(KINDS, (each) => t(`is.${each}`))} onValue={setKind} />
      {kind === "tenant" ? <p class="quiet">{t("ops.tenantOff")}</p> : <Field label={t("is.name")} name="name" required autofocus />}
    </>
  );
}

export function Switches() {
  const listing = useListing<Switch>((after) => data(api.GET("/v1/switches", { params: { query: paged(after) } })), [], 10);
  const off = async ({ kind, name, message = "", until }: Given) => {
    const body = { kind: kind as Kind, message, ...filled({ name, until: until && Math.round(Date.parse(until) / 1000) }) };
    await data(api.PUT("/v1/switches", { body }));
    listing.reload();
  };
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
        <FormButton kind="primary" title={t("ops.off.do")} submit={t("ops.off.do")} danger onSubmit={off}>
          <WhatFields />
          <Area label={t("ops.message")} name="message" rows={2} required />
          <Field label={t("ops.until")} name="until" type="datetime-local" />
        </FormButton>
        <span class="quiet">{t("ops.switchHow")}</span>
      </div>
      <Table label={t("ops.switches")} columns={columns} listing={listing} empty={t("ops.allOn")} />
    </>
  );
}
