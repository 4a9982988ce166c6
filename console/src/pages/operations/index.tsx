import { PageHead } from "../../ui/page";
import { Empty } from "../../ui/state";
import { t } from "../../words";

export default function Operations() {
  return (
    <div class="page">
      <PageHead title={t("nav.operations")} />
      <Empty />
    </div>
  );
}
