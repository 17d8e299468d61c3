"use strict";
// Draws a monitor's page from the JSON in #data. What comes from data enters as text, never as markup.
(() => {
  const fixed = (x) => (x === null ? "–" : x.toFixed(3));
  const percent = (x) => (x === null ? "–" : `${(100 * x).toFixed(1)}%`);
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const INK = dark ? "#d7dee6" : "#1b2733", GRID = dark ? "#3a4653" : "#e3e7ec";
  let charts = [];

  const chart = (title, alternative, height, config) => {
    const canvas = el("canvas", { role: "img", "aria-label": `${title}. ${alternative}` });
    const frame = el("div", { class: "frame" }, canvas);
    frame.style.height = `${height}px`;
    const axis = (text, more = {}) => ({ title: { display: true, text, color: INK }, ticks: { color: INK }, grid: { color: GRID }, ...more });
    config.options = { animation: false, responsive: true, maintainAspectRatio: false, ...config.options(axis) };
    config.options.plugins = { legend: { position: "bottom", labels: { color: INK, usePointStyle: true } } };
    charts.push(new Chart(canvas, config));
    return el("figure", {}, el("figcaption", { text: title }), frame);
  };
  const card = (label, big, about, kind = "") => el("div", { class: `card ${kind}` },
    el("p", { class: "label", text: label }), el("p", { class: "big", text: big }), el("p", { class: "about", text: about }));

  const timeline = (data) => {
    const points = data.timeline;
    const line = (label, key, more) => ({ label, data: points.map((p) => ({ x: p.rows, y: p[key] })), pointRadius: points.length > 40 ? 0 : 2, borderWidth: 2, ...more });
    return chart("Difference between groups, all rows", `Interval valid at all times, against the limit ${Number(data.everybody.limit.toPrecision(4))}`, 300, {
      type: "line",
      data: { datasets: [
        line("upper end", "high", { borderColor: "#56b4e9", backgroundColor: "#56b4e933", fill: "+2", borderDash: [2, 3], pointStyle: "triangle" }),
        line("measured", "difference", { borderColor: "#0072b2", pointStyle: "circle" }),
        line("lower end", "low", { borderColor: "#56b4e9", borderDash: [2, 3], pointStyle: "rectRot" }),
        { label: "limit", data: points.map((p) => ({ x: p.rows, y: data.everybody.limit })), borderColor: "#d55e00", borderWidth: 2, borderDash: [8, 4], pointRadius: 0, pointStyle: "line" },
      ] },
      options: (axis) => ({ scales: { x: axis("rows seen", { type: "linear" }), y: axis("difference", { min: 0 }) } }),
    });
  };
  const mix = (data) => chart("The mix, then and now", "Shares of the values that moved most", 60 + 38 * data.mix.length, {
    type: "bar",
    data: { labels: data.mix.map((m) => (innerWidth < 700 ? m.name.split(/(?<= = )/) : m.name)), datasets: [
      { label: "certified on", data: data.mix.map((m) => 100 * m.before), backgroundColor: "#999999" },
      { label: "now", data: data.mix.map((m) => 100 * m.now), backgroundColor: "#0072b2" },
    ] },
    options: (axis) => ({ indexAxis: "y", scales: { x: axis("% of rows"), y: axis("", { ticks: { color: INK, autoSkip: false } }) } }),
  });
  const MARKS = { broken: "✗ broken", kept: "✓ kept", "not yet known": "? not yet known" };
  const PLACES = { inside: "✓ inside", edge: "? at the edge", outside: "✗ outside" };

  const draw = (data) => {
    charts.forEach((made) => made.destroy());
    charts = [];
    document.getElementById("top").replaceChildren(
      el("p", { class: "kicker", text: `agnosticfair ${data.version} · monitor` }),
      el("h1", { text: data.sentence }));
    const kept = data.counted;
    document.getElementById("main").replaceChildren(
      el("section", {},
        el("div", { class: "cards" },
          card("Decisions", MARKS[data.decisions], `each against its own limit, at most ${Number(data.limit.toPrecision(4))}, in ${data.parts_in_all} ${data.parts_in_all === 1 ? "part" : "parts"}: ${kept.kept} kept, ${kept.broken} broken, ${kept.unknown} not yet known`, data.decisions === "broken" ? "corner" : "certified"),
          card("Where we are", PLACES[data.where], `${fixed(data.distance)} from the nearest mix in the certified set; ${data.changed ? "the mix has changed" : "no change of the mix is shown"}`, data.where === "outside" ? "corner" : "certified"),
          card("Rows", many(data.rows), `groups known of ${many(data.grouped)}; ${many(data.undecided)} with a value the model does not know`)),
        ...[data.because, data.alone, data.nearest, ...data.strange, ...data.advice].filter(Boolean).map((text) => el("p", { text })),
        el("p", { class: "set", text: `Every interval holds at all times at once with ${percent(data.confidence)} confidence: one may look after every batch.` })),
      el("section", {}, el("h2", { class: "part", text: "What the decisions do" }), data.timeline.length ? timeline(data) : null,
        table("Groups, all rows", ["group", "rows", "rate", "at least", "at most"],
          data.everybody.rates.map((r) => [r.given ? `${r.group}, of the ${r.given} label` : r.group, many(r.rows), fixed(r.rate), fixed(r.low), fixed(r.high)])),
        table("Parts, the largest lower end first", ["part", "rows", "rates", "difference", "at least", "at most", "share before", "share now", "limit", "verdict"],
          data.parts.map((p) => [p.name, many(p.rows), p.rates.map((r) => `${r.group} ${percent(r.rate)}`).join(", "), fixed(p.difference), fixed(p.low), fixed(p.high), percent(p.share_before), percent(p.share), fixed(p.limit), MARKS[p.verdict]]))),
      el("section", {}, el("h2", { class: "part", text: "Where the rows lie" }), data.mix.length ? mix(data) : null));
    document.getElementById("foot").textContent = `${data.made}. No rows are in this page, only counts.`;
  };
  const data = JSON.parse(document.getElementById("data").textContent);
  document.title = "agnosticfair monitor";
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  draw(data);
  if (data.live) setInterval(() => fetch("data.json").then((r) => (r.ok ? r.json() : null)).then((news) => news && draw(news)).catch(() => null), 3000);
})();
