// Page: starts the views on one trace, and owns what belongs to none of them: tabs, keys, the address, the overview.
//
// In       data/timeline
// Out      a page that shows one trace
// Changes  the address after # (a submission, a kernel and a tab: it can be kept and opened again)
// Next     kit.js (what views share), timeline.js, list.js, submission.js, kernel.js, memory.js, search.js

import {
  ask,
  bytes,
  duration,
  element,
  empty,
  find,
  hex,
  link,
  moment,
  on,
  plural,
  set,
  state,
  table,
} from "./kit.js";
import { startBuffer } from "./buffer.js";
import { startCompile } from "./compile.js";
import { DEBUG_KEYS, startDebug } from "./debug.js";
import { showFindings } from "./findings.js";
import { startKernel } from "./kernel.js";
import { startList, step } from "./list.js";
import { startMemory } from "./memory.js";
import { startOverview } from "./overview.js";
import { startSearch } from "./search.js";
import { startStepGraph } from "./step_graph.js";
import { startSubmission } from "./submission.js";
import { whereTimeWent } from "./time.js";
import { startTimeline } from "./timeline.js";
import { bring, lookAt, lookAtAll, lookAtWork, pan, zoom } from "./view.js";

const TABS = ["trace", "packets", "kernel", "memory", "buffer", "step", "compile", "debug"];
const KEYS = [
  ["j  k", "next, previous submission of the list", () => step(1), () => step(-1)],
  ["w  s", "zoom in, out (or the wheel)", () => zoom(0.7), () => zoom(1 / 0.7)],
  ["a  d", "earlier, later (or drag)", () => pan(-0.2), () => pan(0.2)],
  [
    "f",
    "zoom to the selected submission (or double-click it)",
    () => state.selected !== null && lookAt(state.selected),
  ],
  ["0  9", "the whole trace; from the first submission to the last", lookAtAll, lookAtWork],
  [
    "1  2  3  4  5  6",
    "overview, packets, kernels, memory, buffer, graph",
    ...TABS.map((tab) => () => set("tab", tab)),
  ],
  ...DEBUG_KEYS,
  ["/", "search", () => find("search").focus()],
  ["Esc", "show all submissions again"],
  ["?", "this help", () => find("help").showModal()],
];
const COLOURS = [
  ["graph", "recorded queue, replayed"],
  ["kernel", "kernel"],
  ["copy", "copy"],
  ["fill", "fill"],
  ["packets", "own packets"],
  ["wait", "wait or signal alone"],
  ["other", "other"],
];

async function start() {
  try {
    state.trace = await ask("timeline");
  } catch (error) {
    document.title = "hcq-trace: cannot be read";
    return document
      .querySelector("main")
      .replaceChildren(empty("This trace cannot be shown.", error.message));
  }
  const { file, end, clocks } = state.trace;
  const count = state.trace.submissions.value.length;
  const name = file.split("/").pop();
  document.title = `${name} · hcq-trace`;
  find("file").replaceChildren(
    element("b", { title: file }, name),
    ` ${plural(count, "submission")} in ${duration(end)}`,
    clocks.every(({ aligned }) => aligned) ? "" : element("b", { class: "wrong" }, " clocks are not aligned"),
  );
  legend();
  help();
  lookAtWork();
  on("tab", showTab);
  on("selected", selected);
  on("tab selected kernel", writeAddress);
  showTrace();
  startTimeline();
  startOverview();
  startList();
  startSubmission();
  startKernel();
  startMemory();
  startBuffer();
  startSearch();
  startStepGraph();
  startCompile();
  startDebug();
  for (const button of document.querySelectorAll("[data-tab]")) {
    button.addEventListener("click", () => set("tab", button.dataset.tab));
  }
  find("help-button").addEventListener("click", () => find("help").showModal());
  addEventListener("keydown", key);
  readAddress();
  showTab();
  document.body.dataset.ready = "true";
}

function selected() {
  if (state.selected === null) return;
  bring(state.selected);
  if (state.tab === "trace" || state.tab === "kernel") set("tab", "packets");
}

function showTab() {
  for (const button of document.querySelectorAll("[data-tab]")) {
    button.setAttribute("aria-selected", String(button.dataset.tab === state.tab));
  }
  for (const tab of TABS) find(`pane-${tab}`).hidden = tab !== state.tab;
}

// ---------------------------------------------------------------- the address

function writeAddress() {
  const parts = new URLSearchParams({ tab: state.tab });
  if (state.selected !== null) parts.set("submission", state.selected);
  if (state.kernel !== null) parts.set("kernel", state.kernel);
  history.replaceState(null, "", `#${parts}`);
}

function readAddress() {
  const parts = new URLSearchParams(location.hash.slice(1));
  const number = (name) => (/^\d{1,9}$/.test(parts.get(name) ?? "") ? Number(parts.get(name)) : null);
  const [submission, kernel, tab] = [number("submission"), number("kernel"), parts.get("tab")];
  if (kernel !== null) set("kernel", kernel);
  if (submission !== null && submission < state.trace.submissions.value.length) set("selected", submission);
  if (TABS.includes(tab)) set("tab", tab);
}

// ---------------------------------------------------------------- keys and colours

function key(event) {
  const isTyping = event.target instanceof HTMLInputElement;
  if (isTyping || event.ctrlKey || event.metaKey || event.altKey || find("help").open) return;
  if (event.key === "Escape") return set("focus", null);
  const arrows = { ArrowDown: "j", ArrowUp: "k", ArrowLeft: "a", ArrowRight: "d", "+": "w", "-": "s" };
  const pressed = arrows[event.key] ?? event.key;
  for (const [names, , ...acts] of KEYS) {
    const at = names.split("  ").indexOf(pressed);
    if (at < 0 || !acts[at]) continue;
    event.preventDefault();
    return acts[at]();
  }
}

function swatches(list) {
  return list.map(([work, text]) => element("span", {}, element("i", { class: `swatch ${work}` }), text));
}

function legend() {
  const { talks, spans, compiles } = state.trace;
  const present = new Set(state.trace.submissions.work.map((work) => state.trace.work[work]));
  const busy = talks.reduce((sum, one) => sum + one.busy, 0);
  const hidden = talks.reduce((sum, one) => sum + one.busy * one.hidden, 0);
  find("legend").replaceChildren(
    ...swatches(COLOURS.filter(([work]) => present.has(work))),
    ...(compiles.from.length ? swatches([["compile", "compiling"]]) : []),
    ...(spans.from.length ? swatches([["talk", "communication"]]) : []),
    element("span", {}, element("i", { class: "mark saw" }), "the host saw a signal"),
    element("span", {}, element("i", { class: "mark arrow" }), "signal to wait"),
    busy ? element("b", {}, `communication ${((100 * hidden) / busy).toFixed(0)} % hidden`) : "",
    element("span", { class: "keys" }, "wheel: zoom · drag: move · click: select · ?: keys"),
  );
}

function help() {
  const dialog = find("help");
  dialog.replaceChildren(
    element("h2", {}, "Keys"),
    table(
      [],
      KEYS.map(([keys, what]) => [keys.split("  ").map((one) => element("kbd", {}, one)), what]),
    ),
    element("h2", {}, "Colours"),
    element(
      "p",
      { class: "swatches" },
      swatches([...COLOURS, ["compile", "compiling"], ["talk", "communication"]]),
    ),
    element(
      "p",
      {},
      "A bar is one submission, from when the device began it until it was done, by the device's own clock. ",
      "A diamond was submitted, but the trace does not say when it ran.",
    ),
    element(
      "p",
      {},
      "Ticks on the host's line are submissions; a thin line leads to where the device began. Triangles are ",
      "moments when the host saw a signal; a dotted line comes from the work that it waited for.",
    ),
    element(
      "p",
      {},
      "Below the host's line are the spans that it reported: communication is filled. It is hidden as far as ",
      "kernels of the same process run beside it. A queue is idle in what it leaves of the time from the first ",
      "work of the whole trace to the last.",
    ),
    element("p", {}, "Drag on the time axis to move the moment that the memory map shows."),
    element("form", { method: "dialog" }, element("button", {}, "close")),
  );
  dialog.addEventListener("click", (event) => event.target === dialog && dialog.close());
}

// ---------------------------------------------------------------- the trace as a whole

function showTrace() {
  const { processes, devices, faults, cut, submissions, lanes, stuck, clocks, talks } = state.trace;
  const parts = [];
  if (cut)
    parts.push(
      element("p", { class: "warning" }, `The file ends early. ${cut}. Everything before it is shown.`),
    );
  for (const { text, aligned } of clocks)
    parts.push(element("p", { class: aligned ? "note" : "warning" }, text));
  for (const fault of faults) {
    parts.push(
      element(
        "div",
        { class: "warning wrong" },
        element("b", {}, `${fault.device} ${fault.what} at ${moment(fault.time)}`),
        element("pre", {}, fault.why),
      ),
    );
  }
  for (const { number, text } of stuck) parts.push(deadlock(text, number));
  const findings = element("div", { id: "findings" });
  parts.push(findings, whereTimeWent());
  for (const { pid, argv, python, name } of processes) {
    const command = Array.isArray(argv) ? argv.map(String).join(" ") : "";
    parts.push(
      element("h2", {}, command || "a program"),
      element(
        "p",
        { class: "note" },
        `${name.startsWith("process ") ? "" : `${name}, `}process ${pid}, Python ${python ?? "unknown"}`,
      ),
    );
  }
  if (!submissions.value.length) {
    parts.push(
      empty(
        "This trace holds no submissions.",
        "The program opened a device and gave it nothing to do, or was stopped before it did.",
        "hcq-trace record -o run.hcqtrace -- python train.py records a whole run.",
      ),
    );
  }
  parts.push(
    table(
      ["queue", "arch", "submissions", "busy", "idle"],
      lanes.map((lane, index) => [
        `${lane.device} ${lane.queue}`,
        lane.arch,
        submissions.lane.filter((own) => own === index).length.toLocaleString("en"),
        duration(lane.busy),
        lane.idle === null ? "" : `${(100 * lane.idle).toFixed(1)} %`,
      ]),
    ),
  );
  if (talks.length)
    parts.push(
      table(
        ["told others", "spans", "copies", "data", "time", "hidden behind kernels"],
        talks.map((one) => [
          one.name,
          one.spans.toLocaleString("en"),
          one.copies.toLocaleString("en"),
          bytes(one.size_bytes),
          duration(one.busy),
          `${(100 * one.hidden).toFixed(1)} %`,
        ]),
        { class: "talks" },
      ),
    );
  for (const device of devices) {
    const rows = Object.entries(device.facts).map(([name, value]) => [name, factText(value)]);
    parts.push(
      element("h3", {}, `${device.key}, ${device.arch}`),
      table([], rows, { class: "device-facts" }),
    );
  }
  find("pane-trace").replaceChildren(...parts);
  showFindings(findings);
}

// A wait that never ends, with the way to where it is.
function deadlock(text, number) {
  return element(
    "div",
    { class: "warning" },
    element("b", { class: "wrong" }, "deadlock"),
    ` ${text} `,
    link({}, () => set("selected", number), "show it"),
  );
}

// Large numbers among a device's facts are addresses.
function factText(value) {
  if (typeof value === "number" && value > 0xffffffff) return hex(value);
  return value !== null && typeof value === "object" ? JSON.stringify(value) : String(value);
}

start();
