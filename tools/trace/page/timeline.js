// Timeline: what the host submitted and saw, and what each queue did, by time; arrows say what waited for what.
//
// In       the trace's columns, state.view, state.selected, state.focus
// Out      a canvas of lanes
// Changes  state.view (see view.js), state.selected (click), state.hovered, state.time (drag on the axis)
// Next     view.js (the time shown), overview.js (the whole trace above it), list.js (the same submissions as rows)

import {
  beginOf,
  bisect,
  colour,
  context,
  endOf,
  find,
  fitted,
  hideTip,
  inkOn,
  labelOf,
  laneName,
  on,
  perFrame,
  plural,
  set,
  showTip,
  state,
  tell,
} from "./kit.js";
import { AXIS, dragsTime, drawAxis, GUTTER, lookAt, RIGHT, timeIn, xIn, zoomByWheel } from "./view.js";
import { compileTip, seenTip, spanTip, stepTip, submissionTip } from "./timeline_tips.js";

const HOST = 26;
const LANE = 36;
const SPAN = 22; // a row of stretches of time that the program gave names, below the host's line
const STEPS = 18; // a row of kernels with times of their own, below the bars of a lane that has some
const GAP = 6;
const FEW = 300; // with more in sight, thin lines would only be a grey surface

let lanes = []; // {top, order: submission numbers by begin, begins, longest, steps, host}
let hosts = []; // {top, process, submitted, seen, compiles: indices}
let spanLanes = []; // {top, spans: indices by begin, name}
let width = 0;
let height = 0;
let drawLanes;
let linesFrom = [];
let linesTo = [];

export function startTimeline() {
  const { trace } = state;
  arrange(trace);
  const resized = () => {
    width = find("lanes").clientWidth;
    drawLanes();
  };
  drawLanes = perFrame(draw);
  new ResizeObserver(resized).observe(find("lanes"));
  on("view selected focus hovered time scheme", drawLanes);
  find("lanes").addEventListener("scroll", drawLanes, { passive: true });
  listen(find("lanes-canvas"));
  resized();
}

const xOf = (ns) => xIn(ns, width);
const timeOf = (x) => timeIn(x, width);

function arrange(trace) {
  const { submissions, seen } = trace;
  const stepsOf = [];
  for (let step = 0; step < trace.steps.of.length; step++)
    (stepsOf[submissions.lane[trace.steps.of[step]]] ??= []).push(step);
  for (const steps of stepsOf) steps?.sort((a, b) => trace.steps.from[a] - trace.steps.from[b]);
  const spansOf = trace.span_lanes.map(() => []);
  for (let span = 0; span < trace.spans.from.length; span++) spansOf[trace.spans.lane[span]].push(span);
  const processes = [...new Set(trace.lanes.map((lane) => lane.process))];
  let top = AXIS;
  for (const process of processes) {
    const host = { top, process, submitted: [], seen: [], compiles: [] };
    hosts.push(host);
    top += HOST;
    for (const [number, { process: owner, name }] of trace.span_lanes.entries()) {
      if (owner !== process) continue;
      spanLanes.push({ top, name, spans: spansOf[number] });
      top += SPAN;
    }
    for (const [number, lane] of trace.lanes.entries()) {
      if (lane.process !== process) continue;
      const steps = stepsOf[number] ?? [];
      lanes[number] = { top: top + 2, order: [], begins: [], longest: 0, host, steps };
      top += LANE + (steps.length ? STEPS : 0);
    }
    top += GAP;
  }
  height = Math.max(top, AXIS + HOST + LANE);
  for (let number = 0; number < submissions.value.length; number++) {
    const lane = lanes[submissions.lane[number]];
    lane.order.push(number);
    lane.host.submitted.push(number);
    lane.longest = Math.max(lane.longest, endOf(number) - beginOf(number));
  }
  for (const lane of lanes) {
    lane.order.sort((a, b) => beginOf(a) - beginOf(b));
    lane.begins = lane.order.map(beginOf);
  }
  for (const [index, process] of trace.compiles.process.entries())
    hosts.find((host) => host.process === process)?.compiles.push(index);
  for (let index = 0; index < seen.time.length; index++) lanes[seen.lane[index]].host.seen.push(index);
  for (let index = 0; index < trace.arrows.from.length; index++) {
    (linesFrom[trace.arrows.from[index]] ??= []).push(index);
    (linesTo[trace.arrows.to[index]] ??= []).push(index);
  }
}

// ---------------------------------------------------------------- drawing

function draw() {
  const canvas = find("lanes-canvas");
  const ink = context(canvas, width, height);
  canvas.setAttribute(
    "aria-label",
    `Timeline of ${plural(state.trace.submissions.value.length, "submission")}`,
  );
  drawAxis(ink, width, height);
  const inSight = lanes.reduce((sum, lane) => sum + between(lane).length, 0);
  ink.save();
  ink.beginPath();
  ink.rect(GUTTER - 1, 0, width - GUTTER - RIGHT + 6, height);
  ink.clip();
  for (const host of hosts) drawHost(ink, host, inSight);
  for (const lane of spanLanes) drawSpans(ink, lane);
  for (const lane of lanes) {
    drawLane(ink, lane);
    drawSteps(ink, lane);
  }
  drawArrows(ink, inSight);
  drawFaults(ink);
  drawTime(ink);
  ink.restore();
  drawNames(ink);
  const scrolled = find("lanes").scrollTop;
  if (scrolled > 0) {
    // many lanes: the axis stays in sight
    ink.fillStyle = colour("page");
    ink.fillRect(0, scrolled, width, AXIS);
    ink.translate(0, scrolled);
    drawAxis(ink, width, AXIS);
    drawTime(ink);
  }
}

function between(lane) {
  const first = bisect(lane.begins, state.view.from - lane.longest);
  const last = bisect(lane.begins, state.view.until);
  return { first, last, length: last - first };
}

function drawHost(ink, host, inSight) {
  const { submissions, seen } = state.trace;
  const base = host.top + HOST - 4;
  ink.strokeStyle = colour("line");
  ink.beginPath();
  ink.moveTo(GUTTER, base + 0.5);
  ink.lineTo(width, base + 0.5);
  ink.stroke();
  drawCompiles(ink, host, base);
  ink.strokeStyle = colour("dim");
  ink.beginPath();
  let lastX = -1;
  for (const number of host.submitted) {
    const x = Math.round(xOf(submissions.submitted[number])) + 0.5;
    if (x === lastX || x < GUTTER - 2 || x > width) continue;
    lastX = x;
    ink.moveTo(x, base - 9);
    ink.lineTo(x, base);
  }
  ink.stroke();
  ink.fillStyle = colour("signal");
  lastX = -9;
  for (const index of host.seen) {
    const x = Math.round(xOf(seen.time[index]));
    if (x - lastX < 5 || x < GUTTER - 4 || x > width) continue;
    lastX = x;
    ink.beginPath();
    ink.moveTo(x, base - 14);
    ink.lineTo(x - 4, base - 7);
    ink.lineTo(x + 4, base - 7);
    ink.fill();
  }
  if (inSight > FEW) return;
  ink.lineWidth = 1;
  ink.strokeStyle = colour("faint");
  ink.beginPath();
  for (const number of host.submitted) {
    const [from, to] = [xOf(submissions.submitted[number]), xOf(beginOf(number))];
    if (submissions.started[number] === null || to < GUTTER || from > width) continue;
    ink.moveTo(from, base);
    ink.lineTo(to, lanes[submissions.lane[number]].top + 4);
  }
  ink.stroke();
  ink.setLineDash([2, 3]);
  ink.strokeStyle = colour("signal");
  ink.beginPath();
  let before = null;
  for (const index of host.seen) {
    const by = seen.by[index];
    if (by === null || by === before) continue; // the first time it was seen says when the host could go on
    before = by;
    const [from, to] = [xOf(endOf(by)), xOf(seen.time[index])];
    if (to < GUTTER || from > width) continue;
    ink.moveTo(from, lanes[submissions.lane[by]].top + 4);
    ink.lineTo(to, base - 7);
  }
  ink.stroke();
  ink.setLineDash([]);
}

// When programs were made ready: a stripe on the host's line.
function drawCompiles(ink, host, base) {
  const { from, until } = state.trace.compiles;
  ink.fillStyle = colour("compile");
  let lastX = -1;
  for (const index of host.compiles) {
    if (until[index] < state.view.from || from[index] > state.view.until) continue;
    const x = Math.max(xOf(from[index]), GUTTER - 4);
    const right = Math.min(xOf(until[index]), width + 4);
    if (right < lastX + 1) continue;
    ink.fillRect(x, base - 5, Math.max(right - x, 1), 5);
    lastX = right;
  }
}

function drawLane(ink, lane) {
  const { submissions, work } = state.trace;
  const tall = LANE - 12;
  const top = lane.top + 4;
  const { first, last } = between(lane);
  let lastX = -1;
  let lastWork = -1;
  for (let place = first; place < last; place++) {
    const number = lane.order[place];
    const x = xOf(beginOf(number));
    const right = xOf(endOf(number));
    if (right < GUTTER - 2) continue;
    const isSelected = number === state.selected;
    const isThin = right - x < 1.5;
    if (isThin && Math.floor(x) === lastX && submissions.work[number] === lastWork && !isSelected) continue;
    lastX = Math.floor(x);
    lastWork = submissions.work[number];
    const isOut = state.focus && !state.focus.numbers.has(number);
    ink.globalAlpha = isOut ? 0.15 : number === state.hovered ? 0.8 : 1;
    const isTimed = submissions.started[number] !== null && submissions.finished[number] !== null;
    const left = Math.max(x, GUTTER - 4);
    const wide = Math.max(Math.min(right, width + 4) - left, 1.5);
    if (!isTimed) drawUntimed(ink, x, top, tall, submissions.dropped[number]);
    else {
      ink.fillStyle = colour(work[submissions.work[number]]);
      if (wide > 5) roundRect(ink, left, top, wide - 0.75, tall, 2);
      else ink.fillRect(left, top, wide, tall);
      if (wide > 26) {
        ink.fillStyle = inkOn(work[submissions.work[number]]);
        ink.fillText(
          fitted(ink, `${labelOf(number)}`, wide - 10),
          Math.max(left + 5, GUTTER + 5),
          top + tall / 2 + 0.5,
        );
      }
    }
    ink.globalAlpha = 1;
    if (isSelected) {
      ink.strokeStyle = colour("text");
      ink.lineWidth = 2;
      ink.strokeRect(left - 1.5, top - 2, (isTimed ? wide : 6) + 2.5, tall + 4);
      ink.lineWidth = 1;
    }
  }
}

// What the program gave a name: a collective, perhaps. Communication is filled, anything else has an outline.
function drawSpans(ink, lane) {
  const { spans, labels } = state.trace;
  const [top, tall] = [lane.top + 3, SPAN - 7];
  let lastX = -1;
  ink.fillStyle = ink.strokeStyle = colour("talk");
  const first = bisect(lane.spans, state.view.from, (span) => spans.until[span]);
  for (let place = first; place < lane.spans.length; place++) {
    const span = lane.spans[place];
    const [x, right] = [xOf(spans.from[span]), xOf(spans.until[span])];
    if (spans.from[span] > state.view.until) break;
    if (right - x < 1 && Math.floor(x) === lastX) continue;
    lastX = Math.floor(x);
    const left = Math.max(x, GUTTER - 4);
    const wide = Math.max(Math.min(right, width + 4) - left, 1.5);
    ink.fillStyle = colour("talk");
    if (spans.talks[span]) ink.fillRect(left, top, Math.max(wide - 0.75, 1), tall);
    else ink.strokeRect(left + 0.5, top + 0.5, Math.max(wide - 1.75, 0.5), tall - 1);
    if (wide > 26) {
      ink.fillStyle = spans.talks[span] ? inkOn("talk") : colour("text");
      ink.fillText(
        fitted(ink, labels[spans.label[span]], wide - 8),
        Math.max(left, GUTTER) + 4,
        top + tall / 2 + 0.5,
      );
    }
  }
}

// Kernels inside submissions. Neighbours differ a little in shade, so that one ends where the next begins.
function drawSteps(ink, lane) {
  const { steps, work, labels } = state.trace;
  const top = lane.top + LANE - 7;
  let lastX = -1;
  const first = Math.max(
    0,
    bisect(lane.steps, state.view.from, (step) => steps.until[step]),
  );
  for (
    let place = first;
    place < lane.steps.length && steps.from[lane.steps[place]] < state.view.until;
    place++
  ) {
    const step = lane.steps[place];
    const [x, right] = [xOf(steps.from[step]), xOf(steps.until[step])];
    if (right - x < 1 && Math.floor(x) === lastX) continue;
    lastX = Math.floor(x);
    const isOut = state.focus && !state.focus.numbers.has(steps.of[step]);
    const left = Math.max(x, GUTTER - 4);
    const wide = Math.max(Math.min(right, width + 4) - left, 1);
    ink.globalAlpha = isOut ? 0.12 : place % 2 ? 0.8 : 1;
    ink.fillStyle = colour(work[steps.work[step]]);
    ink.fillRect(left, top, Math.max(wide - 0.5, 0.75), STEPS - 3);
    ink.globalAlpha = 1;
    if (wide > 30 && !isOut) {
      ink.fillStyle = inkOn(work[steps.work[step]]);
      ink.fillText(
        fitted(ink, labels[steps.label[step]], wide - 8),
        Math.max(left, GUTTER) + 4,
        top + (STEPS - 3) / 2 + 0.5,
      );
    }
  }
}

function roundRect(ink, x, y, wide, tall, radius) {
  ink.beginPath();
  ink.roundRect(x, y, wide, tall, radius);
  ink.fill();
}

// A diamond where it was submitted: the trace does not say when, or whether, it ran.
function drawUntimed(ink, x, top, tall, isDropped) {
  const middle = top + tall / 2;
  ink.strokeStyle = colour(isDropped ? "wrong" : "dim");
  ink.beginPath();
  ink.moveTo(x, middle - 6);
  ink.lineTo(x + 5, middle);
  ink.lineTo(x, middle + 6);
  ink.lineTo(x - 5, middle);
  ink.closePath();
  ink.stroke();
}

// From the end of what raises a signal to what waited for it: to its begin, or to where it was waiting by then.
function drawArrows(ink, inSight) {
  const { arrows } = state.trace;
  const chosen = new Set();
  for (const number of [state.selected, state.hovered]) {
    if (number !== null)
      for (const line of [...(linesFrom[number] ?? []), ...(linesTo[number] ?? [])]) chosen.add(line);
  }
  if (inSight <= FEW) {
    for (let line = 0; line < arrows.from.length; line++) drawArrow(ink, line, chosen.has(line));
  } else for (const line of chosen) drawArrow(ink, line, true);
}

function drawArrow(ink, line, isChosen) {
  const { arrows, submissions } = state.trace;
  const [from, to] = [arrows.from[line], arrows.to[line]];
  const x0 = xOf(endOf(from));
  const x1 = Math.min(Math.max(x0, xOf(beginOf(to))), Math.max(xOf(endOf(to)), xOf(beginOf(to))));
  if ((x0 < GUTTER && x1 < GUTTER) || (x0 > width && x1 > width)) return;
  if (!isChosen && Math.abs(x1 - x0) < 3 && xOf(endOf(to)) - x1 < 6) return; // a knot, until one zooms in
  const [y0, y1] = [from, to].map((number) => lanes[submissions.lane[number]].top + LANE / 2 - 2);
  ink.strokeStyle = ink.fillStyle = colour("signal");
  ink.lineWidth = isChosen ? 2.5 : 1.25;
  ink.beginPath();
  if (x1 - x0 > 14) {
    const bend = Math.max(10, Math.min(80, (x1 - x0) / 2));
    ink.moveTo(x0, y0);
    ink.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
    ink.stroke();
    drawHead(ink, x1, y1, 0);
  } else {
    const turn = Math.sign(y1 - y0) || 1; // the wait was going on already: straight into its bar
    const edge = y1 - turn * 11;
    ink.moveTo(x0, y0 + turn * 11);
    ink.lineTo(x1, edge);
    ink.stroke();
    drawHead(ink, x1, edge + turn * 2, turn);
  }
  ink.lineWidth = 1;
}

// The tip of an arrow: to the right (0), down (1) or up (-1).
function drawHead(ink, x, y, turn) {
  ink.beginPath();
  ink.moveTo(x, y);
  if (turn === 0) {
    ink.lineTo(x - 7, y - 4);
    ink.lineTo(x - 7, y + 4);
  } else {
    ink.lineTo(x - 4, y - turn * 7);
    ink.lineTo(x + 4, y - turn * 7);
  }
  ink.fill();
}

function drawFaults(ink) {
  ink.strokeStyle = ink.fillStyle = colour("wrong");
  for (const fault of state.trace.faults) {
    const x = Math.round(xOf(fault.time)) + 0.5;
    ink.beginPath();
    ink.moveTo(x, AXIS - 6);
    ink.lineTo(x, height);
    ink.stroke();
    ink.fillText(fault.what, x + 4, AXIS + 2);
  }
}

function drawTime(ink) {
  if (state.time === null) return;
  const x = Math.round(xOf(state.time)) + 0.5;
  ink.strokeStyle = ink.fillStyle = colour("time");
  ink.beginPath();
  ink.moveTo(x, AXIS - 6);
  ink.lineTo(x, height);
  ink.stroke();
  ink.beginPath();
  ink.moveTo(x - 5, AXIS - 8);
  ink.lineTo(x + 5, AXIS - 8);
  ink.lineTo(x, AXIS - 1);
  ink.fill();
}

function drawNames(ink) {
  const several = state.trace.processes.length > 1;
  const name = (text, note, middle) => {
    ink.fillStyle = colour("text");
    const shown = fitted(ink, text, GUTTER - 18);
    ink.fillText(shown, 12, middle);
    const at = 12 + (shown ? ink.measureText(shown).width + 6 : 0);
    ink.fillStyle = colour("dim");
    ink.fillText(fitted(ink, note, GUTTER - at - 6), at, middle);
  };
  for (const host of hosts) {
    const named = state.trace.processes.find(({ process }) => process === host.process)?.name ?? "";
    const isPlain = !several && named.startsWith("process ");
    const [who, where] = isPlain ? ["host", ""] : named.split(" on ");
    name(who, where ?? "", host.top + HOST / 2 + 2);
  }
  for (const lane of spanLanes) name("", lane.name, lane.top + SPAN / 2);
  for (const [number, lane] of lanes.entries()) {
    const { device, name: short, queue, arch, idle } = state.trace.lanes[number];
    const full = laneName(state.trace.lanes[number]);
    const isIdleKnown = idle !== null;
    const middle = lane.top + LANE / 2 - 2;
    name(full.replace(device, short), device === queue ? arch : "", isIdleKnown ? middle - 6 : middle);
    if (isIdleKnown) name("", `idle ${(100 * idle).toFixed(0)} %`, middle + 8);
  }
}

// ---------------------------------------------------------------- the mouse

function listen(canvas) {
  let isScrubbing = false;
  canvas.addEventListener("wheel", (event) => event.offsetX > GUTTER && zoomByWheel(event, width), {
    passive: false,
  });
  canvas.addEventListener("pointerdown", (event) => {
    if (!isOnAxis(event) || event.offsetX < GUTTER || event.button !== 0) return;
    event.stopImmediatePropagation(); // on the axis a drag moves the moment, not the view
    isScrubbing = true;
    canvas.setPointerCapture(event.pointerId);
    set("time", timeOf(event.offsetX));
  });
  canvas.addEventListener("pointermove", (event) => {
    if (isScrubbing) set("time", timeOf(event.offsetX));
    else hover(event);
  });
  canvas.addEventListener("pointerup", () => (isScrubbing = false));
  canvas.addEventListener("pointerleave", () => {
    hideTip();
    set("hovered", null);
  });
  dragsTime(canvas, (event) => {
    const step = stepAt(event.offsetX, event.offsetY);
    const number = step === null ? at(event.offsetX, event.offsetY) : state.trace.steps.of[step];
    if (number !== null) set("selected", number);
  });
  canvas.addEventListener("dblclick", (event) => {
    const number = at(event.offsetX, event.offsetY);
    if (number !== null) lookAt(number);
  });
}

function isOnAxis(event) {
  return event.offsetY - find("lanes").scrollTop < AXIS;
}

// The submission drawn nearest to a point, at most 5 pixels away.
function at(x, y) {
  if (x < GUTTER) return null;
  const { submissions } = state.trace;
  for (const host of hosts) {
    if (y < host.top || y >= host.top + HOST) continue;
    return nearest(host.submitted, (number) => Math.abs(xOf(submissions.submitted[number]) - x));
  }
  for (const lane of lanes) {
    if (y < lane.top || y >= lane.top + LANE - 7) continue;
    const { first, last } = between(lane);
    const until = Math.min(last, bisect(lane.begins, timeOf(x + 6)));
    return nearest(lane.order.slice(Math.max(first, until - 2000), until), (number) =>
      Math.max(0, xOf(beginOf(number)) - x, x - Math.max(xOf(endOf(number)), xOf(beginOf(number)) + 2)),
    );
  }
  return null;
}

// The kernel drawn at a point of a lane's lower row.
function stepAt(x, y) {
  const { steps } = state.trace;
  for (const lane of lanes) {
    if (x < GUTTER || y < lane.top + LANE - 7 || y >= lane.top + LANE - 7 + STEPS || !lane.steps.length)
      continue;
    const at = bisect(lane.steps, timeOf(x - 1), (step) => steps.until[step]);
    if (at < lane.steps.length && steps.from[lane.steps[at]] <= timeOf(x + 1)) return lane.steps[at];
  }
  return null;
}

// The span drawn at a point.
function spanAt(x, y) {
  const { spans } = state.trace;
  const lane = spanLanes.find(({ top }) => x >= GUTTER && y >= top && y < top + SPAN);
  if (!lane) return null;
  const at = bisect(lane.spans, timeOf(x - 2), (span) => spans.until[span]);
  return at < lane.spans.length && spans.from[lane.spans[at]] <= timeOf(x + 2) ? lane.spans[at] : null;
}

function nearest(numbers, distance) {
  let best = null;
  let closest = 5;
  for (const number of numbers) {
    const far = distance(number);
    if (far <= closest) [best, closest] = [number, far];
  }
  return best;
}

function hover(event) {
  const { seen } = state.trace;
  const { offsetX: x, offsetY: y } = event;
  const number = at(x, y);
  set("hovered", number);
  event.target.style.cursor = number === null ? (isOnAxis(event) ? "col-resize" : "grab") : "pointer";
  if (number !== null) return showTip(event, ...submissionTip(number));
  const step = stepAt(x, y);
  if (step !== null) return showTip(event, ...stepTip(step));
  const span = spanAt(x, y);
  if (span !== null) return showTip(event, ...spanTip(span));
  const host = hosts.find(({ top }) => x > GUTTER && y >= top && y < top + HOST);
  const mark = host && nearest(host.seen, (index) => Math.abs(xOf(seen.time[index]) - x));
  if (mark !== null && mark !== undefined) return showTip(event, ...seenTip(mark));
  const { from, until } = state.trace.compiles;
  const made = host?.compiles.find((index) => from[index] <= timeOf(x + 2) && until[index] >= timeOf(x - 2));
  if (made !== undefined) return showTip(event, ...compileTip(made));
  hideTip();
}
