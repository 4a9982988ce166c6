/** The editor, which is loaded where somebody edits. */
import { later } from "../later";

export const Editor = later(() => import("./view"));
