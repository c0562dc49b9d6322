// List: rows of one height, of which only those in sight exist; and the list of submissions made with it.
//
// In       the trace's submissions and what repeats among them, state.selected, state.focus
// Out      rows to click: a submission, or a group that repeats and opens to one of its repetitions
// Changes  state.selected
// Next     timeline.js (the same submissions, by time)

import {
  beginOf,
  duration,
  element,
  endOf,
  find,
  labelOf,
  laneName,
  moment,
  nameOf,
  on,
  perFrame,
  plural,
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
let shown = []; // submissions, in the order in which j and k walk through them
let rows = []; // {number}, {group} or {group, stepper: true}
let rowOf = new Map(); // submission -> the row that stands for it
let groups = []; // {numbers, period, count, at: the repetition that is shown, isOpen, total}
let groupOf = []; // submission -> its group, where it has one
let isGrouped = true;

export function startList() {
  list = new LongList(find("submissions-list"), drawRow);
  arrange();
  const last = state.trace.lanes
    .map((_, lane) => state.trace.submissions.lane.lastIndexOf(lane))
    .filter((at) => at >= 0);
  const longest = Math.max(3, ...last.map((number) => nameOf(number).length));
  document.documentElement.style.setProperty("--name", `${Math.min(longest, 18) + 1.5}ch`);
  on("selected", () => {
    const group = isGrouped && !state.focus ? groupOf[state.selected] : undefined;
    if (group?.isOpen) turnTo(group, Math.floor(group.numbers.indexOf(state.selected) / group.period));
    reveal();
  });
  on("focus", showSubmissions);
  on("scheme", () => list.draw());
  showSubmissions();
}

// The groups of the server, as submissions: it counts those of each lane by themselves.
function arrange() {
  const { submissions, groups: found, lanes } = state.trace;
  const own = lanes.map(() => []);
  for (let number = 0; number < submissions.value.length; number++)
    own[submissions.lane[number]].push(number);
  for (const [index, lane] of found.lane.entries()) {
    const [first, period, count] = [found.first[index], found.period[index], found.count[index]];
    const group = {
      numbers: own[lane].slice(first, first + period * count),
      period,
      count,
      at: 0,
      isOpen: false,
    };
    groups.push(group);
    if (count > 1) for (const number of group.numbers) groupOf[number] = group;
  }
  groups.sort((a, b) => a.numbers[0] - b.numbers[0]);
}

function showSubmissions() {
  const count = state.trace.submissions.value.length;
  shown = state.focus
    ? [...state.focus.numbers].sort((a, b) => a - b)
    : Array.from({ length: count }, (_, i) => i);
  const title = state.focus
    ? `${shown.length.toLocaleString("en")} of ${count.toLocaleString("en")} submissions`
    : `${count.toLocaleString("en")} submission${count === 1 ? "" : "s"}`;
  find("submissions-title").textContent = title;
  const choice = find("grouping");
  choice.hidden = Boolean(state.focus) || !groups.some((group) => group.count > 1);
  choice.replaceChildren(
    ...[
      ["grouped", true],
      ["each", false],
    ].map(([text, is]) => choose(text, is)),
  );
  const focus = find("focus");
  focus.hidden = !state.focus;
  focus.replaceChildren(
    element("span", { title: state.focus?.text ?? "" }, state.focus?.text ?? ""),
    element("button", { type: "button", title: "Show all (Esc)", onclick: () => set("focus", null) }, "×"),
  );
  find("submissions-list").scrollTop = 0;
  layOut();
  reveal();
}

function choose(text, is) {
  const take = () => {
    isGrouped = is;
    showSubmissions();
  };
  return element("button", { type: "button", "aria-pressed": String(isGrouped === is), onclick: take }, text);
}

function layOut() {
  rows = [];
  rowOf = new Map();
  const add = (row, numbers) => {
    for (const number of numbers) rowOf.set(number, rows.length);
    rows.push(row);
  };
  if (state.focus || !isGrouped) for (const number of shown) add({ number }, [number]);
  else {
    for (const group of groups) {
      if (group.count > 1) add({ group }, group.numbers);
      if (group.count > 1 && !group.isOpen) continue;
      if (group.count > 1 && group.period > 1) add({ group, stepper: true }, []);
      const inside = group.period > 1 ? repetition(group) : group.numbers;
      for (const number of inside) add({ number, inside: group.count > 1 }, [number]);
    }
  }
  list.show(rows.length);
}

function repetition(group) {
  return group.numbers.slice(group.at * group.period, (group.at + 1) * group.period);
}

function reveal() {
  const at = rowOf.get(state.selected);
  if (at !== undefined) list.reveal(at);
  else list.draw();
}

function drawRow(index) {
  const { number, group, stepper, inside } = rows[index];
  if (stepper) return stepperRow(group);
  return group ? groupRow(group, index) : submissionRow(number, inside);
}

function submissionRow(number, isInside) {
  const { submitted, dropped } = state.trace.submissions;
  const took = timeOf(number);
  return element(
    "div",
    {
      class: isInside ? "row submission inside" : "row submission",
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

function timeOf(number) {
  const { started, finished } = state.trace.submissions;
  return started[number] === null || finished[number] === null ? null : endOf(number) - beginOf(number);
}

// ---------------------------------------------------------------- what repeats

function groupRow(group, index) {
  const first = group.numbers[0];
  const total = (group.total ??= group.numbers.reduce((sum, number) => sum + (timeOf(number) ?? 0), 0));
  const longest = longestOf(repetition(group));
  const others = group.period > 1 ? ` and ${group.period - 1} more` : "";
  const each = total ? `${duration(total / group.count)} each` : "not timed";
  const last = group.numbers[group.numbers.length - 1];
  const toggle = () => {
    group.isOpen = !group.isOpen;
    layOut();
  };
  return element(
    "div",
    {
      class: "row group",
      role: "option",
      "aria-expanded": String(group.isOpen),
      "aria-selected": String(rowOf.get(state.selected) === index),
      title:
        `${plural(group.period, "submission")}, ${group.count.toLocaleString("en")} times the same: ` +
        `${nameOf(first)} to ${nameOf(last)}\n${each}, ${duration(total)} in all`,
      onclick: toggle,
    },
    element("i", { class: "turn" }),
    element("i", { class: `swatch ${workOf(longest)}` }),
    element("b", { class: "times" }, `× ${group.count.toLocaleString("en")}`),
    element("span", { class: "what" }, labelOf(longest) + others),
    state.trace.lanes.length > 1 ? element("span", { class: "lane" }, laneName(laneOf(first))) : "",
    element("span", { class: "number" }, each),
  );
}

function laneOf(number) {
  return state.trace.lanes[state.trace.submissions.lane[number]];
}

// Which of a group's repetitions stands below it.
function stepperRow(group) {
  const button = (text, title, to) =>
    element(
      "button",
      {
        type: "button",
        title,
        disabled: to < 0 || to >= group.count,
        onclick: () => turnTo(group, to),
      },
      text,
    );
  const times = (group.times ??= Array.from({ length: group.count }, (_, at) => timeOfRepetition(group, at)));
  const isTimed = times.some((ns) => ns > 0);
  const longest = times.reduce((best, ns, at) => (ns > times[best] ? at : best), 0);
  return element(
    "div",
    { class: "row stepper" },
    button("‹", "The repetition before", group.at - 1),
    element("span", {}, `${(group.at + 1).toLocaleString("en")} of ${group.count.toLocaleString("en")}`),
    button("›", "The next repetition", group.at + 1),
    isTimed ? button("slowest", `The slowest repetition, ${duration(times[longest])}`, longest) : "",
    element("span", { class: "what" }),
    element("span", { class: "number" }, isTimed ? duration(times[group.at]) : ""),
  );
}

function turnTo(group, at) {
  if (at < 0 || at >= group.count || at === group.at) return;
  group.at = at;
  layOut();
}

function timeOfRepetition(group, at) {
  let sum = 0;
  for (let place = at * group.period; place < (at + 1) * group.period; place++)
    sum += timeOf(group.numbers[place]) ?? 0;
  return sum;
}

function longestOf(numbers) {
  return numbers.reduce((best, number) => ((timeOf(number) ?? 0) > (timeOf(best) ?? 0) ? number : best));
}

// The submission `step` places further among those that are shown.
export function step(by) {
  if (!shown.length) return;
  const at = state.selected === null ? -1 : state.focus ? shown.indexOf(state.selected) : state.selected;
  const to = at < 0 ? (by > 0 ? 0 : shown.length - 1) : Math.min(shown.length - 1, Math.max(0, at + by));
  set("selected", shown[to]);
}
