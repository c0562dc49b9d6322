// Debug: the kernels of the trace run again on an emulated GPU, step by step, forwards and backwards.
//
// In       data/debug of servers started with --debug: the state of a debugger, and all that there is to see of a stop
// Out      the pane "Debug"; without --debug its tab is not there
// Changes  state.debugs; what the debugger does
// Next     ../debug_view.py (who answers), hcq/debug/commands.py (what a line of the prompt can say)

import { ask, element, empty, find, on, say, set, state, table } from "./kit.js";

const WORDS = ["memory", "race", "init", "wait", "sync"];
const TYPES = ["", "i8", "u8", "i16", "u16", "f16", "i32", "u32", "f32", "i64", "u64", "f64"];
const MOVES = [
  ["reverse-continue", "|◀", "back to the last stop", "r"],
  ["reverse-stepl", "◀◀", "a line back", "P"],
  ["reverse-step", "◀", "an instruction back", "p"],
  ["step", "▶", "an instruction", "n"],
  ["stepl", "▶▶", "a line", "N"],
  ["next wave", "wave", "to the next instruction of another wave", "o"],
  ["barrier", "barrier", "to the next barrier of the block", ""],
  ["finish", "finish", "to the end of the block", ""],
  ["continue", "continue", "to the next stop", "c"],
];
const MOST_LINES = 600; // of the console
const PATIENCE_MS = 300;

let debuggerIs = { state: "none", turn: -1, status: 0 };
let looks = 0; // how often it was looked: an answer that comes late is left out
let seen = null; // all that there is to see of the stop
let names = []; // registers that are shown besides those of the instruction
let kind = ""; // as what type
let memory = { address: "", bytes: "64", as: "", text: "" };
let isFirst = false; // of its stops: before the program begins
const lines = []; // of the console
const typed = []; // lines that a person has typed, the latest last

export async function startDebug() {
  try {
    state.debugs = (await ask("debug")).enabled;
  } catch {
    state.debugs = false;
  }
  for (const tab of document.querySelectorAll("[data-tab=debug]")) tab.hidden = !state.debugs;
  if (!state.debugs) {
    if (state.tab === "debug") set("tab", "trace");
    return;
  }
  build();
  on("tab", () => state.tab === "debug" && draw());
  addEventListener("keydown", key);
  follow();
}

// Ask for what is new, for as long as the page is open.
async function follow() {
  for (;;) {
    try {
      const found = await ask("debug", { after: debuggerIs.turn });
      const isNew = found.state !== debuggerIs.state || found.state === "stopped";
      debuggerIs = found;
      for (const text of found.output) print(text);
      if (found.state === "stopped" && isFirst) {
        isFirst = false;
        await move("break kernel *", true);
        await move("break finding", true);
        await move("continue");
      } else if (isNew) await see();
    } catch (error) {
      print(`${error.message}\n`, "wrong");
      debuggerIs.state = "gone";
      draw();
      return;
    }
  }
}

async function see() {
  const mine = ++looks;
  if (debuggerIs.state === "runs") {
    // most moves are short: what was seen stays until it is clear that this one is not
    setTimeout(() => mine === looks && ((seen = null), draw()), PATIENCE_MS);
    return;
  }
  let found = null;
  if (debuggerIs.state === "stopped") {
    try {
      found = await ask("debug/look", { registers: names.join(","), as: kind });
    } catch {
      return; // it moves already: the next turn tells
    }
    if (memory.address) await lookAtMemory();
  }
  if (mine !== looks) return;
  seen = found;
  draw();
}

// A line of the prompt; what it answers stands in the console.
async function move(line, isQuiet = false) {
  if (!isQuiet) print(`(hcq) ${line}\n`, "said");
  try {
    const { answer } = await say("debug/say", { line });
    if (answer && !isQuiet) print(`${answer}\n`);
    return answer;
  } catch (error) {
    print(`! ${error.message}\n`, "wrong");
    return null;
  }
}

// A line that changes what there is to see, and does not move.
async function change(line) {
  await move(line, true);
  await see();
}

async function begin() {
  const words = WORDS.filter((word) => find(`debug-${word}`).checked).join(",");
  isFirst = true;
  lines.length = 0;
  try {
    await say("debug/start", { words });
  } catch (error) {
    isFirst = false;
    print(`! ${error.message}\n`, "wrong");
  }
}

function key(event) {
  const isTyping = /^(INPUT|SELECT|TEXTAREA)$/.test(event.target.tagName);
  if (
    state.tab !== "debug" ||
    isTyping ||
    event.ctrlKey ||
    event.metaKey ||
    event.altKey ||
    find("help").open
  )
    return;
  const found = MOVES.find(([, , , letter]) => letter && letter === event.key);
  if (found && debuggerIs.state === "stopped") {
    event.preventDefault();
    move(found[0]);
  }
}

export const DEBUG_KEYS = [
  ["n  p", "in Debug: an instruction forward, back"],
  ["N  P", "in Debug: a line forward, back"],
  ["c  r", "in Debug: continue, reverse-continue"],
];

// ---------------------------------------------------------------- what stays

function build() {
  const input = element("input", {
    id: "debug-line",
    autocomplete: "off",
    spellcheck: "false",
    placeholder: "a command, as at the prompt: help, origin out+0x40, watch out, lanes v3 as f32",
    "aria-label": "Command",
  });
  let at = 0;
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter" && input.value.trim()) {
      typed.push(input.value);
      at = typed.length;
      const line = input.value;
      input.value = "";
      move(line).then(() => debuggerIs.state === "stopped" && see());
    } else if (event.key === "ArrowUp" || event.key === "ArrowDown") {
      event.preventDefault();
      at = Math.max(0, Math.min(typed.length, at + (event.key === "ArrowUp" ? -1 : 1)));
      input.value = typed[at] ?? "";
    }
  });
  find("pane-debug").replaceChildren(
    element("div", { class: "debug-bar", role: "toolbar", "aria-label": "Move" }),
    element("div", { class: "debug-where" }),
    element(
      "div",
      { class: "debug-columns" },
      element("div", { class: "debug-code code", tabindex: "0", "aria-label": "Code" }),
      element("div", { class: "debug-aside" }),
    ),
    element("div", { class: "debug-console" }, element("pre", { id: "debug-said" }), input),
  );
  bar();
  draw();
}

function bar() {
  const button = (line, text, title, letter) =>
    element(
      "button",
      {
        type: "button",
        "data-move": line,
        title: letter ? `${title} (${letter})` : title,
        "aria-label": title,
        onclick: () => move(line),
      },
      text,
    );
  find("pane-debug")
    .querySelector(".debug-bar")
    .replaceChildren(
      element("button", { type: "button", id: "debug-start", onclick: begin }, "start"),
      ...MOVES.map((one) => button(...one)),
      element(
        "button",
        {
          type: "button",
          id: "debug-pause",
          onclick: () => say("debug/pause", {}).catch((error) => print(`! ${error.message}\n`, "wrong")),
        },
        "pause",
      ),
      element(
        "span",
        { class: "debug-words" },
        "look for",
        WORDS.map((word) =>
          element(
            "label",
            { title: "from the next start on" },
            element("input", {
              type: "checkbox",
              id: `debug-${word}`,
              checked: word === "race" || word === "memory",
            }),
            word,
          ),
        ),
      ),
    );
}

function print(text, style = "") {
  lines.push([text, style]);
  if (lines.length > MOST_LINES) lines.splice(0, lines.length - MOST_LINES);
  const box = find("debug-said");
  box.replaceChildren(...lines.map(([line, how]) => element("span", { class: how }, line)));
  box.scrollTop = box.scrollHeight;
}

// ---------------------------------------------------------------- what changes with each stop

function draw() {
  const pane = find("pane-debug");
  const isStopped = debuggerIs.state === "stopped";
  for (const button of pane.querySelectorAll("[data-move]")) button.disabled = !isStopped;
  find("debug-pause").disabled = debuggerIs.state !== "runs";
  find("debug-start").textContent = debuggerIs.state === "none" ? "start" : "start again";
  find("debug-line").disabled = !isStopped;
  pane.querySelector(".debug-where").replaceChildren(...where());
  const [code, aside] = [pane.querySelector(".debug-code"), pane.querySelector(".debug-aside")];
  code.replaceChildren(...(seen?.code ? listing() : nothing()));
  aside.replaceChildren(...(seen ? sections() : []));
  const here = code.querySelector(".here");
  if (here) code.scrollTop = here.offsetTop - code.clientHeight / 2;
}

function nothing() {
  const texts = {
    none: [
      "Nothing runs yet.",
      "start runs the kernels of this trace again, on an emulated GPU, and stops at the first one.",
    ],
    starts: ["It starts.", "The trace is read, and its memory is made ready."],
    runs: ["It runs.", "pause stops the kernel that is under way."],
    ended: [`It has ended with status ${debuggerIs.status}.`, "start again begins from the first launch."],
    gone: ["The server does not answer any more.", "Start it again, and open the address it prints."],
    stopped: [
      "No kernel is stopped here.",
      "continue goes on to the next one; reverse-continue goes back into the last one.",
    ],
  };
  return [empty(...texts[debuggerIs.state])];
}

function where() {
  if (!seen) return [];
  const parts = [];
  if (seen.reason)
    parts.push(
      element(
        "p",
        { class: /^(finding|fault)/.test(seen.reason) ? "debug-reason wrong" : "debug-reason" },
        seen.reason,
      ),
    );
  if (seen.code)
    parts.push(
      element(
        "p",
        {},
        element("b", { class: "debug-place" }, `launch ${seen.launch}, step ${seen.step}`),
        seen.past ? element("span", { class: "debug-past" }, "in the past") : "",
        ` ${seen.title}; ${seen.unit} ${seen.wave}, lane ${seen.lane}: ${seen.thread}; ${seen.why}`,
      ),
      element("p", { class: "note" }, seen.packet ? `begun by ${seen.packet}` : ""),
    );
  return parts;
}

function listing() {
  const broken = new Map(
    seen.points.filter((one) => one.text.startsWith("pc ")).map((one) => [one.key, one.number]),
  );
  const kernel = seen.title.split(" grid ")[0].replace(/[^\w.$]/g, "?");
  const made = [];
  for (const one of seen.code) {
    if (one.line)
      made.push(
        element(
          "div",
          {
            class: "label",
            title: "stop at this line",
            onclick: () => change(`break line ${one.line.split("/").pop()}`),
          },
          `${one.line.split("/").pop()}  ${one.source}`,
        ),
      );
    const number = broken.get(one.key);
    const toggle = () =>
      change(number === undefined ? `break pc ${one.key} in ${kernel}` : `delete ${number}`);
    made.push(
      element(
        "div",
        {
          class: `line${one.here ? " here" : ""}${one.waves && !one.here ? " there" : ""}`,
          "data-key": one.key,
        },
        element("button", {
          type: "button",
          class: number === undefined ? "point" : "point set",
          title: "stop here",
          "aria-label": `stop at ${one.name}`,
          "aria-pressed": String(number !== undefined),
          onclick: toggle,
        }),
        element("i", {}, one.name),
        element("span", {}, one.text),
        one.waves
          ? element("small", {}, `${one.waves} ${one.waves === 1 ? seen.unit : `${seen.unit}s`}`)
          : "",
      ),
    );
  }
  return made;
}

function section(title, ...children) {
  return element("section", {}, element("h3", {}, title), ...children);
}

function sections() {
  const made = [];
  if (seen.code) made.push(registers(), lanes(), waves());
  made.push(points(), memoryOf(), launches());
  return made;
}

function act(text, line, title) {
  return element("a", { href: "#", title, onclick: (event) => (event.preventDefault(), move(line)) }, text);
}

function registers() {
  const options = TYPES.map((type) =>
    element("option", { value: type, selected: type === kind }, type || "as they are"),
  );
  const pick = element("select", { id: "debug-kind", "aria-label": "as type" }, options);
  pick.addEventListener("change", () => ((kind = pick.value), see()));
  const more = element("input", {
    id: "debug-register",
    list: "debug-names",
    size: 9,
    placeholder: "one more",
    "aria-label": "show a register",
  });
  more.addEventListener("change", () => {
    if (more.value && !names.includes(more.value)) names.push(more.value);
    see();
  });
  const rows = seen.registers.map((one) => [
    element("span", { class: one.used ? "kernel-name" : "" }, one.name),
    element("code", {}, one.value),
    element("span", { class: "note" }, one.as_float),
    element(
      "span",
      { class: "note" },
      one.shared ? `of the ${seen.unit}` : one.same ? "in all lanes" : `lane ${seen.lane}`,
    ),
    act("origin", `origin ${one.name}`, "which instruction wrote it, and from what"),
    one.used
      ? ""
      : element(
          "a",
          {
            href: "#",
            title: "do not show it",
            onclick: (event) => (
              event.preventDefault(),
              (names = names.filter((name) => name !== one.name)),
              see()
            ),
          },
          "×",
        ),
  ]);
  const known = element(
    "datalist",
    { id: "debug-names" },
    seen.names.map((name) => element("option", { value: name })),
  );
  return section(
    "Registers",
    table([], rows, { class: "debug-registers" }),
    element("p", {}, pick, " ", more, known),
  );
}

function lanes() {
  const rows = seen.rows.map((one) => [
    element(
      "a",
      {
        href: "#",
        class: one.chosen ? "kernel-name" : "",
        onclick: (event) => (event.preventDefault(), change(`lane ${one.first}`)),
      },
      one.lanes,
    ),
    one.on ? "on" : element("span", { class: "note" }, "off"),
    ...one.cells.map((cell) => element("code", {}, cell)),
    element("code", {}, one.at),
  ]);
  return section(
    `Lanes of ${seen.unit} ${seen.wave}`,
    table(["lanes", "", ...seen.columns, "at"], rows, { class: "debug-lanes" }),
  );
}

function waves() {
  const rows = seen.waves.map((one) => [
    element(
      "a",
      {
        href: "#",
        class: one.chosen ? "kernel-name" : "",
        onclick: (event) => (event.preventDefault(), change(`wave ${one.first}`)),
      },
      one.waves,
    ),
    element("code", {}, one.mask),
    element(
      "span",
      {},
      element("code", {}, one.at),
      one.waits ? element("span", { class: "note" }, ` waits for ${one.waits}`) : "",
    ),
  ]);
  return section(
    `Resident ${seen.unit}s`,
    table([seen.unit, "lanes on", "at"], rows, { class: "debug-waves" }),
  );
}

function points() {
  const rows = seen.points.map((one) => [
    element("span", { class: one.on ? "" : "note" }, one.text),
    element(
      "a",
      {
        href: "#",
        onclick: (event) => (
          event.preventDefault(),
          change(`${one.on ? "disable" : "enable"} ${one.number}`)
        ),
      },
      one.on ? "off" : "on",
    ),
    element(
      "a",
      {
        href: "#",
        title: "delete",
        onclick: (event) => (event.preventDefault(), change(`delete ${one.number}`)),
      },
      "×",
    ),
  ]);
  return section(
    "Stops at",
    rows.length
      ? table([], rows, { class: "debug-points" })
      : element("p", { class: "note" }, "nothing: click left of an instruction, or say break or watch below"),
  );
}

async function lookAtMemory() {
  const { address, bytes, as } = memory;
  try {
    memory.text = (
      await say("debug/say", { line: `mem ${address} ${bytes || 64}${as ? ` as ${as}` : ""}` })
    ).answer;
  } catch (error) {
    memory.text = error.message;
  }
}

function memoryOf() {
  const field = (name, properties) => {
    const input = element("input", { id: `debug-memory-${name}`, ...properties });
    input.value = memory[name];
    input.addEventListener("change", () => ((memory[name] = input.value.trim()), see()));
    return input;
  };
  const pick = element(
    "select",
    { "aria-label": "memory as type" },
    TYPES.map((type) => element("option", { value: type, selected: type === memory.as }, type || "bytes")),
  );
  pick.addEventListener("change", () => ((memory.as = pick.value), see()));
  const known = element(
    "datalist",
    { id: "debug-buffers" },
    seen.buffers.filter((one) => one.name).map((one) => element("option", { value: one.name })),
  );
  return section(
    "Memory",
    element(
      "p",
      {},
      field("address", {
        list: "debug-buffers",
        size: 14,
        placeholder: "buffer+0x40",
        "aria-label": "address",
      }),
      " ",
      field("bytes", { size: 5, "aria-label": "bytes" }),
      " ",
      pick,
      known,
    ),
    memory.text ? element("pre", { class: "debug-memory" }, memory.text) : "",
    memory.address ? act("origin", `origin ${memory.address}`, "which store wrote it, and from what") : "",
  );
}

function launches() {
  const rows = seen.launches.map((one) => [
    act(`${one.number}`, `goto ${one.number} 1`, "to its first instruction"),
    element("span", {}, one.title, one.fault ? element("span", { class: "wrong" }, ` ${one.fault}`) : ""),
    element(
      "span",
      { class: "number" },
      `${one.steps.toLocaleString("en")} steps${one.over ? "" : ", runs"}`,
    ),
  ]);
  return section(
    "Launches",
    table([], rows.reverse(), { class: "debug-launches" }),
    act("to the present", "goto present", "where the program really is"),
  );
}
