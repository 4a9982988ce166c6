/** The frame of all pages: who asks, where one can go, and whether the server is there. */
import { signal } from "@preact/signals";
import type { ComponentType } from "preact";
import { useEffect, useState } from "preact/hooks";
import { api, data, online, refused } from "./api/client";
import type { Scope } from "./api/shapes";
import { path } from "./route";
import { may, me, problem, signOut } from "./session";
import { SignIn } from "./sign-in";
import { theme, themes } from "./theme";
import { Button, Select } from "./ui/controls";
import { PageHead } from "./ui/page";
import { Loading, Problem } from "./ui/state";
import { Toasts } from "./ui/toast";
import { choose, language, t, type Word } from "./words";

interface Place {
  name: string;
  word: Word;
  needs: readonly Scope[];
  load: () => Promise<{ default: ComponentType }>;
}

/** The pages, in the order of the menu. Each is loaded when it is first opened. */
const PLACES: readonly Place[] = [
  { name: "chat", word: "nav.chat", needs: ["chat"], load: () => import("./pages/chat") },
  { name: "runs", word: "nav.runs", needs: ["threads:read"], load: () => import("./pages/runs") },
  { name: "approvals", word: "nav.approvals", needs: ["threads:read"], load: () => import("./pages/approvals") },
  { name: "agents", word: "nav.agents", needs: ["agents:read"], load: () => import("./pages/agents") },
  { name: "tools", word: "nav.tools", needs: ["agents:read"], load: () => import("./pages/tools") },
  { name: "knowledge", word: "nav.knowledge", needs: ["knowledge:read"], load: () => import("./pages/knowledge") },
  { name: "memory", word: "nav.memory", needs: ["memory:read"], load: () => import("./pages/memory") },
  { name: "operations", word: "nav.operations", needs: ["threads:read"], load: () => import("./pages/operations") },
];

const menuOpen = signal(false);

function Page({ place }: { place: Place }) {
  const [Shown, setShown] = useState<ComponentType | null>(null);
  const [error, setError] = useState<unknown>(null);
  const load = () => {
    setError(null);
    place.load().then((made) => setShown(() => made.default), setError);
  };
  useEffect(() => (setShown(null), load()), [place]);
  if (error !== null) return <Problem error={error} retry={load} />;
  return Shown ? <Shown /> : <Loading />;
}

function Menu({ places, current }: { places: readonly Place[]; current: Place | undefined }) {
  return (
    <nav class={menuOpen.value ? "menu open" : "menu"} aria-label={t("nav.main")}>
      <ul>
        {places.map(({ name, word }) => (
          <li key={name}>
            <a href={name} aria-current={name === current?.name ? "page" : undefined} onClick={() => (menuOpen.value = false)}>
              {t(word)}
            </a>
          </li>
        ))}
      </ul>
      <div class="menu-foot">
        {me.value?.is_demo && <span class="badge">{t("app.demo")}</span>}
        <span class="quiet who">{t("app.asUser", { user: me.value?.user ?? "", tenant: me.value?.tenant ?? "" })}</span>
        <Select label={t("app.theme")} value={theme.value} options={themes()} onValue={(chosen) => (theme.value = chosen)} />
        <Select
          label={t("app.language")}
          value={language.value}
          options={[
            ["en", "English"],
            ["zh", "中文"],
          ]}
          onValue={choose}
        />
        {me.value?.has_key && <Button onClick={signOut}>{t("app.signOut")}</Button>}
      </div>
    </nav>
  );
}

function NotFound() {
  return (
    <div class="page">
      <PageHead title={t("app.notFound")} />
    </div>
  );
}

const PAUSE = 2000;

/** While the server cannot be reached, ask it again: a page that nobody touches comes back by itself. */
function useReturn() {
  useEffect(() => {
    if (online.value) return;
    const timer = setInterval(() => void data(api.GET("/healthz")).catch(() => undefined), PAUSE);
    return () => clearInterval(timer);
  }, [online.value]);
}

export function App() {
  useReturn();
  if (me.value === null) {
    if (problem.value === null) return <Loading />;
    return problem.value.status === 401 ? <SignIn /> : <Problem error={problem.value} retry={() => location.reload()} />;
  }
  if (refused.value) return <SignIn />;
  const places = PLACES.filter(({ needs }) => may(...needs));
  const name = path.value[0];
  const current = name === undefined ? places[0] : places.find((each) => each.name === name);
  return (
    <div class="frame">
      <a class="skip" href="#main">
        {t("nav.skip")}
      </a>
      <header class="top">
        <Button kind="ghost" label={t("nav.menu")} pressed={menuOpen.value} onClick={() => (menuOpen.value = !menuOpen.value)}>
          ☰
        </Button>
        <strong>{t("app.name")}</strong>
      </header>
      <Menu places={places} current={current} />
      <main id="main" tabIndex={-1}>
        {!online.value && (
          <p class="offline" role="alert">
            {t("app.offline")}
          </p>
        )}
        {current ? <Page key={current.name} place={current} /> : <NotFound />}
      </main>
      <Toasts />
    </div>
  );
}
