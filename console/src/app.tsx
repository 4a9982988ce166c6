/** The frame of all pages: who asks, where one can go, and whether the server is there. */
import { signal } from "@preact/signals";
import { useEffect } from "preact/hooks";
import { api, data, online, refused } from "./api";
import { me, nameOf, placed, problem, signOut, type Place } from "./session";
import { SignIn, SignInAgain } from "./sign-in";
import { theme, themes } from "./theme";
import { Button, later, Loading, PageHead, Problem, Select, Toasts } from "./ui";
import { choose, language, t } from "./words";

/** The pages, in the order of the menu. Each is loaded when it is first opened. */
const PLACES: readonly Place[] = [
  { name: "chat", word: "nav.chat", needs: ["chat"], Page: later(() => import("./pages/chat")) },
  { name: "runs", word: "nav.runs", needs: ["threads:read"], Page: later(() => import("./pages/runs")) },
  { name: "approvals", word: "nav.approvals", needs: ["threads:read"], Page: later(() => import("./pages/approvals")) },
  { name: "agents", word: "nav.agents", needs: ["agents:read"], Page: later(() => import("./pages/agents")) },
  { name: "tools", word: "nav.tools", needs: ["agents:read"], Page: later(() => import("./pages/tools")) },
  { name: "knowledge", word: "nav.knowledge", needs: ["knowledge:read"], Page: later(() => import("./pages/knowledge")) },
  { name: "memory", word: "nav.memory", needs: ["memory:read"], Page: later(() => import("./pages/memory")) },
  { name: "operations", word: "nav.operations", needs: ["threads:read"], Page: later(() => import("./pages/operations")) },
];

const LANGUAGES = [["en", "English"], ["zh", "中文"]] as const;

const menuOpen = signal(false);

function Menu({ places, current }: { places: readonly Place[]; current: Place | undefined }) {
  return (
    <nav class={menuOpen.value ? "menu open" : "menu"} aria-label={t("nav.main")}>
      <ul class="places">
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
        <Select label={t("app.language")} value={language.value} options={LANGUAGES} onValue={choose} />
        {me.value?.has_key && <Button onClick={signOut}>{t("app.signOut")}</Button>}
      </div>
    </nav>
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
  const { places, current } = placed(PLACES, 0);
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
          <p class="notice" role="alert">
            {t("app.offline")}
          </p>
        )}
        {refused.value && <SignInAgain />}
        {current ? (
          <current.Page key={`${current.name} ${nameOf(me.value)}`} />
        ) : (
          <div class="page">
            <PageHead title={t("app.notFound")} />
          </div>
        )}
      </main>
      <Toasts />
    </div>
  );
}
