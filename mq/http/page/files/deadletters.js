// The dead letters of a queue: one, some, or all by a selection go back, or are deleted.

import * as api from "./api.js";
import { SIDELINE } from "./board.js";
import { reason } from "./dialogs.js";
import { element, link, write } from "./elements.js";
import { Messages } from "./messages.js";
import { Shovel } from "./shovel.js";

export class DeadLetters {
  #view;
  #where = element("p", { class: "hint" });
  #shovel;
  #messages = null;
  #aside = null;
  #count = 0;

  constructor(view) {
    this.#view = view;
    this.#shovel = new Shovel(view.name, () => {
      view.soon();
      this.#messages?.read();
    });
    this.element = element("div", {}, this.#where, this.#shovel.element);
  }

  /** Shows those of the sideline that the queue's settings name. */
  async open() {
    const { name, soon } = this.#view;
    let said;
    try {
      said = await api.describe(name);
    } catch (error) {
      write(this.#where, reason(error));
      return;
    }
    const own = `${name}${SIDELINE}`;
    const aside = said.settings.sideline_to ?? own;
    if (aside !== this.#aside) {
      this.#aside = aside;
      this.#messages?.element.remove();
      this.#messages = new Messages({ queue: aside, to: name, title: "Dead letters", changed: soon });
      this.#where.replaceChildren("They are in the sideline ", link(aside), ".");
      this.element.append(this.#messages.element);
    }
    this.#count = said.sidelined;
    // A sideline that was never used does not exist.
    if (aside === own && said.sidelined === 0) this.#messages.none();
    else await this.#messages.read();
  }

  async look(signal) {
    await this.#shovel.look({ signal });
  }

  /** Reads them once the first has come. */
  show({ sidelined }) {
    if (this.#count === 0 && sidelined > 0) this.#messages?.read();
    this.#count = sidelined;
  }
}
