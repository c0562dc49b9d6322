// Findings: what the validation rules say of the trace: counted by severity, each rule with the submissions it is about.
//
// In       data/findings
// Out      the top of the pane "Overview"
// Changes  state.selected, where a finding is clicked
// Next     page.js (who shows it), tools/trace/lint.py (who looks)

import { ask, element, link, plural, set, state } from "./kit.js";

const MANY = 5000; // submissions; the rules look at more only when asked
const SHOWN = 20; // findings of one rule
const FEW = 3; // of a rule that is alone, which are open at once

export async function showFindings(box) {
  if (state.trace.submissions.value.length > MANY && !box.dataset.asked) {
    const check = () => {
      box.dataset.asked = "true";
      box.replaceChildren(element("p", { class: "note" }, "Looking at every submission…"));
      showFindings(box);
    };
    box.replaceChildren(element("button", { type: "button", onclick: check }, "Check the validation rules"));
    return;
  }
  try {
    const found = await ask("findings");
    if (found.count) box.replaceChildren(...summary(found));
    else
      box.replaceChildren(
        element("p", { class: "note sound" }, "No validation rule has anything to say about this trace."),
      );
  } catch (error) {
    box.replaceChildren(
      element("p", { class: "note" }, `The validation rules could not look at it: ${error.message}`),
    );
  }
}

function summary({ findings, rules, count }) {
  const levels = new Map();
  for (const { level, count: own } of rules) levels.set(level, (levels.get(level) ?? 0) + own);
  const said = ["error", "warning"].filter((level) => levels.has(level));
  const parts = [
    element(
      "div",
      { class: "heading" },
      element("h2", {}, "Findings"),
      ...said.map((level) => element("b", { class: `level ${level}` }, plural(levels.get(level), level))),
    ),
    ...rules.map((rule) =>
      section(
        rule,
        findings.filter((one) => one.rule === rule.rule),
        rules.length === 1 && rule.count <= FEW,
      ),
    ),
  ];
  if (count > findings.length)
    parts.push(
      element(
        "p",
        { class: "note" },
        `Of ${count.toLocaleString("en")}, the first ${findings.length} are here; hcq-trace lint has all.`,
      ),
    );
  return parts;
}

// One rule: closed, a line with its first finding; open, all of them and what to do.
function section({ rule, level, count }, findings, isAlone) {
  const first = findings[0];
  return element(
    "details",
    { class: `finding ${level}`, open: isAlone },
    element(
      "summary",
      {},
      element("b", { class: `level ${level}` }, level),
      element("b", {}, rule),
      element("span", { class: "note" }, count > 1 ? `× ${count.toLocaleString("en")}` : ""),
      element("span", { class: "what" }, first ? place(first) : ""),
    ),
    ...findings.slice(0, SHOWN).map((one) => element("p", {}, place(one))),
    count > SHOWN ? element("p", { class: "note" }, `and ${(count - SHOWN).toLocaleString("en")} more`) : "",
    first?.fix ? element("p", { class: "note" }, first.fix) : "",
  );
}

function place(one) {
  const name = one.submission ? `${one.device} #${one.submission}` : one.device;
  const where = one.number === null ? name : link({}, () => set("selected", one.number), name);
  return [where, ` ${one.what}`];
}
