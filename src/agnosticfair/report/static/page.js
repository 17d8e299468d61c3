"use strict";
// Draws the report from the JSON in #data. What comes from data enters as text, never as markup.
(() => {
  // Okabe and Ito's colours; a shape says the same as its colour.
  const COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#555555", "#000000"];
  const SHAPES = ["circle", "triangle", "rectRot", "rect", "star", "crossRot", "cross", "rectRounded"];
  const USUAL = { fl: 0, fairfl: 1, agnosticfair: 2 };
  // What charts are drawn with, of the page's own colours; black and grey turn light in the dark.
  const DARK = { "#000000": "#ffffff", "#555555": "#b4bcc6" };
  let theme = {};
  const themed = (printing = false) => {
    const style = getComputedStyle(document.documentElement);
    const of = (name) => style.getPropertyValue(name).trim();
    const dark = !printing && matchMedia("(prefers-color-scheme: dark)").matches;
    theme = printing ? { dark, ink: "#1b2733", paper: "#ffffff", grid: "#e3e7ec", faint: "#c3ccd6" } : { dark, ink: of("--ink"), paper: of("--paper"), grid: of("--line"), faint: of("--faint") };
  };
  const hue = (colour) => (theme.dark ? DARK[colour] ?? colour : colour);
  const charts = [];
  const narrow = () => window.innerWidth < 600;

  // --- small parts ---

  const there = (x) => x !== null && x !== undefined && Number.isFinite(x);
  const fixed = (x, digits = 4) => (there(x) ? x.toFixed(digits) : "none");
  const percent = (x, digits = 1) => (there(x) ? `${(100 * x).toFixed(digits)}%` : "none");
  const atMost = (x) => (there(x) ? (Math.ceil(x * 1e4 - 1e-6) / 1e4).toFixed(4) : "none");
  const atLeast = (x) => (there(x) ? (Math.floor(x * 1e4 + 1e-6) / 1e4).toFixed(4) : "none");
  const rough = (x) => percent(x, x > 0 && x < 0.0095 ? 1 : 0);
  const number = (x, text) => el("span", { class: "number", "data-value": there(x) ? x : null, text });
  const short = (study) => study.metric.short || study.metric.quantity;
  let ids = 0;
  const fresh = () => `id${(ids += 1)}`;

  // Headings: one level deeper where the page has several studies.
  const subgroup = (study, text) => el(study.alone ? "h2" : "h3", { class: "subgroup", id: fresh(), text });
  const fold = (title, ...inside) => el("details", {}, el("summary", { text: title }), ...inside);

  // A chart with its alternative text, and its numbers in a table beneath.
  const chart = (title, alternative, height, config, data, note) => {
    const canvas = el("canvas", { role: "img", "aria-label": `${title}. ${alternative}` });
    const frame = el("div", { class: "frame" }, canvas);
    frame.style.height = `${height}px`;
    const made = el("figure", {}, el("figcaption", { text: title }), note ? el("p", { class: "note", text: note }) : null, frame, data ? fold("Numbers of this chart", data) : null);
    config.options = { animation: false, responsive: true, maintainAspectRatio: false, ...config.options };
    charts.push(new Chart(canvas, config));
    return made;
  };
  const axis = (title, more = {}) => ({ title: { display: true, text: title }, grid: { color: theme.grid }, ...more });
  const legend = (display = true) => ({ legend: { display, position: "bottom", labels: { usePointStyle: true, boxHeight: 7 } } });
  const looks = (study) => {
    const found = {};
    let next = 3;
    for (const { name } of study.methods) {
      const k = USUAL[name] ?? next++;
      found[name] = [hue(COLOURS[k % 8]), SHAPES[(k + Math.floor(k / 8)) % 8]];
    }
    return found;
  };

  // --- methods side by side ---

  const comparison = (study) => {
    if (study.methods.length < 2) return null;
    const columns = [["accuracy", "accuracy", fixed], ["difference", short(study), fixed], ["certified", "certified at most", atMost]];
    const shown = columns.filter(([key]) => study.methods.some((m) => there(m[key])));
    const lines = study.methods.map((m) => [m.name, ...shown.map(([key, , form]) => number(m[key], form(m[key]))), m.outcome || ""]);
    const notes = study.methods.filter((m) => m.note);
    return el("section", {}, subgroup(study, "Method against method"),
      table(`${study.rows_are}; RD: risk difference, 0 is equal`, ["method", ...shown.map(([, text]) => text), "how it ended"], lines, { class: "methods" }),
      notes.length ? el("ul", { class: "notes" }, ...notes.map((m) => el("li", {}, el("strong", { text: `${m.name}: ` }), m.note))) : null,
      frontier(study));
  };

  const frontier = (study) => {
    const names = { certified: `certified worst-case ${study.metric.quantity}`, difference: `${study.metric.quantity} on the ${study.rows_are}` };
    const key = Object.keys(names).find((one) => study.methods.some((m) => there(m[one]) && there(m.accuracy)));
    if (!key) return null;
    const look = looks(study);
    const datasets = study.methods.filter((m) => there(m[key])).map((m) => {
      const [colour, shape] = look[m.name];
      return { label: m.name, borderColor: colour, backgroundColor: colour, pointStyle: shape, borderWidth: 1.5, pointBorderWidth: 2, data: [{ x: m[key], y: m.accuracy, what: m.name }], pointRadius: 7 };
    });
    const config = { type: "scatter", data: { datasets }, options: { scales: { x: axis(`${names[key]} (left is fairer)`, { beginAtZero: true }), y: axis("accuracy (up is better)") }, plugins: { ...legend(), tooltip: { callbacks: { label: (at) => `${at.raw.what}: accuracy ${fixed(at.raw.y)}, ${short(study)} ${fixed(at.raw.x)}` } } } } };
    return chart("Accuracy against unfairness", "The upper left corner is best.", 400, config);
  };

  // --- the explorer: weights per value, sums over the table of counts ---

  // the metric comes with the data: its labels, and whether it bounds every group's rate or compares two
  const gap = (metric, mass, took) => {
    const found = metric.labels.map((labels) => {
      const rates = mass.flatMap((m, g) => {
        const b = labels.reduce((all, y) => all + m[y], 0);
        const a = labels.reduce((all, y) => all + (metric.bounds && y === 1 ? m[y] - took[g][y] : took[g][y]), 0);
        return b > 0 ? [a / b] : [];
      });
      if (metric.bounds) return rates.length ? Math.max(...rates) : null;
      return rates.length > 1 ? Math.max(...rates) - Math.min(...rates) : null;
    }).filter(there);
    return found.length ? Math.max(...found) : null;
  };

  const at = (counts, weights, positive) => {
    const mass = counts.groups.map(() => [0, 0]), took = counts.groups.map(() => [0, 0]);
    for (let k = 0; k < counts.rows.length; k += 1) {
      let w = 1;
      for (let c = 0; c < counts.codes.length; c += 1) w *= weights[c][counts.codes[c][k]];
      mass[counts.group[k]][counts.label[k]] += w * counts.rows[k];
      took[counts.group[k]][counts.label[k]] += w * positive[k];
    }
    const all = mass.reduce((total, m) => total + m[0] + m[1], 0);
    const right = mass.reduce((total, m, g) => total + m[0] - took[g][0] + took[g][1], 0);
    const rates = mass.map((m, g) => (m[0] + m[1] > 0 ? (took[g][0] + took[g][1]) / (m[0] + m[1]) : null));
    return all > 0 ? { accuracy: right / all, difference: gap(counts.metric, mass, took), rates } : { accuracy: null, difference: null, rates };
  };

  const shares = (counts, weights) => {
    const found = counts.columns.map((column) => new Float64Array(column.values.length));
    const groups = new Float64Array(counts.groups.length), squares = new Float64Array(counts.groups.length);
    let all = 0;
    for (let k = 0; k < counts.rows.length; k += 1) {
      let w = 1;
      for (let c = 0; c < counts.codes.length; c += 1) w *= weights[c][counts.codes[c][k]];
      const mass = w * counts.rows[k];
      for (let c = 0; c < counts.codes.length; c += 1) found[c][counts.codes[c][k]] += mass;
      groups[counts.group[k]] += mass;
      squares[counts.group[k]] += w * mass;
      all += mass;
    }
    const share = found.map((column) => Array.from(column, (mass) => (all > 0 ? mass / all : 0)));
    return { share, effective: Array.from(groups, (m, g) => (squares[g] > 0 ? (m * m) / squares[g] : 0)), mass: Array.from(groups, (m) => (all > 0 ? m / all : 0)) };
  };

  const explorer = (study) => {
    const counts = study.explorer;
    if (!counts) return null;
    const section = el("section", { class: "explorer" }, subgroup(study, "Shift explorer: another mix of people"));
    const names = Object.keys(counts.positive);
    const weights = counts.columns.map((column) => column.values.map(() => 1));
    const usual = Object.fromEntries(names.map((name) => [name, at(counts, weights, counts.positive[name])]));
    const begin = shares(counts, weights);
    const certified = Object.fromEntries(study.methods.map((m) => [m.name, m.certified]));
    const look = looks(study);
    section.append(el("p", { text: `Each slider says how many times as common a value becomes: 1 is as in the ${many(counts.rows.reduce((a, b) => a + b, 0))} test rows, 0 is absent. All numbers below follow at once. This page holds no rows, only counts of rows by slider value, group, label and decision; for these sliders they give exactly what the rows would.` }));

    const ticks = fresh();
    section.append(el("datalist", { id: ticks }, ...[0, 1, 2, 3, 4, 5].map((x) => el("option", { value: String(x) }))));
    const sliders = counts.columns.map((column, c) => column.values.map((value, v) => {
      const id = fresh();
      const set = (text) => { const w = Number(text); if (text !== "" && w >= 0) { weights[c][v] = w; input.value = String(w); if (field.value !== text) field.value = text; draw(); } };
      const input = el("input", { type: "range", id, min: "0", max: "5", step: "0.05", value: "1", list: ticks, "data-column": column.name, "data-value-name": value, oninput: () => set(input.value) });
      const field = el("input", { type: "number", min: "0", max: "100", step: "0.05", value: "1", "aria-label": `${column.name} ${value}: times as common`, oninput: () => set(field.value) });
      const share = el("output", { for: id, class: "share" });
      return { input, field, share, row: el("div", { class: "slider" }, el("label", { for: id, text: value }), input, el("span", { class: "times" }, "×", field), share) };
    }));
    const sets = counts.columns.map((column, c) => el("fieldset", {}, el("legend", { text: column.name }), ...sliders[c].map((slider) => slider.row)));

    const apply = (to) => {
      to.forEach((column, c) => column.forEach((w, v) => { weights[c][v] = w; sliders[c][v].input.value = String(w); sliders[c][v].field.value = String(w); }));
      draw();
    };
    const reset = el("button", { type: "button", class: "reset", text: "Back to the test rows", onclick: () => apply(weights.map((column) => column.map(() => 1))) });
    const rows = names.map((name) => {
      const corner = counts.corners[name];
      const button = corner ? el("button", { type: "button", class: "worst", "data-method": name, "aria-label": `Worst corner of ${name}`, text: "Worst corner", onclick: () => apply(weights.map((column, c) => column.map((_, v) => (corner.only[c] === null || corner.only[c] === v ? 1 : 0)))) }) : "none";
      const cell = () => el("span", { class: "number" });
      const rates = counts.groups.map(cell);
      return { name, accuracy: cell(), difference: cell(), rates, button };
    });
    const header = ["method", "accuracy: test rows", "at this mix", `${short(study)}: test rows`, "at this mix", "certified at most", ...counts.groups.map((g) => `positive rate: ${g}`), "jump to"];
    const grid = table(`Accuracy and ${study.metric.quantity} of every method at this mix`, header, rows.map((row) => [
      row.name, number(usual[row.name].accuracy, fixed(usual[row.name].accuracy)), row.accuracy, number(usual[row.name].difference, fixed(usual[row.name].difference)), row.difference, there(certified[row.name]) ? number(certified[row.name], atMost(certified[row.name])) : "none", ...row.rates, row.button,
    ]), { class: "mix" });
    const said = el("p", { class: "said", role: "status" });
    const brief = el("p", { class: "brief", "aria-hidden": "true" }); // on a phone, in sight of every slider
    const bars = chart(`At this mix: ${study.metric.quantity}`, "One bar per method, beside its bar for the test rows and the bound that is certified; the table above has the numbers.", 90 + 44 * names.length, {
      type: "bar",
      data: { labels: names, datasets: [
        { label: "at this mix", data: [], backgroundColor: names.map((name) => look[name][0]) },
        { label: "test rows", data: names.map((name) => usual[name].difference), backgroundColor: theme.faint },
        { label: "certified at most", data: names.map((name) => certified[name] ?? null), backgroundColor: theme.paper, borderColor: theme.ink, borderWidth: 1.5 },
      ] },
      options: { indexAxis: "y", scales: { x: axis(study.metric.quantity, { min: 0, max: 1 }), y: { grid: { display: false } } }, plugins: { legend: { display: true, position: "bottom", labels: { generateLabels: (c) => c.data.datasets.map((set, k) => ({ text: set.label, fontColor: theme.ink, fillStyle: k ? set.backgroundColor : "#0072b2", strokeStyle: set.borderColor || theme.paper, lineWidth: k === 2 ? 1.5 : 0, datasetIndex: k })) } } } },
    });
    const drawn = charts[charts.length - 1];

    const put = (cell, value, before) => {
      cell.textContent = fixed(value);
      if (there(value)) cell.setAttribute("data-value", value); else cell.removeAttribute("data-value");
      cell.classList.toggle("up", there(value) && there(before) && value > before + 5e-4);
      cell.classList.toggle("down", there(value) && there(before) && value < before - 5e-4);
    };
    function draw() {
      const now = shares(counts, weights);
      sliders.forEach((column, c) => column.forEach((slider, v) => {
        const w = weights[c][v];
        slider.share.textContent = `${rough(begin.share[c][v])} → ${rough(now.share[c][v])}`;
        slider.input.setAttribute("aria-valuetext", `${w} times as common, ${percent(now.share[c][v], 0)} of this mix`);
        slider.row.classList.toggle("moved", w !== 1);
      }));
      const beyond = [];
      rows.forEach((row, k) => {
        const found = at(counts, weights, counts.positive[row.name]);
        put(row.accuracy, found.accuracy, usual[row.name].accuracy);
        put(row.difference, found.difference, usual[row.name].difference);
        row.rates.forEach((cell, g) => put(cell, found.rates[g]));
        drawn.data.datasets[0].data[k] = found.difference;
        if (row.name === study.headline) brief.textContent = `${row.name}: accuracy ${fixed(found.accuracy)}, ${short(study)} ${fixed(found.difference)}`;
        if (there(certified[row.name]) && found.difference > certified[row.name]) beyond.push(row.name);
      });
      drawn.update("none");
      const kept = counts.groups.map((g, k) => `${g} ${percent(now.mass[k], 0)}, worth ${many(Math.round(now.effective[k]))} rows`).join("; ");
      const few = counts.groups.filter((_, k) => now.effective[k] < 100);
      const told = [`This mix: ${kept}.`];
      if (few.length) told.push(`Careful: ${few.join(" and ")} rests on fewer than 100 rows here, so the numbers are uncertain.`);
      const moved = weights.some((column) => column.some((w) => w !== 1));
      if (beyond.length) told.push(`Above its certified bound: ${beyond.join(", ")}. ${moved ? "A certificate holds over its own set (named subgroups, or reweightings), and this mix is not in it." : "The certificate is about the rows it was made on, and these are others."}`);
      said.textContent = told.join(" ");
      said.classList.toggle("alert", few.length + beyond.length > 0);
    }
    section.append(el("div", { class: "explore" }, brief, el("div", { class: "sliders" }, ...sets), el("div", { class: "results" }, el("p", { class: "buttons" }, reset), said, grid, bars)),
      el("p", { class: "note", text: `Worst corner: of all subgroups with one value, or all values, of each column, the one with the largest ${study.metric.quantity} that has at least ${many(counts.min_rows)} rows and ${percent(counts.min_share, 0)} of every group. A certificate holds over its own set, which need not contain such a subgroup.` }));
    draw();
    return section;
  };

  // --- named subgroups: intervals, all at once; hollow marks are subgroups with too few rows ---

  const forest = (study) => {
    const method = study.methods.find((m) => m.name === study.headline);
    const subgroups = method.subgroups;
    if (!subgroups || !(subgroups.estimable.length + subgroups.few.length)) return null;
    const shown = [...subgroups.estimable.map((p) => ({ ...p, able: true })), ...subgroups.few];
    const maximum = narrow() ? 20 : 52;
    const lines = (name) => { // a long name on as many lines as it has values
      const said = name.length > maximum ? name.split(" and ").map((text, k) => (k ? `and ${text}` : text)) : [name];
      return said.map((text) => (text.length > maximum ? `${text.slice(0, maximum - 1)}…` : text));
    };
    const labels = shown.map((p) => { const own = lines(p.name); if (!narrow()) own[own.length - 1] += ` (${many(p.rows)})`; return own; });
    const [able, few] = subgroups.counts;
    const level = percent(subgroups.confidence, 0);
    const found = (p) => `${fixed(p.difference)}${there(p.high) && p.able ? `, ${level} interval ${atLeast(p.low)} to ${atMost(p.high)}` : p.able ? ", measured only" : ", not estimable"}`;
    const ends = shown.map((p) => (p.able && there(p.high) ? [p.low, p.high] : null));
    const sets = [
      { type: "scatter", label: "measured", data: shown.map((p, k) => ({ x: p.able ? p.difference : NaN, y: k })), pointRadius: 4.5, pointStyle: "circle", backgroundColor: theme.dark ? "#ffffff" : COLOURS[0], borderColor: theme.paper, order: 0 },
      { type: "scatter", label: "not estimable, measured", data: shown.map((p, k) => ({ x: p.able ? NaN : p.difference, y: k })), pointRadius: 4.5, pointStyle: "circle", backgroundColor: theme.paper, borderColor: hue("#555555"), borderWidth: 1.5, order: 0 },
      { label: `${level} interval, all at once`, data: ends, backgroundColor: theme.dark ? "#56b4e9b3" : `${COLOURS[0]}66`, barThickness: 7, order: 1 },
    ].filter((set) => set.data.some((point) => point && (Array.isArray(point) || there(point.x))));
    const bound = { id: "bound", afterDatasetsDraw: (c) => {
      if (!there(subgroups.upper)) return;
      const x = c.scales.x.getPixelForValue(subgroups.upper), { top, bottom } = c.chartArea, ink = c.ctx;
      ink.save();
      ink.strokeStyle = COLOURS[1]; ink.setLineDash([6, 4]); ink.lineWidth = 1.5;
      ink.beginPath(); ink.moveTo(x, top); ink.lineTo(x, bottom); ink.stroke();
      ink.restore();
    } };
    const right = Math.max(0.05, ...shown.flatMap((p) => [p.difference, p.able ? p.high ?? 0 : 0]), subgroups.upper ?? 0);
    const config = { type: "bar", plugins: [bound], data: { labels, datasets: sets }, options: { indexAxis: "y", scales: { x: axis(study.metric.quantity, { min: 0, max: Math.min(1, Math.ceil(21 * right) / 20) }), y: { ticks: { autoSkip: false, font: { size: 11 } }, grid: { display: false } } }, plugins: { ...legend(), tooltip: { callbacks: { title: (items) => shown[items[0].dataset.type === "scatter" ? items[0].raw.y : items[0].dataIndex].name, label: (item) => found(shown[item.dataset.type === "scatter" ? item.raw.y : item.dataIndex]) } } } } };
    const height = 90 + labels.reduce((all, own) => all + 14 + 14 * own.length, 0);
    const note = subgroups.certified
      ? `${able === 1 ? "The one estimable subgroup" : `The ${subgroups.estimable.length} of the highest bound among ${many(able)} estimable subgroups`}; dashed: certified at most ${atMost(subgroups.upper)}.${few ? ` ${many(few)} ${few === 1 ? "subgroup is" : "subgroups are"} not estimable (too few rows for ±${subgroups.precision}): their hollow marks are measured, and nothing is certified of them.` : ""}`
      : `${subgroups.why} ${able === 1 ? "One subgroup has rows enough." : able ? `The ${subgroups.estimable.length} largest among ${many(able)} subgroups with rows enough.` : ""}${few ? ` ${many(few)} have too few rows to tell: hollow marks.` : ""}`;
    const data = table("Subgroups", ["subgroup", "rows", "measured", "interval", "ratio", "its lower bound"], shown.map((p) => [p.name, many(p.rows), number(p.difference, fixed(p.difference)), p.able ? (there(p.high) ? `${atLeast(p.low)} to ${atMost(p.high)}` : "measured only") : "not estimable", fixed(p.ratio), p.able && there(p.ratio_low) ? atLeast(p.ratio_low) : "none"]));
    return el("section", { class: "forest" }, subgroup(study, "Subgroups"), chart(`${study.metric.quantity} by subgroup (rows)`, `${shown.slice(0, 3).map((p) => `${p.name}: ${found(p)}`).join("; ")}.`, height, config, data, note));
  };

  // --- by client and group ---

  const clients = (study, name) => {
    const own = study.clients.filter((c) => c.method === name);
    if (!own.length) return null;
    const groups = Object.keys(own[0].groups);
    const sized = groups.every((g) => there(own[0].groups[g].rows));
    const header = ["client", "rows", "accuracy", "RD", ...groups.flatMap((g) => [...(sized ? [`${g}: rows`] : []), `${g}: positive rate`, `${g}: true-positive rate`])];
    const lines = own.map((c) => [c.client, many(c.rows), number(c.accuracy, fixed(c.accuracy)), number(c.risk_difference, fixed(c.risk_difference)), ...groups.flatMap((g) => { const own = c.groups[g]; return [...(sized ? [many(own.rows)] : []), number(own.rate, fixed(own.rate)), number(own.true_rate, fixed(own.true_rate))]; })]);
    return table(`${name}, ${study.rows_are}`, header, lines);
  };

  const byClient = (study) => {
    const tables = study.methods.map((m) => clients(study, m.name)).filter((one) => one);
    return tables.length ? el("section", {}, subgroup(study, "Per client and per group"), ...tables) : null;
  };

  // --- where it comes from ---

  const flat = (value, path = "") => (value !== null && typeof value === "object" ? Object.entries(value).flatMap(([key, inner]) => flat(inner, path ? `${path}.${key}` : key)) : [[path, value === null ? "none" : String(value)]]);

  const provenance = (study) => {
    const from = study.provenance;
    const lines = [...flat(study.configuration), ...flat(from.versions || {}).map(([k, v]) => [`version of ${k}`, v])];
    const data = Object.entries(from.data || {});
    return el("section", {}, subgroup(study, "Configuration, and how to reproduce it"),
      from.command ? el("pre", { tabindex: "0", "aria-label": "The command that made this run" }, el("code", { text: from.command })) : el("p", { text: "The command is not known: the run was made by a program, or deployed." }),
      data.length ? table("Data", ["data", "rows"], data.map(([name, d]) => [name, many(d.rows)])) : null,
      fold("All settings and versions", table("Settings and versions", ["name", "value"], lines, { class: "settings" })));
  };

  // --- the page ---

  // The template has the header, an article for each study and what is seen at a glance; charts follow here.
  const render = () => {
    while (charts.length) charts.pop().destroy();
    document.querySelectorAll(".drawn").forEach((section) => section.remove());
    Chart.defaults.font.family = "system-ui, sans-serif";
    Chart.defaults.color = theme.ink;
    const articles = [...document.querySelectorAll("article")];
    data.studies.forEach((study, k) => {
      study.alone = data.studies.length === 1;
      for (const section of [forest, explorerFirst(study) ? explorer : comparison, explorerFirst(study) ? comparison : explorer, byClient, provenance]) {
        const made = section(study);
        if (made) { made.classList.add("drawn"); articles[k].append(made); }
      }
    });
    const subgroups = [...document.querySelectorAll(data.studies.length > 1 ? "article > h2" : ".subgroup")];
    const contents = el("nav", { "aria-label": "Contents" }, ...subgroups.map((heading) => el("a", { href: `#${heading.id}`, text: heading.textContent })));
    document.querySelectorAll("#top nav").forEach((nav) => nav.remove());
    document.getElementById("top").append(contents);
  };
  const explorerFirst = (study) => study.methods.length < 2;

  window.addEventListener("beforeprint", () => {
    if (theme.dark) { themed(true); render(); } // paper is white
    document.querySelectorAll("details").forEach((fold) => { fold.open = true; });
    charts.forEach((drawn) => drawn.resize());
  });

  const data = JSON.parse(document.getElementById("data").textContent);
  themed();
  render();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { themed(); render(); });
})();
