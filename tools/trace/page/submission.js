// Submission: its packets with decoded fields and hex words side by side, its buffers by name, what it waited for.
//
// In       state.selected
// Out      the pane "Packets"
// Changes  state.selected and state.kernel, where a name is clicked; state.buffers
// Next     kernel.js (what a dispatch runs), timeline.js (when)

import {
  ask,
  bytes,
  duration,
  element,
  empty,
  find,
  hex,
  laneName,
  link,
  moment,
  nameOf,
  on,
  plural,
  set,
  state,
  table,
} from "./kit.js";
import { lookAt } from "./view.js";

const AT_ONCE = 200; // packets; more come with a button
const WORDS_PER_LINE = 4;

let asked = 0;

export function startSubmission() {
  on("selected", show);
  show();
}

async function show() {
  const pane = find("pane-packets");
  const number = state.selected;
  if (number === null) {
    return pane.replaceChildren(
      state.trace.submissions.value.length
        ? empty(
            "No submission is selected.",
            "Click a bar in the timeline or a row of the list, or press j and k.",
          )
        : empty(
            "This trace holds no submissions.",
            "The program opened a device and gave it nothing to do, or was stopped before it did.",
          ),
    );
  }
  const mine = ++asked;
  let view;
  try {
    view = await ask("submission", { number });
  } catch (error) {
    return mine === asked && pane.replaceChildren(empty("This submission cannot be shown.", error.message));
  }
  if (mine !== asked) return;
  set("buffers", new Set(view.buffers.map((buffer) => buffer.start)));
  pane.replaceChildren(...head(view), ...body(view));
  pane.scrollTop = 0;
  showPlace(pane);
}

// Light up the packet that a use of a buffer leads to.
function showPlace(pane) {
  const row = state.place === null ? null : pane.querySelector(`[data-place="${state.place}"]`);
  state.place = null;
  row?.classList.add("lit");
  row?.scrollIntoView({ block: "center" });
}

function head(view) {
  const wait = view.started_ns === null ? null : view.started_ns - view.submitted;
  const ran =
    view.started_ns === null || view.finished_ns === null ? null : view.finished_ns - view.started_ns;
  const ran_text = view.dropped
    ? "did not reach the device"
    : ran === null
      ? "not timed: the trace ends before it did"
      : duration(ran);
  const facts = [
    ["submitted", `${moment(view.submitted)}, by ${view.thread || "an unnamed thread"}`],
    ["from", view.site || "unknown line"],
    ["on the device", ran_text + (wait === null ? "" : `, ${duration(wait)} after it was submitted`)],
    ["size", `${plural(view.size_words, "word")}, ${plural(view.packets.length, "packet")}`],
  ];
  if (view.waits_for.length) facts.push(["waits for", view.waits_for.map((wait) => waitText(wait))]);
  const lane = state.trace.lanes[state.trace.submissions.lane[view.number]];
  return [
    element(
      "div",
      { class: "title" },
      element("h2", {}, `${laneName(lane)} #${view.submission}`),
      element(
        "button",
        { type: "button", title: "Zoom to it (f)", onclick: () => lookAt(view.number) },
        "zoom to it",
      ),
    ),
    element(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
    ),
  ];
}

function waitText(wait) {
  if (wait.by) return element("div", {}, `${wait.text}, set by ${wait.by}`);
  if (wait.number === null) return element("div", { class: "wrong" }, `${wait.text}: nobody signals it`);
  return element(
    "div",
    {},
    `${wait.text}, from `,
    element("a", { href: "#", onclick: follow(() => set("selected", wait.number)) }, nameOf(wait.number)),
  );
}

function body(view) {
  const found = [];
  if (view.undecoded) found.push(element("p", { class: "wrong" }, view.undecoded));
  const paired = new Set(view.packets.map((packet) => packet.command));
  if (view.commands.some((_, index) => !paired.has(index))) {
    found.push(
      element("h3", {}, "Commands"),
      element(
        "ol",
        { class: "commands" },
        view.commands.map((command) =>
          element("li", {}, element("b", {}, command.verb), " ", named(view, command.text, command.kernel)),
        ),
      ),
    );
  }
  found.push(element("h3", {}, "Packets", element("small", {}, "click one for its fields and words")));
  found.push(packets(view, view.packets, view.commands));
  if (view.buffers.length)
    found.push(
      element("h3", {}, "Buffers", element("small", {}, "click one for all that touched it")),
      buffers(view),
    );
  return found;
}

function buffers(view) {
  const state_of = (buffer) =>
    buffer.state === "live" ? "" : element("b", { class: "wrong" }, buffer.state);
  return table(
    ["address", "size", "name", ""],
    view.buffers.map((buffer) => [
      element("code", {}, hex(buffer.start)),
      buffer.state === "unknown" ? "" : bytes(buffer.size_bytes),
      buffer.span === null ? buffer.name : link({}, () => usesOf(buffer.span), buffer.name),
      state_of(buffer),
    ]),
    { class: "buffers" },
  );
}

function usesOf(span) {
  set("buffer", span);
  set("tab", "buffer");
}

// ---------------------------------------------------------------- packets

// Those of a block begin with `prefix`, the place of the command that runs it.
function packets(view, list, commands, prefix = "") {
  const box = element("div", { class: "packets" });
  const more = (from) => {
    for (const packet of list.slice(from, from + AT_ONCE))
      box.append(...packetRow(view, packet, commands, prefix));
    const left = list.length - from - AT_ONCE;
    if (left <= 0) return;
    const button = element(
      "button",
      { type: "button", class: "more" },
      `show ${Math.min(left, AT_ONCE)} of ${left} more`,
    );
    button.addEventListener("click", () => {
      button.remove();
      more(from + AT_ONCE);
    });
    box.append(button);
  };
  more(0);
  return box;
}

function packetRow(view, packet, commands, prefix) {
  const command = packet.command === undefined ? null : commands[packet.command];
  const kind = packet.packet.toLowerCase();
  const fields = element("div", { class: "fields", hidden: true });
  const row = element(
    "div",
    {
      class: "packet",
      "data-place": packet.command === undefined ? null : `${prefix}${packet.command}`,
      role: "button",
      tabindex: 0,
      "aria-expanded": "false",
      onclick: () => toggle(),
      onkeydown: (event) => {
        if (event.key !== "Enter" && event.key !== " ") return;
        event.preventDefault();
        toggle();
      },
    },
    element("span", { class: "at" }, String(packet.at)),
    element(
      "b",
      { class: `verb ${kind}` },
      element("i", { class: `swatch ${swatch(kind, command)}` }),
      packet.packet,
    ),
    element("span", { class: "text" }, named(view, packet.text, command?.kernel)),
    packet.ns === undefined ? "" : element("span", { class: "took" }, duration(packet.ns)),
  );
  const toggle = () => {
    if (!fields.firstChild) fields.append(layout(view, packet));
    fields.hidden = !fields.hidden;
    row.setAttribute("aria-expanded", String(!fields.hidden));
  };
  const differs = packet.differs
    ? element("p", { class: "differs wrong" }, `the program meant: ${packet.differs}`)
    : null;
  return [row, differs, fields, packet.packets ? block(view, packet, command) : null].filter(Boolean);
}

// The colour of what a packet does: that of its command, or else of its own name.
function swatch(kind, command) {
  const does = command?.verb ?? kind;
  const looks = {
    dispatch: "kernel",
    indirect: "graph",
    signal: "wait",
    copy: "copy",
    fill: "fill",
    wait: "wait",
  };
  return looks[does] ?? (does === "packets" ? "packets" : "other");
}

function block(view, packet, command) {
  return element(
    "div",
    { class: "block" },
    element(
      "p",
      { class: "note" },
      `inside ${command?.label ?? packet.text}: ${plural(packet.packets.length, "packet")}, ` +
        "with the arguments it had in this submission",
    ),
    packets(view, packet.packets, packet.commands, `${packet.command}.`),
  );
}

// A command's text, with the kernel in it as a link.
function named(view, text, kernel) {
  if (!kernel || !text.startsWith(kernel) || !Object.hasOwn(view.code, kernel)) return text;
  const open = () => {
    set("kernel", view.code[kernel]);
    set("tab", "kernel");
  };
  return [
    element("a", { href: "#", class: "kernel-name", onclick: follow(open) }, kernel),
    text.slice(kernel.length),
  ];
}

function follow(act) {
  return (event) => {
    event.preventDefault();
    event.stopPropagation();
    act();
  };
}

// Words on the left, fields on the right; pointing at a field lights up the words that hold it, and the other way round.
function layout(view, packet) {
  const known = Object.hasOwn(view.layouts, packet.packet) ? view.layouts[packet.packet] : null;
  const words = packet.words.map((word, index) =>
    element("span", { "data-word": index }, hex(word, 8).slice(2)),
  );
  const rows = [];
  for (const [name, value] of Object.entries(packet.fields)) {
    const [high, low, doc] = known?.fields[name] ?? [null, null, ""];
    const where = high === null ? "" : place(high, low);
    const shown =
      typeof value === "number" && Math.abs(value) > 9 ? `${value} = ${hex(value)}` : String(value);
    const row = element(
      "tr",
      { title: doc || null },
      element("td", { class: "bits" }, where),
      element("th", {}, name),
      element(
        "td",
        {},
        element("code", {}, packet.names[name] ? hex(value) : shown),
        packet.names[name] ? element("span", { class: "named" }, packet.names[name]) : "",
      ),
    );
    if (high !== null) lights(row, words.slice(low >> 5, (high >> 5) + 1));
    rows.push([low ?? 0, row]);
  }
  if (known?.tail && packet.words.length > known.length_words) {
    const rest = packet.words.length - known.length_words;
    const row = element(
      "tr",
      {},
      element("td", { class: "bits" }, `word ${known.length_words} on`),
      element("th", {}, known.tail),
      element("td", {}, plural(rest, "word")),
    );
    lights(row, words.slice(known.length_words));
    rows.push([Infinity, row]);
  }
  for (const [index, value] of Object.entries(packet.unclaimed ?? {})) {
    const row = element(
      "tr",
      { class: "wrong" },
      element("td", { class: "bits" }, `word ${index}`),
      element("th", {}, "unclaimed"),
      element("td", {}, `bits that no field declares: ${hex(value, 8)}`),
    );
    lights(row, words.slice(Number(index), Number(index) + 1));
    rows.push([Infinity, row]);
  }
  rows.sort(([a], [b]) => a - b);
  return element(
    "div",
    { class: "layout" },
    element("div", { class: "words" }, lines(packet.at, words)),
    element(
      "div",
      {},
      known?.doc ? element("p", { class: "note" }, known.doc) : "",
      element(
        "table",
        {},
        element(
          "tbody",
          {},
          rows.map(([, row]) => row),
        ),
      ),
    ),
  );
}

function lines(at, words) {
  const found = [];
  for (let from = 0; from < words.length; from += WORDS_PER_LINE) {
    found.push(
      element(
        "div",
        {},
        element("i", {}, String(at + from)),
        " ",
        words.slice(from, from + WORDS_PER_LINE).flatMap((word) => [word, " "]),
      ),
    );
  }
  return found;
}

function place(high, low) {
  if (high === low) return `word ${low >> 5} [${low & 31}]`;
  if (high >> 5 === low >> 5) {
    const whole = (high & 31) === 31 && (low & 31) === 0;
    return `word ${low >> 5}` + (whole ? "" : ` [${high & 31}:${low & 31}]`);
  }
  return `words ${low >> 5}..${high >> 5}`;
}

function lights(row, words) {
  const light = (is) => [row, ...words].forEach((one) => one.classList.toggle("lit", is));
  for (const one of [row, ...words]) {
    one.addEventListener("pointerenter", () => light(true));
    one.addEventListener("pointerleave", () => light(false));
  }
}
