// Timeline tips: what is said of the thing under the mouse: a submission, a kernel, a span, a mark on the host's line.
//
// In       the trace's columns, and a place in them
// Out      a title and lines of text
// Changes  nothing
// Next     timeline.js (who shows them)

import { beginOf, bytes, duration, endOf, labelOf, moment, nameOf, plural, state, workOf } from "./kit.js";

export function submissionTip(number) {
  const { submissions, lanes } = state.trace;
  const isTimed = submissions.started[number] !== null && submissions.finished[number] !== null;
  return [
    `${nameOf(number)}  ${labelOf(number)}`,
    isTimed
      ? `${duration(endOf(number) - beginOf(number))} on ${lanes[submissions.lane[number]].device}`
      : submissions.dropped[number]
        ? "did not reach the device"
        : "the trace does not say when it ran",
    `${workOf(number)}, ${plural(submissions.commands[number], "command")}`,
    `submitted at ${moment(submissions.submitted[number])}` +
      (isTimed ? `, began ${duration(beginOf(number) - submissions.submitted[number])} later` : ""),
  ];
}

export function stepTip(step) {
  const { steps, labels } = state.trace;
  return [
    labels[steps.label[step]],
    `${duration(steps.until[step] - steps.from[step])} between its timestamps`,
    `in ${nameOf(steps.of[step])}, at ${moment(steps.from[step])}`,
  ];
}

export function spanTip(span) {
  const { spans, labels } = state.trace;
  const took = spans.until[span] - spans.from[span];
  return [
    labels[spans.label[span]],
    `${duration(took)}, at ${moment(spans.from[span])}`,
    spans.size[span]
      ? `${bytes(spans.size[span])}, ${bytes((1e9 * spans.size[span]) / Math.max(1, took))}/s`
      : "",
    spans.peers[span] ? `with ${spans.peers[span]}` : "",
  ];
}

export function seenTip(mark) {
  const { seen } = state.trace;
  const by = seen.by[mark];
  return [
    seen.is_set[mark] ? `the host set a signal to ${seen.value[mark]}` : `the host saw ${seen.value[mark]}`,
    by === null ? "" : `${nameOf(by)} had finished ${duration(seen.time[mark] - endOf(by))} before`,
    `at ${moment(seen.time[mark])}`,
  ];
}

export function compileTip(made) {
  const { compiles, labels } = state.trace;
  return [
    `compiling, up to ${labels[compiles.label[made]]}`,
    `${duration(compiles.until[made] - compiles.from[made])} from what the host did before to the loaded program`,
  ];
}
