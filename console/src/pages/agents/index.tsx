import { PageHead } from "../../ui/page";
import { Empty } from "../../ui/state";
import { t } from "../../words";

export default function Agents() {
  return (
    <div class="page">
      <PageHead title={t("nav.agents")} />
      <Empty />
    </div>
  );
}
