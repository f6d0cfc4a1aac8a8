"use strict";
// The region tree: fold, sort among siblings (or flat), search, and the figures of a row.
(() => {
  const table = page.byId("region-table");
  if (!table) return;
  const body = table.tBodies[0];
  const entries = Array.from(body.rows).map((row, place) => ({
    row, place, depth: Number(row.dataset.depth), children: [], parent: null, folded: false, details: null, small: row.dataset.small !== undefined,
    path: row.cells[0].dataset.v, label: row.querySelector(".name").textContent,
  }));
  const roots = [];
  const open = [];
  for (const entry of entries) {
    while (open.length && open[open.length - 1].depth >= entry.depth) open.pop();
    entry.parent = open.length ? open[open.length - 1] : null;
    (entry.parent ? entry.parent.children : roots).push(entry);
    open.push(entry);
  }
  let flat = false, small = false, wanted = "", order = null;

  const unfold = (entry) => {
    if (entry.details) {
      entry.details.remove();
      entry.details = null;
      entry.name.setAttribute("aria-expanded", "false");
      return;
    }
    const row = page.make("tr", null, "unfolded");
    const cell = row.insertCell();
    cell.colSpan = table.tHead.rows[0].cells.length;
    const groups = page.make("div", null, "groups");
    for (const [title, facts] of page.data.facts[Number(entry.row.dataset.row)]) {
      const group = page.make("div");
      group.append(page.make("h4", title));
      const list = page.make("dl", null, "facts");
      for (const [label, value] of facts) {
        const fact = page.make("div");
        fact.append(page.make("dt", label), page.make("dd", value));
        list.append(fact);
      }
      group.append(list);
      groups.append(group);
    }
    cell.append(page.make("b", entry.path), groups);
    entry.details = row;
    entry.name.setAttribute("aria-expanded", "true");
    entry.row.after(row);
  };

  for (const entry of entries) {
    const fold = page.make(entry.children.length ? "button" : "span", null, "fold");
    if (entry.children.length) {
      fold.type = "button";
      fold.setAttribute("aria-label", "Fold " + entry.label);
      fold.addEventListener("click", (event) => {
        event.stopPropagation();
        entry.folded = !entry.folded;
        arrange();
      });
    }
    entry.fold = fold;
    entry.row.cells[0].prepend(fold);
    const plain = entry.row.querySelector(".name");
    entry.name = page.make("button", entry.label, "name");
    entry.name.type = "button";
    entry.name.title = plain.title;
    entry.name.setAttribute("aria-expanded", "false");
    plain.replaceWith(entry.name);
    entry.row.addEventListener("click", () => { if (!String(getSelection())) unfold(entry); });
    entry.name.addEventListener("keydown", (event) => {
      const visible = entries.filter((other) => !other.row.hidden).sort((a, b) => a.row.rowIndex - b.row.rowIndex);
      const at = visible.indexOf(entry);
      if (event.key === "ArrowDown" && visible[at + 1]) visible[at + 1].name.focus();
      else if (event.key === "ArrowUp" && visible[at - 1]) visible[at - 1].name.focus();
      else if (event.key === "ArrowLeft" && entry.children.length && !entry.folded) { entry.folded = true; arrange(); }
      else if (event.key === "ArrowLeft" && entry.parent && !flat) entry.parent.name.focus();
      else if (event.key === "ArrowRight" && entry.folded) { entry.folded = false; arrange(); }
      else return;
      event.preventDefault();
    });
  }

  const sorted = (list) => {
    if (!order) return list;
    const keyed = list.map((entry) => [page.cellValue(entry.row, order.column), entry]);
    keyed.sort((a, b) => (order.ascending ? 1 : -1) * page.compare(a[0], b[0]) || a[1].place - b[1].place);
    return keyed.map((item) => item[1]);
  };
  const matches = (entry) => entry.path.toLowerCase().includes(wanted);
  const isSmall = (entry) => !small && wanted === "" && entry.small && entry.children.every(isSmall);
  const holdsMatch = (entry) => matches(entry) || entry.children.some(holdsMatch);

  const arrange = () => {
    const rows = [];
    let found = 0;
    const put = (entry, hidden) => {
      const hit = wanted !== "" && matches(entry);
      found += hit ? 1 : 0;
      entry.row.hidden = hidden;
      entry.row.classList.toggle("found", hit);
      if (entry.children.length) {
        entry.fold.textContent = entry.folded && !wanted ? "▸" : "▾";
        entry.fold.setAttribute("aria-expanded", String(!entry.folded));
      }
      rows.push(entry.row);
      if (entry.details) {
        entry.details.hidden = hidden;
        rows.push(entry.details);
      }
    };
    const walk = (list, hidden) => {
      for (const entry of sorted(list)) {
        put(entry, hidden || isSmall(entry) || (wanted !== "" && !holdsMatch(entry)));
        walk(entry.children, hidden || (entry.folded && wanted === ""));
      }
    };
    if (flat) sorted(entries).forEach((entry) => put(entry, (!small && wanted === "" && entry.small) || (wanted !== "" && !matches(entry))));
    else walk(roots, false);
    for (const entry of entries) {
      entry.name.textContent = flat ? entry.path : entry.label;
    }
    table.classList.toggle("flat", flat);
    body.append(...rows);
    page.byId("region-fold").textContent = entries.some((entry) => entry.folded) ? "Unfold all" : "Fold all";
    page.byId("region-count").textContent = wanted ? `${found} of ${entries.length}` : "";
  };

  // A tree of many rows starts with what matters: a region is folded where nothing inside it holds much.
  const MANY = 40, MUCH = 0.04, SHARE = 3;
  if (entries.length > MANY) {
    const share = (entry) => page.cellValue(entry.row, SHARE);
    entries.forEach((entry) => (entry.folded = entry.children.length > 0 && entry.children.every((child) => share(child) < MUCH)));
  }

  page.sortHeaders(table, (column, ascending) => { order = { column, ascending }; arrange(); });
  page.byId("region-tools").hidden = false;
  page.byId("region-search").addEventListener("input", (event) => {
    wanted = event.target.value.trim().toLowerCase();
    arrange();
  });
  page.byId("region-fold").addEventListener("click", () => {
    const fold = !entries.some((entry) => entry.folded);
    entries.forEach((entry) => (entry.folded = fold && entry.children.length > 0));
    arrange();
  });
  const tiny = entries.filter((entry) => entry.small).length;
  page.byId("region-small").hidden = !tiny || tiny === entries.length;
  if (tiny === entries.length) small = true;
  page.byId("region-small").textContent = `${tiny} small ones too`;
  page.byId("region-small").addEventListener("click", (event) => {
    small = !small;
    event.target.setAttribute("aria-pressed", String(small));
    arrange();
  });
  page.byId("region-flat").addEventListener("click", (event) => {
    flat = !flat;
    event.target.setAttribute("aria-pressed", String(flat));
    arrange();
  });
  if (!entries.some((entry) => entry.children.length)) page.byId("region-fold").hidden = page.byId("region-flat").hidden = true;

  arrange();

  // Marks a region's row, from the timeline, the icicle or an address.
  page.chooseRegion = (number) => {
    entries.forEach((entry) => entry.row.classList.toggle("chosen", Number(entry.row.dataset.row) === number));
  };
  page.hash.onRegion = (path) => {
    const entry = entries.find((other) => other.path === path);
    if (!entry) return table;
    for (let above = entry.parent; above; above = above.parent) above.folded = false;
    if (entry.small) small = true;
    arrange();
    page.chooseRegion(Number(entry.row.dataset.row));
    if (!entry.details) unfold(entry);
    return entry.row;
  };

  // The tree as an icicle: widths are shares of the window, colours what bounds each. The table says the same in words.
  const holder = page.byId("icicle");
  const ROW = 21, LEAST = 2, DEEPEST = 9;
  let focus = null; // null: the whole window
  const drawIcicle = () => {
    const width = holder.clientWidth, whole = page.data.whole, deepest = [0];
    const total = (entry) => page.data.icicle[Number(entry.row.dataset.row)][1];
    const nodes = [];
    const put = (entry, depth, x, share) => {
      const node = page.make("div", null, "block");
      const bound = entry && page.data.icicle[Number(entry.row.dataset.row)][2];
      node.classList.add(bound ? "c-" + bound : "whole");
      const part = (entry ? total(entry) : whole) / whole, named = entry ? entry.label : "all";
      if (share * width > 44) node.textContent = `${named} ${page.percent(part)}`;
      Object.assign(node.style, { left: `${x * width}px`, top: `${depth * ROW}px`, width: `${Math.max(share * width - 1, 1)}px` });
      node.addEventListener("mousemove", (event) => page.tip.show([
        { text: entry ? entry.path : "the whole window", strong: true }, { text: `${page.duration(entry ? total(entry) : whole)}, ${page.percent(part)} of the window` },
        ...(entry ? [{ text: `bound by: ${entry.row.cells[6].textContent.trim()}` }] : [])], event.clientX, event.clientY));
      node.addEventListener("mouseleave", () => page.tip.hide());
      node.addEventListener("click", () => {
        focus = entry === focus && entry ? entry.parent : entry;
        page.tip.hide();
        drawIcicle();
        if (!entry) return;
        page.chooseRegion(Number(entry.row.dataset.row));
        if (page.chooseInstances) page.chooseInstances(page.data.plot_data ? page.data.plot_data.rows.indexOf(Number(entry.row.dataset.row)) : -1);
        page.hash.keep("region=" + encodeURIComponent(entry.path));
      });
      nodes.push(node);
      deepest[0] = Math.max(deepest[0], depth + 1);
    };
    const walk = (list, depth, x, scale) => {
      if (depth > DEEPEST) return;
      for (const entry of list.slice().sort((a, b) => total(b) - total(a) || a.place - b.place)) {
        const share = total(entry) * scale;
        if (share * width < LEAST) break;
        put(entry, depth, x, share);
        walk(entry.children, depth + 1, x, scale);
        x += share;
      }
    };
    const above = [];
    for (let entry = focus; entry; entry = entry.parent) above.unshift(entry);
    put(null, 0, 0, 1);
    above.forEach((entry, depth) => put(entry, depth + 1, 0, 1));
    walk(focus ? focus.children : roots, above.length + 1, 0, 1 / Math.max(focus ? total(focus) : whole, 1));
    holder.style.height = `${deepest[0] * ROW}px`;
    holder.replaceChildren(...nodes);
  };
  if (holder && entries.length > 1 && page.data.whole > 0 && page.data.icicle.some((item) => item[1] > 0)) {
    holder.hidden = page.byId("icicle-help").hidden = false;
    page.redraws.push(drawIcicle);
    drawIcicle();
  }
})();
