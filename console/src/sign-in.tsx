/** The page for whoever is not known yet, and what stands over the page of whoever is no longer. */
import { useState } from "preact/hooks";
import { refused } from "./api";
import { key } from "./api/keyring";
import { me, problem, signIn } from "./session";
import { Button, DialogButton, Field, Form, type Given } from "./ui";
import { t } from "./words";

function KeyForm({ again = false }: { again?: boolean }) {
  const [tried, setTried] = useState(key.value !== null);
  const why = problem.value ?? refused.value;
  const submit = async ({ token = "", remembered }: Given) => {
    await signIn(token.trim(), remembered !== undefined);
    setTried(true);
  };
  return (
    <Form onSubmit={submit} submit={t("signIn.title")}>
      {again ? (
        // It has the focus: what is typed at this moment is no key.
        <p tabIndex={-1} autofocus>
          {t("signIn.againHow")}
        </p>
      ) : (
        <h1>{t("signIn.title")}</h1>
      )}
      <Field label={t("signIn.key")} name="token" type="password" autocomplete="current-password" required autofocus={!again} />
      <label class="check">
        <input type="checkbox" name="remembered" defaultChecked />
        {t("signIn.remember")}
      </label>
      {tried && why && (
        <p class="problem" role="alert">
          {t("signIn.failed", { why: why.message })}
        </p>
      )}
      <p class="quiet">{t("signIn.how")}</p>
    </Form>
  );
}

export function SignIn() {
  return (
    <main class="sign-in">
      <KeyForm />
    </main>
  );
}

/** For whoever has to sign in again: a form over their page, and a bar, once that is closed. */
export function SignInAgain() {
  return (
    <div class="notice">
      {t("signIn.again")}
      <DialogButton title={t("signIn.title")} opened>
        {() => <KeyForm again />}
      </DialogButton>
      {!me.value?.has_key && <Button onClick={() => signIn()}>{t("do.retry")}</Button>}
    </div>
  );
}
