// Kit: what every view of the page needs: the shared state, elements made of text, units, colours, the tip.
//
// In       nothing
// Out      state, on/tell, element, ask, duration/bytes/hex, colours, canvas, tip
// Changes  only what it is given; texts of a trace become text nodes, never markup
// Next     page.js (wires the views together)

// What all views share. `view` is the time shown, `time` the moment the memory map speaks of, `focus` the submissions
// that a search or a click picked out: {numbers: Set, text}.
export const state = {
  trace: null,
  view: { from: 0, until: 1 },
  selected: null,
  hovered: null,
  time: null,
  focus: null,
  tab: "trace",
  kernel: null,
  span: null,
  buffer: null, // whose uses are listed
  place: null, // the command that a use leads to, "3" or "3.1" inside a block
  buffers: new Set(), // where the buffers of the selected submission start
};

const listeners = {};

// Events: "view", "selected", "hovered", "time", "focus", "tab", "kernel", "span", "buffer", "buffers", "scheme".
export function on(events, act) {
  for (const event of events.split(" ")) (listeners[event] ??= []).push(act);
}

export function tell(event) {
  for (const act of listeners[event] ?? []) act();
}

export function set(name, value) {
  if (state[name] === value) return;
  state[name] = value;
  tell(name);
}

// ---------------------------------------------------------------- elements

// element("p", {class: "note", onclick: f}, "text", child): strings are text, whatever they contain.
export function element(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value === true ? "" : String(value));
  }
  made.append(
    ...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== ""),
  );
  return made;
}

export function find(id) {
  return document.getElementById(id);
}

// A link that does something here.
export function link(properties, act, ...children) {
  const follow = (event) => {
    event.preventDefault();
    event.stopPropagation();
    act();
  };
  return element("a", { href: "#", ...properties, onclick: follow }, ...children);
}

export function percent(part, whole) {
  if (!whole) return "0 %";
  const share = (100 * part) / whole;
  return `${share.toFixed(share >= 99.95 || share === 0 ? 0 : share < 0.095 ? 2 : 1)} %`;
}

// A sentence where data would be: what is missing, and how to get it.
export function empty(title, ...text) {
  return element(
    "div",
    { class: "empty" },
    element("h3", {}, title),
    ...text.map((line) => element("p", {}, line)),
  );
}

export function table(head, rows, properties = {}) {
  const row = (cells, tag) =>
    element(
      "tr",
      {},
      cells.map((cell) => element(tag, {}, cell)),
    );
  return element(
    "table",
    properties,
    head.length ? element("thead", {}, row(head, "th")) : "",
    element(
      "tbody",
      {},
      rows.map((cells) => row(cells, "td")),
    ),
  );
}

// ---------------------------------------------------------------- data

export class Refusal extends Error {}

// The server's answer. Refusal carries the sentence it gave instead.
export async function ask(name, query = {}) {
  let answer;
  try {
    answer = await fetch(`data/${name}?${new URLSearchParams(query)}`);
  } catch {
    throw new Refusal(
      "hcq-trace serve does not answer any more. Start it again, and open the address it prints.",
    );
  }
  const found = await answer.json();
  if (!answer.ok) throw new Refusal(found.error);
  return found;
}

// Tell the server to do something; it answers as with `ask`.
export async function say(name, what) {
  let answer;
  try {
    answer = await fetch(`data/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(what),
    });
  } catch {
    throw new Refusal("hcq-trace serve does not answer any more.");
  }
  const found = await answer.json();
  if (!answer.ok) throw new Refusal(found.error);
  return found;
}

// The first place in a sorted column at or after a value.
export function bisect(column, value, key = (x) => x) {
  let low = 0;
  let high = column.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (key(column[middle]) < value) low = middle + 1;
    else high = middle;
  }
  return low;
}

// ---------------------------------------------------------------- units

export function duration(ns) {
  if (ns === null || ns === undefined) return "unknown";
  const size = Math.abs(ns);
  for (const [limit, scale, unit] of [
    [1e3, 1, "ns"],
    [1e6, 1e3, "µs"],
    [1e9, 1e6, "ms"],
  ]) {
    if (size < limit) return `${significant(ns / scale)} ${unit}`;
  }
  return `${significant(ns / 1e9)} s`;
}

function significant(number) {
  const size = Math.abs(number);
  if (Number.isInteger(number)) return String(number);
  return number.toFixed(size >= 100 ? 0 : size >= 10 ? 1 : 2);
}

// A moment of the trace. On an axis, as many decimals as the step between two marks needs.
export function moment(ns, step = 0) {
  const grain = step || Math.max(1, 10 ** (Math.floor(Math.log10(Math.max(1, Math.abs(ns)))) - 5));
  const by = step || Math.abs(ns);
  const limits = step ? [1e8, 1e5, 100] : [1e9, 1e6, 1e3];
  const [scale, unit] =
    by >= limits[0] ? [1e9, "s"] : by >= limits[1] ? [1e6, "ms"] : by >= limits[2] ? [1e3, "µs"] : [1, "ns"];
  const digits = Math.max(0, Math.ceil(Math.log10(scale / grain) - 1e-9));
  return `${(ns / scale).toLocaleString("en", { minimumFractionDigits: digits, maximumFractionDigits: digits })} ${unit}`;
}

export function bytes(size) {
  const number = Number(size);
  for (const [limit, unit] of [
    [2 ** 30, "GiB"],
    [2 ** 20, "MiB"],
    [2 ** 10, "KiB"],
  ]) {
    if (number >= limit) return `${significant(number / limit)} ${unit}`;
  }
  return `${number} B`;
}

// Numbers that a browser cannot count arrive as "0x..." already.
export function hex(value, digits = 0) {
  return typeof value === "string" ? value : "0x" + value.toString(16).padStart(digits, "0");
}

export function plural(count, thing) {
  return `${count.toLocaleString("en")} ${thing}${count === 1 ? "" : thing.endsWith("ch") ? "es" : "s"}`;
}

// ---------------------------------------------------------------- colours and canvases

let palette = {};

// A colour of page.css, by its name there.
export function colour(name) {
  return (palette[name] ??= getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim());
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  palette = {};
  tell("scheme");
});

// Text on a bar of that colour: the one of two inks that stands out more.
export function inkOn(name) {
  const parts = /^#(..)(..)(..)$/.exec(colour(name)) ?? ["", "00", "00", "00"];
  const [r, g, b] = parts.slice(1).map((part) => (parseInt(part, 16) / 255) ** 2.2);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b > 0.18 ? "#0d1014" : "#ffffff";
}

// Make a canvas as sharp as the screen, and return its context in CSS pixels.
export function context(canvas, width, height) {
  const sharp = window.devicePixelRatio || 1;
  if (canvas.width !== Math.round(width * sharp) || canvas.height !== Math.round(height * sharp)) {
    canvas.width = Math.round(width * sharp);
    canvas.height = Math.round(height * sharp);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const draw = canvas.getContext("2d");
  draw.setTransform(sharp, 0, 0, sharp, 0, 0);
  draw.clearRect(0, 0, width, height);
  draw.font = `12px ${colour("sans")}`;
  draw.textBaseline = "middle";
  return draw;
}

// Text that ends where there is no more room.
export function fitted(draw, text, width) {
  if (width < 14) return "";
  if (draw.measureText(text).width <= width) return text;
  let low = 0;
  let high = Math.min(text.length, Math.ceil(width / 3));
  while (low < high) {
    const middle = (low + high + 1) >> 1;
    if (draw.measureText(text.slice(0, middle) + "…").width <= width) low = middle;
    else high = middle - 1;
  }
  return low > 1 ? text.slice(0, low) + "…" : "";
}

// Run once before the next frame, however often it is called.
export function perFrame(act) {
  let asked = false;
  return () => {
    if (asked) return;
    asked = true;
    requestAnimationFrame(() => {
      asked = false;
      act();
    });
  };
}

// ---------------------------------------------------------------- the tip

export function showTip(event, title, ...lines) {
  const tip = find("tip");
  tip.replaceChildren(
    element("b", {}, title),
    ...lines.filter(Boolean).map((line) => element("div", {}, line)),
  );
  tip.hidden = false;
  const { width, height } = tip.getBoundingClientRect();
  const left = event.clientX + 14 + width > innerWidth ? event.clientX - width - 10 : event.clientX + 14;
  const top = event.clientY + 18 + height > innerHeight ? event.clientY - height - 10 : event.clientY + 18;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${Math.max(4, top)}px`;
}

export function hideTip() {
  find("tip").hidden = true;
}

// ---------------------------------------------------------------- what submissions are called

// "#38", and the lane before it when there are several.
export function nameOf(number) {
  const { lanes, submissions } = state.trace;
  const lane = lanes[submissions.lane[number]];
  return lanes.length > 1
    ? `${laneName(lane)} #${submissions.value[number]}`
    : `#${submissions.value[number]}`;
}

export function laneName(lane) {
  const several = state.trace.lanes.filter((other) => other.device === lane.device).length > 1;
  return several ? `${lane.device} ${lane.queue}` : lane.device;
}

export function labelOf(number) {
  return state.trace.labels[state.trace.submissions.label[number]];
}

export function workOf(number) {
  return state.trace.work[state.trace.submissions.work[number]];
}

// When it is drawn to begin and to end; a submission that was not timed is drawn where it was submitted.
export function beginOf(number) {
  const { started, submitted } = state.trace.submissions;
  return started[number] ?? submitted[number];
}

export function endOf(number) {
  return state.trace.submissions.finished[number] ?? beginOf(number);
}
