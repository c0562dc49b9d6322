// Step graph: what one step runs, as a graph: kernels, copies and fills are boxes, lines are the buffers between them.
//
// In       state.selected, or the submission with the most work; step_graph.py's nodes with their places
// Out      the pane "Graph"
// Changes  state.selected, state.kernel and state.text, where a box's links are clicked
// Next     submission.js (its packets), kernel.js (its code, source, IR), list.js (chooses the submission)

import { ask, bytes, element, empty, find, fitted, nameOf, on, plural, set, state, table } from "./kit.js";

const BOX_WIDE = 168;
const BOX_TALL = 40;
const MARGIN = 24;
const SMALLEST = 0.08;
const LARGEST = 2.5;
const READABLE = 0.72; // the first look is not smaller than this
const MANY_EDGES = 70; // with more, only the lines of the box in hand have names
const SORTS = [
  ["kernel", "kernel"],
  ["copy", "copy"],
  ["fill", "fill"],
  ["packets", "own packets"],
  ["group", "several"],
  ["input", "filled before"],
];

let asked = 0;
let range = null; // {first, last}, and begin and end where one group is shown
let way = []; // the ranges from which groups were opened
let place = { x: 0, y: 0, scale: 1 };
let drawn = null; // {view, world, boxes, lines}
let chosen = null;
const measure = document.createElement("canvas").getContext("2d");

export function startStepGraph() {
  on("selected", () => {
    range = state.selected === null ? null : { first: state.selected, last: state.selected };
    way = [];
    show();
  });
  on("tab", show);
  addEventListener("resize", () => drawn && fit());
  if (state.tab === "step") show();
}

async function show() {
  if (state.tab !== "step") return;
  const pane = find("pane-step");
  if (!state.trace.submissions.value.length) {
    return pane.replaceChildren(
      empty(
        "This trace holds no submissions.",
        "A step is what one submission, or several, run on the device.",
      ),
    );
  }
  const mine = ++asked;
  try {
    const view = await ask("step", range ?? {});
    if (mine !== asked) return;
    range ??= { first: view.first, last: view.last };
    draw(pane, view);
  } catch (error) {
    if (mine === asked) pane.replaceChildren(empty("This step cannot be shown.", error.message));
  }
}

// ---------------------------------------------------------------- the pane

function draw(pane, view) {
  chosen = null;
  const beside = element("div", { class: "step-beside" });
  const canvas = svg("svg", {
    class: "step-canvas",
    tabindex: "0",
    role: "img",
    "aria-label": "Graph of the step",
  });
  pane.replaceChildren(
    head(view),
    element("div", { class: "step-body" }, element("div", { class: "step-room" }, canvas), beside),
  );
  if (!view.nodes.length) {
    canvas.parentElement.replaceChildren(
      empty(
        "Nothing here touches a buffer.",
        "These submissions launch, copy and fill nothing: they wait and signal.",
      ),
    );
    drawn = null;
    return;
  }
  const world = svg("g");
  const ends = (end, node) => view.edges.filter((edge) => edge[end] === node).length;
  const lines = view.edges.map((edge) =>
    line(edge, view.edges.length, ends("from", edge.from) <= ends("to", edge.to)),
  );
  const boxes = view.nodes.map((node, index) => box(node, index));
  world.append(...lines.map((one) => one.path), ...boxes, ...lines.map((one) => one.label));
  canvas.append(world);
  drawn = { view, world, boxes, lines, canvas, beside };
  moves(canvas);
  fit();
  light(null);
  describe(null);
}

function head(view) {
  const count = state.trace.submissions.value.length;
  const { first, last, begin } = range;
  const go = (from, until) => () => {
    range = { first: from, last: until };
    way = [];
    show();
  };
  const stepper = (name, number, less, more) => [
    element("span", { class: "note" }, name),
    element(
      "button",
      { type: "button", title: `${name} an earlier submission`, disabled: !less, onclick: less },
      "‹",
    ),
    element("b", {}, nameOf(number)),
    element(
      "button",
      { type: "button", title: `${name} a later submission`, disabled: !more, onclick: more },
      "›",
    ),
  ];
  const back = () => {
    range = way.pop();
    show();
  };
  const inputs = view.nodes.filter((node) => node.work === "input").length;
  const left =
    view.left_out && begin === undefined ? ` ${plural(view.left_out, "more command")} left out.` : "";
  const sentences = [
    view.grouped,
    view.unsure
      ? "Dashed: nobody said what these kernels do with a buffer, so they are taken to read and write it."
      : "",
    view.edges_left_out ? `${plural(view.edges_left_out, "line")} left out.` : "",
  ].filter(Boolean);
  const present = new Set(view.nodes.map((node) => node.work));
  return element(
    "div",
    { class: "step-head" },
    element(
      "div",
      { class: "step-tools" },
      way.length ? element("button", { type: "button", onclick: back }, "‹ back") : "",
      stepper("from", first, first > 0 && go(first - 1, last), first < last && go(first + 1, last)),
      stepper("to", last, last > first && go(first, last - 1), last < count - 1 && go(first, last + 1)),
      element(
        "span",
        { class: "note" },
        `${plural(view.commands, "command")}, ${plural(inputs, "input")}, ${plural(view.edges.length, "line")}.${left}`,
      ),
      element(
        "span",
        { class: "step-keys" },
        SORTS.filter(([sort]) => present.has(sort)).map(([sort, text]) =>
          element("span", {}, element("i", { class: `swatch step-${sort}` }), text),
        ),
      ),
      element("button", { type: "button", onclick: () => fit(true) }, "whole"),
      element("button", { type: "button", "aria-label": "smaller", onclick: () => zoom(1 / 1.3) }, "−"),
      element("button", { type: "button", "aria-label": "larger", onclick: () => zoom(1.3) }, "+"),
    ),
    sentences.length ? element("p", { class: "note" }, sentences.join(" ")) : "",
  );
}

// ---------------------------------------------------------------- boxes and lines

function svg(tag, properties = {}, ...children) {
  const made = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(properties)) made.setAttribute(name, String(value));
  made.append(...children);
  return made;
}

function short(text, width, font) {
  measure.font = font;
  return fitted(measure, text, width);
}

function box(node, index) {
  const family = getComputedStyle(document.body).fontFamily;
  const made = svg("g", {
    class: `step-node step-${node.work}`,
    transform: `translate(${node.x - BOX_WIDE / 2} ${node.y - BOX_TALL / 2})`,
    tabindex: "0",
    role: "button",
    "aria-label": node.name,
  });
  const isInput = node.work === "input";
  const note = isInput && node.size_bytes ? bytes(node.size_bytes) : node.note;
  made.append(
    svg("rect", { class: "face", width: BOX_WIDE, height: BOX_TALL, rx: isInput ? BOX_TALL / 2 : 5 }),
    ...(isInput ? [] : [svg("rect", { class: "edge", width: 4, height: BOX_TALL, rx: 2 })]),
    svg(
      "text",
      { x: isInput ? 18 : 13, y: 17, class: "name" },
      short(node.name, BOX_WIDE - 30, `600 12px ${family}`),
    ),
    svg(
      "text",
      { x: isInput ? 18 : 13, y: 32, class: "more" },
      short(note ?? "", BOX_WIDE - 30, `11px ${family}`),
    ),
  );
  made.addEventListener("click", () => choose(index));
  made.addEventListener("keydown", (event) => event.key === "Enter" && choose(index));
  made.addEventListener("pointerenter", () => light(index));
  made.addEventListener("pointerleave", () => light(chosen));
  return made;
}

// Through its points from box to box, upright where it enters and leaves. Its name is where fewer lines are.
function line(edge, count, isNearSource) {
  const points = edge.points.map(([x, y]) => [x, y]);
  points[0] = [points[0][0], points[0][1] + BOX_TALL / 2];
  points[points.length - 1] = [points[points.length - 1][0], points[points.length - 1][1] - BOX_TALL / 2 - 4];
  let text = `M${points[0]}`;
  for (let at = 1; at < points.length; at++) {
    const [[x, y], [tox, toy]] = [points[at - 1], points[at]];
    const bend = (toy - y) / 2;
    text += `C${x} ${y + bend} ${tox} ${toy - bend} ${tox} ${toy}`;
  }
  const [[x, y], [nextx, nexty]] = isNearSource ? points : points.slice(-2);
  const [tox, toy] = points.at(-1);
  const name = edge.more ? `${edge.name} and ${edge.more} more` : edge.name;
  const label = svg(
    "text",
    {
      class: `step-label ${count > MANY_EDGES ? "crowded" : "always"}`,
      x: x + (nextx - x) * 0.42,
      y: y + (nexty - y) * 0.42 + 3,
    },
    `${name.length > 26 ? `${name.slice(0, 25)}…` : name} · ${bytes(edge.size_bytes)}`,
  );
  const path = svg(
    "g",
    { class: `step-line ${edge.sure ? "" : "unsure"}` },
    svg("path", { d: text }),
    svg("path", { class: "head", d: `M${tox - 3.5} ${toy - 2}L${tox} ${toy + 4}L${tox + 3.5} ${toy - 2}Z` }),
  );
  return { edge, path, label };
}

// Names that would stand over each other move down, one below the other.
function apart(labels) {
  const placed = [];
  for (const label of labels) {
    label.removeAttribute("dy");
    const { x, y, width, height } = label.getBBox();
    let by = 0;
    const isTaken = (one) => x < one.right && one.left < x + width && Math.abs(one.top - y - by) < height - 1;
    while (by < 70 && placed.some(isTaken)) by += height - 1;
    if (by) label.setAttribute("dy", by);
    placed.push({ left: x - 4, right: x + width + 4, top: y + by });
  }
}

// The lines of one box stand out, with their names; the others step back.
function light(index) {
  if (!drawn) return;
  const near = new Set([index]);
  for (const { edge, path, label } of drawn.lines) {
    const isOwn = index !== null && (edge.from === index || edge.to === index);
    path.classList.toggle("lit", isOwn);
    label.classList.toggle("lit", isOwn);
    if (isOwn) near.add(edge.from).add(edge.to);
  }
  apart(
    drawn.lines
      .map((one) => one.label)
      .filter((one) => one.classList.contains(index === null ? "always" : "lit")),
  );
  drawn.world.classList.toggle("has-lit", index !== null);
  drawn.boxes.forEach((one, at) => {
    one.classList.toggle("lit", index !== null && near.has(at));
    one.classList.toggle("chosen", at === chosen);
  });
}

function choose(index) {
  if (drawn.wasDragged) return;
  const node = drawn.view.nodes[index];
  if (node.work === "group") {
    way.push(range);
    range = { first: range.first, last: range.last, begin: node.begin, end: node.end };
    return show();
  }
  chosen = index;
  light(index);
  describe(index);
}

// ---------------------------------------------------------------- what is beside it

function describe(index) {
  const { beside, view } = drawn;
  if (index === null) {
    return beside.replaceChildren(
      element(
        "p",
        { class: "note" },
        "Click a box for what it reads and writes, and the ways to its packets and code.",
      ),
      element(
        "p",
        { class: "note" },
        "Wheel: zoom. Drag: move. Above are the inputs; everything runs downward.",
      ),
    );
  }
  const node = view.nodes[index];
  const parts = [element("h3", {}, node.name)];
  if (node.work === "input") {
    const users = view.edges.filter((edge) => edge.from === index).map((edge) => edge.to);
    parts.push(
      element("p", { class: "note" }, "Nothing in this step wrote it before it was read."),
      element("h4", {}, "read by"),
      users.map((user) => jump(user)),
    );
    return beside.replaceChildren(...parts.flat());
  }
  parts.push(element("p", { class: "links" }, links(node)));
  if (node.text?.length) parts.push(element("p", { class: "step-call" }, `(${node.text.join(", ")})`));
  if (node.reads?.length)
    parts.push(
      element("h4", {}, "reads"),
      table(
        [],
        node.reads.map(([name, size]) => [name, bytes(size)]),
        { class: "step-uses" },
      ),
    );
  if (node.writes?.length)
    parts.push(
      element("h4", {}, "writes"),
      table(
        [],
        node.writes.map(([name, size, isKept]) => [
          [name, isKept ? element("small", {}, " kept at the end") : ""],
          bytes(size),
        ]),
        { class: "step-uses" },
      ),
    );
  if (!node.sure)
    parts.push(element("p", { class: "note" }, "Nobody said which of these it reads and which it writes."));
  if (node.schedule)
    parts.push(
      element("h4", {}, "schedule"),
      element(
        "ol",
        { class: "step-schedule" },
        node.schedule.split("; ").map((one) => element("li", {}, one)),
      ),
    );
  const after = [...new Set(view.edges.filter((edge) => edge.from === index).map((edge) => edge.to))];
  if (after.length)
    parts.push(
      element("h4", {}, "its results go to"),
      after.map((user) => jump(user)),
    );
  beside.replaceChildren(...parts.flat());
}

function jump(index) {
  const node = drawn.view.nodes[index];
  const go = (event) => {
    event.preventDefault();
    choose(index);
    centre(node);
  };
  return element("a", { class: "step-jump", href: "#", onclick: go }, node.name);
}

function links(node) {
  const link = (text, act) => element("button", { type: "button", onclick: act }, text);
  const kernel = (text) => () => {
    state.text = text;
    state.kernel = null;
    set("kernel", node.kernel);
    set("tab", "kernel");
  };
  return [
    link(`packets of ${nameOf(node.submission)}`, () => packets(node)),
    ...(node.kernel === undefined
      ? []
      : [
          link("machine code", kernel("Machine code")),
          node.has.includes("source") ? link("source", kernel("Source")) : "",
          node.has.includes("ir") ? link("IR", kernel("IR")) : "",
          link("counters", kernel("Counters")),
          state.compiles && node.has.includes("graph")
            ? link("how it was compiled", () => {
                state.compiled = node.kernel;
                set("tab", "compile");
              })
            : "",
        ]),
  ];
}

// The packet of a command is the one with its place among those that launch, copy and fill.
function packets(node) {
  const pane = find("pane-packets");
  const show = () => {
    const found = [...pane.querySelectorAll(".packet")].filter((one) =>
      one.querySelector(".verb.dispatch, .verb.copy, .verb.fill"),
    )[node.position];
    if (!found) return false;
    found.scrollIntoView({ block: "center" });
    found.classList.add("lit");
    setTimeout(() => found.classList.remove("lit"), 2500);
    return true;
  };
  const isThere = state.selected === node.submission;
  const before = { range, way };
  set("selected", node.submission);
  ({ range, way } = before);
  set("tab", "packets");
  if (isThere && show()) return;
  const watch = new MutationObserver(() => show() && watch.disconnect());
  watch.observe(pane, { childList: true });
  setTimeout(() => watch.disconnect(), 5000);
}

// ---------------------------------------------------------------- moving

function apply() {
  drawn.world.setAttribute("transform", `translate(${place.x} ${place.y}) scale(${place.scale})`);
  drawn.world.classList.toggle("far", place.scale < 0.5);
}

function fit(whole = false) {
  const { view, canvas } = drawn;
  const { width, height } = canvas.getBoundingClientRect();
  const scale = Math.min((width - 2 * MARGIN) / view.width, (height - 2 * MARGIN) / view.height, 1);
  place.scale = Math.max(whole ? SMALLEST : READABLE, scale);
  place.x = (width - view.width * place.scale) / 2;
  place.y = Math.max(MARGIN, (height - view.height * place.scale) / 2);
  if (!whole && view.width * place.scale > width) {
    const first = view.nodes.filter((node) => node.work !== "input");
    const middle = (first.length ? first : view.nodes).reduce(
      (sum, node, _, all) => sum + node.x / all.length,
      0,
    );
    place.x = width / 2 - middle * place.scale;
  }
  apply();
}

function centre(node) {
  const { width, height } = drawn.canvas.getBoundingClientRect();
  place.x = width / 2 - node.x * place.scale;
  place.y = height / 2 - node.y * place.scale;
  apply();
}

function zoom(factor, x, y) {
  const { width, height } = drawn.canvas.getBoundingClientRect();
  const [atx, aty] = [x ?? width / 2, y ?? height / 2];
  const scale = Math.min(LARGEST, Math.max(SMALLEST, place.scale * factor));
  place.x = atx - ((atx - place.x) * scale) / place.scale;
  place.y = aty - ((aty - place.y) * scale) / place.scale;
  place.scale = scale;
  apply();
}

function moves(canvas) {
  let before = null;
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      const { left, top } = canvas.getBoundingClientRect();
      const step = event.deltaMode === 1 ? event.deltaY * 16 : event.deltaY;
      zoom(Math.exp(-Math.max(-200, Math.min(200, step)) * 0.002), event.clientX - left, event.clientY - top);
    },
    { passive: false },
  );
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    before = event;
    drawn.wasDragged = false;
  });
  canvas.addEventListener("pointermove", (event) => {
    if (before === null || !drawn) return;
    const [dx, dy] = [event.clientX - before.clientX, event.clientY - before.clientY];
    if (!drawn.wasDragged && Math.abs(dx) + Math.abs(dy) < 4) return;
    if (!drawn.wasDragged) canvas.setPointerCapture(event.pointerId);
    drawn.wasDragged = true;
    place.x += dx;
    place.y += dy;
    before = event;
    apply();
  });
  for (const name of ["pointerup", "pointercancel"]) canvas.addEventListener(name, () => (before = null));
}
