/** The server, as the console knows it. */
export { api, ApiError, blob, data, online, post, refused, root, send, upload } from "./client";
export { eventsOf, follow, type ServerEvent } from "./events";
export type * from "./shapes";
