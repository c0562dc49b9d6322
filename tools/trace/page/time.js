// Time: where the time went: each queue's time as a bar of its parts, the work by name, and idle time by its reason.
//
// In       data/where
// Out      the first section of the pane "Overview"
// Changes  state.kernel, state.selected, where a row is clicked
// Next     page.js (who shows it), tools/trace/where_time_went.py (what the parts are)

import { ask, bytes, duration, element, empty, laneName, link, percent, plural, set, state } from "./kit.js";

const AT_ONCE = 12; // rows of a table; more come with a button
const QUEUES = 8;
const OTHERS = [
  ["copy", "copies"],
  ["fill", "fills"],
  ["packets", "own packets"],
];
// The colour of a part is that of the same thing elsewhere on the page.
const LOOKS = { signals: "wait", compiling: "compile" };

export function whereTimeWent() {
  const box = element("section", { id: "time", "aria-label": "Where the time went" });
  if (state.trace.submissions.value.length) fill(box);
  return box;
}

async function fill(box) {
  box.append(element("h2", {}, "Where the time went"), element("p", { class: "note" }, "Adding it up…"));
  try {
    const found = await ask("where");
    box.replaceChildren(...(found.span ? parts(found) : noTimes(found)));
  } catch (error) {
    box.replaceChildren(empty("Where the time went cannot be shown.", error.message));
  }
}

function parts(found) {
  const idle = Object.keys(found.queues[0].parts).filter((name) => !found.work.includes(name));
  const sum = (name) => found.queues.reduce((total, queue) => total + queue.parts[name], 0);
  const span = found.queues.reduce((total, queue) => total + queue.span, 0);
  const kernels = found.rows.filter((row) => row.kind === "kernel");
  const whole = found.rows.filter((row) => row.kind === "together");
  const others = OTHERS.filter(([kind]) => found.rows.some((row) => row.kind === kind));
  const title = others.map(([, text]) => text).join(", ");
  return [
    element(
      "div",
      { class: "heading" },
      element("h2", {}, "Where the time went"),
      element("span", { class: "note" }, `${duration(found.span)} from the first work to the last`),
    ),
    queues(found),
    key(found, sum),
    before(found),
    element(
      "div",
      { class: "columns" },
      whole.length + kernels.length
        ? element(
            "div",
            { class: "main" },
            whole.length ? work(found, "Submissions timed as a whole", whole) : "",
            kernels.length ? work(found, plural(kernels.length, "kernel"), kernels) : "",
          )
        : "",
      element(
        "div",
        { class: "aside" },
        reasons(found, idle, sum, span),
        others.length
          ? work(
              found,
              title[0].toUpperCase() + title.slice(1),
              found.rows.filter((row) => others.some(([kind]) => kind === row.kind)),
            )
          : "",
      ),
    ),
  ];
}

function noTimes(found) {
  return [
    element("h2", {}, "Where the time went"),
    element(
      "p",
      { class: "note" },
      "This trace has no times of the device: it ended before the device was asked for them, or nothing was done.",
    ),
    found.rows.length ? work(found, "What was submitted", found.rows) : "",
  ];
}

// A line that says what came before the first work.
function before({ before: ns, before_compiling: compiling }) {
  if (!ns) return "";
  const own = compiling ? `, ${duration(compiling)} of it compiling` : "";
  return element(
    "p",
    { class: "note" },
    `Before the first work: ${duration(ns)} since the first device opened${own}.`,
  );
}

// ---------------------------------------------------------------- queues

function queues({ queues: list, work, said }) {
  const box = element("div", { class: "queues" });
  const several = list.length > 1;
  const rows = list.map(({ lane, span, parts }) => {
    const busy = work.reduce((sum, name) => sum + parts[name], 0);
    return element(
      "div",
      { class: "queue" },
      element(
        "span",
        { class: "what", title: laneName(state.trace.lanes[lane]) },
        laneName(state.trace.lanes[lane]),
      ),
      element(
        "span",
        { class: "stack", role: "img", "aria-label": `${percent(busy, span)} at work` },
        Object.entries(parts)
          .filter(([, ns]) => ns)
          .map(([name, ns]) => {
            const part = element("i", {
              class: look(name),
              title: `${work.includes(name) ? "" : "idle: "}${said[name]}, ${duration(ns)}, ${percent(ns, span)}`,
            });
            part.style.flexGrow = String(ns / span);
            return part;
          }),
      ),
      element("span", { class: "number" }, percent(busy, span)),
      element("small", {}, "at work"),
    );
  });
  box.append(...rows.slice(0, QUEUES));
  if (several && rows.length > QUEUES) more(box, rows, QUEUES, "queues");
  return box;
}

function key({ queues: list, work, said }, sum) {
  const names = Object.keys(list[0].parts).filter(sum);
  return element(
    "p",
    { class: "swatches" },
    names.map((name) =>
      element(
        "span",
        {},
        element("i", { class: `swatch ${look(name)}` }),
        `${work.includes(name) ? "" : "idle: "}${said[name]}`,
      ),
    ),
  );
}

function look(name) {
  return LOOKS[name] ?? (["host", "late", "unknown", "waiting"].includes(name) ? `idle ${name}` : name);
}

// ---------------------------------------------------------------- rows

function reasons({ said, queues: list }, idle, sum, whole) {
  const rows = idle.filter(sum).sort((a, b) => sum(b) - sum(a));
  const all = rows.reduce((total, name) => total + sum(name), 0);
  const most = Math.max(1, ...rows.map(sum));
  return element(
    "div",
    { class: "rows" },
    element(
      "h3",
      {},
      "Idle",
      element(
        "small",
        {},
        all
          ? `${duration(all)}, ${percent(all, whole)} of ${list.length > 1 ? "all queues" : "the queue"}`
          : "never",
      ),
    ),
    rows.map((name) =>
      element(
        "div",
        { class: "share-row short" },
        element("span", { class: "what", title: said[name] }, said[name]),
        bar(look(name), sum(name) / most),
        element("span", { class: "number" }, percent(sum(name), whole)),
        element("span", { class: "number" }, duration(sum(name))),
      ),
    ),
  );
}

function work({ busy, rows: every }, title, rows) {
  const most = every.reduce((longest, row) => Math.max(longest, row.total ?? 0), 1); // bars of all tables compare
  const isTimed = rows.some((row) => row.timed);
  const total = rows.reduce((sum, row) => sum + (row.total ?? 0), 0);
  const box = element(
    "div",
    { class: "rows" },
    element(
      "h3",
      {},
      title,
      element("small", {}, isTimed ? `${duration(total)}, ${percent(total, busy)} of the work` : "how often"),
    ),
    element(
      "div",
      { class: isTimed ? "share-row head" : "share-row head bare" },
      (isTimed ? ["", "", "share", "total", "mean", "count"] : ["", "count"]).map((text) =>
        element("span", { class: "number" }, text),
      ),
    ),
  );
  if (!isTimed) return untimed(box, rows);
  const made = rows.map((row) =>
    element(
      "div",
      { class: "share-row" },
      name(row),
      row.total ? bar(row.look, row.total / most) : element("span"),
      element("span", { class: "number" }, row.total === null ? "–" : percent(row.total, busy)),
      element("span", { class: "number" }, row.total === null ? "–" : duration(row.total)),
      element("span", { class: "number" }, row.total === null ? "–" : duration(row.total / row.timed)),
      element("span", { class: "number" }, row.count.toLocaleString("en")),
    ),
  );
  box.append(...made.slice(0, AT_ONCE));
  if (made.length > AT_ONCE) more(box, made, AT_ONCE, "");
  if (rows.some((row) => row.kind === "kernel" && row.timed < row.count)) box.append(advice());
  return box;
}

function untimed(box, rows) {
  const made = rows.map((row) =>
    element(
      "div",
      { class: "share-row bare" },
      name(row),
      element("span", { class: "number" }, row.count.toLocaleString("en")),
    ),
  );
  box.append(...made.slice(0, AT_ONCE));
  if (made.length > AT_ONCE) more(box, made, AT_ONCE, "");
  if (rows[0].kind === "kernel") box.append(advice());
  return box;
}

function advice() {
  const text =
    "A kernel that shares its submission has no time of its own. Record with HCQ_PROFILE=1 to time each.";
  return element("p", { class: "note" }, text);
}

function name(row) {
  const title = row.bytes ? `${row.name}, ${bytes(row.bytes)} in all` : row.name;
  const open = () => {
    if (row.code === null) return set("selected", row.first);
    set("kernel", row.code);
    set("tab", "kernel");
  };
  const text = row.bytes ? [row.name, element("small", {}, bytes(row.bytes))] : row.name;
  return link({ class: "what", title }, open, text);
}

function bar(look, share) {
  const inside = element("i", { class: look });
  inside.style.width = `${(100 * share).toFixed(2)}%`;
  return element("span", { class: "room" }, inside);
}

function more(box, rows, from, what) {
  const left = rows.length - from;
  const step = Math.min(left, 200);
  const button = element(
    "button",
    { type: "button", class: "quiet" },
    `show ${step === left ? "" : `${step} of `}${left.toLocaleString("en")} more${what ? ` ${what}` : ""}`,
  );
  button.addEventListener("click", () => {
    button.replaceWith(...rows.slice(from, from + step));
    if (left > step) more(box, rows, from + step, what);
  });
  box.append(button);
}
