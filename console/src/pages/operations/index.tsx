import type { ComponentType } from "preact";
import type { Scope } from "../../api";
import { path, to } from "../../route";
import { may } from "../../session";
import { Empty, later, PageHead, Tabs } from "../../ui";
import { t, type Word } from "../../words";
import { Bounds, Switches } from "./bounds";
import { Keys, Users } from "./keys";
import { Audit, Webhooks } from "./logs";
import { Settings } from "./settings";
import "./operations.css";

interface Tab {
  name: string;
  word: Word;
  /** One of these is enough. */
  needs: readonly Scope[];
  Shown: ComponentType;
}

/** Those with plots are loaded when they are shown. */
const TABS: readonly Tab[] = [
  { name: "overview", word: "ops.overview", needs: ["metrics:read", "runs:admin"], Shown: later(() => import("./overview")) },
  { name: "usage", word: "ops.usage", needs: ["threads:read"], Shown: later(() => import("./usage")) },
  { name: "limits", word: "ops.limits", needs: ["admin"], Shown: Bounds },
  { name: "switches", word: "ops.switches", needs: ["runs:admin"], Shown: Switches },
  { name: "settings", word: "ops.settings", needs: ["config:admin"], Shown: Settings },
  { name: "keys", word: "ops.keys", needs: ["admin"], Shown: Keys },
  { name: "users", word: "ops.users", needs: ["admin"], Shown: Users },
  { name: "audit", word: "ops.audit", needs: ["admin"], Shown: Audit },
  { name: "webhooks", word: "ops.webhooks", needs: ["webhooks:read"], Shown: Webhooks },
];

/** `/operations/TAB`; without a tab the first one that is allowed. */
export default function Operations() {
  const tabs = TABS.filter(({ needs }) => needs.some((scope) => may(scope)));
  const name = path.value[1];
  const current = name === undefined ? tabs[0] : tabs.find((each) => each.name === name);
  return (
    <div class="page">
      <PageHead title={current ? `${t("nav.operations")}: ${t(current.word)}` : t("nav.operations")} />
      <Tabs label={t("nav.operations")} tabs={tabs.map((each) => ({ href: to(["operations", each.name]), text: t(each.word), current: each === current }))} />
      {current ? <current.Shown key={current.name} /> : <Empty title={t("app.notFound")} />}
    </div>
  );
}
