"use strict";
// Shared by the scripts below: the data, elements, numbers for people, the theme. Text from traces is only ever set as
// text (textContent, canvas), never as markup.
const page = {};
page.data = JSON.parse(document.getElementById("data").textContent);
page.byId = (id) => document.getElementById(id);
page.all = (selector, within) => Array.from((within || document).querySelectorAll(selector));
page.make = (tag, text, name) => {
  const node = document.createElement(tag);
  if (text !== undefined && text !== null) node.textContent = text;
  if (name) node.className = name;
  return node;
};

page.UNITS = [[1, "ns"], [1e3, "us"], [1e6, "ms"], [1e9, "s"], [6e10, "min"], [3.6e12, "h"]];
page.digits = (value) => (value < 9.995 ? value.toFixed(2) : value < 99.95 ? value.toFixed(1) : value.toFixed(0));
// As boundby.model.units.duration: three digits, the smallest unit in which they do.
page.duration = (ns) => {
  if (ns < 0) return "-" + page.duration(-ns);
  if (ns < 999.5) return Math.round(ns) + " ns";
  const [scale, unit] = page.UNITS.slice(1).find(([size]) => ns / size < 999.5) || page.UNITS[5];
  return page.digits(ns / scale) + " " + unit;
};
page.percent = (part) => {
  if (part > 0 && part <= 0.005) return "<1 %";
  if (part >= 0.995 && part < 1) return ">99 %";
  return Math.round(100 * part) + " %";
};
page.count = (number) => number.toLocaleString("en-US");

// Ticks of one unit, with as many digits as tell neighbours apart.
page.ticks = (_, values) => {
  const widest = Math.max(...values.map(Math.abs));
  const [scale, unit] = page.UNITS.slice().reverse().find(([size]) => widest >= size) || page.UNITS[0];
  const step = values.length > 1 ? (values[1] - values[0]) / scale : 1;
  const digits = Math.min(Math.max(0, Math.ceil(-Math.log10(step) - 1e-9)), 9);
  const more = Math.abs(step * 10 ** digits - Math.round(step * 10 ** digits)) > 1e-6 ? 1 : 0;
  return values.map((value) => `${(value / scale).toFixed(digits + more)} ${unit}`);
};

page.color = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
page.causeColors = () => {
  const probe = page.make("span");
  probe.hidden = true;
  document.body.append(probe);
  const found = page.data.causes.map((cause) => {
    probe.className = "c-" + cause.key;
    const style = getComputedStyle(probe);
    return { fill: style.getPropertyValue("--fill").trim(), ink: style.getPropertyValue("--ink").trim() };
  });
  probe.remove();
  return found;
};

// What must be drawn again when the theme or the width changes.
page.redraws = [];
page.redraw = () => page.redraws.forEach((draw) => draw());

(() => {
  const button = page.byId("theme");
  const dark = matchMedia("(prefers-color-scheme: dark)");
  const isDark = () => (document.documentElement.dataset.theme || (dark.matches ? "dark" : "light")) === "dark";
  const show = () => {
    button.textContent = isDark() ? "Light" : "Dark";
    button.setAttribute("aria-label", isDark() ? "Switch to light colours" : "Switch to dark colours");
    button.setAttribute("aria-pressed", String(isDark()));
    page.redraw();
  };
  button.hidden = false;
  button.addEventListener("click", () => {
    document.documentElement.dataset.theme = isDark() ? "light" : "dark";
    show();
  });
  dark.addEventListener("change", show);
  show();
  let width = innerWidth, timer = 0;
  addEventListener("resize", () => {
    if (innerWidth === width) return;
    width = innerWidth;
    clearTimeout(timer);
    timer = setTimeout(page.redraw, 60);
  });
  // On paper everything is unfolded, and the drawings are light.
  let closed = [], theme;
  addEventListener("beforeprint", () => {
    closed = page.all("details:not([open])");
    closed.forEach((item) => (item.open = true));
    theme = document.documentElement.dataset.theme;
    document.documentElement.dataset.theme = "light";
    page.redraw();
  });
  addEventListener("afterprint", () => {
    closed.forEach((item) => (item.open = false));
    if (theme) document.documentElement.dataset.theme = theme;
    else delete document.documentElement.dataset.theme;
    page.redraw();
  });
})();

page.tip = {
  node: page.byId("tip"),
  show(lines, x, y) {
    this.node.replaceChildren(...lines.map((line) => {
      const row = page.make("p");
      if (line.key) {
        const cause = page.data.causes[line.key - 1];
        row.append(page.make("span", cause.letter, "swatch c-" + cause.key));
      }
      row.append(page.make(line.strong ? "b" : "span", line.text));
      return row;
    }));
    this.node.hidden = false;
    const box = this.node.getBoundingClientRect();
    this.node.style.left = Math.max(6, Math.min(x + 16, innerWidth - box.width - 8)) + "px";
    this.node.style.top = Math.max(6, y + 18 + box.height > innerHeight ? y - box.height - 14 : y + 18) + "px";
  },
  hide() { this.node.hidden = true; },
};

// The order of a column: numbers by data-v where a cell has one, else by text.
page.cellValue = (row, column) => {
  const cell = row.cells[column];
  if (!cell) return "";
  const raw = cell.dataset.v !== undefined ? cell.dataset.v : cell.textContent.trim();
  const number = Number(raw);
  return raw !== "" && !Number.isNaN(number) ? number : raw.toLowerCase();
};
page.compare = (a, b) => {
  if (typeof a === "number" && typeof b === "number") return a - b;
  if (typeof a !== typeof b) return typeof a === "number" ? -1 : 1;
  return a < b ? -1 : a > b ? 1 : 0;
};
// Header buttons: numbers start with the largest, names with the first. Calls sort(column, ascending).
page.sortHeaders = (table, sort) => {
  const heads = Array.from(table.tHead.rows[0].cells);
  heads.forEach((head, column) => {
    const button = head.querySelector(".sort");
    if (!button) return;
    button.addEventListener("click", () => {
      const now = head.getAttribute("aria-sort");
      const ascending = now ? now === "descending" : !head.classList.contains("n");
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", ascending ? "ascending" : "descending");
      sort(column, ascending);
    });
  });
};
// Places have addresses: #finding-2, #region=step/forward, #timeline&t=FROM-TO in ns of the trace's clock.
page.hash = {
  written: "", onTime: null, onRegion: null,
  parts() { return location.hash.slice(1).split("&"); },
  time() { return this.parts().slice(1).map((part) => /^t=(-?\d+)-(-?\d+)$/.exec(part)).find(Boolean); },
  keep(text) {
    this.written = "#" + text;
    clearTimeout(this.timer);
    // Some browsers refuse it on pages from a disk: the view is there all the same, only its address is not.
    this.timer = setTimeout(() => { try { history.replaceState(null, "", this.written); } catch {} }, 250);
  },
  go() {
    const time = this.time(), place = this.parts()[0];
    let target = null;
    if (place.startsWith("region=") && this.onRegion) target = this.onRegion(decodeURIComponent(place.slice(7)));
    else if (place) target = page.byId(place);
    for (let node = target; node; node = node.parentElement) if (node.tagName === "DETAILS") node.open = true;
    if (time && this.onTime) this.onTime(Number(time[1]), Number(time[2]));
    if (target) target.scrollIntoView();
  },
};
addEventListener("hashchange", () => page.hash.go());
addEventListener("load", () => { if (location.hash.length > 1) page.hash.go(); });
// Steps and commands are copied whole; without a clipboard (a page opened from a disk in some browsers) by selection.
for (const button of document.querySelectorAll("button.copy")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const text = button.dataset.copy;
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const field = page.make("textarea", text);
      document.body.append(field);
      field.select();
      document.execCommand("copy");
      field.remove();
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
}
{
  const download = page.byId("download"), result = page.byId("report");
  if (download && result) {
    download.hidden = false;
    download.addEventListener("click", () => {
      const link = page.make("a");
      const text = JSON.stringify(JSON.parse(result.textContent), null, 2) + "\n";
      link.href = URL.createObjectURL(new Blob([text], { type: "application/json" }));
      link.download = "boundby.json";
      link.click();
      setTimeout(() => URL.revokeObjectURL(link.href), 1000);
    });
  }
}
