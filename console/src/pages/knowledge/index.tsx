import { path } from "../../route";
import { FileText } from "./file";
import { Store } from "./store";
import { Stores } from "./stores";
import "./knowledge.css";

/** `/knowledge`, `/knowledge/STORE`, `…/STORE/search`, `…/STORE/files/FILE`. */
export default function Knowledge() {
  const [, store, part, file] = path.value;
  if (store === undefined) return <Stores />;
  if (part === "files" && file !== undefined) return <FileText key={file} store={store} file={file} />;
  return <Store key={store} id={store} searching={part === "search"} />;
}
