/** The head of a page: what it is, and what can be done with it; and how names stand beside values. */
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

/** Names and values, one beside the other. What has no value is left out. */
export function Facts({ of, class: kind = "facts" }: { of: readonly (readonly [string, ComponentChildren])[]; class?: string }) {
  return (
    <dl class={kind}>
      {of
        .filter(([, value]) => value !== null && value !== undefined && value !== "")
        .map(([name, value]) => (
          <div key={name}>
            <dt>{name}</dt>
            <dd>{value}</dd>
          </div>
        ))}
    </dl>
  );
}

export interface Figure {
  name: string;
  value: ComponentChildren;
  more?: ComponentChildren;
  bad?: boolean;
}

/** Numbers that are to be seen from afar, each with its name above and what there is to say below. */
export function Figures({ of }: { of: readonly Figure[] }) {
  return (
    <dl class="cards figures">
      {of.map(({ name, value, more, bad }) => (
        <div class="card" key={name}>
          <dt class="quiet">{name}</dt>
          <dd class={bad ? "figure bad" : "figure"}>{value}</dd>
          {more && <dd class="quiet">{more}</dd>}
        </div>
      ))}
    </dl>
  );
}
