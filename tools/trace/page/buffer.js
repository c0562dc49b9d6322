// Buffer: everything that read or wrote one buffer, in order, each a link to the packet that did.
//
// In       state.buffer
// Out      the pane "Buffer"
// Changes  state.selected and state.place (a use), state.focus (its submissions), the memory map's choice
// Next     search.js and submission.js (who lead here), tools/trace/touches.py (what a use is)

import {
  ask,
  bytes,
  element,
  empty,
  find,
  hex,
  labelOf,
  moment,
  nameOf,
  on,
  plural,
  set,
  state,
  tell,
} from "./kit.js";
import { LongList } from "./list.js";
import { chooseSpan } from "./memory.js";

// The colour of what a command does; the packets' pane and the timeline have the same.
const LOOKS = { dispatch: "kernel", indirect: "graph", signal: "wait", timestamp: "other" };

let asked = 0;
let shown = null;

export function startBuffer() {
  on("buffer tab", show);
  show();
}

async function show() {
  if (state.tab !== "buffer" || (shown !== null && shown === state.buffer)) return;
  const pane = find("pane-buffer");
  const mine = ++asked;
  try {
    if (state.buffer === null) {
      const { spans, names } = await ask("memory");
      if (mine === asked) pane.replaceChildren(...choice(spans, names));
      return;
    }
    const found = await ask("touches", { span: state.buffer });
    if (mine !== asked) return;
    shown = state.buffer;
    pane.replaceChildren(...head(found), ...list(found));
  } catch (error) {
    if (mine === asked)
      pane.replaceChildren(empty("What touched this buffer cannot be shown.", error.message));
  }
}

// All buffers, the largest first, while none is chosen.
function choice(spans, names) {
  const hint = empty(
    "No buffer is chosen.",
    "Type a part of its name, or an address in it, into the search above (press /).",
    "Or click one below a submission's packets, or here. All that read or wrote it is listed then.",
  );
  const order = spans.va.map((_, index) => index).filter((index) => !spans.mapping[index]);
  if (!order.length) return [hint];
  order.sort((one, other) => Number(spans.size[other]) - Number(spans.size[one]) || one - other);
  const box = element("div", { class: "long-box", tabindex: 0, "aria-label": "Buffers" });
  const rows = new LongList(box, (at) => {
    const index = order[at];
    return element(
      "div",
      { class: "row span", onclick: () => set("buffer", index) },
      element("code", {}, hex(spans.va[index])),
      element("span", { class: "what" }, names[spans.name[index]] || `buffer@${hex(spans.va[index]).slice(2)}`),
      element("span", { class: "number" }, bytes(spans.size[index])),
    );
  });
  rows.show(order.length);
  return [hint, box];
}

function head({ buffer, touches, scanned, complete }) {
  const numbers = new Set(touches.number);
  const writes = touches.access.filter((one) => one.includes("write")).length;
  const reads = touches.access.filter((one) => one.includes("read")).length;
  const life =
    `from ${moment(buffer.from)} ` +
    (buffer.until === null ? "to the end of the trace" : `to ${moment(buffer.until)}`);
  const pick = () => {
    state.focus = { numbers, text: `uses ${buffer.name}` };
    tell("focus");
  };
  const onMap = () => {
    set("tab", "memory");
    chooseSpan(buffer.span);
  };
  const facts = [
    ["where", `${hex(buffer.va)}, ${bytes(buffer.size_bytes)}, of ${buffer.device}`],
    ["lived", life],
    [
      "touched",
      touches.number.length
        ? `${plural(touches.number.length, "time")}: ${plural(writes, "write")}, ${plural(reads, "read")}` +
          (complete ? "" : `; the first, in ${plural(scanned, "submission")} that were looked through`)
        : `by no submission${complete ? "" : ` of the ${scanned.toLocaleString("en")} that were looked through`}`,
    ],
  ];
  return [
    element(
      "div",
      { class: "title" },
      element("h2", {}, buffer.name),
      element("button", { type: "button", onclick: onMap }, "on the memory map"),
      numbers.size
        ? element(
            "button",
            { type: "button", onclick: pick },
            `show its ${plural(numbers.size, "submission")}`,
          )
        : "",
    ),
    element(
      "dl",
      { class: "facts" },
      facts.map(([name, value]) => [element("dt", {}, name), element("dd", {}, value)]),
    ),
  ];
}

function list({ touches }) {
  if (!touches.number.length) return [];
  const box = element("div", { class: "long-box touches", tabindex: 0, "aria-label": "Uses" });
  const rows = new LongList(box, (index) => row(touches, index));
  rows.show(touches.number.length);
  return [box];
}

function row(touches, index) {
  const [number, verb, access] = [touches.number[index], touches.verb[index], touches.access[index]];
  const offset = touches.offset[index];
  return element(
    "div",
    {
      class: "row touch",
      title: `${nameOf(number)} ${labelOf(number)}`,
      onclick: () => follow(number, touches.outer[index], touches.inner[index]),
    },
    element("i", { class: `swatch ${LOOKS[verb] ?? verb}` }),
    element("span", { class: "name" }, nameOf(number)),
    element(
      "b",
      { class: `access ${access.replaceAll(" ", "-")}` },
      access === "read or write" ? "read/write" : access,
    ),
    element("span", { class: "what" }, useText(touches.kernel[index], touches.role[index], verb)),
    element("span", { class: "number" }, offset ? `+${hex(offset)}` : ""),
    element("span", { class: "number" }, moment(state.trace.submissions.submitted[number])),
  );
}

// "argument 0 of dot_64x32", "source of a copy".
export function useText(kernel, role, verb) {
  return verb === "dispatch" ? `${role} of ${kernel || "a kernel without a name"}` : role;
}

// Go to a submission, and to the packet in it that stands for a command.
export function follow(number, outer, inner) {
  state.place = inner === null ? String(outer) : `${outer}.${inner}`;
  if (state.selected === number) tell("selected");
  else set("selected", number);
  set("tab", "packets");
}
