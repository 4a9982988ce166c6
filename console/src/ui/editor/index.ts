/** The editor, which is loaded where somebody edits. */
import { later } from "../state";

export const Editor = later(() => import("./view"));
