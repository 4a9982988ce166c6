/** What was, or is to be, sent to one's webhooks. */
import { api, data } from "../../api/client";
import type { Listed } from "../../api/shapes";
import { to } from "../../route";
import { may } from "../../session";
import { Button } from "../../ui/controls";
import { paged, useListing } from "../../ui/load";
import { Empty } from "../../ui/state";
import { Table, type Column } from "../../ui/table";
import { Time } from "../../ui/values";
import { t } from "../../words";

type Delivery = Listed<"/v1/webhooks/deliveries">;
const COLORS = { pending: "warn", delivered: "good", given_up: "bad" } as const;

export function Webhooks() {
  const listing = useListing<Delivery>((after) => data(api.GET("/v1/webhooks/deliveries", { params: { query: paged(after) } })), [], 5);
  const retry = async (delivery: Delivery) => {
    await data(api.POST("/v1/webhooks/deliveries/{delivery_id}/retry", { params: { path: { delivery_id: delivery.id } } }));
    listing.reload();
  };
  const columns: Column<Delivery>[] = [
    { name: "type", head: t("ops.event"), cell: (row) => <code>{row.type}</code>, width: "9rem" },
    { name: "state", head: t("kn.status"), cell: (row) => <span class={`status ${COLORS[row.state]}`}>{t(`ops.sent.${row.state}`)}</span>, width: "8rem" },
    { name: "url", head: t("ops.url"), cell: (row) => <bdi title={row.url}>{row.url}</bdi>, width: "2fr", wide: true },
    { name: "run", head: t("ops.run"), cell: (row) => <a href={to(["runs", row.run_id])}>{row.run_id}</a>, wide: true },
    { name: "answer", head: t("ops.answer"), cell: (row) => <span title={row.error ?? ""}>{[row.status_code, row.error].filter(Boolean).join(" ") || "–"}</span>, width: "2fr", wide: true },
    { name: "attempts", head: t("ops.attempts"), cell: (row) => row.attempts, width: "6rem", numeric: true, wide: true },
    { name: "made", head: t("ops.made"), cell: (row) => <Time at={row.created_at} />, width: "7rem", wide: true },
    { name: "next", head: t("ops.next"), cell: (row) => <Time at={row.next_at} />, width: "7rem", wide: true },
  ];
  if (may("webhooks:write"))
    columns.push({
      name: "do",
      head: "",
      width: "7rem",
      cell: (row) => (
        <Button kind="ghost" label={`${t("ops.resend")}: ${row.id}`} onClick={() => retry(row)}>
          {t("ops.resend")}
        </Button>
      ),
    });
  return <Table label={t("ops.webhooks")} columns={columns} listing={listing} empty={<Empty title={t("ops.noWebhooks")} />} />;
}
