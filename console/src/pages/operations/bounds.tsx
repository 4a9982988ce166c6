/** What keys, users and threads may have in a minute and at once (limits), and spend in a day and a month (budgets). */
import { useState } from "preact/hooks";
import { api, data } from "../../api/client";
import type { Page } from "../../api/shapes";
import { Field, Select } from "../../ui/controls";
import { ConfirmButton, DialogButton, Form } from "../../ui/form";
import { paged, useListing, type Listing } from "../../ui/load";
import { Empty } from "../../ui/state";
import { Table, type Column } from "../../ui/table";
import { count, Time } from "../../ui/values";
import { t } from "../../words";

type Measure = "requests" | "tokens" | "runs" | "streams" | "tokens_day" | "tokens_month" | "cost_day" | "cost_month";
type Whom = "user" | "key" | "thread";
interface Rule extends Partial<Record<Measure, number | null>> {
  id: string;
  kind: string;
  name: string;
  set_at: number;
  used?: Partial<Record<Measure, number>>;
}
/** One of the two: what it bounds, for whom, and its calls. */
interface Bound {
  name: "limits" | "budgets";
  measures: readonly Measure[];
  whom: readonly Whom[];
  list: (after: string | number | null) => Promise<Page<Rule>>;
  put: (body: Partial<Record<Whom, string> & Record<Measure, number>>) => Promise<unknown>;
  remove: (of: Partial<Record<`of_${Whom}`, string>>) => Promise<unknown>;
}

const LIMITS: Bound = {
  name: "limits",
  measures: ["requests", "tokens", "runs", "streams"],
  whom: ["user", "key"],
  list: (after) => data(api.GET("/v1/limits", { params: { query: paged(after) } })),
  put: (body) => data(api.PUT("/v1/limits", { body })),
  remove: (query) => data(api.DELETE("/v1/limits", { params: { query } })),
};
const BUDGETS: Bound = {
  name: "budgets",
  measures: ["tokens_day", "tokens_month", "cost_day", "cost_month"],
  whom: ["user", "key", "thread"],
  list: (after) => data(api.GET("/v1/budgets", { params: { query: paged(after) } })),
  put: (body) => data(api.PUT("/v1/budgets", { body })),
  remove: (query) => data(api.DELETE("/v1/budgets", { params: { query } })),
};

const amount = (value: number) => (Number.isInteger(value) ? count(value) : value.toFixed(2));

/** How much may be used, and how much is: as a bar and as a text. */
function Used({ most, used }: { most: number | null | undefined; used: number | undefined }) {
  if (most === null || most === undefined) return <span class="quiet">{used ? t("ops.usedOnly", { used: amount(used) }) : "–"}</span>;
  if (most === 0) return <span>{t("ops.unbounded")}</span>;
  if (used === undefined) return <span>{amount(most)}</span>;
  const text = t("ops.usedOf", { used: amount(used), most: amount(most) });
  return (
    <span class="used" title={text}>
      <meter min={0} max={most} high={0.8 * most} optimum={0} value={Math.min(used, most)} aria-label={text} />
      {text}
    </span>
  );
}

function RuleForm({ bound, rule, onDone }: { bound: Bound; rule: Rule | undefined; onDone: () => void }) {
  const [kind, setKind] = useState<Whom>((rule?.kind as Whom | undefined) ?? "user");
  const [name, setName] = useState(rule?.name ?? "");
  const [values, setValues] = useState<Partial<Record<Measure, string>>>(Object.fromEntries(bound.measures.map((each) => [each, String(rule?.[each] ?? "")])));
  const submit = async () => {
    const given = bound.measures.filter((each) => values[each]).map((each) => [each, Number(values[each])] as const);
    await bound.put({ [kind]: name, ...Object.fromEntries(given) });
    onDone();
  };
  return (
    <Form onSubmit={submit}>
      {!rule && <Select label={t("ops.whom")} value={kind} options={bound.whom.map((each) => [each, t(`ops.whom.${each}`)] as const)} onValue={setKind} />}
      {rule ? <p class="text">{rule.name}</p> : <Field label={t(`ops.whom.${kind}How`)} value={name} onValue={setName} required autofocus />}
      <p class="quiet">{t("ops.boundHow")}</p>
      {bound.measures.map((each) => (
        <Field key={each} label={t(`ops.of.${each}`)} value={values[each] ?? ""} onValue={(value) => setValues((old) => ({ ...old, [each]: value }))} />
      ))}
    </Form>
  );
}

function Rules({ bound }: { bound: Bound }) {
  const listing: Listing<Rule> = useListing<Rule>(bound.list, [bound], 30);
  const one = t(bound.name === "limits" ? "ops.limit" : "ops.budget");
  const form = (rule?: Rule) => (close: () => void) => <RuleForm bound={bound} rule={rule} onDone={() => (close(), listing.reload())} />;
  const remove = async (rule: Rule) => {
    await bound.remove({ [`of_${rule.kind}`]: rule.name });
    listing.reload();
  };
  const columns: Column<Rule>[] = [
    {
      name: "whom",
      head: t("ops.whom"),
      width: "1.6fr",
      cell: (row) => (
        <>
          <span class="badge">{t(`ops.whom.${row.kind as Whom | "tenant"}`)}</span> <bdi>{row.name}</bdi>
        </>
      ),
    },
    ...bound.measures.map((each): Column<Rule> => ({ name: each, head: t(`ops.of.${each}`), cell: (row) => <Used most={row[each]} used={row.used?.[each]} />, wide: true })),
    { name: "since", head: t("ops.setAt"), cell: (row) => <Time at={row.set_at} />, width: "7rem", wide: true },
    {
      name: "do",
      head: "",
      width: "9rem",
      // What a tenant may have, the command line sets alone.
      cell: (row) =>
        row.kind !== "tenant" && (
          <>
            <DialogButton kind="ghost" label={`${t("do.edit")}: ${row.name}`} title={one} text={t("do.edit")}>
              {form(row)}
            </DialogButton>
            <ConfirmButton kind="ghost" label={`${t("ops.remove")}: ${row.name}`} title={t("ops.remove")} text={t("ops.removeText", { name: row.name })} onYes={() => remove(row)}>
              ×
            </ConfirmButton>
          </>
        ),
    },
  ];
  return (
    <section class="half" aria-label={t(`ops.${bound.name}Of`)}>
      <div class="page-head">
        <h2>{t(`ops.${bound.name}Of`)}</h2>
        <DialogButton title={one}>{form()}</DialogButton>
      </div>
      <Table label={t(`ops.${bound.name}Of`)} columns={columns} listing={listing} empty={<Empty title={t("ops.noBounds")} />} />
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
