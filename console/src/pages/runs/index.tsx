import { path, query, to } from "../../route";
import { may } from "../../session";
import { PageHead, Tabs } from "../../ui";
import { t } from "../../words";
import { Errors } from "./errors";
import { RunList } from "./list";
import { OneRun } from "./run";
import "./runs.css";

export default function Runs() {
  const id = path.value[1];
  if (id !== undefined) return <OneRun key={id} id={id} />;
  const errors = may("runs:admin") && query.value.get("tab") === "errors";
  const tabs = [
    { href: to(["runs"]), text: t("runs.list"), current: !errors },
    { href: to(["runs"], { tab: "errors" }), text: t("runs.errors"), current: errors },
  ];
  return (
    <div class="page">
      <PageHead title={t("nav.runs")} />
      {may("runs:admin") && <Tabs label={t("nav.runs")} tabs={tabs} />}
      {errors ? <Errors /> : <RunList />}
    </div>
  );
}
