/** The head of a page: what it is, and what can be done with it. */
import type { ComponentChildren } from "preact";
import { useEffect } from "preact/hooks";
import { t } from "../words";

export function PageHead({ title, children }: { title: string; children?: ComponentChildren }) {
  useEffect(() => {
    document.title = `${title} · ${t("app.name")}`;
  }, [title]);
  return (
    <header class="page-head">
      <h1>{title}</h1>
      {children}
    </header>
  );
}
