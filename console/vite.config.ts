// Builds the console into the package of the server. The same sources give the same bytes: names have the hash of their
// content, and nothing of the machine or the time is in them.
import { fileURLToPath } from "node:url";

import { defineConfig, type Plugin } from "vite";

const here = (path: string): string => fileURLToPath(new URL(path, import.meta.url));

/**
 * The page's own policy, besides the one that the listener sends: no script gets text as code (Trusted Types), and DOMPurify
 * alone makes markup. Only in what is built: the development server puts styles into the page.
 */
const POLICY = [
  "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' blob:", "connect-src 'self'", "worker-src 'self'",
  "base-uri 'none'", "form-action 'none'", "require-trusted-types-for 'script'", "trusted-types dompurify",
].join("; ");

const policy: Plugin = {
  name: "policy",
  apply: "build",
  transformIndexHtml: {
    order: "post",
    handler: (html) => html.replace("<head>", `<head>\n    <meta http-equiv="Content-Security-Policy" content="${POLICY}" />`),
  },
};

export default defineConfig({
  plugins: [policy],
  resolve: {
    alias: [
      { find: /^@turnwire\/client$/, replacement: here("../clients/typescript/src/index.ts") },
      { find: /^@turnwire\/client\/proto$/, replacement: here("../clients/typescript/src/proto.ts") },
    ],
    dedupe: ["@bufbuild/protobuf", "@connectrpc/connect", "@connectrpc/connect-web"],
  },
  build: {
    target: "es2022",
    outDir: here("../server/turnwire/console"),
    emptyOutDir: true,
    assetsInlineLimit: 0,
    cssCodeSplit: false,
    modulePreload: { polyfill: false },
    reportCompressedSize: true,
  },
  server: {
    // `npm run dev` beside a server: TURNWIRE_WEB names its web listener.
    proxy: { "^/opencode\\.": process.env["TURNWIRE_WEB"] ?? "http://127.0.0.1:8080" },
  },
});
