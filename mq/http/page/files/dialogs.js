// Confirmations, and the outcome of actions.

import { Lost, Problem } from "./api.js";
import { element } from "./elements.js";

const dialog = document.getElementById("confirm");
const yes = document.getElementById("confirm-yes");
const no = document.getElementById("confirm-no");
const outcome = document.getElementById("outcome");

const naming = document.getElementById("confirm-naming");
const name = document.getElementById("confirm-name");

let answer = null;
let wanted = null;

name.addEventListener("input", () => { yes.disabled = name.value !== wanted; });

yes.addEventListener("click", () => dialog.close("yes"));
no.addEventListener("click", () => dialog.close("no"));
dialog.addEventListener("cancel", () => { dialog.returnValue = "no"; });
// A confirmation belongs to the view that opened it.
window.addEventListener("hashchange", () => { if (dialog.open) dialog.close("no"); });
dialog.addEventListener("close", () => answer?.(dialog.returnValue === "yes"));

/** Asks for confirmation; true if given. `typed` is a name that must be typed first. The focus returns to
 * where it was. */
export function confirm(title, text, action, { typed = null } = {}) {
  wanted = typed;
  naming.hidden = typed === null;
  yes.disabled = typed !== null;
  name.value = "";
  naming.firstElementChild.textContent = `Type ${typed} to go on`;
  document.getElementById("confirm-title").textContent = title;
  document.getElementById("confirm-text").textContent = text;
  yes.textContent = action;
  dialog.returnValue = "no";
  dialog.showModal();
  // Enter cancels: a hasty key press must change nothing.
  no.focus();
  return new Promise((resolve) => { answer = resolve; });
}

/** Shows a message, and has screen readers read it. */
export function say(text, kind = "done") {
  const close = element(
    "button",
    { type: "button", "aria-label": "Dismiss", onclick: () => outcome.replaceChildren() },
    "×",
  );
  outcome.className = kind;
  outcome.replaceChildren(element("p", {}, text), close);
}

/** Acts and shows the outcome, with mq's own words for a problem; true if it was done. */
export async function attempt(act, done) {
  try {
    const result = await act();
    say(typeof done === "function" ? done(result) : done);
    return true;
  } catch (error) {
    if (!(error instanceof Lost) && !(error instanceof Problem)) throw error;
    // Without an answer the request may have been done: a retry might do it twice.
    const mark = error instanceof Lost ? "It may have been done; check before you try again:" : "Not done.";
    say(`${mark} ${reason(error)}`, "failed");
    return false;
  }
}

/** Why an action failed, or figures are missing. */
export function reason(error) {
  return error.message;
}
