"use strict";
// Each rank's time in each step.
(() => {
  const data = page.data.map, canvas = page.byId("map"), said = page.byId("said");
  if (!canvas) return;
  const ranks = data.own.length, steps = Math.max(...data.own.map((row) => row.length), 1);
  const high = ranks > 128 ? 2 : ranks > 32 ? 6 : 14;
  let kind = "own";
  const each = Math.ceil(14 / high);  // as many names as there is room for
  for (let rank = 0; rank < ranks; rank += each) {
    const name = document.createElement("div");
    name.textContent = data.names[rank]; name.style.height = `${Math.min(each, ranks - rank) * high}px`;
    page.byId("map-names").append(name);
  }
  canvas.width = steps * 12; canvas.height = ranks * high; canvas.style.height = `${ranks * high}px`;
  function draw() {
    const paint = canvas.getContext("2d"), isDark = getComputedStyle(document.documentElement).colorScheme === "dark";
    paint.clearRect(0, 0, canvas.width, canvas.height);
    const values = data[kind === "cause" ? "own" : kind].flat().sort((a, b) => a - b);
    const low = values[Math.floor(values.length * 0.02)] || 0, top = values[Math.floor(values.length * 0.98)] || 1;
    for (let rank = 0; rank < ranks; rank++) {
      for (let step = 0; step < steps; step++) {
        if (kind === "cause") {
          paint.fillStyle = data.colors[data.cause[rank][step]] || "transparent";
        } else {
          const part = Math.min(Math.max((data[kind][rank][step] - low) / Math.max(top - low, 1), 0), 1);
          const light = isDark ? 14 + 50 * part : 95 - 60 * part;
          paint.fillStyle = kind === "own" ? `hsl(28 85% ${light}%)` : `hsl(210 70% ${light}%)`;
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
    said.textContent = `${data.names[rank]}, step ${step + 1}: own ${page.duration(data.own[rank][step])}, waiting and transfer ${page.duration(data.wait[rank][step])}` + (cause ? `; beyond its peers: ${cause}` : "");
  });
  page.redraws.push(draw);
  draw();
})();
