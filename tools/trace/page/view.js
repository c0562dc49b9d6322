// View: the stretch of time that the timeline and the memory map show, and how wheel, drag and keys move it.
//
// In       state.view, the trace's length
// Out      xIn and timeIn (a time on a canvas of some width, and back), drawAxis
// Changes  state.view
// Next     timeline.js and memory.js (who draw in it)

import { colour, endOf, beginOf, fitted, moment, state, tell } from "./kit.js";

export const GUTTER = 112; // names of the lanes stand here
export const RIGHT = 12;
export const AXIS = 24;
export const EDGE = 0.01; // of the trace, left empty on both sides of the whole
const SHORTEST_VIEW = 50; // ns

export function xIn(ns, whole) {
  const { from, until } = state.view;
  return GUTTER + ((ns - from) / (until - from)) * (whole - GUTTER - RIGHT);
}

export function timeIn(x, whole) {
  const { from, until } = state.view;
  return from + ((x - GUTTER) / (whole - GUTTER - RIGHT)) * (until - from);
}

// Show [from, until], kept inside the trace and not shorter than a clock can tell.
export function look(from, until) {
  const end = Math.max(state.trace.end, 1);
  const margin = end * 0.04;
  let span = Math.min(Math.max(until - from, SHORTEST_VIEW), end + 2 * margin);
  let start = from + (until - from - span) / 2;
  start = Math.min(Math.max(start, -margin), end + margin - span);
  state.view = { from: start, until: start + span };
  tell("view");
}

export function lookAtAll() {
  look(-state.trace.end * EDGE, state.trace.end * (1 + EDGE));
}

// From the first submission to the end of the last: what came before is the program getting ready.
export function lookAtWork() {
  const { submitted } = state.trace.submissions;
  if (!submitted.length) return lookAtAll();
  let [from, until] = [Infinity, 0];
  for (let number = 0; number < submitted.length; number++) {
    from = Math.min(from, submitted[number]);
    until = Math.max(until, endOf(number));
  }
  const margin = Math.max(until - from, 1000) * 0.02;
  look(from - margin, until + margin);
}

export function lookAt(number) {
  const span = Math.max(endOf(number) - state.trace.submissions.submitted[number], 1000);
  look(state.trace.submissions.submitted[number] - span * 0.6, endOf(number) + span * 0.6);
}

// Keep the view's length, and move it so that a submission is inside.
export function bring(number) {
  const { from, until } = state.view;
  const begin = beginOf(number);
  if (begin >= from && begin <= until) return;
  look(begin - (until - from) / 2, begin + (until - from) / 2);
}

export function zoom(factor, at = (state.view.from + state.view.until) / 2) {
  const { from, until } = state.view;
  look(at - (at - from) * factor, at + (until - at) * factor);
}

export function pan(part) {
  const by = (state.view.until - state.view.from) * part;
  look(state.view.from + by, state.view.until + by);
}

export function zoomByWheel(event, canvasWidth) {
  event.preventDefault();
  const sideways = event.shiftKey ? event.deltaY : event.deltaX;
  if (Math.abs(sideways) > Math.abs(event.shiftKey ? 0 : event.deltaY)) return pan(sideways / canvasWidth);
  const step = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
  zoom(Math.exp(Math.max(-200, Math.min(200, step)) * 0.002), timeIn(event.offsetX, canvasWidth));
}

// Steps of 1, 2 or 5 that leave room for their texts.
export function drawAxis(ink, wide, tall, { from, until } = state.view) {
  const xOf = (ns) => GUTTER + ((ns - from) / (until - from)) * (wide - GUTTER - RIGHT);
  const rough = ((until - from) / Math.max(1, wide - GUTTER - RIGHT)) * 96;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].find((by) => by * power >= rough) * power;
  const base = until / step > 1e5 ? Math.floor(from / (step * 1000)) * step * 1000 : 0; // else texts get too long
  const text = (at) => (base ? `+${moment(at - base, step)}` : moment(at, step));
  ink.strokeStyle = colour("line");
  ink.fillStyle = colour("dim");
  ink.lineWidth = 1;
  if (base) ink.fillText(fitted(ink, moment(base, step * 1000), GUTTER - 14), 12, 9);
  ink.textAlign = "center";
  ink.beginPath();
  for (let at = Math.ceil(from / step) * step; at <= until; at += step) {
    const x = Math.round(xOf(at)) + 0.5;
    ink.moveTo(x, AXIS - 6);
    ink.lineTo(x, tall);
    if (x > GUTTER + 20 && x < wide - RIGHT - 20) ink.fillText(text(Math.round(at / step) * step), x, 9);
  }
  ink.stroke();
  ink.textAlign = "left";
}

// ---------------------------------------------------------------- the mouse

// Drag moves the time shown; a press that did not move is a click. For the timeline and the memory map.
export function dragsTime(canvas, click) {
  let before = null;
  let moved = 0;
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    canvas.setPointerCapture(event.pointerId);
    before = event;
    moved = 0;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (before === null) return;
    const by = event.clientX - before.clientX;
    moved += Math.abs(by) + Math.abs(event.clientY - before.clientY);
    if (moved > 4) {
      const span = state.view.until - state.view.from;
      const wide = canvas.clientWidth - GUTTER - RIGHT;
      look(state.view.from - (by * span) / wide, state.view.until - (by * span) / wide);
    }
    before = event;
  });
  canvas.addEventListener("pointerup", (event) => {
    if (before !== null && moved <= 4) click(event);
    before = null;
  });
  canvas.addEventListener("pointercancel", () => (before = null));
}
