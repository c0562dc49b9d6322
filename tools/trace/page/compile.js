// Compile: the way of one kernel from its graph to machine code: every pass, every rewrite, every choice of the loops.
//
// In       state.compiled, a kernel's number; compile_view.py's data, of servers started with --compile
// Out      the pane "Compile"; without --compile its tab is not there
// Changes  state.compiled, state.compiles
// Next     kernel.js (the same kernel as the trace has it), counters.js (what the result does)

import { ask, bytes, duration, element, empty, find, on, plural, set, state, table, tell } from "./kit.js";
import { counters } from "./counters.js";

const LINES_AT_ONCE = 2000;

let asked = 0;
let made = null; // the way that is shown
let chosen = ""; // the station that is open; stays when another kernel is looked at
let rule = ""; // only its rewrites are shown

export async function startCompile() {
  on("tab compiled", show);
  try {
    state.compiles = (await ask("compile")).enabled;
  } catch {
    state.compiles = false;
  }
  for (const tab of document.querySelectorAll("[data-tab=compile]")) tab.hidden = !state.compiles;
  if (!state.compiles && state.tab === "compile") set("tab", "trace");
  show();
}

async function show() {
  if (state.tab !== "compile" || !state.compiles) return;
  const pane = find("pane-compile");
  const mine = ++asked;
  const number = state.compiled ?? null;
  try {
    if (number === null) {
      const { kernels } = await ask("compile");
      if (mine === asked) pane.replaceChildren(...list(kernels));
      return;
    }
    if (made?.number === number) return draw(pane);
    pane.replaceChildren(element("p", { class: "note way-wait" }, "Compiling…"));
    const found = await ask("compile", { number });
    if (mine !== asked) return;
    made = { number, ...found };
    draw(pane);
  } catch (error) {
    if (mine === asked)
      pane.replaceChildren(
        element(
          "div",
          { class: "way-wait" },
          back(),
          empty("This kernel cannot be compiled again here.", error.message),
        ),
      );
  }
}

function open(number) {
  state.compiled = number;
  rule = "";
  tell("compiled");
}

function back() {
  return element("button", { type: "button", onclick: () => open(null) }, "‹ all");
}

// ---------------------------------------------------------------- which kernel

function list(kernels) {
  const known = kernels.filter((kernel) => kernel.has_graph);
  if (!known.length)
    return [
      empty(
        "No kernel of this trace carries its graph.",
        "Kernels of the tensor layer do. Those that a program loads as objects were compiled elsewhere.",
      ),
    ];
  const rows = known.map((kernel) => [
    element(
      "a",
      {
        href: "#",
        class: "kernel-name",
        onclick: (event) => {
          event.preventDefault();
          open(kernel.number);
        },
      },
      kernel.name,
    ),
    `${kernel.device}, ${kernel.arch}`,
  ]);
  return [
    element(
      "div",
      { class: "way-list" },
      element("h2", {}, `${plural(known.length, "kernel")} that can be compiled again`),
      element(
        "p",
        { class: "note" },
        "Choose one: it is compiled here, from the graph that the trace holds, and every step is shown.",
        known.length < kernels.length
          ? ` ${plural(kernels.length - known.length, "other kernel")} of the trace came as finished objects.`
          : "",
      ),
      table(["name", "device"], rows, { class: "kernels" }),
    ),
  ];
}

// ---------------------------------------------------------------- the stations

function stations() {
  const found = [
    {
      key: "begin",
      title: "graph",
      note: "tensor stage",
      body: () => text("The kernel as the scheduler gave it: tensors, views, reductions.", made.begin),
    },
  ];
  for (const station of made.stations) {
    const time = duration(station.ns);
    if (station.rewrites)
      found.push({
        key: station.name,
        title: station.name,
        note: station.applied ? `${station.applied.toLocaleString("en")} ×` : "",
        time: station.applied || station.graph ? time : "",
        isIdle: !station.applied && !station.graph,
        body: () => pass(station),
      });
    else
      found.push({
        key: station.name,
        title: station.name,
        note: noteOf(station),
        time,
        body: () => BODIES[station.name]?.(station) ?? text(station.why, ""),
      });
  }
  if (made.assembly.lines.length || made.assembly.unread)
    found.push({
      key: "code",
      title: "machine code",
      note: plural(made.assembly.lines.length, "line"),
      body: code,
    });
  found.push({ key: "counters", title: "counters", note: "", body: () => counters(made.number) });
  return found;
}

function noteOf(station) {
  if (station.name === "choose" && made.loops) return plural(made.loops.decisions.length, "reason");
  if (station.name === "linearize" || station.name === "write")
    return plural(made.instructions, "instruction");
  if (station.name === "render") return plural(made.rendered.split("\n").length, "line");
  return station.size_bytes ? bytes(station.size_bytes) : "";
}

const BODIES = {
  choose: loops,
  linearize: (station) => text(station.why, made.program),
  write: (station) => text(station.why, made.program),
  render: (station) => text(station.why, made.rendered),
  assemble: (station) => [
    element("p", { class: "note" }, station.why, "."),
    element(
      "p",
      {},
      bytes(station.size_bytes),
      made.is_same_object ? ", byte for byte what the trace holds." : ", not the bytes that the trace holds.",
    ),
  ],
};

function draw(pane) {
  const all = stations();
  const open_ = all.find((one) => one.key === chosen) ?? all.find((one) => one.note.endsWith("×")) ?? all[0];
  const total = made.stations.reduce((sum, one) => sum + one.ns, 0);
  const rail = element(
    "div",
    { class: "way-rail", role: "tablist", "aria-label": "Stations" },
    all.map((one) =>
      element(
        "button",
        {
          type: "button",
          role: "tab",
          class: one.isIdle ? "idle" : null,
          "aria-selected": String(one === open_),
          onclick: () => {
            chosen = one.key;
            rule = "";
            draw(pane);
          },
        },
        element("span", { class: "what" }, one.title),
        element("span", { class: "note" }, one.note),
        element("span", { class: "time" }, one.time ?? ""),
      ),
    ),
  );
  const body = element("div", { class: "way-body" }, open_.body());
  pane.replaceChildren(
    element(
      "div",
      { class: "way-head" },
      back(),
      element("h2", {}, made.name),
      element(
        "span",
        { class: "note" },
        `for ${made.target}, ${plural(made.stations.length, "station")} in ${duration(total)}`,
      ),
      element(
        "button",
        {
          type: "button",
          onclick: () => {
            set("kernel", made.number);
            set("tab", "kernel");
          },
        },
        "in the trace",
      ),
    ),
    made.problem ? element("p", { class: "warning way-wrong" }, made.problem) : "",
    element("div", { class: "way-columns" }, rail, body),
  );
}

// ---------------------------------------------------------------- what a station did

function text(why, content) {
  return [why ? element("p", { class: "note" }, why) : "", element("pre", { class: "way-text" }, content)];
}

function pass(station) {
  if (!station.applied && !station.graph)
    return empty(`${station.name} found nothing to do.`, "None of its rules matches this kernel.");
  const shown = station.rewrites.filter((one) => !rule || one.rule === rule);
  const pick = (name) => () => {
    rule = rule === name ? "" : name;
    draw(find("pane-compile"));
  };
  const rules = station.rules.map(([name, count, says]) =>
    element(
      "button",
      { type: "button", class: "way-rule", "aria-pressed": String(rule === name), onclick: pick(name) },
      element("b", {}, name),
      element("i", {}, count.toLocaleString("en")),
      element("span", {}, says),
    ),
  );
  return [
    element("p", { class: "way-why" }, element("b", {}, station.name), ` ${station.why}.`),
    element("div", { class: "way-rules" }, rules),
    element(
      "h3",
      {},
      rule ? `Rewrites by ${rule}` : "Rewrites, in order",
      station.not_shown > 0
        ? element(
            "small",
            {},
            `${station.not_shown.toLocaleString("en")} more are part of these, or were only counted`,
          )
        : "",
    ),
    element(
      "div",
      { class: "rewrites" },
      shown.map((one, index) => rewrite(one, index)),
    ),
    station.graph
      ? element(
          "details",
          {},
          element("summary", {}, `The graph after it, ${plural(station.nodes, "node")}`),
          element("pre", { class: "way-text" }, station.graph),
        )
      : "",
  ];
}

// Before above after; what both hold is dim.
function rewrite({ rule: name, before, after, times }, index) {
  const side = (kind, parts) =>
    element(
      "div",
      { class: `side ${kind}` },
      parts.map(([part, isSame]) => element(isSame ? "span" : "mark", {}, part)),
    );
  return element(
    "div",
    { class: "rewrite" },
    element("i", {}, String(index + 1)),
    element("b", {}, name, times > 1 ? element("small", {}, ` × ${times}`) : ""),
    side("before", before),
    side("after", after),
  );
}

function loops(station) {
  const { decisions, loops: nest, ranges, choice } = made.loops;
  const rows = decisions.map(({ why, choices }) =>
    element(
      "li",
      { class: choices.length ? null : "nothing" },
      element("p", {}, why || "No reason is written down."),
      choices.length
        ? element(
            "p",
            { class: "moves" },
            choices.map((one) => element("code", {}, one)),
          )
        : "",
    ),
  );
  const differs = made.schedule_before !== "" && made.schedule_before !== choice;
  return [
    element("p", { class: "note" }, `${station.why}. Each reason, and what was done for it.`),
    differs
      ? element(
          "p",
          { class: "warning" },
          "The trace has another schedule: by a search, another revision, or another machine. It was: ",
          element("code", {}, made.schedule_before),
        )
      : "",
    rows.length
      ? element("ol", { class: "way-reasons" }, rows)
      : empty("There was nothing to choose.", "The kernel has no ranges."),
    element("h3", {}, "The loops that follow"),
    element("pre", { class: "way-text" }, nest || "none"),
    ranges.length
      ? table(
          ["range", "steps", ""],
          ranges.map((one) => [
            one.name,
            one.size.toLocaleString("en"),
            [one.is_reduce ? "reduced" : "stored", one.is_ordered ? "in order" : ""]
              .filter(Boolean)
              .join(", "),
          ]),
          { class: "way-ranges" },
        )
      : "",
  ];
}

function code() {
  if (made.assembly.unread) return empty("This code cannot be disassembled here.", made.assembly.unread);
  const body = element("div", { class: "code" });
  for (const [offset, , line, label] of made.assembly.lines.slice(0, LINES_AT_ONCE)) {
    if (label) body.append(element("div", { class: "label" }, `${label}:`));
    const space = line.indexOf(" ");
    body.append(
      element(
        "div",
        { class: "line" },
        element("i", {}, offset.toString(16)),
        element(
          "span",
          {},
          element("b", {}, space < 0 ? line : line.slice(0, space)),
          space < 0 ? "" : line.slice(space),
        ),
      ),
    );
  }
  const left = made.assembly.lines.length - LINES_AT_ONCE;
  if (left > 0)
    body.append(element("p", { class: "note" }, `${plural(left, "more line")}: hcq-trace disasm shows all.`));
  return body;
}
