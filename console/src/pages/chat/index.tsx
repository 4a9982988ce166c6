import { PageHead } from "../../ui/page";
import { Empty } from "../../ui/state";
import { t } from "../../words";

export default function Chat() {
  return (
    <div class="page">
      <PageHead title={t("nav.chat")} />
      <Empty />
    </div>
  );
}
