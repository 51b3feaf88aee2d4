// The console of Turnwire: a page on the TypeScript client. Start here, then state/conversation.ts and view/App.tsx.
import "./style/base.css";
import "./style/layout.css";
import "./style/conversation.css";

import { effect } from "@preact/signals";
import { render } from "preact";

import { listenToKeys } from "./keys.js";
import { copyPressed } from "./markdown/code.js";
import { followAddress, keepDroppedFiles, showTheme } from "./state/app.js";
import { connect } from "./state/connection.js";
import { followSeen } from "./state/seen.js";
import { App } from "./view/App.js";

effect(showTheme);
followAddress();
followSeen();
listenToKeys();
keepDroppedFiles();
addEventListener("click", (event) => void copyPressed(event));
const root = document.getElementById("app")!;
root.replaceChildren();
render(<App />, root);
connect();
