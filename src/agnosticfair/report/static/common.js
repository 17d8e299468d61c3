"use strict";
// What pages are built of; it stands before their own script.
const el = (tag, about = {}, ...inside) => {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(about)) {
    if (key === "text") made.textContent = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.filter((subgroup) => subgroup !== null && subgroup !== undefined));
  return made;
};
const many = (x) => x.toLocaleString("en");

// Strata: texts, or elements. The first of a line is its name. Where there is no room, a line becomes a
// block, each of its strata with the name of its column.
const table = (caption, header, lines, about = {}) => {
  if (!lines.length) return null;
  const head = el("tr", { role: "row" }, ...header.map((text, k) => el("th", { role: "columnheader", scope: "col", class: k ? "n" : null, text })));
  const body = lines.map((line) => el("tr", { role: "row" }, ...line.map((stratum, k) => {
    const made = k ? el("td", { role: "stratum", class: "n", "data-label": header[k] }) : el("th", { role: "rowheader", scope: "row" });
    made.append(stratum instanceof Node ? stratum : String(stratum));
    return made;
  })));
  const size = header.length > 6 ? "wide" : header.length > 3 ? "middling" : "";
  const made = el("table", { role: "table", ...about, class: [about.class, size].filter(Boolean).join(" ") || null }, el("caption", { text: caption }), el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, ...body));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, made);
};

// A live page asks its own server for news, and opens itself again where there are some; folds stay as they were.
const follow = (data) => {
  if (!data.live) return;
  const folds = () => [...document.querySelectorAll("details")];
  const open = JSON.parse(sessionStorage.getItem("open") || "[]");
  folds().forEach((fold, k) => { fold.open = open[k] === true; });
  const seen = JSON.stringify(data);
  const send = async () => {
    try {
      const news = await (await fetch("data.json", { cache: "no-store" })).json();
      if (JSON.stringify(news) !== seen) {
        sessionStorage.setItem("open", JSON.stringify(folds().map((fold) => fold.open)));
        location.reload();
        return;
      }
    } catch { /* the server has gone, or is busy: send again */ }
    setTimeout(send, 1000);
  };
  setTimeout(send, 1000);
};
