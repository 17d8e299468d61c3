"use strict";
// How a rule decides: what is said of it, where it had to act, how its estimates agree with the rows.
const ruleShown = ({ narrow, hue, chart, axis, legend, sub, COLOURS }) => (study, method) => {
  const told = method.rule;
  if (!told) return null;
  const short = (text) => { const maximum = narrow() ? 20 : 52; return text.length > maximum ? `${text.slice(0, maximum - 1)}…` : text; };
  const own = told.multipliers;
  const groups = [...new Set(own.flatMap((m) => [m.lowered, m.raised]))];
  const shift = (m, g) => (m.lowered === g ? m.lowered_shift : m.raised === g ? m.raised_shift : null);
  const acted = own.length ? chart("Where the rule had to act: shift of the threshold on the probability", `For a person who is surely of a group, in each of the ${own.length} dearest subgroups.`, 70 + 34 * own.length,
    { type: "bar", data: { labels: own.map((m) => short(m.subgroup)), datasets: groups.map((g, k) => ({ label: `for ${g}`, data: own.map((m) => shift(m, g)), backgroundColor: hue(COLOURS[k % 8]) })) }, options: { indexAxis: "y", scales: { x: axis("shift of the threshold"), y: { ticks: { autoSkip: false }, grid: { display: false } } }, plugins: legend() } }, null) : null;
  const lines = (caption, grid) => (grid.length ? table(caption, grid[0], grid.slice(1)) : null);
  const drawn = Object.entries(told.curves || told.dependences || {}).map(([name, curve]) => {
    const sets = Object.keys(curve.y).map((head, k) => ({ label: told.heads[head], data: curve.x.map((x, i) => ({ x, y: curve.y[head][i] })), borderColor: hue(COLOURS[k % 8]), backgroundColor: hue(COLOURS[k % 8]), borderDash: k ? [5, 4] : [], pointRadius: told.curves ? 0 : 2.5, borderWidth: 1.5 }));
    return chart(name, told.curves ? "What the column adds to the log odds of each estimate." : "Mean estimated probability if overall had this value.", 230, { type: "line", data: { datasets: sets }, options: { scales: { x: { type: "linear", ...axis(name) }, y: axis(told.curves ? "log odds" : "probability") }, plugins: legend() } }, null);
  });
  return el("div", { class: "rule" }, sub(study, "How the rule decides"), el("p", { text: told.learner_words }), el("p", { text: told.proxy }), el("ul", {}, ...told.statements.map((text) => el("li", { text }))),
    sub(study, "Where the rule had to act, and how much"), el("p", { text: told.acted_words }), lines("The dearest limits", told.acted_lines), acted,
    sub(study, "Do the estimates agree with the rows?"), el("p", { text: told.calibrated_words }), lines("Subgroups in which estimates are furthest off", told.calibrated_lines),
    told.importance_lines.length || drawn.length ? sub(study, "What the estimates hang on") : null, lines("Columns, the maximum important first", told.importance_lines), drawn.length ? el("div", { class: "small" }, ...drawn) : null);
};
