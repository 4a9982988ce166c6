/** The editor, which is loaded where somebody edits. */
import { useEffect, useState } from "preact/hooks";
import { Loading, Problem } from "../state";
import type { EditorProps } from "./view";

type Loaded = (props: EditorProps) => preact.JSX.Element;
let editor: Promise<{ default: Loaded }> | null = null;

export function Editor(props: EditorProps) {
  const [Field, setField] = useState<Loaded | null>(null);
  const [error, setError] = useState<unknown>(null);
  const load = () => {
    setError(null);
    (editor ??= import("./view")).then(
      (made) => setField(() => made.default),
      (failed: unknown) => ((editor = null), setError(failed)),
    );
  };
  useEffect(load, []);
  if (error !== null) return <Problem error={error} retry={load} />;
  return Field ? <Field {...props} /> : <Loading lines={8} />;
}
