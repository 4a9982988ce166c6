import { PageHead } from "../../ui/page";
import { Empty } from "../../ui/state";
import { t } from "../../words";

export default function Knowledge() {
  return (
    <div class="page">
      <PageHead title={t("nav.knowledge")} />
      <Empty />
    </div>
  );
}
