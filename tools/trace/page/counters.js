// Counters: what a kernel did on an emulated GPU, and how long each resource of a chip would work for it.
//
// In       a kernel's number
// Out      an element: bars, figures, what to change; the chip can be chosen
// Changes  nothing but the chip that was chosen last
// Next     kernel.js (who shows it), tools/trace/counters_view.py (who makes the data)

import { ask, duration, element, empty, table } from "./kit.js";

const GROUPS = [
  ["work", "Work"],
  ["memory", "Global memory"],
  ["chip", "On the chip"],
  ["left out", "Ran, and its traffic is not modelled"],
];

let chosen = ""; // stays when another kernel is looked at

export function counters(number) {
  const box = element("div", { class: "counters" });
  show(box, number);
  return box;
}

async function show(box, number) {
  let found;
  try {
    found = await ask("counters", { number, chip: chosen });
  } catch (error) {
    if (chosen) {
      chosen = ""; // a chip of another vendor than this kernel's
      return show(box, number);
    }
    box.replaceChildren(empty("The counters cannot be shown.", error.message));
    return;
  }
  if (found.missing) {
    box.replaceChildren(empty("This kernel has no counters.", found.missing));
    return;
  }
  box.replaceChildren(...parts(box, number, found));
}

function parts(box, number, found) {
  const choose = element(
    "select",
    {
      "aria-label": "chip",
      onchange: (event) => {
        chosen = event.target.value;
        show(box, number);
      },
    },
    found.chips.map(({ name, title }) =>
      element("option", { value: name, selected: name === found.chip }, `${name}: ${title}`),
    ),
  );
  return [
    element("p", { class: "chip" }, "At least, on ", choose),
    bars(found.bounds),
    element("p", { class: "summary" }, found.summary),
    element("p", { class: "note" }, `${found.room}.`),
    found.change.length
      ? element(
          "ul",
          { class: "change" },
          found.change.map((line) => element("li", {}, line)),
        )
      : "",
    element("h3", {}, "Of one launch", element("small", {}, found.of)),
    ...figures(found),
    ...found.notes.map((line) => element("p", { class: "note" }, line)),
  ];
}

// The longest bounds the kernel; the others would work meanwhile.
function bars(bounds) {
  const longest = Math.max(...bounds.map((one) => one.ns), 0) || 1;
  return element(
    "div",
    { class: "bars", role: "list" },
    bounds.map((one, index) => {
      const bar = element("i", { class: one.sort });
      bar.style.width = `${((100 * one.ns) / longest).toFixed(2)}%`;
      return element(
        "div",
        { class: index ? "bar" : "bar first", role: "listitem" },
        element("span", { class: "what" }, one.what),
        element("span", { class: "room" }, bar),
        element("span", { class: "took" }, duration(one.ns)),
        element("small", {}, one.text),
      );
    }),
  );
}

function figures({ figures: rows, classes }) {
  const total = classes.reduce((sum, [, count]) => sum + Number(count), 0) || 1;
  const tables = GROUPS.map(([key, title]) => [title, rows.filter(([group]) => group === key)])
    .filter(([, mine]) => mine.length)
    .map(([title, mine]) =>
      element(
        "div",
        {},
        element("h4", {}, title),
        table(
          [],
          mine.map(([, what, much]) => [what, much]),
        ),
      ),
    );
  const shares = classes.map(([name, count]) => [name, `${((100 * Number(count)) / total).toFixed(1)} %`]);
  return [
    element(
      "div",
      { class: "figures" },
      ...tables,
      element("div", {}, element("h4", {}, "Instructions"), table([], shares)),
    ),
  ];
}
