/** What is shown while there is nothing to show: loading, empty, and what went wrong. */
import type { ComponentChildren, ComponentType } from "preact";
import { ApiError } from "../api/client";
import { t } from "../words";
import { Button } from "./controls";
import { messageOf } from "./toast";
import { useLoaded, type Known, type Listing } from "./load";

export function Loading({ lines = 3 }: { lines?: number | undefined }) {
  return (
    <div class="loading" role="status" aria-label={t("state.loading")}>
      {Array.from({ length: lines }, (_, line) => (
        <span class="skeleton" key={line} />
      ))}
    </div>
  );
}

export function Empty({ title = t("state.empty"), children }: { title?: string; children?: ComponentChildren }) {
  return (
    <div class="empty">
      <p class="empty-title">{title}</p>
      {children}
    </div>
  );
}

/** An error as the server worded it, with what to do: nothing is hidden behind "something went wrong". That there is no
 * server is told once, at the head of the page: here it interrupts nobody. */
export function Problem({ error, retry }: { error: unknown; retry?: () => void }) {
  const told = error instanceof ApiError ? error : null;
  const isAway = told?.code === "offline";
  const text = isAway ? t("state.offline") : messageOf(error);
  return (
    <div class="problem" role={isAway ? "group" : "alert"}>
      <p class="problem-title">{told?.status === 403 ? t("state.refused") : t("state.problem")}</p>
      <p>{text}</p>
      {told?.requestId && <p class="quiet">{t("state.request", { id: told.requestId })}</p>}
      {retry && <Button onClick={retry}>{t("do.retry")}</Button>}
    </div>
  );
}

/** What was loaded, and above it what went wrong since. */
export function Show<T>({ of: { value, error, reload }, lines, children }: { of: Known<T>; lines?: number; children: (value: T) => ComponentChildren }) {
  return (
    <>
      {error !== null && <Problem error={error} retry={reload} />}
      {value !== null ? children(value) : error === null && <Loading lines={lines} />}
    </>
  );
}

/** The end of a list that is no table: what went wrong, that nothing is there yet, or at all, and the way to more of it. */
export function Rest({ of: { rows, error, loading, hasMore, more, reload }, lines, empty }: { of: Omit<Listing<unknown>, "change">; lines?: number; empty?: ComponentChildren }) {
  if (error !== null) return <Problem error={error} retry={rows.length && hasMore ? more : reload} />;
  if (hasMore) return <Button disabled={loading} onClick={more}>{t("do.more")}</Button>;
  if (rows.length) return null;
  return loading ? <Loading lines={lines} /> : <>{empty}</>;
}

/** The component that a module has as its default, loaded when it is first shown. */
export function later<P extends object>(load: () => Promise<{ default: ComponentType<P> }>): ComponentType<P> {
  return function Later(props: P) {
    const made = useLoaded(load, []);
    // A module that could not be loaded may be of a server that was replaced: the page of the new one names its own.
    return <Show of={{ ...made, reload: () => location.reload() }}>{({ default: Part }) => <Part {...props} />}</Show>;
  };
}
