/** The page for whoever is not known yet. */
import { useState } from "preact/hooks";
import { key } from "./api/keyring";
import { problem, signIn } from "./session";
import { Button, Field } from "./ui/controls";
import { t } from "./words";

export function SignIn() {
  const [token, setToken] = useState("");
  const [remembered, setRemembered] = useState(true);
  const [tried, setTried] = useState(key.value !== null);
  const submit = async (event: Event) => {
    event.preventDefault();
    await signIn(token.trim(), remembered);
    setTried(true);
  };
  return (
    <main class="sign-in">
      <form onSubmit={(event) => void submit(event)}>
        <h1>{t("signIn.title")}</h1>
        <Field label={t("signIn.key")} type="password" autocomplete="current-password" required autofocus value={token} onValue={setToken} />
        <label class="check">
          <input type="checkbox" checked={remembered} onChange={(event) => setRemembered(event.currentTarget.checked)} />
          {t("signIn.remember")}
        </label>
        {tried && problem.value && (
          <p class="problem" role="alert">
            {t("signIn.failed")} {problem.value.message}
          </p>
        )}
        <Button kind="primary" type="submit">
          {t("signIn.title")}
        </Button>
        <p class="quiet">{t("signIn.how")}</p>
      </form>
    </main>
  );
}
