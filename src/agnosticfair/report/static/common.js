"use strict";
// What pages are built of; it stands before their own script.
const el = (tag, about = {}, ...inside) => {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(about)) {
    if (key === "text") made.textContent = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value !== null && value !== undefined && value !== false) made.setAttribute(key, value === true ? "" : value);
  }
  made.append(...inside.filter((node) => node !== null && node !== undefined));
  return made;
};
const many = (x) => x.toLocaleString("en");

// Cells: texts, or elements. The first of a line is its name. Where there is no room, a line becomes a
// block, each of its cells with the name of its column.
const table = (caption, header, lines, about = {}) => {
  if (!lines.length) return null;
  const head = el("tr", { role: "row" }, ...header.map((text, k) => el("th", { role: "columnheader", scope: "col", class: k ? "n" : null, text })));
  const body = lines.map((line) => el("tr", { role: "row" }, ...line.map((cell, k) => {
    const made = k ? el("td", { role: "cell", class: "n", "data-label": header[k] }) : el("th", { role: "rowheader", scope: "row" });
    made.append(cell instanceof Node ? cell : String(cell));
    return made;
  })));
  const size = header.length > 6 ? "wide" : header.length > 3 ? "middling" : "";
  const made = el("table", { role: "table", ...about, class: [about.class, size].filter(Boolean).join(" ") || null }, el("caption", { text: caption }), el("thead", { role: "rowgroup" }, head), el("tbody", { role: "rowgroup" }, ...body));
  return el("div", { class: "scroll", tabindex: "0", role: "group", "aria-label": caption }, made);
};
