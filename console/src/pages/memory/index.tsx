import { path, query } from "../../route";
import { Memories } from "./memories";
import { OneMemory } from "./memory";
import "./memory.css";

/** `/memory`, `/memory/MEMORY`; with `?shared=1` of what all users share. */
export default function Memory() {
  const id = path.value[1];
  const shared = query.value.get("shared") === "1";
  return id === undefined ? <Memories key={String(shared)} shared={shared} /> : <OneMemory key={id} id={id} shared={shared} />;
}
