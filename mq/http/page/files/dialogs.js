// Asking whether something is meant, and saying what came of it.

import { Lost, Problem } from "./api.js";
import { element } from "./elements.js";

const dialog = document.getElementById("confirm");
const yes = document.getElementById("confirm-yes");
const no = document.getElementById("confirm-no");
const outcome = document.getElementById("outcome");

let answer = null;

yes.addEventListener("click", () => dialog.close("yes"));
no.addEventListener("click", () => dialog.close("no"));
dialog.addEventListener("cancel", () => { dialog.returnValue = "no"; });
// What was asked is of the view that it was asked in.
window.addEventListener("hashchange", () => { if (dialog.open) dialog.close("no"); });
dialog.addEventListener("close", () => answer?.(dialog.returnValue === "yes"));

/** Whether a person means it. The focus goes back to where it was. */
export function confirm(title, text, action) {
  document.getElementById("confirm-title").textContent = title;
  document.getElementById("confirm-text").textContent = text;
  yes.textContent = action;
  dialog.returnValue = "no";
  dialog.showModal();
  // What does nothing is what Enter does, for who was too quick.
  no.focus();
  return new Promise((resolve) => { answer = resolve; });
}

/** Says it, seen and heard. */
export function say(text, kind = "done") {
  const close = element(
    "button",
    { type: "button", "aria-label": "Dismiss", onclick: () => outcome.replaceChildren() },
    "×",
  );
  outcome.className = kind;
  outcome.replaceChildren(element("p", {}, text), close);
}

/** Does it and says so; whether it was done. What went wrong is said as mq says it. */
export async function attempt(act, done) {
  try {
    const result = await act();
    say(typeof done === "function" ? done(result) : done);
    return true;
  } catch (error) {
    if (!(error instanceof Lost) && !(error instanceof Problem)) throw error;
    // Who asked and was not answered may have been heard all the same: done again, it is done twice.
    const mark = error instanceof Lost ? "It may be done or not, look before you do it again:" : "Not done.";
    say(`${mark} ${reason(error)}`, "failed");
    return false;
  }
}

/** Why something was not done or is not shown. */
export function reason(error) {
  if (error instanceof Problem && error.status === 403 && error.members.right) {
    return `${error.message} It takes the right: ${error.members.right}.`;
  }
  return error.message;
}
