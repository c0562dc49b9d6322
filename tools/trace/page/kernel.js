// Kernel: the programs of a trace, and one of them: machine code, source and IR where the trace holds them.
//
// In       state.kernel
// Out      the pane "Kernels"
// Changes  state.kernel, state.focus (its submissions)
// Next     submission.js (one launch), counters.js (what it did)

import {
  ask,
  bytes,
  duration,
  element,
  empty,
  find,
  hex,
  on,
  plural,
  set,
  state,
  table,
  tell,
} from "./kit.js";
import { counters } from "./counters.js";

const AT_ONCE = 1500; // lines; more come with a button
const COLUMNS = [
  ["name", (a, b) => a.name.localeCompare(b.name)],
  ["submissions", (a, b) => b.submissions - a.submissions],
  ["time", (a, b) => (b.total_ns ?? -1) - (a.total_ns ?? -1)],
  ["shortest", (a, b) => (b.shortest_ns ?? -1) - (a.shortest_ns ?? -1)],
  ["object", (a, b) => b.size_bytes - a.size_bytes],
  ["device", (a, b) => a.device.localeCompare(b.device)],
];

let asked = 0;
let order = null; // by time where there are times, else by submissions

export function startKernel() {
  on("kernel tab", show);
  show();
}

async function show() {
  if (state.tab !== "kernel") return;
  const pane = find("pane-kernel");
  const mine = ++asked;
  try {
    const made =
      state.kernel === null ? all(await ask("kernels")) : one(await ask("kernel", { number: state.kernel }));
    if (mine !== asked) return;
    pane.replaceChildren(...made);
    pane.scrollTop = 0;
  } catch (error) {
    if (mine === asked) pane.replaceChildren(empty("The kernels cannot be shown.", error.message));
  }
}

function all({ kernels }) {
  if (!kernels.length) {
    return [
      empty(
        "This trace holds no kernels.",
        "Copies, fills and signals need none; a program that is loaded shows up here.",
      ),
    ];
  }
  const isTimed = kernels.some((kernel) => kernel.timed);
  order ??= COLUMNS[isTimed ? 2 : 1][1];
  const sorted = [...kernels].sort(order);
  const columns = COLUMNS.filter(([name]) => isTimed || (name !== "time" && name !== "shortest"));
  const head = columns.map(([name, by]) =>
    element(
      "a",
      {
        href: "#",
        "aria-sort": order === by ? "descending" : null,
        onclick: (event) => {
          event.preventDefault();
          order = by;
          show();
        },
      },
      name,
    ),
  );
  const rows = sorted.map((kernel) => [
    element(
      "a",
      {
        href: "#",
        class: "kernel-name",
        onclick: (event) => {
          event.preventDefault();
          set("kernel", kernel.number);
        },
      },
      kernel.name,
    ),
    kernel.submissions.toLocaleString("en"),
    ...(!isTimed ? [] : kernel.timed ? [duration(kernel.total_ns), duration(kernel.shortest_ns)] : ["", ""]),
    bytes(kernel.size_bytes),
    `${kernel.device}, ${kernel.arch}`,
  ]);
  return [
    element("h2", {}, plural(kernels.length, "kernel")),
    table(head, rows, { class: "kernels" }),
    element(
      "p",
      { class: "note" },
      isTimed
        ? "Times are of launches that had a submission to themselves, or stood between timestamps (HCQ_PROFILE=1)."
        : "No kernel had a submission to itself, so none has a time. Record with HCQ_PROFILE=1 to time every launch.",
    ),
  ];
}

function one(kernel) {
  const facts = [
    ["device", `${kernel.device}, ${kernel.arch}`],
    ["entry", `${kernel.entry} at ${hex(kernel.va)}`],
    ["arguments", kernel.arguments === null ? "not declared" : kernel.arguments.join(", ") || "none"],
    ["object", `${bytes(kernel.size_bytes)}, sha256 ${kernel.hash}…`],
  ];
  if (kernel.scratch_bytes) facts.push(["scratch", bytes(kernel.scratch_bytes)]);
  if (kernel.timed) {
    facts.push([
      "time",
      `${duration(kernel.total_ns)} in ${plural(kernel.timed, "timed launch")}, shortest ${duration(kernel.shortest_ns)}`,
    ]);
  }
  for (const [name, value] of Object.entries(kernel.facts))
    facts.push([name, typeof value === "object" ? JSON.stringify(value) : String(value)]);
  const back = () => set("kernel", null);
  const pick = () => {
    state.focus = { numbers: new Set(kernel.submissions), text: `launches ${kernel.name}` };
    tell("focus");
  };
  return [
    element(
      "div",
      { class: "title" },
      element("button", { type: "button", onclick: back }, "‹ all"),
      element("h2", {}, kernel.name),
      state.compiles && kernel.facts.graph
        ? element("button", { type: "button", onclick: () => compiled(kernel) }, "how it was compiled")
        : "",
      kernel.submissions.length
        ? element(
            "button",
            { type: "button", onclick: pick },
            `show its ${plural(kernel.submissions.length, "submission")}`,
          )
        : "",
    ),
    element(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
    ),
    texts(kernel),
  ];
}

function compiled(kernel) {
  state.compiled = kernel.number;
  set("tab", "compile");
}

// Machine code, source, IR, counters: one at a time, as far as there are any.
function texts(kernel) {
  const box = element("div", { class: "texts" });
  const views = [["Machine code", () => machineCode(kernel)]];
  for (const [name, title] of [
    ["source", "Source"],
    ["ir", "IR"],
  ]) {
    views.push([
      title,
      () =>
        kernel.texts[name]
          ? element("pre", {}, kernel.texts[name])
          : empty(
              `The trace holds no ${title === "IR" ? "IR" : "source"} of this kernel.`,
              "A trace has what the device was given: the object code. Where a loader adds its text, it stands here.",
              "HCQ_DEBUG=ir,code prints both while the program runs.",
            ),
    ]);
  }
  views.push(["Counters", () => counters(kernel.number)]);
  const choose = (chosen) => {
    box.replaceChildren(
      element(
        "nav",
        { role: "tablist" },
        views.map(([title], index) =>
          element(
            "button",
            {
              role: "tab",
              type: "button",
              "aria-selected": String(index === chosen),
              onclick: () => choose(index),
            },
            title,
          ),
        ),
      ),
      views[chosen][1](),
    );
  };
  choose(
    Math.max(
      0,
      views.findIndex(([title]) => title === state.text),
    ),
  );
  return box;
}

function machineCode(kernel) {
  if (kernel.unread) return empty("This code cannot be disassembled here.", kernel.unread);
  const body = element("div", { class: "code" });
  const labels = new Map();
  let source = "";
  const more = (from) => {
    for (const [offset, raw, text, label, target, line] of kernel.lines.slice(from, from + AT_ONCE)) {
      if (label) {
        const row = element("div", { class: "label" }, `${label}:`);
        labels.set(label, row);
        body.append(row);
      }
      if (line && line !== source) body.append(element("div", { class: "note" }, `; ${line}`));
      source = line || source;
      const space = text.indexOf(" ");
      body.append(
        element(
          "div",
          { class: "line" },
          element("i", {}, offset.toString(16)),
          element("span", { class: "raw" }, raw),
          element(
            "span",
            {},
            element("b", {}, space < 0 ? text : text.slice(0, space)),
            space < 0 ? "" : operands(text.slice(space), labels),
            target ? element("em", {}, `  ; ${target}`) : "",
          ),
        ),
      );
    }
    const left = kernel.lines.length - from - AT_ONCE;
    if (left <= 0) return;
    const button = element(
      "button",
      { type: "button", class: "more" },
      `show ${Math.min(left, AT_ONCE)} of ${left} more lines`,
    );
    button.addEventListener("click", () => {
      button.remove();
      more(from + AT_ONCE);
    });
    body.append(button);
  };
  more(0);
  return body;
}

function operands(text, labels) {
  return text.split(/(\.L\d+)/).map((part, index) =>
    index % 2 === 0
      ? part
      : element(
          "a",
          {
            href: "#",
            onclick: (event) => {
              event.preventDefault();
              const row = labels.get(part);
              row?.scrollIntoView({ block: "center" });
              row?.classList.add("lit");
              setTimeout(() => row?.classList.remove("lit"), 1200);
            },
          },
          part,
        ),
  );
}
