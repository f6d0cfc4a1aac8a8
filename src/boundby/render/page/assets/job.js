"use strict";
(() => {
  const data = JSON.parse(document.getElementById("data").textContent);
  const canvas = document.getElementById("map"), said = document.getElementById("said");
  const ranks = data.own.length, steps = Math.max(...data.own.map((row) => row.length), 1);
  const high = ranks > 128 ? 2 : ranks > 32 ? 6 : 14;
  let kind = "own";
  for (const key of document.querySelectorAll(".key")) { key.style.background = key.dataset.color; key.style.color = key.dataset.ink; }
  canvas.width = steps * 12; canvas.height = ranks * high; canvas.style.height = `${ranks * high}px`;
  const time = (ns) => ns >= 1e9 ? `${(ns / 1e9).toFixed(2)} s` : ns >= 1e6 ? `${(ns / 1e6).toFixed(2)} ms` : `${(ns / 1e3).toFixed(1)} us`;
  function draw() {
    const paint = canvas.getContext("2d");
    paint.clearRect(0, 0, canvas.width, canvas.height);
    const values = data[kind === "cause" ? "own" : kind].flat().sort((a, b) => a - b);
    const low = values[Math.floor(values.length * 0.02)] || 0, top = values[Math.floor(values.length * 0.98)] || 1;
    for (let rank = 0; rank < ranks; rank++) {
      for (let step = 0; step < steps; step++) {
        if (kind === "cause") {
          paint.fillStyle = data.colors[data.cause[rank][step]] || "#f2f2f2";
        } else {
          const part = Math.min(Math.max((data[kind][rank][step] - low) / Math.max(top - low, 1), 0), 1);
          paint.fillStyle = kind === "own" ? `hsl(28 85% ${95 - 60 * part}%)` : `hsl(210 70% ${95 - 60 * part}%)`;
        }
        paint.fillRect(step * 12, rank * high, 12, high);
      }
    }
  }
  for (const input of document.querySelectorAll("input[name=kind]")) input.addEventListener("change", () => { kind = input.value; draw(); });
  canvas.addEventListener("mousemove", (event) => {
    const box = canvas.getBoundingClientRect();
    const step = Math.floor((event.clientX - box.left) / box.width * steps), rank = Math.floor((event.clientY - box.top) / box.height * ranks);
    if (!data.own[rank]) return;
    const cause = data.labels[data.cause[rank][step]];
    said.textContent = `${data.names[rank]}, step ${step + 1}: own ${time(data.own[rank][step])}, waiting and transfer ${time(data.wait[rank][step])}` + (cause ? `; beyond its peers: ${cause}` : "");
  });
  const body = document.querySelector("#ranks tbody"), rows = [...body.rows];
  const values = new Map(rows.map((row) => [row, row.dataset.of.split(" ").map(Number)]));
  document.querySelectorAll("#ranks th").forEach((head, column) => head.addEventListener("click", () => {
    const up = head.getAttribute("aria-sort") === "descending" || (column < 3 && head.getAttribute("aria-sort") !== "ascending");
    for (const other of head.parentNode.cells) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", up ? "ascending" : "descending");
    rows.sort((one, other) => (values.get(one)[column] - values.get(other)[column]) * (up ? 1 : -1) || values.get(one)[0] - values.get(other)[0]);
    body.append(...rows);
  }));
  draw();
})();
