import { PageHead } from "../../ui/page";
import { Empty } from "../../ui/state";
import { t } from "../../words";

export default function Tools() {
  return (
    <div class="page">
      <PageHead title={t("nav.tools")} />
      <Empty />
    </div>
  );
}
