"use strict";
// Kernels, copies, syncs, gaps: sorting and search.
(() => {
  for (const table of page.all("table.sortable")) {
    const body = table.tBodies[0];
    const rows = Array.from(body.rows);
    page.sortHeaders(table, (column, ascending) => {
      const keyed = rows.map((row, place) => [page.cellValue(row, column), place, row]);
      keyed.sort((a, b) => (ascending ? 1 : -1) * page.compare(a[0], b[0]) || a[1] - b[1]);
      body.append(...keyed.map((item) => item[2]));
    });
  }
  for (const box of page.all("input[data-table]")) {
    const rows = Array.from(page.byId(box.dataset.table).tBodies[0].rows);
    const status = box.closest(".tools").querySelector("[role=status]");
    box.closest(".tools").hidden = false;
    box.addEventListener("input", () => {
      const wanted = box.value.trim().toLowerCase();
      let shown = 0;
      for (const row of rows) {
        row.hidden = wanted !== "" && !row.cells[0].textContent.toLowerCase().includes(wanted);
        shown += row.hidden ? 0 : 1;
      }
      status.textContent = wanted ? `${shown} of ${rows.length}` : "";
    });
  }
})();
