"use strict";
// Without this script the page says and shows the same. With it tables are sorted by their heads, a click on a legend
// hides what it names, and whoever points at a curve (or walks along it with the arrow keys) reads its numbers.
const hiddenSeries = new Set();

function sortable(table) {
  const heads = [...table.tHead.rows[0].cells], body = table.tBodies[0], rows = [...body.rows];
  const value = (row, i) => {
    const text = row.cells[i].textContent.trim().replaceAll("−", "-").replaceAll(",", "").replace(/^< /, "");
    const number = parseFloat(text);
    return heads[i].classList.contains("n") ? (Number.isNaN(number) ? -Infinity : number) : text.toLowerCase();
  };
  heads.forEach((head, i) => {
    const button = buttonOf(head);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...[...rows].sort((a, b) => {
        const x = value(a, i), y = value(b, i);
        return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
      }));
    });
  });
}

function buttonOf(element) {
  const button = document.createElement("button");
  button.type = "button";
  button.append(...element.childNodes);
  element.append(button);
  return button;
}

function hiding(entry) {
  const button = buttonOf(entry);
  button.title = "show or hide";
  button.addEventListener("click", () => {
    const series = entry.dataset.series;
    hiddenSeries.delete(series) || hiddenSeries.add(series);
    showHidden();
  });
}

function showHidden() {
  let style = document.getElementById("hidden-series");
  if (!style) {
    style = document.head.appendChild(document.createElement("style"));
    style.id = "hidden-series";
  }
  style.textContent = [...hiddenSeries].map((series) => `figure .panels .${series} { display: none; }`).join("\n");
  for (const button of document.querySelectorAll(".legend button"))
    button.setAttribute("aria-pressed", !hiddenSeries.has(button.parentElement.dataset.series));
}

const told = document.body.appendChild(document.createElement("div"));
told.id = "readout";
told.setAttribute("role", "status");
told.hidden = true;

function readable(figure) {
  const source = figure.querySelector("script[type='application/json']");
  if (!source) return;
  let numbers; // read when they are first asked for
  figure.querySelectorAll(".panels > svg").forEach((svg, i) => {
    const panel = () => {
      numbers ??= JSON.parse(source.textContent);
      return numbers.panels[i] && { ...numbers.panels[i], grids: numbers.x };
    };
    svg.tabIndex = 0;
    let step = 0;
    const point = (event) => {
      const frame = svg.getBoundingClientRect(), scale = svg.viewBox.baseVal.width / frame.width;
      step = tell(svg, panel(), (event.clientX - frame.left) * scale, (event.clientY - frame.top) * scale, null);
    };
    svg.addEventListener("pointermove", point);
    svg.addEventListener("pointerdown", point);
    svg.addEventListener("pointerleave", () => silent(svg));
    svg.addEventListener("blur", () => silent(svg));
    svg.addEventListener("keydown", (event) => {
      if (event.key === "Escape") return silent(svg);
      const by = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
      if (!by) return;
      event.preventDefault();
      step = tell(svg, panel(), null, null, Math.max(0, step + by));
    });
  });
}

// Tell of each curve at the step nearest to a place in the panel, or at a step by its number; return that.
function tell(svg, panel, x, y, step) {
  const curves = panel?.curves.filter((curve) => !hiddenSeries.has(curve[1])) ?? [];
  if (!curves.length) return 0;
  const [left, top, right, bottom] = panel.box, [x0, x1, y0, y1] = panel.limits;
  const across = (v) => left + (v - x0) / (x1 - x0) * (right - left), up = (v) => bottom - (v - y0) / (y1 - y0) * (bottom - top);
  const grid = panel.grids[curves[0][3]];
  if (step === null) {
    const wanted = x0 + (Math.min(Math.max(x, left), right) - left) / (right - left) * (x1 - x0);
    step = nearest(grid, wanted);
  }
  step = Math.min(step, grid.length - 1);
  const at = curves.map((curve) => nearest(panel.grids[curve[3]], grid[step]));
  const heights = curves.map((curve, k) => up(curve[4][at[k]]));
  const near = y === null ? -1 : heights.reduce((best, h, k) => Math.abs(h - y) < Math.abs(heights[best] - y) ? k : best, 0);
  const cursor = svg.querySelector(".cursor") ?? svg.appendChild(made("g", { class: "cursor" }));
  cursor.replaceChildren(
    made("path", { d: `M${across(grid[step])} ${top}V${bottom}`, stroke: "var(--muted)", "stroke-width": 1, fill: "none" }),
    ...heights.flatMap((h, k) => Number.isFinite(h) && curves[k][4][at[k]] !== null
      ? [made("circle", { cx: across(grid[step]), cy: h, r: k === near ? 4.5 : 3, fill: `var(${curves[k][2]})`, stroke: "var(--paper)" })] : []));
  write(`${panel.across} ${written(grid[step])}`, curves.map((curve, k) => ({
    name: curve[0], variable: curve[2], near: k === near,
    text: curve[4][at[k]] === null ? "nothing" : `${written(curve[4][at[k]])} (${written(curve[5][at[k]])} to ${written(curve[6][at[k]])})`,
  })));
  place(svg, x, y, across(grid[step]));
  return step;
}

function write(head, lines) {
  told.replaceChildren(document.createElement("p"), ...lines.map((line) => {
    const p = document.createElement("p"), dot = document.createElement("span");
    dot.className = "swatch";
    dot.style.background = `var(${line.variable})`;
    p.append(dot, `${line.name}: ${line.text}`);
    p.classList.toggle("near", line.near);
    return p;
  }));
  told.firstChild.textContent = head;
  told.hidden = false;
}

function place(svg, x, y, column) {
  const frame = svg.getBoundingClientRect(), scale = frame.width / svg.viewBox.baseVal.width;
  const across = frame.left + (x ?? column) * scale + 14, down = frame.top + (y ?? 20) * scale + 14;
  const width = told.offsetWidth, height = told.offsetHeight;
  told.style.left = `${Math.max(4, across + width > innerWidth - 4 ? across - width - 28 : across)}px`;
  told.style.top = `${Math.max(4, down + height > innerHeight - 4 ? down - height - 28 : down)}px`;
}

function silent(svg) {
  svg.querySelector(".cursor")?.remove();
  told.hidden = true;
}

function nearest(grid, value) {
  let best = 0;
  grid.forEach((v, i) => { if (Math.abs(v - value) < Math.abs(grid[best] - value)) best = i; });
  return best;
}

function written(value) {
  return value === null ? "?" : value.toLocaleString("en", { maximumSignificantDigits: 5 }).replace("-", "−");
}

function made(name, attributes) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", name);
  for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
  return element;
}

// A link opens the part that it leads to.
function reveal() {
  const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let part = target?.closest("details"); part; part = part.parentElement.closest("details")) part.open = true;
  target?.scrollIntoView();
}

function openAll(contents) {
  const button = buttonOf(contents.querySelector("ul").appendChild(document.createElement("li")));
  const parts = () => [...document.querySelectorAll("details.part")];
  const name = () => { button.textContent = parts().every((part) => part.open) ? "Fold all" : "Open all"; };
  button.addEventListener("click", () => {
    const open = !parts().every((part) => part.open);
    for (const part of parts()) part.open = open;
    name();
  });
  name();
}

document.querySelectorAll("table:not(.matrix)").forEach(sortable);
document.querySelectorAll(".legend [data-series]").forEach(hiding);
document.querySelectorAll("figure").forEach(readable);
document.querySelectorAll(".contents").forEach(openAll);
showHidden();
addEventListener("hashchange", reveal);
reveal();
