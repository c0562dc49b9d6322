// Search: a text that is part of a kernel's, a buffer's or a source line's name; an address; a submission's number.
//
// In       what is typed
// Out      a list under the box, for the mouse and for the arrow keys
// Changes  what a result stands for: state.selected, state.kernel, state.buffer, state.focus
// Next     page_data.py, search (what is looked through)

import { follow, useText } from "./buffer.js";
import { ask, element, find, nameOf, set, state, tell } from "./kit.js";
import { bring } from "./view.js";

const PAUSE_MS = 120;

let found = [];
let chosen = 0;
let timer = 0;
let asked = 0;

export function startSearch() {
  const box = find("search");
  box.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(look, PAUSE_MS);
  });
  box.addEventListener("keydown", key);
  box.addEventListener("focus", () => box.value && look());
  box.addEventListener("blur", () => setTimeout(hide, 150)); // a click on a result comes first
}

async function look() {
  const text = find("search").value.trim();
  const mine = ++asked;
  if (!text) return hide();
  try {
    ({ found } = await ask("search", { text }));
  } catch (error) {
    found = [];
    if (mine === asked) find("found").replaceChildren(element("li", { class: "none" }, error.message));
    return;
  }
  if (mine !== asked || document.activeElement !== find("search")) return;
  chosen = 0;
  show(text);
}

function show(text) {
  const box = find("found");
  box.hidden = false;
  if (!found.length) {
    return box.replaceChildren(
      element(
        "li",
        { class: "none" },
        `Nothing is called “${text}”. Kernels, buffers, source lines, 0x addresses and #numbers can be found.`,
      ),
    );
  }
  box.replaceChildren(
    ...found.map((one, index) =>
      element(
        "li",
        {
          class: one.sort === "use" ? "use" : null,
          role: "option",
          "aria-selected": String(index === chosen),
          onpointerdown: () => take(one),
        },
        element("i", {}, one.sort === "use" ? one.access.replace(" or ", "/") : one.sort),
        element("span", {}, one.sort === "use" ? nameOf(one.number) : one.text),
        element("small", {}, one.sort === "use" ? useLine(one) : noteOf(one)),
      ),
    ),
  );
  box.children[chosen].scrollIntoView({ block: "nearest" });
}

function useLine(use) {
  return useText(use.kernel, use.role, use.verb);
}

function noteOf({ sort, note }) {
  return sort === "buffer" ? `${note}: everything that touched it` : (note ?? "");
}

function key(event) {
  if (event.key === "ArrowDown" || event.key === "ArrowUp") {
    event.preventDefault();
    if (!found.length) return;
    chosen = (chosen + (event.key === "ArrowDown" ? 1 : found.length - 1)) % found.length;
    show(find("search").value);
  } else if (event.key === "Enter" && found[chosen]) {
    take(found[chosen]);
    find("search").blur();
  } else if (event.key === "Escape") find("search").blur();
}

function hide() {
  find("found").hidden = true;
}

function take(one) {
  hide();
  if (one.sort === "submission") {
    set("selected", one.number);
    bring(one.number);
  } else if (one.sort === "kernel") {
    set("kernel", one.number);
    set("tab", "kernel");
  } else if (one.sort === "line") {
    state.focus = { numbers: new Set(one.submissions), text: `submitted by ${one.text}` };
    tell("focus");
  } else if (one.sort === "use") follow(one.number, one.outer, one.inner);
  else {
    set("buffer", one.number);
    set("tab", "buffer");
  }
}
