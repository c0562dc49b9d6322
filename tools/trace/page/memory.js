// Memory: buffers by address over time, freed ones grey, and what is live at the moment under the cursor.
//
// In       the trace's spans, state.view (the timeline's), state.time
// Out      the pane "Memory": live bytes, a map, a list; at first of the moment when most is live
// Changes  state.time (click), state.span (click), state.focus (the submissions that use a buffer)
// Next     view.js (the time shown), timeline.js (the same time axis)
//
// Addresses are sparse, so the map leaves out what was never allocated, and gives large ranges more room than small ones,
// but not in proportion: 4 MiB are about a hundred times as high as 64 bytes.

import {
  ask,
  bisect,
  bytes,
  colour,
  context,
  duration,
  element,
  empty,
  find,
  fitted,
  hex,
  hideTip,
  inkOn,
  moment,
  on,
  perFrame,
  plural,
  set,
  showTip,
  state,
  tell,
} from "./kit.js";
import { LongList } from "./list.js";
import { AXIS, drawAxis, dragsTime, GUTTER, RIGHT, timeIn, xIn, zoomByWheel } from "./view.js";

const CHART = 44;
const TOP = AXIS + CHART + 8;
const COLOURS = [
  ["live", "live"],
  ["used", "of the selected submission"],
  ["freed", "freed"],
  ["ahead", "not yet allocated"],
];
const BETWEEN = 40; // as high as the addresses of two processes are apart
const POWER = 0.4; // height of a range: its bytes to this power

let memory = null;
let names = [];
let places = null; // {tops, bottoms}: where each span lies, from 0 (lowest address) to 1; and {low, high}: the edges
let curve = null; // {times, live}: bytes that are live from a time on
let listed = [];
let list;
let canvas;
let draw = () => {};
let zoomY = { from: 0, until: 1 };
let isStarted = false;

export function startMemory() {
  on("tab", begin);
  on("tab", () => isStarted && memory && (showList(), draw()));
  on("view time span scheme buffers", () => draw());
  on("time span", () => isStarted && showList());
  on("selected", () => {
    if (state.selected !== null) set("time", state.trace.submissions.submitted[state.selected]);
  });
  begin();
}

async function begin() {
  if (state.tab !== "memory" || isStarted) return;
  isStarted = true;
  const pane = find("pane-memory");
  try {
    memory = await ask("memory");
  } catch (error) {
    isStarted = false;
    return pane.replaceChildren(empty("The memory map cannot be shown.", error.message));
  }
  const { spans } = memory;
  if (!spans.va.length) {
    return pane.replaceChildren(
      empty(
        "This trace holds no allocations.",
        "Buffers show up here from the moment a device hands them out.",
      ),
    );
  }
  names = memory.names;
  measure(spans);
  canvas = element("canvas", { id: "memory-canvas", role: "img", "aria-label": "Memory map" });
  const box = element("div", { class: "long-box", id: "memory-list" });
  pane.replaceChildren(
    element("div", { class: "map" }, canvas),
    element(
      "div",
      { class: "beside" },
      element("h3", { id: "live-title" }),
      element(
        "p",
        { class: "swatches" },
        COLOURS.map(([name, text]) => element("span", {}, element("i", { class: `swatch ${name}` }), text)),
      ),
      element("p", { id: "span-note", class: "note" }),
      box,
    ),
  );
  list = new LongList(box, liveRow);
  draw = perFrame(drawMap);
  new ResizeObserver(draw).observe(canvas.parentElement);
  listen();
  if (state.time === null) set("time", curve.peak);
  showList();
  draw();
}

// ---------------------------------------------------------------- addresses to heights, times to bytes

function measure(spans) {
  const processes = [...new Set(spans.device.map((_, index) => processOf(index)))];
  const edges = new Map(processes.map((process) => [process, new Map()]));
  const steps = [];
  for (let index = 0; index < spans.va.length; index++) {
    if (spans.mapping[index]) continue;
    const own = edges.get(processOf(index)); // address -> how many buffers begin there less how many end
    const start = Number(spans.va[index]);
    const size = Math.max(1, Number(spans.size[index]));
    own.set(start, (own.get(start) ?? 0) + 1);
    own.set(start + size, (own.get(start + size) ?? 0) - 1);
    steps.push([spans.from[index], size]);
    if (spans.until[index] !== null) steps.push([spans.until[index], -size]);
  }
  const bands = new Map(); // each process has addresses of its own: they stand below each other
  let whole = 0;
  for (const process of processes) {
    const own = edges.get(process);
    const bounds = [...own.keys()].sort((a, b) => a - b);
    const heights = [whole];
    let depth = 0;
    for (let index = 0; index + 1 < bounds.length; index++) {
      depth += own.get(bounds[index]);
      const size = bounds[index + 1] - bounds[index];
      heights.push(heights[index] + (depth > 0 ? size ** POWER : size > 4096 ? 6 : 1));
    }
    bands.set(process, { bounds, heights, process });
    whole = heights[heights.length - 1] + BETWEEN;
  }
  whole = Math.max(whole - BETWEEN, 1);
  const placeOf = ({ bounds, heights }, address) =>
    heights[Math.min(bisect(bounds, address), bounds.length - 1)] / whole;
  places = { tops: [], bottoms: [], bands: [] };
  for (const { bounds, heights, process } of bands.values()) {
    if (!bounds.length) continue;
    const [top, bottom] = [heights[0] / whole, heights[heights.length - 1] / whole];
    places.bands.push({ process, low: bounds[0], high: bounds[bounds.length - 1], top, bottom });
  }
  for (let index = 0; index < spans.va.length; index++) {
    const [start, band] = [Number(spans.va[index]), bands.get(processOf(index))];
    places.tops.push(spans.mapping[index] ? 0 : placeOf(band, start));
    places.bottoms.push(
      spans.mapping[index] ? 0 : placeOf(band, start + Math.max(1, Number(spans.size[index]))),
    );
  }
  steps.sort((a, b) => a[0] - b[0]);
  curve = { times: [], live: [], most: 0, peak: 0 };
  let live = 0;
  for (const [time, by] of steps) {
    live += by;
    curve.times.push(time);
    curve.live.push(live);
    if (live > curve.most) [curve.most, curve.peak] = [live, time];
  }
}

function processOf(index) {
  return state.trace.devices[memory.spans.device[index]].process;
}

function yOf(place, tall) {
  return TOP + ((place - zoomY.from) / (zoomY.until - zoomY.from)) * (tall - TOP - 6);
}

function boxOf(index, wide, tall) {
  const { spans } = memory;
  const [top, bottom] = [yOf(places.tops[index], tall), yOf(places.bottoms[index], tall)];
  const left = xIn(spans.from[index], wide);
  const right = spans.until[index] === null ? xIn(state.trace.end, wide) : xIn(spans.until[index], wide);
  return { left, right, top, bottom };
}

// ---------------------------------------------------------------- drawing

function drawMap() {
  if (state.tab !== "memory" || canvas === undefined) return;
  const { clientWidth: wide, clientHeight: tall } = canvas.parentElement;
  const ink = context(canvas, wide, tall);
  drawAxis(ink, wide, tall);
  ink.save();
  ink.beginPath();
  ink.rect(GUTTER - 1, 0, wide - GUTTER - RIGHT + 2, tall);
  ink.clip();
  drawCurve(ink, wide);
  drawSpans(ink, wide, tall);
  if (state.time !== null) {
    ink.fillStyle = colour("time");
    ink.fillRect(Math.round(xIn(state.time, wide)), AXIS - 6, 1, tall);
  }
  ink.restore();
  ink.fillStyle = colour("dim");
  ink.fillText("live bytes", 12, AXIS + 10);
  ink.fillText(`peak ${bytes(curve.most)}`, 12, AXIS + 26);
  const whole = zoomY.from === 0 && zoomY.until === 1;
  if (places.bands.length === 1 && whole) {
    const [{ low, high }] = places.bands;
    ink.fillText(fitted(ink, hex(low), GUTTER - 14), 12, TOP + 8);
    ink.fillText(fitted(ink, hex(high), GUTTER - 14), 12, tall - 12);
  }
  for (const { process, top } of places.bands.length > 1 ? places.bands : []) {
    const named = state.trace.processes.find((one) => one.process === process)?.name ?? "";
    const y = yOf(top, tall) + 8;
    if (y >= TOP && y < tall) ink.fillText(fitted(ink, named, GUTTER - 14), 12, y);
  }
}

function drawCurve(ink, wide) {
  const base = AXIS + CHART;
  const yOfBytes = (live) => base - (live / Math.max(curve.most, 1)) * (CHART - 6);
  const first = Math.max(0, bisect(curve.times, state.view.from) - 1);
  const last = Math.min(curve.times.length, bisect(curve.times, state.view.until) + 1);
  ink.fillStyle = colour("live-soft");
  ink.beginPath();
  ink.moveTo(xIn(curve.times[first], wide), base);
  let y = base;
  let lastX = -1;
  for (let index = first; index < last; index++) {
    const x = xIn(curve.times[index], wide);
    const next = yOfBytes(curve.live[index]);
    if (x - lastX < 0.3 && next > y && index + 1 < last) continue; // within a pixel only peaks count
    ink.lineTo(x, y);
    ink.lineTo(x, next);
    [y, lastX] = [next, x];
  }
  ink.lineTo(Math.min(wide, xIn(state.trace.end, wide)), y);
  ink.lineTo(Math.min(wide, xIn(state.trace.end, wide)), base);
  ink.fill();
}

function drawSpans(ink, wide, tall) {
  const { spans } = memory;
  const used = state.buffers; // of the selected submission
  const { lanes, submissions } = state.trace;
  const user = state.selected === null ? null : lanes[submissions.lane[state.selected]].process;
  for (const isFreed of [true, false]) {
    for (let index = 0; index < spans.va.length; index++) {
      if (spans.mapping[index]) continue;
      const wasFreed = spans.until[index] !== null && state.time !== null && spans.until[index] <= state.time;
      if (wasFreed !== isFreed) continue;
      const { left, right, top, bottom } = boxOf(index, wide, tall);
      if (right < GUTTER || left > wide || bottom < TOP || top > tall) continue;
      const isAhead = state.time !== null && spans.from[index] > state.time;
      ink.fillStyle = colour(
        index === state.span
          ? "accent"
          : wasFreed
            ? "freed"
            : isAhead
              ? "ahead"
              : used.has(spans.va[index]) && processOf(index) === user
                ? "used"
                : "live",
      );
      const high = Math.max(bottom - top - (bottom - top > 3 ? 1 : 0), 0.75);
      const length = Math.max(Math.min(right, wide) - Math.max(left, GUTTER - 2), 1);
      ink.fillRect(Math.max(left, GUTTER - 2), Math.max(top, TOP), length, high - Math.max(0, TOP - top));
      if (length > 60 && bottom - top > 13 && top > TOP - 6) {
        ink.fillStyle = wasFreed || isAhead ? colour("dim") : inkOn("live");
        ink.fillText(
          fitted(ink, nameOfSpan(index), length - 10),
          Math.max(left, GUTTER) + 5,
          (top + bottom) / 2,
        );
      }
    }
  }
}

function nameOfSpan(index) {
  const { spans } = memory;
  return (
    names[spans.name[index]] ||
    `${spans.mapping[index] ? "mapping" : "buffer"}@${hex(spans.va[index]).slice(2)}`
  );
}

// ---------------------------------------------------------------- the list

function isLive(index, time) {
  const { from, until } = memory.spans;
  return from[index] <= time && (until[index] === null || until[index] > time);
}

function showList() {
  if (!list || state.tab !== "memory") return;
  const { spans, left_out } = memory;
  const time = state.time ?? state.trace.end;
  listed = [];
  let total = 0;
  for (let index = 0; index < spans.va.length; index++) {
    if (spans.mapping[index] || (!isLive(index, time) && index !== state.span)) continue;
    listed.push(index);
    if (isLive(index, time)) total += Number(spans.size[index]);
  }
  listed.sort((a, b) => processOf(a) - processOf(b) || Number(spans.va[a]) - Number(spans.va[b]));
  const count = listed.filter((index) => isLive(index, time)).length;
  find("live-title").textContent = `${plural(count, "buffer")}, ${bytes(total)} live at ${moment(time)}`;
  const note = left_out ? `The ${left_out} smallest of the trace are left out. ` : "";
  find("span-note").textContent =
    note +
    (state.span === null
      ? "Click the map to choose a moment or a buffer; wheel zooms time, Shift+wheel zooms addresses."
      : spanText(state.span));
  list.show(listed.length);
  const at = listed.indexOf(state.span);
  if (at >= 0) list.reveal(at);
}

function spanText(index) {
  const { spans } = memory;
  const until = spans.until[index];
  const lived =
    until === null
      ? "never freed"
      : `freed at ${moment(until)}, after ${duration(until - spans.from[index])}`;
  return `${nameOfSpan(index)}: ${bytes(spans.size[index])} at ${hex(spans.va[index])}, allocated at ${moment(spans.from[index])}, ${lived}`;
}

function liveRow(at) {
  const index = listed[at];
  const { spans } = memory;
  const live = isLive(index, state.time ?? state.trace.end);
  return element(
    "div",
    {
      class: live ? "row span" : "row span freed",
      role: "option",
      "aria-selected": String(index === state.span),
      onclick: () => chooseSpan(index),
    },
    element("code", {}, hex(spans.va[index])),
    element("span", { class: "what" }, nameOfSpan(index)),
    element("span", { class: "number" }, bytes(spans.size[index])),
  );
}

// Light up a buffer, and the submissions that name it.
export async function chooseSpan(index) {
  set("span", index);
  try {
    const { submissions, complete } = await ask("users", { span: index });
    if (state.span !== index) return;
    const text = `${complete ? "uses" : "among the first to use"} ${memory ? nameOfSpan(index) : "this buffer"}`;
    state.focus = { numbers: new Set(submissions), text };
    tell("focus");
  } catch (error) {
    find("span-note").textContent = error.message;
  }
}

// ---------------------------------------------------------------- the mouse

function listen() {
  canvas.addEventListener(
    "wheel",
    (event) => {
      if (!event.shiftKey) return zoomByWheel(event, canvas.clientWidth);
      event.preventDefault();
      const tall = canvas.clientHeight;
      const at = zoomY.from + ((event.offsetY - TOP) / (tall - TOP - 6)) * (zoomY.until - zoomY.from);
      const factor = Math.exp((event.deltaY || event.deltaX) * 0.002);
      const span = Math.min(1, (zoomY.until - zoomY.from) * factor);
      const from = Math.min(
        Math.max(0, at - (at - zoomY.from) * (span / (zoomY.until - zoomY.from))),
        1 - span,
      );
      zoomY = { from, until: from + span };
      draw();
    },
    { passive: false },
  );
  dragsTime(canvas, (event) => {
    const index = spanAt(event);
    set("time", timeIn(event.offsetX, canvas.clientWidth));
    if (index !== null) chooseSpan(index);
  });
  canvas.addEventListener("pointermove", (event) => {
    const index = spanAt(event);
    if (index === null) return hideTip();
    showTip(event, nameOfSpan(index), spanText(index).slice(nameOfSpan(index).length + 2));
  });
  canvas.addEventListener("pointerleave", hideTip);
}

function spanAt(event) {
  if (event.offsetX < GUTTER || event.offsetY < TOP) return null;
  const { clientWidth: wide, clientHeight: tall } = canvas;
  let best = null;
  for (let index = 0; index < memory.spans.va.length; index++) {
    if (memory.spans.mapping[index]) continue;
    const { left, right, top, bottom } = boxOf(index, wide, tall);
    if (event.offsetX < left - 1 || event.offsetX > right + 1) continue;
    if (event.offsetY >= top - 1 && event.offsetY <= Math.max(bottom, top + 2)) best = index;
  }
  return best;
}
