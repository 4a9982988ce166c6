/** What of a memory is filled in. */
import { useState } from "preact/hooks";
import { api, data } from "../../api/client";
import { Area, Field, Select } from "../../ui/controls";
import { Form } from "../../ui/form";
import { t } from "../../words";
import { KINDS, type MemoryEntry } from "./memories";

export function MemoryForm({ memory, shared, onDone }: { memory?: MemoryEntry; shared: boolean; onDone: () => void }) {
  const [text, setText] = useState(memory?.text ?? "");
  const [kind, setKind] = useState(memory?.kind ?? "fact");
  const [importance, setImportance] = useState(String(memory?.importance ?? 0.8));
  const [scope, setScope] = useState("");
  const submit = async () => {
    const said = { text, kind, importance: Number(importance) };
    const params = { path: { memory_id: memory?.id ?? "" }, query: { shared } };
    await data(memory ? api.PATCH("/v1/memories/{memory_id}", { params, body: said }) : api.POST("/v1/memories", { body: { ...said, scope, shared } }));
    onDone();
  };
  return (
    <Form onSubmit={submit}>
      <Area label={t("mem.text")} value={text} onValue={setText} required />
      <Select label={t("mem.kind")} value={kind} options={KINDS.map((each) => [each, t(`mem.${each}`)] as const)} onValue={setKind} />
      <Field label={t("mem.importanceHow")} value={importance} onValue={setImportance} required />
      {!memory && <Field label={t("mem.scope")} value={scope} onValue={setScope} placeholder={t("mem.forAll")} />}
    </Form>
  );
}
