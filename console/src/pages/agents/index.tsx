/** What can be asked, and the definitions of it: `/agents`, and `/agents/NAME` of one. */
import { path, query } from "../../route";
import { AgentList } from "./list";
import { AgentPage } from "./agent";
import { NewAgent } from "./edit";
import "./agents.css";

export default function Agents() {
  const name = path.value[1];
  if (name !== undefined) return <AgentPage key={`${name} ${query.value.get("for")}`} name={name} />;
  return query.value.has("new") ? <NewAgent /> : <AgentList />;
}
