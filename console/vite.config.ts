import preact from "@preact/preset-vite";
import { defineConfig } from "vite";

/** Where `make console-dev` finds a server. */
const SERVER = "http://127.0.0.1:8000";

export default defineConfig({
  // The page has a <base> that the server writes, so the console also works where an application mounts it below a path.
  base: "./",
  plugins: [preact({ prefreshEnabled: true, devToolsEnabled: false })],
  build: {
    outDir: "../drsai_backend/api/pages/console",
    emptyOutDir: true,
    assetsDir: "assets",
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    chunkSizeWarningLimit: 700,
  },
  server: { proxy: Object.fromEntries(["/v1", "/metrics", "/readyz", "/healthz"].map((path) => [path, SERVER])) },
});
