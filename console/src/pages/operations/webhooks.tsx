/** What was, or is to be, sent to one's webhooks. */
import { api, data, type Listed } from "../../api";
import { to } from "../../route";
import { may } from "../../session";
import { acts, Button, paged, Table, Time, useListing, type Column } from "../../ui";
import { t } from "../../words";

type Delivery = Listed<"/v1/webhooks/deliveries">;
const COLORS = { pending: "warn", delivered: "good", given_up: "bad" } as const;

export function Webhooks() {
  const listing = useListing<Delivery>((after) => data(api.GET("/v1/webhooks/deliveries", { params: { query: paged(after) } })), [], 5);
  const retry = async (delivery: Delivery) => {
    await data(api.POST("/v1/webhooks/deliveries/{delivery_id}/retry", { params: { path: { delivery_id: delivery.id } } }));
    listing.reload();
  };
  const resend = (row: Delivery) => (
    <Button kind="ghost" label={`${t("do.sendAgain")}: ${row.id}`} onClick={() => retry(row)}>
      {t("do.sendAgain")}
    </Button>
  );
  const columns: Column<Delivery>[] = [
    { head: t("ops.event"), cell: (row) => <code>{row.type}</code>, width: "9rem" },
    { head: t("is.status"), cell: (row) => <span class={`status ${COLORS[row.state]}`}>{t(`ops.sent.${row.state}`)}</span>, width: "8rem" },
    { head: t("ops.url"), cell: (row) => <bdi title={row.url}>{row.url}</bdi>, width: "2fr", wide: true },
    { head: t("is.run"), cell: (row) => <a href={to(["runs", row.run_id])}>{row.run_id}</a>, wide: true },
    { head: t("ops.answer"), cell: (row) => <span title={row.error ?? ""}>{[row.status_code, row.error].filter(Boolean).join(" ") || "–"}</span>, width: "2fr", wide: true },
    { head: t("ops.attempts"), cell: (row) => row.attempts, width: "6rem", numeric: true, wide: true },
    { head: t("ops.made"), cell: (row) => <Time at={row.created_at} />, width: "7rem", wide: true },
    { head: t("ops.next"), cell: (row) => <Time at={row.next_at} />, width: "7rem", wide: true },
    ...(may("webhooks:write") ? [acts("7rem", resend)] : []),
  ];
  return <Table label={t("ops.webhooks")} columns={columns} listing={listing} empty={t("ops.noWebhooks")} />;
}
