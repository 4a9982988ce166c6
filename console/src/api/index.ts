/** The server, as the console knows it. */
export { admit, api, ApiError, blob, data, filled, online, post, refused, request, sendOnce, upload } from "./client";
export { follow, text, type ServerEvent, type ToolCall } from "./events";
export type * from "./shapes";
