"use strict";
// Draws a monitor's page from the JSON in #data. What comes from data enters as text, never as markup.
(() => {
  const dark = matchMedia("(prefers-color-scheme: dark)").matches;
  const INK = dark ? "#d7dee6" : "#1b2733", GRID = dark ? "#3a4653" : "#e3e7ec";

  const chart = (title, alternative, height, config) => {
    const canvas = el("canvas", { role: "img", "aria-label": `${title}. ${alternative}` });
    const frame = el("div", { class: "frame" }, canvas);
    frame.style.height = `${height}px`;
    const axis = (text, more = {}) => ({ title: { display: true, text, color: INK }, ticks: { color: INK }, grid: { color: GRID }, ...more });
    config.options = { animation: false, responsive: true, maintainAspectRatio: false, ...config.options(axis) };
    config.options.plugins = { legend: { position: "bottom", labels: { color: INK, usePointStyle: true } } };
    new Chart(canvas, config);
    return el("figure", {}, el("figcaption", { text: title }), frame);
  };
  const timeline = (data) => {
    const points = data.timeline;
    const line = (label, key, more) => ({ label, data: points.map((p) => ({ x: p.rows, y: p[key] })), pointRadius: points.length > 40 ? 0 : 2, borderWidth: 2, ...more });
    return chart("Difference between groups, all rows", `Interval valid at all times, against the limit ${Number(data.overall.limit.toPrecision(4))}`, 300, {
      type: "line",
      data: { datasets: [
        line("upper end", "high", { borderColor: "#56b4e9", backgroundColor: "#56b4e933", fill: "+2", borderDash: [2, 3], pointStyle: "triangle" }),
        line("measured", "difference", { borderColor: "#0072b2", pointStyle: "circle" }),
        line("lower end", "low", { borderColor: "#56b4e9", borderDash: [2, 3], pointStyle: "rectRot" }),
        { label: "limit", data: points.map((p) => ({ x: p.rows, y: data.overall.limit })), borderColor: "#d55e00", borderWidth: 2, borderDash: [8, 4], pointRadius: 0, pointStyle: "line" },
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
  const data = JSON.parse(document.getElementById("data").textContent);
  Chart.defaults.font.family = getComputedStyle(document.body).fontFamily;
  if (data.timeline.length) document.getElementById("timeline").append(timeline(data));
  if (data.mix.length) document.getElementById("mix").append(mix(data));
})();
