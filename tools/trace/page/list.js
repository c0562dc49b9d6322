// List: rows of one height, of which only those in sight exist; and the list of submissions made with it.
//
// In       the trace's submissions, state.selected, state.focus
// Out      rows to click
// Changes  state.selected
// Next     timeline.js (the same submissions, by time)

import {
  beginOf,
  duration,
  element,
  endOf,
  find,
  labelOf,
  moment,
  nameOf,
  on,
  perFrame,
  set,
  state,
  workOf,
} from "./kit.js";

const ROW = 22;

// A list of any length. row(index) makes an element; show(count) says that the rows are others now.
export class LongList {
  constructor(box, row) {
    this.box = box;
    this.row = row;
    this.count = 0;
    this.inside = element("div", { class: "long" });
    box.append(this.inside);
    this.draw = perFrame(() => this.drawNow());
    box.addEventListener("scroll", this.draw, { passive: true });
    new ResizeObserver(this.draw).observe(box);
  }

  show(count) {
    this.count = count;
    this.inside.style.height = `${count * ROW}px`;
    this.draw();
  }

  reveal(index) {
    const top = index * ROW;
    if (top < this.box.scrollTop) this.box.scrollTop = top - ROW;
    else if (top + ROW > this.box.scrollTop + this.box.clientHeight) {
      this.box.scrollTop = top + 2 * ROW - this.box.clientHeight;
    }
    this.draw();
  }

  drawNow() {
    const first = Math.max(0, Math.floor(this.box.scrollTop / ROW) - 4);
    const last = Math.min(this.count, Math.ceil((this.box.scrollTop + this.box.clientHeight) / ROW) + 4);
    const rows = [];
    for (let index = first; index < last; index++) {
      const made = this.row(index);
      made.style.top = `${index * ROW}px`;
      rows.push(made);
    }
    this.inside.replaceChildren(...rows);
  }
}

// ---------------------------------------------------------------- submissions

let list;
let shown = [];

export function startList() {
  list = new LongList(find("submissions-list"), submissionRow);
  const last = state.trace.lanes
    .map((_, lane) => state.trace.submissions.lane.lastIndexOf(lane))
    .filter((at) => at >= 0);
  const longest = Math.max(3, ...last.map((number) => nameOf(number).length));
  find("submissions-list").style.setProperty("--name", `${Math.min(longest, 18) + 1.5}ch`);
  on("selected", () => {
    const at = indexOf(state.selected);
    if (at >= 0) list.reveal(at);
    else list.draw();
  });
  on("focus", showSubmissions);
  on("scheme", () => list.draw());
  showSubmissions();
}

function showSubmissions() {
  const count = state.trace.submissions.value.length;
  shown = state.focus
    ? [...state.focus.numbers].sort((a, b) => a - b)
    : Array.from({ length: count }, (_, i) => i);
  find("submissions-title").textContent = state.focus
    ? `${shown.length.toLocaleString("en")} of ${count.toLocaleString("en")} submissions`
    : `${count.toLocaleString("en")} submission${count === 1 ? "" : "s"}`;
  const focus = find("focus");
  focus.hidden = !state.focus;
  focus.replaceChildren(
    element("span", { title: state.focus?.text ?? "" }, state.focus?.text ?? ""),
    element("button", { type: "button", title: "Show all (Esc)", onclick: () => set("focus", null) }, "×"),
  );
  find("submissions-list").scrollTop = 0;
  list.show(shown.length);
  const at = indexOf(state.selected);
  if (at >= 0) list.reveal(at);
}

function indexOf(number) {
  if (number === null) return -1;
  return state.focus ? shown.indexOf(number) : number;
}

function submissionRow(index) {
  const number = shown[index];
  const { submitted, started, finished, dropped } = state.trace.submissions;
  const took = started[number] === null || finished[number] === null ? null : endOf(number) - beginOf(number);
  return element(
    "div",
    {
      class: "row submission",
      role: "option",
      "aria-selected": number === state.selected ? "true" : "false",
      title: `${labelOf(number)}\nsubmitted at ${moment(submitted[number])}`,
      onclick: () => set("selected", number),
    },
    element("i", { class: `swatch ${workOf(number)}` }),
    element("span", { class: "name" }, nameOf(number)),
    element("span", { class: "what" }, labelOf(number)),
    element(
      "span",
      { class: "number" },
      dropped[number] ? "dropped" : took === null ? "not timed" : duration(took),
    ),
  );
}

// The submission `step` places further in the list that is shown.
export function step(by) {
  if (!shown.length) return;
  const at = indexOf(state.selected);
  const to = at < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(shown.length - 1, Math.max(0, at + by));
  set("selected", shown[to]);
}
