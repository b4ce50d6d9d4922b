// The token of requests: kept until the tab is closed, and never part of a URL.

import { hasToken, useToken } from "./api.js";

const dialog = document.getElementById("token");
const value = document.getElementById("token-value");
const unknown = document.getElementById("unknown");
let wasAsked = false;

function open() {
  value.value = "";
  if (!dialog.open) dialog.showModal();
  value.focus();
}

/** Calls `changed` when the token changes. */
export function watchToken(changed) {
  const use = (token) => {
    useToken(token);
    value.value = "";
    unknown.hidden = true;
    dialog.close();
    changed();
  };
  document.getElementById("show-token").addEventListener("click", open);
  document.getElementById("ask-token").addEventListener("click", open);
  document.getElementById("token-no").addEventListener("click", () => dialog.close());
  document.getElementById("token-forget").addEventListener("click", () => use(null));
  document.getElementById("token-form").addEventListener("submit", (event) => {
    event.preventDefault();
    use(value.value.trim());
  });
  // mq may accept the token again, or need none any more.
  document.addEventListener("authenticated", () => { unknown.hidden = true; });
  document.addEventListener("unauthenticated", () => {
    unknown.firstChild.data = hasToken() ? "mq does not accept this token. " : "mq requires a token. ";
    unknown.hidden = false;
    // The dialog opens by itself only once.
    if (!wasAsked) open();
    wasAsked = true;
  });
}
