// Overview: the whole trace in one row above the timeline, with an axis of its own, and a frame around what is shown below.
//
// In       the trace's columns, state.view, state.focus
// Out      a canvas
// Changes  state.view: the frame is dragged, or one of its edges; a press beside it brings it there
// Next     view.js (the time shown), timeline.js (what is inside the frame)

import {
  beginOf,
  colour,
  context,
  duration,
  endOf,
  find,
  hideTip,
  moment,
  on,
  perFrame,
  showTip,
  state,
} from "./kit.js";
import { drawAxis, EDGE, GUTTER, look, lookAtAll, RIGHT } from "./view.js";

const TOP = 18; // the axis stands above the strip
const STRIP = 26;
const TALL = TOP + STRIP + 3;
const GRIP = 5; // pixels beside an edge of the frame that take hold of it

let width = 0;
let strip = null; // what does not change while the frame moves, drawn once
let draw = () => {};

export function startOverview() {
  const canvas = find("whole-canvas");
  draw = perFrame(drawNow);
  const anew = () => {
    strip = null;
    draw();
  };
  new ResizeObserver(() => {
    width = find("lanes").clientWidth;
    anew();
  }).observe(find("lanes"));
  on("focus scheme", anew);
  on("view", draw);
  listen(canvas);
}

const whole = () => ({ from: -state.trace.end * EDGE, until: state.trace.end * (1 + EDGE) || 1 });

function xOf(ns) {
  const { from, until } = whole();
  return GUTTER + ((ns - from) / (until - from)) * (width - GUTTER - RIGHT);
}

function timeOf(x) {
  const { from, until } = whole();
  return from + ((x - GUTTER) / (width - GUTTER - RIGHT)) * (until - from);
}

function drawNow() {
  const ink = context(find("whole-canvas"), width, TALL);
  if (width <= GUTTER + RIGHT) return;
  strip ??= drawStrip();
  ink.drawImage(strip, 0, 0, width, TALL);
  const [from, until] = frame();
  ink.fillStyle = colour("veil");
  ink.fillRect(GUTTER, TOP, Math.max(0, from - GUTTER), STRIP);
  ink.fillRect(until, TOP, Math.max(0, width - RIGHT - until), STRIP);
  ink.strokeStyle = ink.fillStyle = colour("accent");
  ink.lineWidth = 1.5;
  ink.beginPath();
  ink.roundRect(from, TOP - 0.5, until - from, STRIP + 1, 3);
  ink.stroke();
  ink.lineWidth = 1;
  for (const x of [from, until]) {
    ink.beginPath();
    ink.roundRect(x - 2, TOP + STRIP / 2 - 6, 4, 12, 2);
    ink.fill();
  }
}

// Where the frame is drawn: inside the strip, and wide enough to be taken.
function frame() {
  const from = Math.min(Math.max(xOf(state.view.from), GUTTER), width - RIGHT - 8);
  const until = Math.max(Math.min(xOf(state.view.until), width - RIGHT), from + 8);
  return [from, until];
}

function drawStrip() {
  const canvas = document.createElement("canvas");
  const ink = context(canvas, width, TALL);
  const { submissions, work, compiles, lanes } = state.trace;
  ink.font = `11px ${colour("sans")}`;
  drawAxis(ink, width, TOP, whole());
  ink.fillStyle = colour("dim");
  ink.font = `12px ${colour("sans")}`;
  ink.fillText("whole trace", 12, TOP + STRIP / 2);
  ink.fillStyle = colour("sunken");
  ink.fillRect(GUTTER, TOP, width - GUTTER - RIGHT, STRIP);
  ink.fillStyle = colour("compile");
  for (let index = 0; index < compiles.from.length; index++) {
    const x = xOf(compiles.from[index]);
    ink.fillRect(x, TOP + 2, Math.max(xOf(compiles.until[index]) - x, 1), 3);
  }
  const room = STRIP - 9;
  const tall = Math.max(1.5, Math.min(room, room / lanes.length - 1));
  const last = new Array(lanes.length).fill(-1);
  for (let number = 0; number < submissions.value.length; number++) {
    if (state.focus && !state.focus.numbers.has(number)) continue;
    const lane = submissions.lane[number];
    const x = xOf(beginOf(number));
    const right = Math.max(xOf(endOf(number)), x + 1);
    if (Math.floor(right) <= last[lane]) continue; // nothing that is not there already
    last[lane] = Math.floor(right);
    ink.fillStyle = colour(work[submissions.work[number]]);
    ink.fillRect(x, TOP + 7 + (lane * room) / lanes.length, right - x, tall);
  }
  return canvas;
}

// ---------------------------------------------------------------- the mouse

function listen(canvas) {
  let held = null; // {part, at, from, until}: what is dragged, and where it was
  const partAt = (x) => {
    const [from, until] = frame();
    if (Math.abs(x - until) <= GRIP) return "until";
    if (Math.abs(x - from) <= GRIP) return "from";
    return x > from && x < until ? "frame" : "";
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 || event.offsetX < GUTTER) return;
    canvas.setPointerCapture(event.pointerId);
    const part = partAt(event.offsetX);
    if (!part) {
      const half = (state.view.until - state.view.from) / 2;
      look(timeOf(event.offsetX) - half, timeOf(event.offsetX) + half);
    }
    held = { part: part || "frame", at: timeOf(event.offsetX), ...state.view };
  });
  canvas.addEventListener("pointermove", (event) => {
    if (held === null) {
      const part = event.offsetX < GUTTER ? null : partAt(event.offsetX);
      canvas.style.cursor =
        { frame: "grab", from: "ew-resize", until: "ew-resize", "": "pointer" }[part] ?? "";
      if (part === null) return hideTip();
      const { from, until } = state.view;
      return showTip(
        event,
        moment(timeOf(event.offsetX)),
        `below: ${duration(until - from)} from ${moment(from)} on`,
      );
    }
    hideTip();
    const by = timeOf(event.offsetX) - held.at;
    if (held.part === "frame") {
      canvas.style.cursor = "grabbing";
      look(held.from + by, held.until + by);
    } else {
      const edges = { from: held.from, until: held.until };
      edges[held.part] += by;
      look(Math.min(edges.from, edges.until), Math.max(edges.from, edges.until));
    }
  });
  for (const end of ["pointerup", "pointercancel"]) canvas.addEventListener(end, () => (held = null));
  canvas.addEventListener("pointerleave", hideTip);
  canvas.addEventListener("dblclick", lookAtAll);
}
