/** The page for whoever is not known yet. */
import { useState } from "preact/hooks";
import { refused } from "./api";
import { key } from "./api/keyring";
import { problem, signIn } from "./session";
import { Field, Form, type Given } from "./ui";
import { t } from "./words";

export function SignIn() {
  const [tried, setTried] = useState(key.value !== null);
  const why = problem.value ?? refused.value;
  const submit = async ({ token = "", remembered }: Given) => {
    await signIn(token.trim(), remembered !== undefined);
    setTried(true);
  };
  return (
    <main class="sign-in">
      <Form onSubmit={submit} submit={t("signIn.title")}>
        <h1>{t("signIn.title")}</h1>
        <Field label={t("signIn.key")} name="token" type="password" autocomplete="current-password" required autofocus />
        <label class="check">
          <input type="checkbox" name="remembered" defaultChecked />
          {t("signIn.remember")}
        </label>
        {tried && why && (
          <p class="problem" role="alert">
            {t("signIn.failed")} {why.message}
          </p>
        )}
        <p class="quiet">{t("signIn.how")}</p>
      </Form>
    </main>
  );
}
