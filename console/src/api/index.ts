/** The server, as the console knows it. */
export { api, ApiError, blob, data, online, post, refused, root, send, upload } from "./client";
export { eventsOf, follow, text, type ServerEvent, type ToolCall } from "./events";
export type * from "./shapes";
