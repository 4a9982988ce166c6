/** The tools that agents may have: `/tools`, and `/tools/NAME` of one that the tenant has registered. */
import { path, query } from "../../route";
import { ToolList } from "./list";
import { NewTool, ToolPage } from "./page";
import "../agents/agents.css";
import "./tools.css";

export default function Tools() {
  const name = path.value[1];
  if (name !== undefined) return <ToolPage key={name} name={name} />;
  return query.value.has("new") ? <NewTool /> : <ToolList />;
}
