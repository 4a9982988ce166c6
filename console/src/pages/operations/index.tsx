import { to } from "../../route";
import { placed, type Place } from "../../session";
import { Empty, later, PageHead, Tabs } from "../../ui";
import { t } from "../../words";
import { Bounds, Switches } from "./bounds";
import { Keys, Users } from "./keys";
import { Audit, Webhooks } from "./logs";
import { Settings } from "./settings";
import "./operations.css";

/** Those with plots are loaded when they are shown. */
const TABS: readonly Place[] = [
  { name: "overview", word: "ops.overview", needs: ["metrics:read", "runs:admin"], Page: later(() => import("./overview")) },
  { name: "usage", word: "ops.usage", needs: ["threads:read"], Page: later(() => import("./usage")) },
  { name: "limits", word: "ops.limits", needs: ["admin"], Page: Bounds },
  { name: "switches", word: "ops.switches", needs: ["runs:admin"], Page: Switches },
  { name: "settings", word: "ops.settings", needs: ["config:admin"], Page: Settings },
  { name: "keys", word: "ops.keys", needs: ["admin"], Page: Keys },
  { name: "users", word: "ops.users", needs: ["admin"], Page: Users },
  { name: "audit", word: "ops.audit", needs: ["admin"], Page: Audit },
  { name: "webhooks", word: "ops.webhooks", needs: ["webhooks:read"], Page: Webhooks },
];

/** `/operations/TAB`; without a tab the first one that is allowed. */
export default function Operations() {
  const { places, current } = placed(TABS, 1);
  return (
    <div class="page">
      <PageHead title={current ? `${t("nav.operations")}: ${t(current.word)}` : t("nav.operations")} />
      <Tabs label={t("nav.operations")} tabs={places.map((each) => ({ href: to(["operations", each.name]), text: t(each.word), current: each === current }))} />
      {current ? <current.Page key={current.name} /> : <Empty title={t("app.notFound")} />}
    </div>
  );
}
